"""
The properties of a Workload.

Owns: its priority and order, owners, pod requests, slices, variants, gates and deadlines.
Called by: the fold, the cycle, the machines of the queue manager, the binder and the ungater.
May import: jobs, api, state, config, kubernetes, events.
"""
