"""
Queueing: when a workload enters a queue, leaves it, and is tried again.

Owns: where a pending workload stands, when it is evicted, what wakes it, and its scheduling hash.
Called by: the queue manager, the binder, plans, views, the audit.
May import: preemption, flavors, fold, status, quota, workload, jobs, api, state, config, kubernetes, events.
"""
