"""
Counting and matching by Kubernetes' rules, without any state: quantities, conditions, selectors and tolerations.

Used by: Everything in `core` and the machines call it.
May import: events.
"""
