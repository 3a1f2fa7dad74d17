"""
Recovery of a cell from a backup or from its cluster.

Owns: backup, restore and rebuild of a cell's log, and the evidence that an audit reads from a broker.
Called by: the commands `backup`, `restore`, `rebuild` and `audit`.
May import: runtime, snapshots, adapters, core, events.
"""
