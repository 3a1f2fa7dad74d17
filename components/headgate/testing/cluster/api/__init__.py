"""
The simulated API server's HTTP side: routing, bodies, patches, lists, watches, tables.

Used by: the simulated cluster.
May import: storage, validation.
"""
