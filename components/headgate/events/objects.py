"""
The parts of Kubernetes and Kueue objects that scheduling depends on.

Each Struct mirrors the fields of the API object of the same name, in the API's own spelling on the wire (camelCase), so
that a watch line decodes straight into it and a reader of the log sees what `kubectl get -o json` shows. Fields that no
decision depends on are left out: a change of theirs is no fact. Quantities remain the strings of the manifest;
`headgate.core.kubernetes.quantities` parses them.

The informer bridge decodes them from watch lines, facts carry them, the fold stores them. All are immutable.
"""
# Over 400 lines: the types of the parts of API objects, a few fields each; it is read one type at a time.

from collections.abc import Mapping
from typing import Literal

import msgspec

from headgate.events.ids import UnixMs

Labels = Mapping[str, str]


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What every part of an API object has in common: immutable, camelCase, defaults left out on the wire."""


class ApiBranch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """
    As `ApiObject`, for those that contain containers.

    They are trees too, built from the leaves up: no cycle goes through them, and a collector that does not visit the
    hundreds of thousands of them in a state has a fraction of the work.
    """


# --- selectors, taints, tolerations --------------------------------------------------------------------------------


class Requirement(ApiBranch, frozen=True):
    """A `matchExpressions` entry of a label selector or a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(ApiBranch, frozen=True):
    """`metav1.LabelSelector`. Empty matches everything; an absent selector (None) matches nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(ApiBranch, frozen=True):
    """Terms are ORed, the requirements inside are ANDed; a term without any matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(ApiBranch, frozen=True):
    """`corev1.NodeSelector`."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiBranch, frozen=True):
    """A term of node affinity that need not be met; `weight` is from 1 to 100."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiBranch, frozen=True):
    """`corev1.NodeAffinity`. Preferences count in topologies alone, with the gate TASRespectNodeAffinityPreferred."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class Affinity(ApiBranch, frozen=True):
    """`corev1.Affinity`, reduced to node affinity."""

    node_affinity: NodeAffinity | None = None


class Taint(ApiObject, frozen=True):
    """`corev1.Taint`. Effects: NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(ApiObject, frozen=True):
    """`corev1.Toleration`. Operator Exists or Equal (the default); an empty key with Exists tolerates everything."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


# --- pods ----------------------------------------------------------------------------------------------------------


class Resources(ApiBranch, frozen=True):
    """`corev1.ResourceRequirements`: resource name to quantity."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class Container(ApiBranch, frozen=True):
    """`restart_policy` "Always" on an init container makes it a sidecar."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None


class SchedulingGate(ApiObject, frozen=True):
    """`corev1.PodSchedulingGate`."""

    name: str


class PodSpec(ApiBranch, frozen=True):
    """The scheduling-relevant shape of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | int | float] = {}
    resources: Resources | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    runtime_class_name: str | None = None
    scheduler_name: str = ""
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class TemplateMeta(ApiBranch, frozen=True):
    """Labels and annotations of a pod template that have a meaning in Kueue (`kueue.x-k8s.io/...`)."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplate(ApiBranch, frozen=True):
    """`corev1.PodTemplateSpec`."""

    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


# --- Kueue: Workload -----------------------------------------------------------------------------------------------


class SliceConstraint(ApiObject, frozen=True):
    """`topologyRequest.podsetSliceRequiredTopologyConstraints[]`: slices of `size` pods within one `topology` level."""

    topology: str
    size: int


class TopologyRequest(ApiBranch, frozen=True):
    """`spec.podSets[].topologyRequest`: kept with the workload so that its shape and status are complete."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: tuple[SliceConstraint, ...] = ()


class PodSet(ApiBranch, frozen=True):
    """A homogeneous group of pods. With `min_count` it may be admitted with fewer (partial admission)."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: PodTemplate = PodTemplate()
    topology_request: TopologyRequest | None = None


class PriorityClassRef(ApiObject, frozen=True):
    """`kueue.x-k8s.io` WorkloadPriorityClass or `scheduling.k8s.io` PriorityClass."""

    group: str
    kind: str
    name: str


class PreemptionGate(ApiObject, frozen=True):
    """`spec.preemptionGates[]`: while it is closed the workload may not preempt."""

    name: str


class PreemptionGateState(ApiObject, frozen=True):
    """`status.preemptionGates[]`. Position: Open or Closed; a gate without a state is closed."""

    name: str
    position: str = ""
    last_transition_time: str = ""


class WorkloadSpec(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` Workload spec. A missing priority counts as 0."""

    queue_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    priority: int | None = None
    priority_class_ref: PriorityClassRef | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    preemption_gates: tuple[PreemptionGate, ...] = ()


