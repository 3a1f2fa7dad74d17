"""
Queueing: where a pending workload belongs, when it is evicted, what wakes it, and its scheduling hash.

Used by: The queue manager's machine, and plans.
May import: fold, quota, flavors, preemption, workload, jobs.
"""
