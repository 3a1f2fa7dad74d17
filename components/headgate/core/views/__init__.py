"""
Queries on a state or a log: the history of a workload, why it is pending, the pending order, run metrics.

Used by: The command line and the HTTP read side.
May import: everything in `core` but verification and audit.
"""
