"""
KubeSchedulerConfiguration: read, defaulted, checked, and turned into profiles with their plugins in order.

Called by: whoever starts placement, with a file as parsed.
May import: framework, config (its errors), events.
"""
