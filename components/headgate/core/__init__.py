"""
The pure core: no clock, no randomness, no I/O.

Owns: the state of a cell, its fold, and every rule by which workloads are queued, admitted, preempted and shown.
Called by: the machines, the processes, the command line, the read side, the simulated world.
May import: events.
"""
