"""
The nodes of the simulated cluster.

Owns: what is used on each node, a first-fit scheduler, kubelets.
Called by: the simulated cluster's controllers and the API.
May import: api, storage, core.kubernetes.
"""
