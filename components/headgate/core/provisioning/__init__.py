"""
ProvisioningRequests: capacity that an autoscaler is asked for before a workload is admitted.

Owns: names of requests, what a check needs, its state, and the contents of requests and PodTemplates.
Called by: the queue manager's and the binder's machine, verification, views.
May import: workload, api, state, config, kubernetes, events.
"""
