"""
The queue manager as a process.

Owns: which machine the process runs. It has no effects outside the log.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.queue_manager, core, events.
"""
