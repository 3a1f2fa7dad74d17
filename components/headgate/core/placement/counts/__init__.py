"""
Counts of pods by topology domain, kept current by the cluster: what topology spread and pod affinity decide by.

`selections` says which pods are counted, `domains` what a domain is and which nodes belong to one, `sums` holds the
counts, `selected` finds the counts that a pod belongs to, `carried` counts the affinity terms that pods on nodes have,
and `index` is the index of the cluster that joins them.
"""
