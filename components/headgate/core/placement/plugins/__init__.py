"""
The plugins of the kube-scheduler, one module each.

Owns: their filters, scores, hints and arguments.
Called by: the framework's runtime, through its protocols.
May import: counts, extenders, framework, objects, core.config, core.kubernetes, events.
"""
