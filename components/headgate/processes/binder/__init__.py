"""
The binder as a process: it carries the machine's writes out.

Used by: `headgate.processes.entry`.
May import: its machine, runtime, adapters, core, events.
"""
