"""
The snapshotter's machine: when a snapshot is taken.

Owns: the schedule of snapshots, and the events that record them.
Called by: the process `snapshotter`, the simulated world, the fuzzer.
May import: core, events.
"""
