"""
The scheduler as a process.

Used by: `headgate.processes.entry`.
May import: its machine, runtime, adapters, core, events.
"""
