"""
Facts: what the outside world says.

All are appended by the informer bridge, and only when a part that matters for scheduling has changed: the bridge
compares what the API server shows with what the log already says. `...Observed` means that the object exists and looks
like this now; `...Deleted` that it is gone. One commit carries a burst of them.
"""

from typing import Any

from headgate.events.base import EventBase
from headgate.events.configuration import Configuration
from headgate.events.identity import CellFounded, CellKeysChanged, CellRestored
from headgate.events.ids import JobKey, LocalQueueKey, PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    AdmissionCheckSpec,
    CheckState,
    ClusterQueueSpec,
    CohortSpec,
    Condition,
    Job,
    LimitRangeItem,
    LocalQueueSpec,
    Node,
    OwnerReference,
    Pod,
    PreemptionGateState,
    ReclaimablePod,
    ResourceFlavorSpec,
    ShownConditions,
    TopologySpec,
    WorkloadSpec,
    WorkloadStatus,
)
from headgate.events.upcasting import upcast_job


class InformersSynced(EventBase, frozen=True, tag="informers.synced"):
    """
    Appended by the informer bridge when the log holds what the API server has shown of every resource.

    The first of a term names the `resources`: each was listed, or its watch resumed, and all that was new is appended.
    Nothing is admitted before the very first one: until then a node, a flavor or an admitted workload may be unknown.

    Those that follow are marks on the way. `resource_versions` says of each resource that has moved since the last
    mark up to which version everything that matters is in the log at this event; a watch may be resumed from there
    instead of listing. An empty version takes a mark back. `cluster_id` tells whose versions they are, `reading` by
    which rules the objects were read (`headgate.core.api.decoding.READING`); "" and 0 mean as before. When either
    changes, all earlier marks are void. `anchor` is a change that is not older than what any mark rests on, by which
    the history of the cluster is recognised (`headgate.core.log.cluster_anchors`): "" when there is none, null when it
    is the one before.
    """

    resources: tuple[str, ...] = ()
    resource_versions: dict[str, str] = {}
    cluster_id: str = ""
    reading: int = 0
    anchor: str | None = None


class ConfigurationObserved(EventBase, frozen=True, tag="configuration.observed"):
    """
    Appended by the informer bridge when the configuration that is in effect differs from that in the log.

    `configuration` is what is in effect, with every field and every feature gate that a decision can read. `document`
    is the file that it was read from, without the fields that decide nothing. When a version with other defaults takes
    over the log, it reads the document again and appends what is in effect then. Logs of earlier versions have no
    document, and keep the configuration that they have until a file is given.
    """

    configuration: Configuration
    document: dict[str, Any] = {}


class NamespaceObserved(EventBase, frozen=True, tag="namespace.observed"):
    """Appended by the informer bridge when a namespace appears or changes: its labels decide what it may use."""

    name: str
    labels: dict[str, str] = {}
    terminating: bool = False


class NamespaceDeleted(EventBase, frozen=True, tag="namespace.deleted"):
    """Appended by the informer bridge when a namespace is gone."""

    name: str


class NodeObserved(EventBase, frozen=True, tag="node.observed"):
    """Appended by the informer bridge when a node appears or changes: labels, taints, allocatable, readiness."""

    name: str
    node: Node


class NodeDeleted(EventBase, frozen=True, tag="node.deleted"):
    """Appended by the informer bridge when a node is gone."""

    name: str


class ResourceFlavorObserved(EventBase, frozen=True, tag="resourceflavor.observed"):
    """
    Appended by the informer bridge when a ResourceFlavor appears or changes.

    `finalizer` says that it carries Kueue's finalizer, which holds it while a ClusterQueue names it.
    """

    name: str
    spec: ResourceFlavorSpec
    generation: int = 0
    uid: Uid = Uid("")
    deleting: bool = False
    finalizer: bool = False


class ResourceFlavorDeleted(EventBase, frozen=True, tag="resourceflavor.deleted"):
    """Appended by the informer bridge when a ResourceFlavor is gone."""

    name: str


class TopologyObserved(EventBase, frozen=True, tag="topology.observed"):
    """Appended by the informer bridge when a Topology appears or changes."""

    name: str
    spec: TopologySpec


