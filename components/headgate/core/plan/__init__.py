"""
Plans: what would happen to a set of manifests, without a cluster.

A plan is a dry run of the cell's own queue manager and scheduler on a log in memory, so it predicts what this cell
would do. `headgate plan -f` reads manifests and shows the result; recorded scenarios of Kueue run elsewhere
(`headgate.testing.reference`).

    reading     manifests -> facts
    jobs        the Workloads that the informer bridge would make of Jobs
    parents     the variants that it would make of Workloads
    log         the log in memory
    reactions   what the other processes and the cluster would make known
    dry_run     the machines, the loop and the clock

Pure: the clock is an argument, and two runs of one input are equal byte for byte.
"""
