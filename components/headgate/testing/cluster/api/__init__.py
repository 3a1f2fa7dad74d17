"""
The simulated API server's requests and answers.

Owns: routing, bodies, patches, lists, watches, tables.
Called by: the simulated cluster and its parts.
May import: storage, controllers, nodes, adapters.kubernetes, core.kubernetes.
"""
