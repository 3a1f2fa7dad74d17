"""
The binder's machine: what Headgate writes to Workloads, queues and pods.

Owns: Workload and queue statuses, deactivations, finalizers, pod placement, Kubernetes Events.
Called by: the process `binder`, the simulated world.
May import: core, events.
"""
