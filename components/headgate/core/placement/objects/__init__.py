"""
The parts of Kubernetes objects that placement reads, in the API's own spelling.

Owns: one Struct per kind, decoded from a manifest with `read`.
Called by: the cluster view, plugins.
May import: core.api, events.
"""
