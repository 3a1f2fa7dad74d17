"""
What people ask about a state or a log: the story of a workload, why it is pending, the pending order, run metrics.

Used by: The command line and the HTTP read side.
May import: everything in `core` but verification and audit.
"""
