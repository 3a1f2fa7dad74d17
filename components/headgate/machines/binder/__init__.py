"""
The binder's machine: Workload and queue statuses, deactivations, finalizers, pod placement, Kubernetes Events.

Used by: the process `binder`, the simulated world.
May import: core, events.
"""
