"""
The state of a cell at one position of its log.

Owns: tables and indexes, the pending queues, the lifecycle of a workload.
Called by: the fold, which writes it; everything else only reads it.
May import: kubernetes, events.
"""
