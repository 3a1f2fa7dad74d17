"""
Topology-aware scheduling: which domains of a topology the pods of a workload get.

Owns: the tree of domains of each flavor with a topology, their free capacity, and the placement of pod sets in them.
Called by: the catalog of flavors, the cycle, preemption, the ungater; the fold, for what an admission occupies.
May import: workload, jobs, state, config, kubernetes, events.
"""
