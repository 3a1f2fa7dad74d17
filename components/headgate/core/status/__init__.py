"""
What Kueue's objects show of the state: statuses of Workloads and queues, and the texts of Kubernetes Events.

Used by: The binder writes them; verification renders them again.
May import: state, workload, quota.
"""