class Condition(ApiObject, frozen=True):
    """`metav1.Condition`. `last_transition_time` is RFC 3339 in UTC with whole seconds, as the API has it."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int | None = None


class LevelNames(ApiBranch, frozen=True):
    """The values of one topology level, one per domain: prefix, root and suffix together."""

    roots: tuple[str, ...]
    prefix: str | None = None
    suffix: str | None = None


class LevelValues(ApiBranch, frozen=True):
    """`valuesPerLevel[]`: one value that all domains of a slice share, or one per domain."""

    universal: str | None = None
    individual: LevelNames | None = None


class DomainCounts(ApiBranch, frozen=True):
    """`podCounts`: how many pods each domain of a slice takes; one number for all, or one per domain."""

    universal: int | None = None
    individual: tuple[int, ...] | None = None


class TopologySlice(ApiBranch, frozen=True):
    """`topologyAssignment.slices[]`: domains that are written together."""

    domain_count: int
    values_per_level: tuple[LevelValues, ...]
    pod_counts: DomainCounts


class TopologyAssignment(ApiBranch, frozen=True):
    """
    `topologyAssignment`: the topology domains that the pods of a pod set were assigned to.

    The form of v1beta2. `headgate.core.api.conversion` converts the `domains` of v1beta1.
    """

    levels: tuple[str, ...]
    slices: tuple[TopologySlice, ...]


def _no_pods() -> int:
    return 0


class PodSetAssignment(ApiBranch, frozen=True):
    """
    What one pod set got: resource to flavor, resource to total usage (canonical quantity), number of pods.

    `count` is always written, also 0: readers of the API take a missing one for the count of the spec.
    `topology_assignment` are the domains of its pods; `delayed_topology_request`: they are still to come ("Pending"),
    or came after its admission checks ("Ready").
    """

    name: str = "main"
    flavors: dict[str, str] = {}
    resource_usage: dict[str, str | int | float] = {}
    count: int = msgspec.field(default_factory=_no_pods)
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: str | None = None


class Admission(ApiBranch, frozen=True):
    """`status.admission`: the quota reservation of a workload."""

    cluster_queue: str
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(ApiBranch, frozen=True):
    """The changes that an admission check requests in the pods of one pod set."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class CheckState(ApiBranch, frozen=True):
    """`status.admissionChecks[]`. State: Pending, Ready, Retry, Rejected."""

    name: str
    state: str
    message: str = ""
    last_transition_time: str = ""
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class RequeueState(ApiObject, frozen=True):
    """`status.requeueState`: the number of evictions with a backoff, and when the backoff ends (RFC 3339)."""

    count: int | None = None
    requeue_at: str | None = None


class ReclaimablePod(ApiObject, frozen=True):
    """`status.reclaimablePods[]`: pods of a pod set that are done and whose quota is free again."""

    name: str
    count: int


class EvictionStat(ApiObject, frozen=True):
    """`status.schedulingStats.evictions[]`."""

    reason: str
    underlying_cause: str = ""
    count: int = 0


class SchedulingStats(ApiBranch, frozen=True):
    """`status.schedulingStats`."""

    evictions: tuple[EvictionStat, ...] = ()


class PodSetRequest(ApiBranch, frozen=True):
    """`status.resourceRequests[]`: the total requests of a pod set, canonical quantities."""

    name: str
    resources: dict[str, str | int | float] = {}


class UnhealthyNode(ApiObject, frozen=True):
    """`status.unhealthyNodes[]`: a node of the topology assignment that has failed and is to be replaced."""

    name: str


