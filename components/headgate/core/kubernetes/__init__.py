"""
Counting and matching by Kubernetes' rules, without any state.

Owns: quantities, conditions, selectors, taints and tolerations.
Called by: everything in `core` and the machines.
May import: events.
"""