class TopologyDeleted(EventBase, frozen=True, tag="topology.deleted"):
    """Appended by the informer bridge when a Topology is gone."""

    name: str


class CohortObserved(EventBase, frozen=True, tag="cohort.observed"):
    """Appended by the informer bridge when a Cohort appears or changes."""

    name: str
    spec: CohortSpec
    generation: int = 0


class CohortDeleted(EventBase, frozen=True, tag="cohort.deleted"):
    """Appended by the informer bridge when a Cohort is gone."""

    name: str


class ClusterQueueObserved(EventBase, frozen=True, tag="clusterqueue.observed"):
    """
    Appended by the informer bridge when a ClusterQueue appears or changes.

    `finalizer` says that it carries Kueue's finalizer, which holds it while workloads have quota in it.
    """

    name: str
    spec: ClusterQueueSpec
    uid: Uid = Uid("")
    generation: int = 0
    deleting: bool = False
    finalizer: bool = False


class ClusterQueueDeleted(EventBase, frozen=True, tag="clusterqueue.deleted"):
    """Appended by the informer bridge when a ClusterQueue is gone."""

    name: str


class LocalQueueObserved(EventBase, frozen=True, tag="localqueue.observed"):
    """
    Appended by the informer bridge when a LocalQueue appears or changes.

    `consumed` is what its status says it has consumed, with its half-life: admission fair sharing goes on from there
    when the log knows nothing of it.
    """

    queue: LocalQueueKey
    spec: LocalQueueSpec
    uid: Uid = Uid("")
    generation: int = 0
    consumed: dict[str, str | int | float] = {}


class LocalQueueDeleted(EventBase, frozen=True, tag="localqueue.deleted"):
    """Appended by the informer bridge when a LocalQueue is gone."""

    queue: LocalQueueKey


class WorkloadPriorityClassObserved(EventBase, frozen=True, tag="workloadpriorityclass.observed"):
    """Appended by the informer bridge when a WorkloadPriorityClass appears or changes."""

    name: str
    value: int


class WorkloadPriorityClassDeleted(EventBase, frozen=True, tag="workloadpriorityclass.deleted"):
    """Appended by the informer bridge when a WorkloadPriorityClass is gone."""

    name: str


class PriorityClassObserved(EventBase, frozen=True, tag="priorityclass.observed"):
    """Appended by the informer bridge when a Kubernetes PriorityClass appears or changes."""

    name: str
    value: int
    global_default: bool = False


class PriorityClassDeleted(EventBase, frozen=True, tag="priorityclass.deleted"):
    """Appended by the informer bridge when a PriorityClass of Kubernetes is gone."""

    name: str


class AdmissionCheckObserved(EventBase, frozen=True, tag="admissioncheck.observed"):
    """Appended by the informer bridge when an AdmissionCheck appears or changes, or its Active condition."""

    name: str
    spec: AdmissionCheckSpec
    active: bool = False


class AdmissionCheckDeleted(EventBase, frozen=True, tag="admissioncheck.deleted"):
    """Appended by the informer bridge when an AdmissionCheck is gone."""

    name: str


class LimitRangeObserved(EventBase, frozen=True, tag="limitrange.observed"):
    """Appended by the informer bridge when a LimitRange, `<namespace>/<name>`, appears or changes."""

    limit_range: str
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRangeDeleted(EventBase, frozen=True, tag="limitrange.deleted"):
    """Appended by the informer bridge when a LimitRange is gone."""

    limit_range: str


class RuntimeClassObserved(EventBase, frozen=True, tag="runtimeclass.observed"):
    """Appended by the informer bridge when a RuntimeClass appears or its pod overhead changes."""

    name: str
    overhead: dict[str, str | int | float] = {}


class RuntimeClassDeleted(EventBase, frozen=True, tag="runtimeclass.deleted"):
    """Appended by the informer bridge when a RuntimeClass is gone."""

    name: str


