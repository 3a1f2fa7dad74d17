"""
The informer bridge's machine: turns objects of the API server into facts, and creates Workloads for queued Jobs.

Used by: the process `informer_bridge`, the simulated world. May import: core, events.
"""
