"""
The state: the contents of the log, as of one position.

`State` is filled by the fold (`headgate.core.fold`) and by nothing else; machines, the read side and the audit read it.
Its tables are the state proper: they are encoded, hashed and stored in snapshots. Its indexes, held in `State.index`,
answer queries quickly; they follow from the tables and are rebuilt when a snapshot is restored.

Records are mutable, so that a hundred thousand events a second can be folded, and belong to the fold. Specs inside them
are the frozen objects of the facts.
"""
# Over 400 lines: the types of the state, one for each kind of record; it is read one type at a time.

import enum
from collections.abc import Collection
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from headgate.core.state.pending_queue import PendingQueue
from headgate.core.state.records import Records
from headgate.core.state.sharing import Shared
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.decisions import ObjectPatch, PluginRefusal
from headgate.events.extenders import ExtenderAnswer
from headgate.events.facts import Fact
from headgate.events.identity import Keys, Signing
from headgate.events.ids import (
    Epoch,
    JobKey,
    LocalQueueKey,
    PodKey,
    RequestKey,
    Seq,
    Shape,
    TemplateKey,
    Uid,
    UnixMs,
    WorkloadKey,
)
from headgate.events.objects import (
    Admission,
    AdmissionCheckSpec,
    CheckState,
    ClusterQueueSpec,
    CohortSpec,
    Condition,
    EvictionStat,
    Job,
    Labels,
    LimitRangeItem,
    LocalQueueSpec,
    Node,
    OwnerReference,
    Pod,
    PodSetRequest,
    PodSetUpdate,
    PreemptionGateState,
    ProvisioningConfigSpec,
    ProvisioningRequest,
    ReclaimablePod,
    RequestTemplate,
    RequeueState,
    ResourceFlavorSpec,
    ShownConditions,
    TopologySpec,
    WorkloadSpec,
    WorkloadStatus,
)
from headgate.events.queueing import Needs, Wake


class Stage(enum.StrEnum):
    """
    The stage of a workload. `headgate.core.state.lifecycle` has the transitions.

    The first five are pending in Kueue's sense; RESERVED, ADMITTED and EVICTED hold quota.
    """

    NEW = "New"
    """Observed, and not placed by the queue manager yet."""
    QUEUED = "Queued"
    """In the pending queue of its ClusterQueue. Its shape may be asleep there, or the queue blocked."""
    OFFERED = "Offered"
    """Offered to the scheduler as a coming head."""
    SKIPPED = "Skipped"
    """Not admitted in a cycle; the queue manager has not yet recorded what it waits for."""
    PARKED = "Parked"
    """Parked alone, with a wake condition."""
    RESERVED = "QuotaReserved"
    """Its quota is charged; admission checks are not all Ready."""
    ADMITTED = "Admitted"
    """Its job may run."""
    EVICTED = "Evicted"
    """Has to stop; its quota is charged until its job has stopped."""
    FINISHED = "Finished"
    """Over. Its object may still exist."""


PENDING = frozenset({Stage.NEW, Stage.QUEUED, Stage.OFFERED, Stage.SKIPPED, Stage.PARKED})
HOLDS_QUOTA = frozenset({Stage.RESERVED, Stage.ADMITTED, Stage.EVICTED})


