"""
Placement of pods on nodes, as the kube-scheduler places them.

A pure engine: `cluster` is what it sees, `queue` says whose turn it is, `attempt` decides one pod by the plugins of its
profile. Nothing here acts; what was decided is the result.

    objects        the parts of API objects that are read
    pods, nodes    a pod with its interned shape; a node with its pods
    arrays         rows of the columns, and numbers per row
    columns        the nodes as flat arrays; `cluster` keeps them current, `counts` counts pods per topology domain
    framework      the contract of plugins, the runtime that runs them in order and keeps their answers
    plugins        those of the kube-scheduler
    configuration  KubeSchedulerConfiguration -> profiles
    extenders      webhooks that take part in an attempt: what they are asked, and what their answers come to
    attempt        pre-filter, filter, score, post-filter: which node, or why none
    preemption     which pods would have to go; queue: who is tried when

Owns: what is free on each node, what plugins say of a pod and a node, and the choice.
Called by: the scheduler; the binder, for what it writes; verification; `headgate place`, `explain`, `plan --scenarios`.
May import: workload, api, state, config, kubernetes, events.
"""
