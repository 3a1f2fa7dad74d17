"""
The ungater as a process: it resumes and suspends Jobs.

Used by: `headgate.processes.entry`.
May import: its machine, runtime, adapters, core, events.
"""
