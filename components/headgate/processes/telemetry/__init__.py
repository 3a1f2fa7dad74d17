"""
Metrics and spans of a process.

Owns: the metrics and spans of a process: its own, and Kueue's under Kueue's names.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, core, events.
"""
