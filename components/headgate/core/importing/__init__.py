"""
Importing what runs already: pods and jobs without a queue become Workloads that are admitted.

It follows Kueue's importer (cmd/importer), which knows pods only. `headgate import` reads the cluster, asks `Importer`
about every pod and job, and writes what it answers.

    rules       which LocalQueue an object belongs to
    checking    what an object becomes, or why it cannot be imported

Pure: everything follows from the objects of the API server.

Owns: the mapping of what runs to queues, the admission that it gets, and the reasons against it.
Called by: `headgate import`.
May import: quota, workload, reading, jobs, api, state, kubernetes, events.
"""
