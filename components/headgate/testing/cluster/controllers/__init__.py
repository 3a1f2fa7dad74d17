"""
The controllers of the simulated cluster: Jobs, garbage collection, namespaces, disruption, Events.

Used by: the simulated cluster.
May import: api, storage, nodes.
"""
