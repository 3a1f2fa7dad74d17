"""
Placement of pods on nodes.

Owns: what is free on each node, and the first node that a pod fits on.
Called by: the binder, for pods whose scheduler is `headgate`; verification.
May import: workload, state, kubernetes, events.
"""
