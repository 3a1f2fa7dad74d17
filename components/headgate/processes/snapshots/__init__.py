"""
Snapshots as they are stored, starting from one, and the state at a position of the past.

Used by: the host, the snapshotter, recovery, the read side.
May import: adapters, core, events.
"""
