"""
Facts: observations of the cluster.

All are appended by the informer bridge, and only when a part that matters for scheduling has changed: the bridge
compares the objects in the API server with the state of the log. `...Observed` means that the object exists with this
content; `...Deleted` that it is gone. One commit carries a burst of them.
"""
# Over 400 lines: the types of the facts, two for each kind of object; it is read one type at a time.

from typing import Annotated, Any

import msgspec

from headgate.events.base import EventBase
from headgate.events.configuration import Configuration
from headgate.events.identity import CellFounded, CellKeysChanged, CellRestored
from headgate.events.ids import (
    JobKey,
    LocalQueueKey,
    PodKey,
    RequestKey,
    TemplateKey,
    Uid,
    UnixMs,
    WorkloadKey,
)
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
    ProvisioningConfigSpec,
    ProvisioningRequest,
    ReclaimablePod,
    RequestTemplate,
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

    The first of a term names the `resources`: each was listed, or its watch resumed, and all changes are appended.
    Nothing is admitted before the very first one: until then a node, a flavor or an admitted workload may be unknown.

    Later ones are progress marks. `resource_versions` has, for each resource that has advanced since the last mark, the
    version up to which everything relevant is in the log at this event; a watch may be resumed from there instead of
    listing. An empty version revokes a mark. `cluster_id` identifies the cluster of the versions, `reading` the rules
    by which the objects were read (`headgate.core.reading.decoding.READING`); "" and 0 mean as before. When either
    changes, all earlier marks are void. `anchor` is a change that is not older than any mark, by which the history of
    the cluster is recognised (`headgate.core.log.cluster_anchors`): "" when there is none, null when it is the one
    before.
    """

    resources: tuple[str, ...] = ()
    resource_versions: dict[str, str] = {}
    cluster_id: str = ""
    reading: int = 0
    anchor: str | None = None


class ConfigurationObserved(EventBase, frozen=True, tag="configuration.observed"):
    """
    Appended by the informer bridge when the configuration in effect differs from that in the log.

    `configuration` is the one in effect, with every field and every feature gate that a decision can read. `document`
    is the file that it was read from, without the fields that affect no decision. When a version with other defaults
    takes over the log, it reads the document again and appends the configuration then in effect. Logs of earlier
    versions have no document, and keep their configuration until a file is given.
    """

    configuration: Configuration
    document: dict[str, Any] = {}


class SchedulerConfigurationObserved(EventBase, frozen=True, tag="schedulerconfiguration.observed"):
    """
    Appended by the informer bridge when the KubeSchedulerConfiguration in effect differs from that in the log.

    `document` is the file, of kubescheduler.config.k8s.io/v1, without the `tlsConfig` of extenders. Headgate places the
    pods that name one of its profiles, from the first of these facts on, which comes after what placement reads of the
    cluster; until one with an empty document, with which all of that leaves the state.
    """

    document: dict[str, Any] = {}


Manifest = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""An object of the API as JSON, for whoever needs it to decode. In a decoded event it is part of the entry's bytes."""


class ObjectObserved(EventBase, frozen=True, tag="object.observed"):
    """
    Appended by the informer bridge when an object that placement reads appears or changes; while Headgate places pods.

    `resource` is the plural name (pods, nodes, persistentvolumeclaims, ...), `name` the object's name or
    `<namespace>/<name>`, `object` its manifest, reduced to the fields that placement reads. A pod is observed until it
    has ended.
    """

    resource: str
    name: str
    object: Manifest


class ObjectDeleted(EventBase, frozen=True, tag="object.deleted"):
    """Appended by the informer bridge when such an object is gone, or is a pod that has ended."""

    resource: str
    name: str


class NamespaceObserved(EventBase, frozen=True, tag="namespace.observed"):
    """Appended by the informer bridge when a namespace appears or changes: its labels decide which queues it uses."""

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


