"""
The controllers of the simulated cluster.

Owns: the Job controller, garbage collection, namespaces, disruption, Events.
Called by: the simulated cluster.
May import: api, storage, nodes, validation, core.kubernetes.
"""