class Record(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """
    Base of the mutable records in the state's tables.

    A record refers to others by key and never holds one, so no reference cycle contains it, and the cyclic collector
    need not visit a hundred thousand workloads of fifty fields each.
    """


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of the records that are replaced, never changed. They hold parts of events: trees, as those are."""


class Parked(Note, frozen=True):
    """Why something waits, and for what. `since` is the position that parked it, `decided_at` the verdict's."""

    reason: str
    message: str
    wake: tuple[Wake, ...]
    since: Seq
    decided_at: Seq
    since_ms: UnixMs = UnixMs(0)
    by: WorkloadKey = WorkloadKey("")


class Verdict(Note, frozen=True):
    """
    The last verdict of the scheduler on a workload that it did not admit.

    `since` is the position at which the first of its immediate retries was decided: quota that was freed after it may
    have been overlooked by the scan over flavors that ended in this verdict.
    """

    status: str
    requeue_reason: str
    scope: str
    reason: str
    message: str
    decided_at: Seq
    at: Seq
    short: tuple[str, ...] = ()
    needs: Needs = ()
    since: Seq = Seq(0)
    targets: tuple[WorkloadKey, ...] = ()
    until_ms: UnixMs = UnixMs(0)
    claims: bool = True


class SecondPass(Note, frozen=True):
    """
    The failed search for topology domains of a workload that holds quota.

    `retry_at_ms` is when it is tried again, 0 once that time has come. `evict`: it is to be evicted instead.
    """

    failures: int
    message: str
    retry_at_ms: UnixMs = UnixMs(0)
    evict: bool = False


REFUSED_MAX = 8
"""How many refused statuses of a workload are kept: enough to end a loop, and bounded."""


class Workload(Record):
    """
    One Workload and its history so far.

    `cluster_queue` is the queue it is in, or whose quota it holds. `priority`, `queued_at_ms` and `shape` are its rank
    and kind there. `preemptor` means that it was the last of its ClusterQueue to preempt others, and is still pending;
    `sticky` that it ranks first there for that (BestEffortFIFO). `offered_no` orders the offered heads. `stale_checks`
    are check states from before an eviction that the API server still shows: they do not apply to the next reservation.
    `past_execution_s` is for how long it was admitted before, by Kueue's count. `preemption_gates` has the positions
    that count; `observed_gates`, `observed_pods_ready` and `deactivation_target` are what others have written;
    `injected` is what the checks of its last admission have changed in its pods. `followed` means that it runs on the
    quota of one of its variants, and holds none of its own. `evicted_at_ms` is when it was evicted, until its quota is
    released. `owner_gone` means that its Job is proved deleted (`headgate.core.workload.owners`). `applied` is the
    digest of the status that the API server has, `refused` those that it has refused since, with the code of the last
    refusal; `applied_version` the version that the object got with `applied`. `shown` has the conditions that others
    may have written since (`headgate.core.workload.shown_conditions`). `taken_over` is the status that the object had
    when it was taken over, until another one is written; `applied` is empty then. `arrival` orders those of equal
    creation seconds (`headgate.core.workload.ordering.arrived`). `unhealthy_nodes` are nodes of its topology assignment
    that have failed; the first is to be replaced. `shaped_at` is the position at which its pod sets last changed, 0
    while they are as created; `outdated` means that its quota was reserved for other pod sets than it has.
    `group_owners` are the uids of the owners of a pod group's Workload. `decided_checks` are the names of the checks
    that Headgate has decided itself: what the object shows of them is its own.
    """

    key: WorkloadKey
    uid: Uid
    created_ms: UnixMs
    spec: WorkloadSpec
    stage: Stage = Stage.NEW
    first_seq: Seq = Seq(0)
    last_seq: Seq = Seq(0)
    generation: int = 0
    labels: Labels = {}
    annotations: Labels = {}
    owner: OwnerReference | None = None
    deleting: bool = False
    finalizer: bool = False
    cluster_queue: str = ""
    priority: int = 0
    queued_at_ms: UnixMs = UnixMs(0)
    shape: Shape = Shape("")
    preemptor: bool = False
    sticky: bool = False
    offered_no: int = 0
    parked: Parked | None = None
    verdict: Verdict | None = None
    last_tried_flavors: tuple[dict[str, int], ...] = ()
    admission: Admission | None = None
    reserved_at_ms: UnixMs = UnixMs(0)
    admitted_at_ms: UnixMs = UnixMs(0)
    evicted_at_ms: UnixMs = UnixMs(0)
    conditions: tuple[Condition, ...] = ()
    checks: tuple[CheckState, ...] = ()
    observed_checks: tuple[CheckState, ...] = ()
    stale_checks: tuple[CheckState, ...] = ()
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    observed_finished: Condition | None = None
    observed_pods_ready: Condition | None = None
    deactivation_target: Condition | None = None
    injected: tuple[PodSetUpdate, ...] = ()
    followed: bool = False
    preemption_gates: tuple[PreemptionGateState, ...] = ()
    observed_gates: tuple[PreemptionGateState, ...] = ()
    requeue_state: RequeueState | None = None
    resource_requests: tuple[PodSetRequest, ...] = ()
    evictions: tuple[EvictionStat, ...] = ()
    past_execution_s: int | None = None
    applied: str = ""
    refused: tuple[str, ...] = ()
    refused_code: int = 0
    owner_gone: bool = False
    applied_version: int = 0
    shown: ShownConditions | None = None
    arrival: int = 0
    taken_over: WorkloadStatus | None = None
    unhealthy_nodes: tuple[str, ...] = ()
    second_pass: SecondPass | None = None
    shaped_at: Seq = Seq(0)
    outdated: bool = False
    group_owners: tuple[str, ...] = ()
    decided_checks: tuple[str, ...] = ()


class NamespaceRecord(Note, frozen=True):
    """A namespace's labels."""

    labels: Labels = {}
    terminating: bool = False


class FlavorRecord(Note, frozen=True):
    """A ResourceFlavor."""

    spec: ResourceFlavorSpec
    generation: int = 0
    uid: Uid = Uid("")
    deleting: bool = False
    finalizer: bool = False


class TopologyObject(Note, frozen=True):
    """The metadata of a Topology; its spec is in `Tables.topologies`."""

    uid: Uid
    deleting: bool = False
    finalizer: bool = False


class CohortRecord(Note, frozen=True):
    """A Cohort object. A cohort that is only named by its members has no record."""

    spec: CohortSpec
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ClusterQueueRecord(Record):
    """A ClusterQueue. What sleeps in its pending queue is in `Tables.sleeps`."""

    spec: ClusterQueueSpec
    uid: Uid = Uid("")
    generation: int = 0
    deleting: bool = False
    finalizer: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class QueueSleep(Record):
    """
    What sleeps in one ClusterQueue's pending queue. Kept apart from its record: it outlives a deleted ClusterQueue.

    `shapes` sleep because one of their workloads did not fit. `blocked` is the wait of a head that no workload may
    pass, in a StrictFIFO queue or while its victims leave; `blocked_by` is its key. `None` means that the scheduler's
    verdict was folded, and the queue manager has not yet recorded its wake conditions.
    """

    shapes: dict[Shape, Parked | None] = {}
    blocked_by: WorkloadKey = WorkloadKey("")
    blocked: Parked | None = None


class LocalQueueRecord(Note, frozen=True):
    """A LocalQueue."""

    spec: LocalQueueSpec
    uid: Uid = Uid("")
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class UsageRecord(Record):
    """
    The admission fair sharing record of a LocalQueue: amounts in base units, exact to nine digits.

    `consumed` is the decaying usage of its admitted workloads, as of `last_update_ms`. `penalties` are those of
    reservations that are not admitted yet, by workload.
    """

    last_update_ms: UnixMs
    consumed: dict[str, Decimal] = {}
    penalties: dict[WorkloadKey, dict[str, Decimal]] = {}


class Turnover(Note, frozen=True):
    """What finished workloads have released since `since_ms`, and in the window before, in base units."""

    since_ms: UnixMs
    freed: int
    freed_before: int = 0


class CheckRecord(Note, frozen=True):
    """
    An AdmissionCheck; `active` as reported by its controller.

    The rest is known of those that Headgate serves itself.
    """

    spec: AdmissionCheckSpec
    active: bool = False
    uid: Uid = Uid("")
    generation: int = 0
    condition: Condition | None = None


class RequestRecord(Record):
    """
    A ProvisioningRequest of a workload, from the decision to create it on.

    `request` is the object, None until it is observed; `refused` why it could not be created; `withdrawn` why it is to
    be deleted, "" while it is in use.
    """

    workload: WorkloadKey
    request: ProvisioningRequest | None = None
    refused: str = ""
    withdrawn: str = ""


class PriorityClassRecord(Note, frozen=True):
    """A Kubernetes PriorityClass."""

    value: int
    global_default: bool = False


class JobRecord(Record):
    """
    A Job that names a queue.

    `workload` is the Workload that was created for it, "" until then; `refused` why none could be. `started_for` is the
    uid of the workload for whose admission it was resumed, `stopped_at` the position at which it was last suspended,
    `action_refused` the API server's message when it refused either.
    """

    job: Job
    workload: WorkloadKey = WorkloadKey("")
    refused: str = ""
    started_for: str = ""
    stopped_at: Seq = Seq(0)
    action_refused: str = ""
    arrival: int = 0


class PodRecord(Record):
    """
    A relevant pod. `placed` is the node chosen for it, `bound` whether the API server has accepted the binding.

    `domain` is the topology domain that was chosen for it, by its value of each level of its workload's assignment.
    """

    pod: Pod
    placed: str = ""
    bound: bool = False
    refusals: int = 0
    domain: tuple[str, ...] = ()


class PlacementVerdict(Note, frozen=True):
    """Why a pod was not placed: the reason and message of its condition PodScheduled, and the refusals by plugin."""

    reason: str
    message: str
    refusals: tuple[PluginRefusal, ...] = ()
    at_ms: UnixMs = UnixMs(0)


class Tries(Note, frozen=True):
    """
    How often a pod was tried, as far as that puts off its next attempt, and when last.

    `failures` counts rejections, `errors` the errors since the last of those, refused bindings and the like among them.
    """

    attempts: int = 0
    failures: int = 0
    errors: int = 0
    at_ms: UnixMs = UnixMs(0)


class PlacementRecord(Record):
    """
    What is decided about a pod and not yet shown by its object.

    `node` is chosen for it; `bound` whether the API server has accepted that. `writes` come before the binding, which
    then waits until the pod is `prepared`. `nominated` is a nomination that its object does not show yet, "" for none:
    the node that the pod is to get once the victims are gone, or its volumes are bound. None when the one that the
    object shows is in force. `verdict` is why the pod was not placed when it was tried last. A pod with `preempted_by`
    has to go for that pod, and is evicted if it is `budgeted`; `preempted` once the API server has accepted that.
    `refusals` counts refused bindings. `tries` are its attempts, None in logs of versions that do not count them. With
    `waits_ms` it is held back by plugins for so long at most, from `placed_at_ms` on.
    """

    uid: Uid
    node: str = ""
    bound: bool = False
    writes: tuple[ObjectPatch, ...] = ()
    prepared: bool = False
    waits_ms: int = 0
    placed_at_ms: UnixMs = UnixMs(0)
    nominated: str | None = None
    verdict: PlacementVerdict | None = None
    preempted_by: PodKey = PodKey("")
    budgeted: bool = False
    preempted: bool = False
    refusals: int = 0
    tries: Tries | None = None

    @property
    def is_bindable(self) -> bool:
        """Whether its binding is to be requested now."""
        return bool(self.node) and not self.bound and not self.waits_ms and (not self.writes or self.prepared)

    @property
    def is_waiting(self) -> bool:
        """Whether it has a node, and something has to happen before it is bound."""
        return bool(self.node) and not self.bound and not self.is_bindable


class PostFilterWrite(Note, frozen=True):
    """A write to an object that a PostFilter plugin has asked for, to help a pod, and that the object does not show."""

    pod: PodKey
    uid: Uid
    write: ObjectPatch


class PodGroupRecord(Note, frozen=True):
    """What became of a PodGroup when its pods were decided together, as its condition PodGroupScheduled is to say."""

    uid: Uid
    scheduled: bool = False
    reason: str = ""
    message: str = ""


def write_key(kind: str, name: str) -> str:
    """The key of `Tables.post_filter_writes`."""
    return f"{kind}/{name}"


class ProducerRecord(Record):
    """
    The fold's record of a producer: its term, its count of commits, the hash and time of its last one.

    `last_ms` is the time that the commit claims, which the log's time need not have followed.
    """

    epoch: Epoch = Epoch(0)
    number: int = 0
    last_hash: str = ""
    last_seq: Seq = Seq(0)
    last_ms: UnixMs = UnixMs(0)
    holder: str = ""


class RefusedEntry(Note, frozen=True):
    """A refused log entry: its position, its subject, the reason, and the hash of its bytes."""

    position: Seq
    subject: str
    why: str
    hash: str


class RefusedRecord(Record):
    """The refused log entries (`headgate.core.log.refusal`): their number, and the newest of them."""

    count: int = 0
    newest: list[RefusedEntry] = []


class SnapshotRecord(Note, frozen=True):
    """The newest snapshot that the log names."""

    position: Seq
    state_hash: str
    log_hash: str
    name: str


class Branch(Note, frozen=True):
    """After the position `after`, the log differs from another one that has the same beginning."""

    after: Seq
    token: str


class Restoration(Note, frozen=True):
    """The last time that the cell was continued from a backup; as recorded in `cell.restored`, at the position `at`."""

    at: Seq
    backup: str
    position: Seq
    lost_to: Seq = Seq(0)
    why: str = ""


class Identity(Record):
    """The cell that this log belongs to, as recorded in `cell.founded`, with later changes."""

    cell: str
    cluster: str
    stream: str
    log_id: str
    keys: Keys = {}
    signing: Signing = "off"
    resumes: str = ""
    founded_at: Seq = Seq(0)
    restored: Restoration | None = None


class QuarantineRecord(Record):
    """
    An object set aside because of a defect, so that it does not affect others (`headgate.core.fold.quarantine`).

    `key` is its name or `<namespace>/<name>`. The defect occurred at `position` (event `index` of that commit, of type
    `event`), in the fold or in the machine of `process`, in a Headgate of this `version`: `error` is the error, `where`
    its source line. `workload` is the record of a Workload as it was; it holds `charged` (by `<flavor>/<resource>`) of
    `cluster_queue`. `fact` is the newest fact about the object that has not been folded. `admission` is one that it has
    got since it was set aside. `generation` is that of the object when it was set aside, where the log has it.
    """

    kind: str
    key: str
    uid: Uid = Uid("")
    position: Seq = Seq(0)
    index: int = 0
    since_ms: UnixMs = UnixMs(0)
    process: str = ""
    event: str = ""
    error: str = ""
    where: str = ""
    version: str = ""
    cluster_queue: str = ""
    charged: dict[str, int] = {}
    workload: Workload | None = None
    fact: Fact | None = None
    admission: Admission | None = None
    generation: int = 0


class Tables(Record):
    """The state proper. Every table is keyed by name, or by `<namespace>/<name>`."""

    position: Seq = Seq(0)
    log_hash: str = ""
    log_hashes: list[str] = []
    """The log hashes of the newest positions, each at its position modulo the length
    (`headgate.core.log.attestation`)."""
    now_ms: UnixMs = UnixMs(0)
    synced: bool = False
    relisting: bool = False
    """
    Whether a term of the informer bridge has begun that has not shown every resource yet: what is not in the state may
    exist.
    """
    cycle: int = 0
    offers: int = 0
    overtaken: int = 0
    producers: dict[Producer, ProducerRecord] = {}
    namespaces: dict[str, NamespaceRecord] = {}
    nodes: dict[str, Node] = {}
    flavors: dict[str, FlavorRecord] = {}
    topologies: dict[str, TopologySpec] = {}
    cohorts: dict[str, CohortRecord] = {}
    cluster_queues: dict[str, ClusterQueueRecord] = {}
    local_queues: dict[LocalQueueKey, LocalQueueRecord] = {}
    workload_priority_classes: dict[str, int] = {}
    priority_classes: dict[str, PriorityClassRecord] = {}
    admission_checks: dict[str, CheckRecord] = {}
    limit_ranges: dict[str, tuple[LimitRangeItem, ...]] = {}
    runtime_classes: dict[str, dict[str, str | int | float]] = {}
    workloads: dict[WorkloadKey, Workload] = {}
    jobs: dict[JobKey, JobRecord] = {}
    pods: dict[PodKey, PodRecord] = {}
    sleeps: dict[str, QueueSleep] = {}
    freed: dict[str, dict[str, Seq]] = {}
    """Per cohort tree (`headgate.core.quota.cohorts`): the last position that freed or raised quota, by
    `<flavor>/<resource>`; "*" for changes that may help any workload of the tree (a quota, flavor, check or namespace
    changed)."""
    configuration: Configuration = Configuration()
    configuration_document: dict[str, Any] = {}
    """The file from which the configuration was read, as `configuration.observed` has it."""
    local_queue_usage: dict[LocalQueueKey, UsageRecord] = {}
    """LocalQueues with any usage, while admission fair sharing is on."""
    turnover: dict[str, dict[str, Turnover]] = {}
    """
    By quota tree and `<flavor>/<resource>`: what finished workloads have released (`headgate.core.quota.turnover`).
    """
    eviction_ms: dict[str, int] = {}
    """By ClusterQueue: how long it takes until an evicted workload has released its quota."""
    snapshot: SnapshotRecord | None = None
    refused: RefusedRecord | None = None
    resource_versions: dict[str, str] = {}
    """Per watched resource: the version up to which all relevant changes are in the log, to resume a watch from."""
    cluster_id: str = ""
    """The cluster that issued those versions (`headgate.core.reading.decoding.cluster_id_of`)."""
    reading: int = 0
    """The version of the rules by which the objects up to there were read (`core.reading.decoding.READING`)."""
    anchor: str = ""
    """A change that identifies the history to which those versions belong (`headgate.core.log.cluster_anchors`)."""
    identity: Identity | None = None
    """None until the cell is founded, and in logs of versions without identity."""
    quarantine: dict[str, QuarantineRecord] = {}
    """Objects that are set aside, by `<kind>/<key>`."""
    retried: dict[str, str] = {}
    """The last retry request that was followed, by `<kind>/<key>`: each is followed once."""
    set_aside: int = 0
    """How many events have been set aside because they could not be folded."""

    branches: tuple[Branch, ...] = ()
    """Where the log diverges from a former one (`headgate.core.log.branches`), one for each restore."""
    reconciling: Seq = Seq(0)
    """The position of the `cell.restored` since which not everything was listed yet; 0 when there is none."""
    unconfirmed: dict[WorkloadKey, None] = {}
    """Workloads that were not observed since (`headgate.core.log.reconciliation`)."""
    topology_objects: dict[str, TopologyObject] = {}
    """Logs of versions that do not manage their finalizers have none."""
    provisioning_configs: dict[str, ProvisioningConfigSpec] = {}
    provisioning_requests: dict[RequestKey, RequestRecord] = {}
    request_templates: dict[TemplateKey, RequestTemplate] = {}
    """PodTemplates that were made for ProvisioningRequests."""
    node_usage: dict[str, dict[str, int]] = {}
    """
    By node: what pods without facts of their own use (`node.usage_observed`), in amounts, `pods` included.

    `Index.taken` adds the pods that have facts.
    """
    scheduler_configuration: dict[str, Any] = {}
    """The KubeSchedulerConfiguration in effect, as `schedulerconfiguration.observed` has it; {}: no pods are placed."""
    objects: dict[str, dict[str, msgspec.Raw]] = {}
    """
    The objects that placement reads: by the plural name of the resource, then by name or `<namespace>/<name>`.

    They are JSON, as the log has them: most processes read nothing of most objects (`headgate.core.state.manifests`).
    """
    placements: dict[PodKey, PlacementRecord] = {}
    scan_start: int = 0
    """At which node, counted in the order of the nodes, the next search for a node for a pod begins."""
    post_filter_writes: dict[str, PostFilterWrite] = {}
    """By `<kind>/<name>` of the object, for as long as it has not changed: one each, the last that was decided."""
    pod_groups: dict[str, PodGroupRecord] = {}
    """By `<namespace>/<name>` of the PodGroup, while it exists: the last attempt that brought news."""
    extender_answers: dict[PodKey, dict[str, ExtenderAnswer]] = {}
    """By pod that is to be placed: what extenders have answered about it, by `request`."""


FlavorResource = tuple[str, str]
"""(flavor, resource)."""


Values = tuple[str, ...]
"""A topology domain: its values of the levels that assignments have, widest level first."""


class DomainUsage(NamedTuple):
    """What `pods` pods occupy in one domain of a flavor. `requests` is of one pod, without the implicit `pods`."""

    flavor: str
    values: Values
    requests: tuple[tuple[str, int], ...]
    pods: int


class Index:
    """
    Lookups that follow from the tables. Kept current by the fold; `headgate.core.fold.restore` rebuilds them.

    `pending`: ClusterQueue -> its queue of QUEUED workloads. `offered`: ClusterQueue -> OFFERED workloads in the order
    in which they were offered; `offers` has all of them in that order, by `Workload.offered_no`. `holders`:
    ClusterQueue -> workloads that hold its quota. `usage`: ClusterQueue -> flavor-resource -> amount held; `usage_of`
    the same by workload. `reserved`: RESERVED workloads. `by_owner`: uid of a job -> its workload. `trees`:
    ClusterQueue -> cohort tree; `selecting`: cohort tree -> those of its ClusterQueues that have a namespace selector.
    `in_local_queue`: LocalQueue -> its unfinished workloads. `preemptors`: ClusterQueue -> its workload that is marked
    as `Workload.preemptor`.

    `slices`: uid of an owner of several workloads -> all of them, of which `by_owner` has the one that represents it;
    `owned` has those of any owner. `admitted_usage`: LocalQueue -> resource -> amount that its admitted workloads hold,
    with an entry as long as there are any, even if they hold nothing; `admitted_count` is their number; `admitted_in`
    what each holds, and for which LocalQueue. `local_queue_usage`: LocalQueue -> its usage by weight, where it is not
    0.

    `standing`: cohort tree -> its ClusterQueues that a head blocks, `State.sleeps[...].blocked_by`: a StrictFIFO head
    with a verdict, or a workload that waits for its victims. Those heads keep their place in every cycle of the tree,
    offered or not. A head that has just been woken is no longer in it: it is offered.

    `set_aside_owners`: uid of the owner of a Workload in quarantine -> that Workload.

    `taken`: node -> what pods that are not topology-aware use of it, in amounts, `pods` included; those of
    `Tables.node_usage`, and those in `Tables.pods` from the choice of their node on. `taken_changes` counts changes;
    `taken_changed` has the number of the last one by node, the newest last.

    `topology_usage`: flavor -> topology domain -> what workloads that hold quota use of it, `pods` included;
    `topology_usage_of` what each of them uses. `topology_changes` and `topology_changed` are as those of `taken`.

    `requests_of`: workload -> its ProvisioningRequests.

    `changes` counts the changes of quota holders and their amounts; `changed` has the number of the last one by
    ClusterQueue, the newest last, so that a cache finds its outdated entries without a full pass.
    """

    __slots__ = (
        "admitted_count",
        "admitted_in",
        "admitted_usage",
        "by_owner",
        "changed",
        "changes",
        "holders",
        "in_local_queue",
        "local_queue_usage",
        "offered",
        "offers",
        "pending",
        "preemptors",
        "requests_of",
        "reserved",
        "selecting",
        "set_aside_owners",
        "slices",
        "standing",
        "taken",
        "taken_changed",
        "taken_changes",
        "topology_changed",
        "topology_changes",
        "topology_usage",
        "topology_usage_of",
        "trees",
        "usage",
        "usage_of",
    )

    def __init__(self) -> None:
        self.pending: dict[str, PendingQueue] = {}
        self.offered: dict[str, dict[WorkloadKey, None]] = {}
        self.offers: dict[int, WorkloadKey] = {}
        self.holders: dict[str, dict[WorkloadKey, None]] = {}
        self.usage: dict[str, dict[FlavorResource, int]] = {}
        self.usage_of: dict[WorkloadKey, dict[FlavorResource, int]] = {}
        self.requests_of: dict[WorkloadKey, dict[RequestKey, None]] = {}
        self.reserved: dict[WorkloadKey, None] = {}
        self.by_owner: dict[str, WorkloadKey] = {}
        self.in_local_queue: dict[LocalQueueKey, dict[WorkloadKey, None]] = {}
        self.trees: dict[str, str] = {}
        self.selecting: dict[str, dict[str, None]] = {}
        self.slices: dict[str, dict[WorkloadKey, None]] = {}
        self.admitted_usage: dict[LocalQueueKey, dict[str, int]] = {}
        self.admitted_count: dict[LocalQueueKey, int] = {}
        self.admitted_in: dict[WorkloadKey, tuple[LocalQueueKey, dict[FlavorResource, int]]] = {}
        self.local_queue_usage: dict[LocalQueueKey, float] = {}
        self.preemptors: dict[str, WorkloadKey] = {}
        self.standing: dict[str, dict[str, None]] = {}
        self.set_aside_owners: dict[str, WorkloadKey] = {}
        self.taken: dict[str, dict[str, int]] = {}
        self.taken_changes = 0
        self.taken_changed: dict[str, int] = {}
        self.topology_usage: dict[str, dict[Values, dict[str, int]]] = {}
        self.topology_usage_of: dict[WorkloadKey, tuple[DomainUsage, ...]] = {}
        self.topology_changes = 0
        self.topology_changed: dict[tuple[str, Values], int] = {}
        self.changes = 0
        self.changed: dict[str, int] = {}

    def owned(self, uid: str) -> Collection[WorkloadKey]:
        """The workloads of an owner; a parent of variants is an owner too."""
        several = self.slices.get(uid)
        if several is not None:
            return several
        only = self.by_owner.get(uid)
        return () if only is None else (only,)

    def own(self, uid: str, key: WorkloadKey) -> None:
        """
        Record that a workload belongs to an owner.

        Which of several represents it is determined by `fold.transitions.index_current_slice`.
        """
        several = self.slices.get(uid)
        only = self.by_owner.setdefault(uid, key)
        if several is not None:
            several[key] = None
        elif only != key:
            self.slices[uid] = {only: None, key: None}

    def disown(self, uid: str, key: WorkloadKey) -> None:
        """Record that a workload no longer belongs to an owner."""
        several = self.slices.get(uid)
        if several is not None:
            several.pop(key, None)
            if len(several) > 1:
                return
            del self.slices[uid]
            self.by_owner[uid] = next(iter(several))
        elif self.by_owner.get(uid) == key:
            del self.by_owner[uid]


class State(Tables, gc=True):
    """
    The tables of one position, with their indexes. Read it freely; only the fold writes it.

    An index may hold its state (`headgate.core.quota.usage_order`): this is the one record that is part of reference
    cycles.
    """

    cell: str = ""
    workloads: Records[WorkloadKey, Workload] = msgspec.field(default_factory=Records)
    jobs: Records[JobKey, JobRecord] = msgspec.field(default_factory=Records)
    index: Index = msgspec.field(default_factory=Index)
    shared: Shared = msgspec.field(default_factory=Shared)


def local_queue_of(workload: Workload) -> LocalQueueKey:
    """The LocalQueue that a workload names."""
    return LocalQueueKey(f"{workload.key.rpartition('/')[0]}/{workload.spec.queue_name}")
