"""
What makes the log a trustworthy record.

Owns: which process may append what, which entries are refused, the chain over all producers, the log's time, and which
    cell and which branch of history an event belongs to.
Called by: the fold, which checks commits with it; the processes; the audit.
May import: reading, api, state, events.
"""
