"""
Jobs: what runs the pods of Workloads, by API group and kind.

`integration` is the contract of a kind of job. `batch_job` implements it for batch/v1 Job; the other kinds extend
`suspendable`, a file for each. `registry` finds the integration of a job. `pod_templates` puts an admission into pod
templates and takes it out again, `marks` are the labels that it uses. The list of kinds, with their paths and names, is
`headgate.core.api.job_kinds`.

Owns: the Workload that a job needs, and how a job is resumed and suspended, by kind.
Called by: status, `core.workload`, plans, the machines of the informer bridge and of the ungater.
May import: api, config, kubernetes, events.
"""
