"""
The state of a cell at one position of its log: its tables and indexes, the pending queues, the lifecycle of a workload.

Used by: The fold writes it; everything else only reads it.
May import: events.
"""
