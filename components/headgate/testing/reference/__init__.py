"""
Kueue's own rhythm, emulated: what the recorded scenarios of Kueue are compared with.

`headgate plan --scenarios` and the conformance tests run it. It decides with the scheduling core of Headgate
(`headgate.core.cycle`) and with nothing else of a cell: one head of each active ClusterQueue per cycle, a second
between cycles, Kueue's heaps and inadmissible sets, its wake policy, its scan cursors, its controllers' conditions. So
each cycle can be compared with the recording, message by message. A cell has another rhythm: `headgate plan -f` runs
its machines (`headgate.core.plan.dry_run`).

    scenario    a recorded scenario -> facts, configuration, clock
    queues      Kueue's pending queues, by its own rules
    scans       where its scans over flavors continue
    controllers what Kueue's controllers make of a workload between two cycles
    rhythm      heads, cycle, reactions, clock
    telling     the Kubernetes Events that Kueue would record
    stopping    when it ends
    outcome     the state at the end, and what each cycle did, in the schema of the recordings
    command     a file of scenarios in, a file of outcomes out
    placement   the same for recorded scenarios of the kube-scheduler

Pure, except `command`: the clock is an argument, and two runs of one input are equal byte for byte.

Owns: Kueue's queues, wake policy, scan cursors and conditions, and the schema of the recorded scenarios.
Called by: `headgate plan --scenarios`, the conformance tests.
May import: cli, core, events.
"""
