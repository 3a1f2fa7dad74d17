"""
The binder as a process: it makes the machine's writes.

Used by: `headgate.processes.entry`. May import: its machine, runtime, adapters, core, events.
"""
