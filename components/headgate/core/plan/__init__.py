"""
The plan: what would happen to a set of manifests, cycle by cycle, without a cluster.

`headgate plan` and the recorded scenarios of Kueue run through here. A plan is a log in memory with the events that the
processes would append, folded by the one fold, decided by the one scheduling core; only the rhythm differs: where the
queue manager offers ahead and wakes by what was freed, a plan goes as Kueue goes, one head per active ClusterQueue per
cycle, everything that was set aside in a cohort tree due again when quota of the tree is given back.

    reading     manifests and configuration -> facts
    queues      Kueue's pending queues, by its own rules
    controllers what Kueue's controllers make of a workload between two cycles
    rhythm      heads, cycle, reactions, clock
    stopping    when it comes to its end
    outcome     how it stands at the end, and what each cycle did

Pure: the clock is an argument, and two runs of one input are equal byte for byte.
"""
