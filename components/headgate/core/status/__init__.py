"""
What Kueue's objects show of the state.

Owns: the statuses of Workloads and queues, and the texts of Kubernetes Events.
Called by: the binder, which writes them; verification, which renders them again.
May import: quota, workload, jobs, api, state, config, kubernetes, events.
"""
