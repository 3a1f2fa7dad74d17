"""
The ungater as a process.

Owns: the writes that resume and suspend Jobs.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.ungater, core, events.
"""
