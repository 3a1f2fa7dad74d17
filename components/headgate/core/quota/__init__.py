"""
Quota: cohort trees, the ledger of what is used and borrowed, fair shares, usage of LocalQueues, and who holds quota.

Used by: The cycle, preemption, and everything that shows usage.
May import: state, workload.
"""
