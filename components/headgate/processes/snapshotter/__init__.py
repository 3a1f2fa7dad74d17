"""
The snapshotter as a process: it stores and verifies snapshots, and writes the feed.

Used by: `headgate.processes.entry`.
May import: its machine, runtime, adapters, core, events.
"""
