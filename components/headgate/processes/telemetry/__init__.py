"""
Metrics and spans of a process: its own, and Kueue's under Kueue's names.

Used by: `headgate.processes.entry`.
May import: runtime, adapters, core, events.
"""
