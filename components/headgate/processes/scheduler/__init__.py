"""
The scheduler as a process.

Owns: which machine the process runs. It has no effects outside the log.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.scheduler, core, events.
"""
