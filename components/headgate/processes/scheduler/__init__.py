"""
The scheduler as a process.

Owns: which machine the process runs, and how it calls scheduler extenders. It has no other effects outside the log.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.scheduler, core, events.
"""