class WorkloadStatus(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` Workload status, as far as Headgate reads or writes it."""

    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    admission_checks: tuple[CheckState, ...] = ()
    requeue_state: RequeueState | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    resource_requests: tuple[PodSetRequest, ...] = ()
    scheduling_stats: SchedulingStats | None = None
    accumulated_past_execution_time_seconds: int | None = None
    preemption_gates: tuple[PreemptionGateState, ...] = ()
    unhealthy_nodes: tuple[UnhealthyNode, ...] = ()


class ShownConditions(ApiBranch, frozen=True):
    """
    Conditions that Headgate writes, as shown by a Workload's object and different in the state.

    `version` is the object's resource version; 0 when that is no number.
    """

    version: int = 0
    quota_reserved: Condition | None = None
    evicted: Condition | None = None
    requeued: Condition | None = None
    admitted: Condition | None = None


class OwnerReference(ApiObject, frozen=True):
    """`metav1.OwnerReference`, the controlling one. Group, kind, name and uid identify the object."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """The API group; "" for the core API, whose `apiVersion` is a version alone."""
        return self.api_version.rpartition("/")[0]


# --- Kueue: queues, flavors, cohorts, checks -----------------------------------------------------------------------


class ResourceQuota(ApiObject, frozen=True):
    """
    Quota of one resource in one flavor.

    Without a borrowing limit it borrows without limit, without a lending limit it lends all.
    """

    name: str
    nominal_quota: str | int | float = "0"
    borrowing_limit: str | int | float | None = None
    lending_limit: str | int | float | None = None


class FlavorQuotas(ApiBranch, frozen=True):
    """One flavor of a resource group."""

    name: str
    resources: tuple[ResourceQuota, ...] = ()


class ResourceGroup(ApiBranch, frozen=True):
    """Resources that are assigned one flavor together, and the flavors to try, in order."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class FlavorFungibility(ApiObject, frozen=True):
    """When to try the next flavor. v1beta1's Borrow and Preempt mean MayStopSearch."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str | None = None


class BorrowWithinCohort(ApiObject, frozen=True):
    """`preemption.borrowWithinCohort`."""

    policy: str = "Never"
    max_priority_threshold: int | None = None


class Preemption(ApiObject, frozen=True):
    """Which workloads a ClusterQueue's pending workloads may preempt."""

    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: str = "Never"


class CheckRule(ApiBranch, frozen=True):
    """An admission check of a ClusterQueue; no flavors means all."""

    name: str
    on_flavors: tuple[str, ...] = ()


class AdmissionChecksStrategy(ApiBranch, frozen=True):
    """`admissionChecksStrategy`."""

    admission_checks: tuple[CheckRule, ...] = ()


class FairSharing(ApiObject, frozen=True):
    """`fairSharing.weight`, a quantity; missing means 1."""

    weight: str | int | float | None = None


class AdmissionScope(ApiObject, frozen=True):
    """`admissionScope`: UsageBasedAdmissionFairSharing, NoAdmissionFairSharing, or "" for none."""

    admission_mode: str = ""


class ConcurrentAdmissionConstraints(ApiObject, frozen=True):
    """`concurrentAdmissionPolicy.migration.constraints`."""

    last_acceptable_flavor_name: str | None = None


class ConcurrentAdmissionMigration(ApiObject, frozen=True):
    """`concurrentAdmissionPolicy.migration`. Mode: TryPreferredFlavors or RetainFirstAdmission."""

    mode: str = "TryPreferredFlavors"
    constraints: ConcurrentAdmissionConstraints | None = None


class ConcurrentAdmissionPolicy(ApiObject, frozen=True):
    """`concurrentAdmissionPolicy`: present means that each workload is tried in every flavor at once."""

    migration: ConcurrentAdmissionMigration = ConcurrentAdmissionMigration()


class ClusterQueueSpec(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` ClusterQueue spec. An absent namespace selector admits no namespace, {} admits all."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    cohort_name: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class CohortSpec(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` Cohort spec."""

    parent_name: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_sharing: FairSharing | None = None


class LocalQueueSpec(ApiObject, frozen=True):
    """`kueue.x-k8s.io/v1beta2` LocalQueue spec."""

    cluster_queue: str = ""
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None


class AdmissionFairSharingStatus(ApiBranch, frozen=True):
    """`status.fairSharing.admissionFairSharingStatus` of a LocalQueue: its usage with its half-life, as quantities."""

    consumed_resources: dict[str, str | int | float] = {}
    last_update: str = ""


class LocalQueueFairSharingStatus(ApiBranch, frozen=True):
    """`status.fairSharing` of a LocalQueue."""

    weighted_share: int = 0
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class ResourceFlavorSpec(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` ResourceFlavor spec."""

    node_labels: dict[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None


class TopologyLevel(ApiObject, frozen=True):
    """One level of a Topology, by node label."""

    node_label: str


class TopologySpec(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` Topology spec, widest level first."""

    levels: tuple[TopologyLevel, ...] = ()


class CheckParameters(ApiObject, frozen=True):
    """`parameters` of an AdmissionCheck."""

    api_group: str
    kind: str
    name: str


class AdmissionCheckSpec(ApiObject, frozen=True):
    """`kueue.x-k8s.io/v1beta2` AdmissionCheck spec."""

    controller_name: str
    parameters: CheckParameters | None = None


# --- provisioning requests -----------------------------------------------------------------------------------------


class ProvisioningRetries(ApiObject, frozen=True):
    """`retryStrategy` of a ProvisioningRequestConfig: how often a failed request is made again, and after how long."""

    backoff_limit_count: int = 3
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 1800


class SelectorFromDetail(ApiObject, frozen=True):
    """`podSetUpdates.nodeSelector[]` of a ProvisioningRequestConfig: a node selector from a detail of the request."""

    key: str
    value_from_provisioning_class_detail: str = ""


class ProvisioningUpdates(ApiBranch, frozen=True):
    """`podSetUpdates` of a ProvisioningRequestConfig."""

    node_selector: tuple[SelectorFromDetail, ...] = ()


class ProvisioningConfigSpec(ApiBranch, frozen=True):
    """`kueue.x-k8s.io/v1beta2` ProvisioningRequestConfig spec. Without managed resources all are managed."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] = {}
    managed_resources: tuple[str, ...] = ()
    retry_strategy: ProvisioningRetries = ProvisioningRetries()
    pod_set_updates: ProvisioningUpdates | None = None
    pod_set_merge_policy: str | None = None


class RequestedPods(ApiObject, frozen=True):
    """`spec.podSets[]` of a ProvisioningRequest: `count` pods of the PodTemplate with this name."""

    template: str
    count: int = 0


class ProvisioningRequest(ApiBranch, frozen=True):
    """
    `autoscaling.x-k8s.io/v1` ProvisioningRequest that a Workload owns.

    `details` is its `status.provisioningClassDetails`; `owner_uid` the uid of the Workload.
    """

    uid: str
    owner_uid: str = ""
    class_name: str = ""
    parameters: dict[str, str] = {}
    pod_sets: tuple[RequestedPods, ...] = ()
    conditions: tuple[Condition, ...] = ()
    details: dict[str, str] = {}
    deleting: bool = False


class RequestTemplate(ApiBranch, frozen=True):
    """A PodTemplate that was made for a ProvisioningRequest, and what controls it: the Workload first, then that."""

    uid: str
    owner: OwnerReference | None = None
    deleting: bool = False


# --- core objects --------------------------------------------------------------------------------------------------


class Node(ApiBranch, frozen=True):
    """
    A node as far as quota, topology and binding depend on it.

    `ready`: its Ready condition is True. Otherwise `not_ready_since_ms` is when that condition last changed, and
    `lacks_ready` that there is none; both are as by default while the node is ready. A heartbeat changes nothing here.
    `deleting`: it has a deletion timestamp.
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, str | int | float] = {}
    ready: bool = True
    not_ready_since_ms: UnixMs = UnixMs(0)
    lacks_ready: bool = False
    deleting: bool = False


class LimitRangeItem(ApiBranch, frozen=True):
    """`spec.limits[]` of a LimitRange."""

    type: str
    max: dict[str, str | int | float] = {}
    min: dict[str, str | int | float] = {}
    default: dict[str, str | int | float] = {}
    default_request: dict[str, str | int | float] = {}
    max_limit_request_ratio: dict[str, str | int | float] = {}


class Job(ApiBranch, frozen=True):
    """
    A job that names a queue.

    `finished` is the type of its finishing condition, "Complete" or "Failed", and `message` that condition's message.
    `min_parallelism` and `completions_equal_parallelism` come from its annotations for partial admission,
    `max_execution_time_seconds` from its label of that name, `gated_by` from its annotation that holds it back.
    `done_indexes` counts the indexes of an Indexed Job that will not run again; None for other Jobs. `pods_ready`: as
    many of its pods as run at a time are ready or have succeeded. An `elastic` one may be scaled while it runs
    (annotation `kueue.x-k8s.io/elastic-job`); `generation` is kept for those only: it names their Workloads.

    Jobs of other kinds have their pod sets in `pod_sets` and what of them is done for good in `reclaimable`, by pod
    set; the fields that describe the only pod set of a batch/v1 Job are as by default, and `active` is 1 while pods of
    it may run. `pod_priority_class` is the PriorityClass that the kind names apart from its templates. `injected`: it
    carries what an admission has injected. `owner` is the object that controls it; where the log does not have that
    one, `ancestors` are the objects above, nearest first: what controls the owner, what controls that, and so on.
    `prebuilt` is the name of the Workload that it runs by, where it names one.

    `problem` is why no Workload can be made for it as it is: a pod group that is not complete, a TrainJob without its
    runtime. Of a pod group `absent_pods` is how many pods have to be replaced, and `leaving` that all of them are being
    deleted.

    A set is a job whose pods are queued in groups, such as a StatefulSet: `groups` is how many groups it has, and
    `pod_sets` those of each. Its groups are named after it; `made_for` of such a pod group is the key of its set, and
    `group_index` its number there. `on_hold`: it has no pods, and its Workload holds no quota, until it is scaled up.
    """

    uid: str
    created_ms: UnixMs
    queue_name: str = ""
    priority_class: str = ""
    suspended: bool = False
    parallelism: int = 1
    completions: int | None = None
    min_parallelism: int | None = None
    completions_equal_parallelism: bool = False
    max_execution_time_seconds: int | None = None
    gated_by: str = ""
    elastic: bool = False
    generation: int = 0
    template: PodTemplate = PodTemplate()
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    done_indexes: int | None = None
    pods_ready: bool = False
    finished: Literal["Complete", "Failed"] | None = None
    message: str = ""
    deleting: bool = False
    pod_sets: tuple[PodSet, ...] = ()
    reclaimable: dict[str, int] = {}
    pod_priority_class: str = ""
    injected: bool = False
    owner: OwnerReference | None = None
    prebuilt: str = ""
    absent_pods: int = 0
    problem: str = ""
    leaving: bool = False
    groups: int = 0
    made_for: str = ""
    group_index: int = 0
    on_hold: bool = False
    ancestors: tuple[OwnerReference, ...] = ()


class ManagedPod(ApiBranch, frozen=True):
    """
    What a pod shows that is queued itself: a plain pod, or a member of the pod group `group`.

    `queue_name`, `priority_class` (of workloads), `max_execution_time_seconds` and `gated_by` are its labels and
    annotations of those names, `pod_priority_class` that of its spec. `total_count` is how many pods its group says to
    have, None for no valid number; `role` which pods of the group are alike. A group with `fast_admission` does not
    wait for its pods, one that is `serving` never finishes, and one with an `unretriable` pod is not completed by
    replacements. `parent` is the framework whose object the pod belongs to, "" for none. `finalizers` are all of the
    pod, in order. `has_node`, `ready`, `message` and `failed_ms` are its status, the latter the time at which its
    containers have failed; `deletes_ms` is when its deletion is due, and `grace_s` after how many seconds.
    `copied_labels` and `copied_annotations` are those that the Workload of its group gets too, by the configuration.
    `prebuilt` is the name of the Workload that it is to run by, where it names one; the spec of such a plain pod has
    its containers as they are.

    Of a pod of a StatefulSet or LeaderWorkerSet `set_name` is the name of that, and of the latter `group_index` the
    number of its group, None before it has one, and `is_worker` whether its group has a leader that it is not.
    """

    queue_name: str = ""
    priority_class: str = ""
    pod_priority_class: str = ""
    max_execution_time_seconds: int | None = None
    gated_by: str = ""
    group: str = ""
    total_count: int | None = None
    role: str = ""
    fast_admission: bool = False
    serving: bool = False
    unretriable: bool = False
    parent: str = ""
    finalizers: tuple[str, ...] = ()
    has_node: bool = False
    ready: bool = False
    message: str = ""
    failed_ms: UnixMs = UnixMs(0)
    deletes_ms: UnixMs = UnixMs(0)
    grace_s: int = 0
    set_name: str = ""
    group_index: int | None = None
    is_worker: bool = False
    copied_labels: dict[str, str] = {}
    copied_annotations: dict[str, str] = {}
    prebuilt: str = ""


class Pod(ApiBranch, frozen=True):
    """
    A pod of a workload, or one that Headgate binds or ungates.

    `topology_aware`: it carries an annotation that requests a topology; the node of such a pod is charged to its
    workload's topology assignment. Its `spec` has no more than its effective requests, node selector, gates and node,
    unless Headgate binds it. `pod_set` is the name of its pod set, `indexes` its labels whose values are whole numbers,
    among which are those that its rank is read from, `index_offset` what Kueue's annotation of that name adds to its
    index, and `slice_name` the name that the slices of its elastic job have in common. All four are empty for others.

    `managed`: it is queued itself. Its `spec` then has no more than that of a topology-aware one and its tolerations,
    and nothing once it has ended, which only `phase` shows; `phase` of all others is "Pending".
    """

    uid: str
    created_ms: UnixMs
    spec: PodSpec = PodSpec()
    phase: str = "Pending"
    workload: str = ""
    owner: OwnerReference | None = None
    deleting: bool = False
    topology_aware: bool = False
    pod_set: str = ""
    indexes: dict[str, int] = {}
    index_offset: int = 0
    slice_name: str = ""
    managed: ManagedPod | None = None
