"""
Extenders of the scheduler: webhooks that filter and score nodes, change what is preempted, or bind a pod.

Nothing here calls one. An attempt looks answers up (`calls`); for those that are missing it ends with what has to be
asked (`requests`), and is made again from its start when they are there. `answers` reads what an extender has sent.
Source: pkg/scheduler/extender.go and k8s.io/kube-scheduler/extender/v1.

Owns: which extender is called for what, the bodies of requests, how answers are read, checked and applied.
Called by: attempts, preemption; the scheduler and the binder, for what they send and receive.
May import: configuration, framework, objects, core.kubernetes, events.
"""