class NodeUsageObserved(EventBase, frozen=True, tag="node.usage_observed"):
    """
    Appended by the informer bridge when pods that have no facts of their own use another part of a node.

    These are pods with a node that have not ended, and are neither of a workload nor bound or ungated by Headgate.
    `requests` is the sum of their effective requests by resource, in canonical quantities, and `pods` their number; 0
    when there are none left. Only observed while a flavor has a topology, or Headgate binds pods. An increase is
    appended at once, decreases of all nodes once a second.
    """

    node: str
    requests: dict[str, str | int | float] = {}
    pods: int = 0


class ResourceFlavorObserved(EventBase, frozen=True, tag="resourceflavor.observed"):
    """
    Appended by the informer bridge when a ResourceFlavor appears or changes.

    `finalizer`: it carries Kueue's finalizer, which holds it while a ClusterQueue refers to it.
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
    """
    Appended by the informer bridge when a Topology appears or changes.

    `finalizer`: it carries Kueue's finalizer, which holds it while a ResourceFlavor refers to it.
    """

    name: str
    spec: TopologySpec
    uid: Uid = Uid("")
    deleting: bool = False
    finalizer: bool = False


class TopologyDeleted(EventBase, frozen=True, tag="topology.deleted"):
    """Appended by the informer bridge when a Topology is gone."""

    name: str


class CohortObserved(EventBase, frozen=True, tag="cohort.observed"):
    """
    Appended by the informer bridge when a Cohort appears or changes.

    `labels` and `annotations` are those that the configuration has metrics show.
    """

    name: str
    spec: CohortSpec
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class CohortDeleted(EventBase, frozen=True, tag="cohort.deleted"):
    """Appended by the informer bridge when a Cohort is gone."""

    name: str


class ClusterQueueObserved(EventBase, frozen=True, tag="clusterqueue.observed"):
    """
    Appended by the informer bridge when a ClusterQueue appears or changes.

    `finalizer`: it carries Kueue's finalizer, which holds it while workloads have quota in it. `labels` and
    `annotations` are those that the configuration has metrics show.
    """

    name: str
    spec: ClusterQueueSpec
    uid: Uid = Uid("")
    generation: int = 0
    deleting: bool = False
    finalizer: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ClusterQueueDeleted(EventBase, frozen=True, tag="clusterqueue.deleted"):
    """Appended by the informer bridge when a ClusterQueue is gone."""

    name: str


class LocalQueueObserved(EventBase, frozen=True, tag="localqueue.observed"):
    """
    Appended by the informer bridge when a LocalQueue appears or changes.

    `consumed` is the consumed usage in its status, with its half-life: admission fair sharing continues from there when
    the log has no record of it. `labels` and `annotations` are those that the configuration has metrics show.
    """

    queue: LocalQueueKey
    spec: LocalQueueSpec
    uid: Uid = Uid("")
    generation: int = 0
    consumed: dict[str, str | int | float] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


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
    """
    Appended by the informer bridge when an AdmissionCheck appears or changes, or its Active condition.

    `uid`, `generation` and `condition` (its Active condition) are those of a check that Headgate serves itself: one for
    ProvisioningRequests.
    """

    name: str
    spec: AdmissionCheckSpec
    active: bool = False
    uid: Uid = Uid("")
    generation: int = 0
    condition: Condition | None = None


class AdmissionCheckDeleted(EventBase, frozen=True, tag="admissioncheck.deleted"):
    """Appended by the informer bridge when an AdmissionCheck is gone."""

    name: str


class ProvisioningConfigObserved(EventBase, frozen=True, tag="provisioningrequestconfig.observed"):
    """Appended by the informer bridge when a ProvisioningRequestConfig appears or changes."""

    name: str
    spec: ProvisioningConfigSpec


class ProvisioningConfigDeleted(EventBase, frozen=True, tag="provisioningrequestconfig.deleted"):
    """Appended by the informer bridge when a ProvisioningRequestConfig is gone."""

    name: str


class ProvisioningRequestObserved(EventBase, frozen=True, tag="provisioningrequest.observed"):
    """Appended by the informer bridge when a ProvisioningRequest that a Workload owns appears or changes."""

    request: RequestKey
    owner: WorkloadKey
    spec: ProvisioningRequest


class ProvisioningRequestDeleted(EventBase, frozen=True, tag="provisioningrequest.deleted"):
    """Appended by the informer bridge when such a ProvisioningRequest is gone, or no Workload owns it any more."""

    request: RequestKey
    owner: WorkloadKey
    uid: Uid


class PodTemplateObserved(EventBase, frozen=True, tag="podtemplate.observed"):
    """
    Appended by the informer bridge when a PodTemplate with Kueue's label `managed` appears, or its owner changes.

    These are made for ProvisioningRequests.
    """

    template: TemplateKey
    spec: RequestTemplate


class PodTemplateDeleted(EventBase, frozen=True, tag="podtemplate.deleted"):
    """Appended by the informer bridge when such a PodTemplate is gone."""

    template: TemplateKey


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

    `finalizer`: it carries Kueue's finalizer, which holds it until its job has stopped. `taken_over` is the status that
    the object had when it was first observed, if any: the work of another Kueue, or of a Headgate whose log is lost.
    `checks`, `reclaimable_pods`, `finished`, `preemption_gates`, `pods_ready` (the PodsReady condition of a workload
    that no Job of ours owns) and `deactivation_target` are written into the status by others: check controllers, job
    integrations, clients that finish a workload, open its gates or deactivate it. `shown` has conditions that Headgate
    writes too, where the object's differ from the log's, because another client may have written them; with a status
    that is taken over, the version that it was observed at. `arrival` is its place, from 1, among the facts of the
    commit in which it appears: the order of observation, where creation times are equal. `group_owners` are the uids of
    the owners of a pod group's Workload. `labels` and `annotations` are Kueue's, and those that the configuration has
    metrics show. `known` is set in the first
    fact after a restore: whether the log has the status that is taken over, as one that was written or is to be
    written; None in all other facts, and in those of earlier versions.
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
    group_owners: tuple[str, ...] = ()


class WorkloadDeleted(EventBase, frozen=True, tag="workload.deleted"):
    """
    Appended by the informer bridge when a Workload is gone.

    `job` is the job that it was created for; "" where it was created for none that Headgate runs, and in logs of
    earlier versions.
    """

    workload: WorkloadKey
    uid: Uid
    job: JobKey = JobKey("")


class OwnerGone(EventBase, frozen=True, tag="workload.owner_gone"):
    """
    Appended by the informer bridge when a query to the API server shows that a Workload's owner no longer exists.

    It queries for a Job that a Workload was created for and that no watch has shown: that alone would prove nothing.
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
    Appended by the informer bridge when a Job that names a queue is gone, or is no longer relevant.

    `gone`: it no longer exists; its watch has shown the deletion, or a list lacks it. Otherwise it may still run: it no
    longer names a queue, or cannot be read.
    """

    job: JobKey
    uid: Uid
    gone: bool = False

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class PodObserved(EventBase, frozen=True, tag="pod.observed"):
    """
    Appended by the informer bridge when a relevant pod appears or a relevant part of it changes.

    A pod is relevant until it ends, if it is of a workload, or Headgate binds or ungates it. What others use of a node
    is in `node.usage_observed`; logs of earlier versions have a fact of each of them.
    """

    pod: PodKey
    spec: Pod


class PodDeleted(EventBase, frozen=True, tag="pod.deleted"):
    """Appended by the informer bridge when a relevant pod is gone, has finished, or is no longer relevant."""

    pod: PodKey
    uid: Uid


Fact = (
    InformersSynced
    | ConfigurationObserved
    | SchedulerConfigurationObserved
    | ObjectObserved
    | ObjectDeleted
    | NamespaceObserved
    | NamespaceDeleted
    | NodeObserved
    | NodeDeleted
    | NodeUsageObserved
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
    | ProvisioningConfigObserved
    | ProvisioningConfigDeleted
    | ProvisioningRequestObserved
    | ProvisioningRequestDeleted
    | PodTemplateObserved
    | PodTemplateDeleted
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
