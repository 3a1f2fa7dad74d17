"""
KubeSchedulerConfiguration: read, defaulted, checked, and turned into profiles with their plugins in order.

Owns: the fields of the file, Kubernetes' rules of merging and defaulting, and the errors that name what is wrong.
Called by: `headgate plan --scenarios`, with a file as parsed; the framework, for the profiles.
May import: framework, core.config, core.kubernetes, core.state.
"""
