"""
Placement of pods: what is free on each node, and the first node that a pod fits on.

Used by: The binder, for pods whose scheduler is `headgate`; verification, again.
May import: state, workload.
"""
