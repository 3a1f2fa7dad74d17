"""
The snapshotter's machine: when a snapshot is taken, and what the log says about it.

Used by: the process `snapshotter`, the simulated world.
May import: core, events.
"""
