"""
The properties of a Workload: its priority and order, owners, pod requests, slices, variants, gates and deadlines.

Used by: The fold, the cycle, the queue manager, the binder.
May import: state, config, api.
"""
