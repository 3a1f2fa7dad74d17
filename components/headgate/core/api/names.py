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
PREBUILT = KUEUE + "prebuilt-workload-name"
"""The annotation, or else label, of a job that names the Workload by which it runs."""
MIN_PARALLELISM = KUEUE + "job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM = KUEUE + "job-completions-equal-parallelism"
WORKLOAD_ANNOTATION = KUEUE + "workload"
JOB_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""The label, and annotation, of a pod of an Indexed Job with its index."""
PODSET_LABEL = KUEUE + "podset"
"""The label of a pod that names its pod set."""
POD_INDEX_OFFSET = KUEUE + "pod-index-offset"
SLICE_NAME = KUEUE + "workload-slice-name"
"""The annotation of pods and slices of an elastic job: the name of the first Workload in the chain of slices."""
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
"""Pods with this `spec.schedulerName` are for Headgate to place, also beside a kube-scheduler."""

# --- Workloads ------------------------------------------------------------------------------------------------------

JOB_UID = KUEUE + "job-uid"
"""The label with the uid of the job that a Workload was created for, also present without an owner reference."""
OWNER_GVK = KUEUE + "job-owner-gvk"
OWNER_NAME = KUEUE + "job-owner-name"
"""The annotations with kind and name of that job."""
PRIORITY_BOOST = KUEUE + "priority-boost"
"""The annotation with a number that is added to the priority (gate PriorityBoost)."""
REPLACEMENT_FOR = KUEUE + "workload-slice-replacement-for"
"""The annotation of a slice that replaces another: that one's key."""
ALLOWED_FLAVORS = KUEUE + "workload-allowed-resource-flavors"
"""The annotation of a variant: the flavors it may use, separated by commas (gate ConcurrentAdmission)."""

# --- pods that are queued themselves ------------------------------------------------------------------------------

ADMISSION_GATE = KUEUE + "admission"
"""The scheduling gate of a pod that waits for the admission of its Workload."""
MANAGED = KUEUE + "managed"
"""The label, with the value `true`, of pods that are queued themselves, and their finalizer."""
POD_PARENT = KUEUE + "pod-suspending-parent"
"""The annotation of a pod that is queued on behalf of its owner: the name of the owner's framework."""
POD_GROUP = KUEUE + "pod-group-name"
"""The annotation, or else label, of a pod that names its pod group, and so the Workload of the group."""
POD_GROUP_TOTAL = KUEUE + "pod-group-total-count"
POD_GROUP_FAST = KUEUE + "pod-group-fast-admission"
POD_GROUP_SERVING = KUEUE + "pod-group-serving"
POD_GROUP_INDEX = KUEUE + "pod-group-pod-index"
"""The label with the index of a pod in its group."""
POD_GROUP_INDEX_LABEL = KUEUE + "pod-group-pod-index-label"
"""The annotation that names the label with the index of a pod in its group."""
RETRIABLE_IN_GROUP = KUEUE + "retriable-in-group"
ROLE_HASH = KUEUE + "role-hash"
IS_GROUP_WORKLOAD = KUEUE + "is-group-workload"
"""The annotation of the Workload of a pod group."""
POD_GROUP_KIND = "PodGroup"
"""The kind by which a pod group is named in the log, as an owner of its Workload. The API has no such object."""

# --- pods of StatefulSets and LeaderWorkerSets --------------------------------------------------------------------

APPS_POD_INDEX = "apps.kubernetes.io/pod-index"
"""The label of a pod of a StatefulSet with its index."""
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
"""The label of a pod of a LeaderWorkerSet with the name of that."""
LWS_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_LEADER_NAME = "leaderworkerset.sigs.k8s.io/leader-name"
"""The annotation of a pod of a LeaderWorkerSet that names the leader of its group, which lacks it."""
