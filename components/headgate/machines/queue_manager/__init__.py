"""
The queue manager's machine: where each pending workload stands, what it waits for, and which come next.

Used by: the process `queue_manager`, the simulated world.
May import: core, events.
"""
