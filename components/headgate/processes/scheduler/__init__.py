"""
The scheduler as a process.

Owns: which machine the process runs. Its only effects outside the log are calls of scheduler extenders.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.scheduler, core, events.
"""
