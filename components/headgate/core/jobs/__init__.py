"""
Jobs: what runs the pods of Workloads, by API group and kind.

`kinds` lists the kinds of jobs that Headgate starts and stops, with their paths and names. `integration` is the
contract of a kind, `batch_job` the only implementation so far, and `registry` finds the integration of a job.
"""
