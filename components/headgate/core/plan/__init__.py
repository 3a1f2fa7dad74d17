"""
Plans: an offline dry run of a set of manifests, without a cluster.

A plan runs the cell's own queue manager and scheduler on an in-memory log, so it predicts what this cell would do.
`headgate plan -f` reads manifests and shows the result; recorded scenarios of Kueue run elsewhere
(`headgate.testing.reference`).

    reading     manifests -> facts
    jobs        the Workloads that the informer bridge would create for Jobs
    pods        the pods of manifests, as an API server would store them
    parents     the variants that it would create for Workloads
    log         the in-memory log
    reactions   what the other processes and the cluster would report
    dry_run     the machines, the loop and the clock

Pure: the clock is an argument, and two runs of one input are equal byte for byte.

Owns: the dry run and its result: what becomes of each workload, and why.
Called by: `headgate plan`, the emulation of Kueue in `headgate.testing.reference`.
May import: queueing, engine, machine, fold, status, workload, jobs, reading, api, state, kubernetes, events.
"""
