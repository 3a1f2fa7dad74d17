"""
Stored snapshots.

Owns: storing and reading snapshots, starting from one, and the state at an earlier position.
Called by: the host, the snapshotter, recovery, the read side.
May import: adapters, core, events.
"""
