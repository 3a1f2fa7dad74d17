"""
The queue manager's machine: the order of pending workloads.

Owns: the position of each pending workload, the event that it waits for, and the next heads.
Called by: the process `queue_manager`, `headgate plan`, `headgate replay`, the simulated world.
May import: core, events.
"""
