"""
Labels, annotations, finalizers and other names that make API objects relevant to Headgate.

They are Kueue's, so that what is written for Kueue works here; only the scheduler's name is our own.
"""

KUEUE = "kueue.x-k8s.io/"
QUEUE_LABEL = KUEUE + "queue-name"
DEFAULT_QUEUE = "default"
"""The LocalQueue of jobs that name none, where it is there."""
PRIORITY_CLASS_LABEL = KUEUE + "priority-class"
MAX_EXEC_TIME_LABEL = KUEUE + "max-exec-time-seconds"
MIN_PARALLELISM = KUEUE + "job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM = KUEUE + "job-completions-equal-parallelism"
WORKLOAD_ANNOTATION = KUEUE + "workload"
PODSET_LABEL = KUEUE + "podset"
"""The label of a pod that names its pod set."""
POD_INDEX_OFFSET = KUEUE + "pod-index-offset"
SLICE_NAME_ANNOTATION = KUEUE + "workload-slice-name"
"""The annotation of a pod of an elastic job: the name that all slices of the job have in common."""
TOPOLOGY_ANNOTATIONS = frozenset(
    KUEUE + name
    for name in (
        "podset-required-topology",
        "podset-preferred-topology",
        "podset-unconstrained-topology",
        "podset-slice-required-topology",
        "podset-slice-required-topology-constraints",
    )
)
"""A pod with one of these is placed by the topology assignment of its workload (Kueue's IsTAS)."""
ELASTIC_JOB = KUEUE + "elastic-job"
GATED_BY = KUEUE + "admission-gated-by"
"""The annotation that holds a job, and with it its Workload, back until its author removes it."""
FINALIZER = KUEUE + "resource-in-use"
"""Kueue's finalizer: of Workloads until their job has stopped, of ClusterQueues and flavors while they are in use."""
SCHEDULER_NAME = "headgate"
"""Pods with this `spec.schedulerName` are bound by the binder."""
