"""
What makes the log a trustworthy record.

Which process may append what, which entries are refused, the chain over all producers, the log's time, and which cell
and which branch of history an event belongs to.

Used by: The fold checks commits with it; processes and the audit use the same rules.
May import: state, api.
"""
