"""
Backup, restore and rebuild of a cell's log, and the evidence that an audit reads from a broker.

Used by: the commands `backup`, `restore`, `rebuild` and `audit`.
May import: runtime, snapshots, adapters, core, events.
"""
