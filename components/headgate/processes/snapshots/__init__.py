"""
Stored snapshots, starting from one, and the state at an earlier position.

Used by: the host, the snapshotter, recovery, the read side. May import: adapters, core, events.
"""