class WorkloadObserved(EventBase, frozen=True, tag="workload.observed"):
    """
    Appended by the informer bridge when a Workload appears, or a part that Headgate does not write itself changes.

    `finalizer` says that it carries Kueue's finalizer, which holds it until its job has stopped.
    `taken_over` is the status that the object had at first sight, when it had one: the work of another Kueue, or of a
    Headgate whose log is lost. `checks`, `reclaimable_pods`, `finished`, `preemption_gates`, `pods_ready` (the
    PodsReady condition of a workload that no Job of ours owns) and `deactivation_target` are what others write into the
    status: check controllers, job integrations, whoever finishes a workload, opens its gates or wants it switched off.
    `shown` has the conditions that Headgate writes too where the object shows others than the log says, which somebody
    else may have written; with a status that is taken over, the version that it was seen at. `arrival` is its place,
    from 1, among the facts of the commit in which it appears: who was shown first, where creation times are equal.
    `known` says, of the first fact after a restore, whether the log knows the status that is taken over, as one that
    was written or is to be written; None in all other facts, and in those of earlier versions.
    """

    workload: WorkloadKey
    uid: Uid
    created_ms: UnixMs
    spec: WorkloadSpec
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner: OwnerReference | None = None
    deleting: bool = False
    finalizer: bool = False
    checks: tuple[CheckState, ...] = ()
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    finished: Condition | None = None
    preemption_gates: tuple[PreemptionGateState, ...] = ()
    pods_ready: Condition | None = None
    deactivation_target: Condition | None = None
    taken_over: WorkloadStatus | None = None
    shown: ShownConditions | None = None
    arrival: int = 0
    known: bool | None = None


class WorkloadDeleted(EventBase, frozen=True, tag="workload.deleted"):
    """
    Appended by the informer bridge when a Workload is gone.

    `job` is the job that it was made for; "" where it was made for none that Headgate runs, and in logs of earlier
    versions.
    """

    workload: WorkloadKey
    uid: Uid
    job: JobKey = JobKey("")


class OwnerGone(EventBase, frozen=True, tag="workload.owner_gone"):
    """
    Appended by the informer bridge when the API server, asked for it, has no such owner of a Workload any more.

    It asks for a Job that a Workload was made for and that no watch has shown: that alone would prove nothing.
    """

    workload: WorkloadKey
    uid: Uid
    owner_uid: Uid


class JobObserved(EventBase, frozen=True, tag="job.observed"):
    """
    Appended by the informer bridge when a job that names a queue appears or a relevant part of it changes.

    `arrival` is its place, from 1, among the facts of the commit in which it appears.
    """

    job: JobKey
    spec: Job
    arrival: int = 0

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class JobDeleted(EventBase, frozen=True, tag="job.deleted"):
    """
    Appended by the informer bridge when a Job that names a queue is gone, or has ceased to matter.

    `gone` says that it is no more: its watch has shown the deletion, or a list lacks it. Without, it may still run: it
    names no queue any more, or cannot be read.
    """

    job: JobKey
    uid: Uid
    gone: bool = False

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class PodObserved(EventBase, frozen=True, tag="pod.observed"):
    """
    Appended by the informer bridge when a pod that matters appears or a relevant part of it changes.

    A pod matters while it holds room on a node, or waits for Headgate to bind or ungate it.
    """

    pod: PodKey
    spec: Pod


class PodDeleted(EventBase, frozen=True, tag="pod.deleted"):
    """Appended by the informer bridge when a pod that mattered is gone, has finished, or has ceased to matter."""

    pod: PodKey
    uid: Uid


Fact = (
    InformersSynced
    | ConfigurationObserved
    | NamespaceObserved
    | NamespaceDeleted
    | NodeObserved
    | NodeDeleted
    | ResourceFlavorObserved
    | ResourceFlavorDeleted
    | TopologyObserved
    | TopologyDeleted
    | CohortObserved
    | CohortDeleted
    | ClusterQueueObserved
    | ClusterQueueDeleted
    | LocalQueueObserved
    | LocalQueueDeleted
    | WorkloadPriorityClassObserved
    | WorkloadPriorityClassDeleted
    | PriorityClassObserved
    | PriorityClassDeleted
    | AdmissionCheckObserved
    | AdmissionCheckDeleted
    | LimitRangeObserved
    | LimitRangeDeleted
    | RuntimeClassObserved
    | RuntimeClassDeleted
    | WorkloadObserved
    | WorkloadDeleted
    | OwnerGone
    | JobObserved
    | JobDeleted
    | PodObserved
    | PodDeleted
    | CellFounded
    | CellKeysChanged
    | CellRestored
)
