"""
Jobs: what runs the pods of Workloads, by API group and kind.

`integration` is the contract of a kind of job, `batch_job` its only implementation so far, and `registry` finds the
integration of a job. `marks` are the labels that an admission puts into pod templates. The list of kinds, with their
paths and names, is `headgate.core.api.job_kinds`.

Owns: the Workload that a job needs, and how a job is resumed and suspended, by kind.
Called by: status, `core.workload`, plans, the machines of the informer bridge and of the ungater.
May import: api, events.
"""
