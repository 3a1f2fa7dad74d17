"""
Reading: from the objects of the API server to facts.

`decoding` reads one object of a watched resource, with the reader of its kind: those of Kubernetes and Kueue are in
`headgate.core.api`, those of jobs belong to their integrations (`headgate.core.jobs`).

Owns: which resources are watched, and which fact an object of one gives.
Called by: the informer bridge, `core.log` where a log is reconciled with a cluster, plans.
May import: jobs, api, config, events.
"""
