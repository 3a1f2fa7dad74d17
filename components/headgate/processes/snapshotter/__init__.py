"""
The snapshotter as a process.

Owns: storing and verifying snapshots, and the feed.
Called by: `headgate.processes.entry`.
May import: runtime, snapshots, adapters, machines.snapshotter, core, events.
"""
