"""
The snapshotter's machine: when a snapshot is taken, and which events record it.

Used by: the process `snapshotter`, the simulated world. May import: core, events.
"""
