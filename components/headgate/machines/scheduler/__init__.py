"""
The scheduler's machine: decides which offered workloads get quota.

Owns: the offered heads and the decisions on them in each cycle, the queue of pods to be placed, the calls of extenders.
Called by: the process `scheduler`, `headgate plan`, the simulated world.
May import: core, events.
"""
