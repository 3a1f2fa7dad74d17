"""
Quota: what may be used, what is used, and by which workloads.

Owns: cohort trees, the ledger of what is used and borrowed, fair shares, usage of LocalQueues, and who holds quota.
Called by: the cycle, preemption, the fold, and everything that shows usage.
May import: workload, api, state, config, kubernetes, events.
"""
