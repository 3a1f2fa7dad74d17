"""
The informer bridge's machine: what the API server shows becomes facts; Jobs that ask for a queue get a Workload.

Used by: the process `informer_bridge`, the simulated world.
May import: core, events.
"""
