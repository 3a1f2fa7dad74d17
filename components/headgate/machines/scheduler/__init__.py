"""
The scheduler's machine: decides which offered workloads get quota.

Used by: the process `scheduler`, the simulated world.
May import: core, events.
"""
