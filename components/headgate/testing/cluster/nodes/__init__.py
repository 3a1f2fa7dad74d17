"""
The nodes of the simulated cluster: what is used on each, a first-fit scheduler, kubelets.

Used by: the simulated cluster's controllers.
May import: api, storage.
"""
