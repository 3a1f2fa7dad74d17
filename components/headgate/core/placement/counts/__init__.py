"""
Counts of pods by topology domain, kept current by the cluster: what topology spread and pod affinity decide by.

`selections` says which pods are counted, `domains` what a domain is and which nodes belong to one, `sums` holds the
counts, `selected` finds the counts that a pod belongs to, `carried` counts the affinity terms that pods on nodes have,
and `index` is the index of the cluster that joins them.

Owns: the counts, and which pods and nodes they are of.
Called by: the plugins of topology spread and pod affinity; the cluster, when pods and nodes change.
May import: objects, core.kubernetes, events.
"""
