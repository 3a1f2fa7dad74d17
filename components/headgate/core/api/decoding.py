"""
From API objects to facts: what of a watched object matters, in the words of the contract.

`read` takes the JSON of one object of one resource and gives its key, its uid and the fact that it exists and looks
like this; no fact when the object does not concern Headgate (a Job without a queue, a pod that neither holds room nor
waits for us). Only what a decision can depend on is decoded; labels and annotations are cut down to those of Kueue,
except where selectors look at all of them (nodes, namespaces). Of Kueue's kinds v1beta2 and v1beta1 are read.

Whether a fact is news is another question: `headgate.machines.informer_bridge.diff` compares it with the state. The
informer bridge calls both; nothing here looks at the state.

An object that does not decode, or holds a quantity or time that is none, raises UnreadableObjectError. The bridge
reports it and treats the object as absent: one bad object must not stop the cell.
"""

import re
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from headgate.core.api.admission_checks import RESET_MESSAGE
from headgate.core.api.conversion import OLD_FIELDS, VersionError, renew
from headgate.core.api.job_kinds import BATCH_JOB, JOB_KINDS, of_owner, of_resource
from headgate.core.kubernetes.conditions import (
    DEACTIVATION_TARGET,
    EVICTED,
    PODS_READY,
    QUOTA_RESERVED,
    REQUEUED,
    find,
    is_true,
    parse_rfc3339,
)
from headgate.core.kubernetes.quantities import QuantityError, parse_quantity
from headgate.events.facts import (
    AdmissionCheckObserved,
    ClusterQueueObserved,
    CohortObserved,
    Fact,
    JobObserved,
    LimitRangeObserved,
    LocalQueueObserved,
    NamespaceObserved,
    NodeObserved,
    PodObserved,
    PriorityClassObserved,
    ResourceFlavorObserved,
    RuntimeClassObserved,
    TopologyObserved,
    WorkloadObserved,
    WorkloadPriorityClassObserved,
)
from headgate.events.ids import LocalQueueKey, PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    AdmissionCheckSpec,
    ApiBranch,
    ApiObject,
    CheckState,
    ClusterQueueSpec,
    CohortSpec,
    Condition,
    Job,
    LimitRangeItem,
    LocalQueueFairSharingStatus,
    LocalQueueSpec,
    Node,
    OwnerReference,
    Pod,
    PodSet,
    PodSpec,
    PodTemplate,
    ResourceFlavorSpec,
    ResourceGroup,
    ShownConditions,
    Taint,
    TemplateMeta,
    TopologySpec,
    WorkloadSpec,
    WorkloadStatus,
)

RESOURCES = (
    "namespaces",
    "nodes",
    "resourceflavors",
    "topologies",
    "admissionchecks",
    "cohorts",
    "clusterqueues",
    "localqueues",
    "workloadpriorityclasses",
    "priorityclasses",
    "limitranges",
    "runtimeclasses",
    *(kind.resource for kind in JOB_KINDS),
    "workloads",
    "pods",
)
"""
What is watched (plural names), in the order in which facts stand in a commit: what others refer to comes first, so
owners come before what they own.
"""

READING = 4
"""
The number of the rules by which `read` makes facts. Raise it whenever the same object gives another fact than before.

The log then holds facts by the old rules of objects that may never change again: a bridge with another number lists
everything and compares, instead of resuming its watches.
"""

CLUSTER_NAMESPACE = "kube-system"
"""The namespace that is as old as its cluster and cannot be deleted: it tells clusters apart."""

KUEUE = "kueue.x-k8s.io/"
QUEUE_LABEL = KUEUE + "queue-name"
PRIORITY_CLASS_LABEL = KUEUE + "priority-class"
MAX_EXEC_TIME_LABEL = KUEUE + "max-exec-time-seconds"
MIN_PARALLELISM = KUEUE + "job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM = KUEUE + "job-completions-equal-parallelism"
WORKLOAD_ANNOTATION = KUEUE + "workload"
ELASTIC_JOB = KUEUE + "elastic-job"
GATED_BY = KUEUE + "admission-gated-by"
"""The annotation that holds a job, and with it its Workload, back until whoever set it takes it away."""
FINALIZER = KUEUE + "resource-in-use"
"""Kueue's finalizer: of Workloads until their job has stopped, of ClusterQueues and flavors while they are in use."""
SCHEDULER_NAME = "headgate"
"""Pods with this `spec.schedulerName` are bound by the binder."""


class UnreadableObjectError(Exception):
    """
    Raised when an API object does not have the form that its kind prescribes.

    The object counts as absent until it changes; correct the field that is named.
    """

    def __init__(self, *, resource: str, name: str, field: str, why: str) -> None:
        where = f", field {field}" if field else ""
        super().__init__(
            f"{resource} {name or '(without a name)'}{where}: {why}. It is treated as absent until it changes; "
            f"correct it with `kubectl edit {resource} {name}`."
        )
        self.resource = resource
        self.name = name
        self.field = field
        self.why = why


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One object as it was read: `key` is that of `key_of`. No fact: it does not concern Headgate."""

    resource: str
    key: str
    uid: str
    fact: Fact | None


# --- the parts of the objects that are decoded ---------------------------------------------------------------------


class _Owner(ApiObject, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(ApiBranch, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Bare(ApiBranch, frozen=True):
    metadata: _Meta = _Meta()


class _NamespaceStatus(ApiObject, frozen=True):
    phase: str = ""


class _Namespace(_Bare, frozen=True):
    status: _NamespaceStatus = _NamespaceStatus()


class _NodeSpec(ApiBranch, frozen=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class _NodeCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""


class _NodeStatus(ApiBranch, frozen=True):
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[_NodeCondition, ...] = ()


class _Node(_Bare, frozen=True):
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Flavor(_Bare, frozen=True):
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class _Topology(_Bare, frozen=True):
    spec: TopologySpec = TopologySpec()


class _Cohort(_Bare, frozen=True):
    spec: CohortSpec = CohortSpec()


class _ClusterQueue(_Bare, frozen=True):
    spec: ClusterQueueSpec = ClusterQueueSpec()


class _LocalQueueStatus(ApiBranch, frozen=True):
    fair_sharing: LocalQueueFairSharingStatus | None = None


class _LocalQueue(_Bare, frozen=True):
    status: _LocalQueueStatus = _LocalQueueStatus()
    spec: LocalQueueSpec = LocalQueueSpec()


class _ConditionsOnly(ApiBranch, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _AdmissionCheck(_Bare, frozen=True, kw_only=True):
    spec: AdmissionCheckSpec
    status: _ConditionsOnly = _ConditionsOnly()


class _WorkloadPriorityClass(_Bare, frozen=True, kw_only=True):
    value: int


class _PriorityClass(_Bare, frozen=True, kw_only=True):
    value: int
    global_default: bool = False


class _LimitRangeSpec(ApiBranch, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class _LimitRange(_Bare, frozen=True):
    spec: _LimitRangeSpec = _LimitRangeSpec()


class _Overhead(ApiBranch, frozen=True):
    pod_fixed: dict[str, str | int | float] = {}


class _RuntimeClass(_Bare, frozen=True):
    overhead: _Overhead | None = None


class _Workload(_Bare, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class _JobSpec(ApiBranch, frozen=True):
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    template: PodTemplate = PodTemplate()


class _JobCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class _UncountedPods(ApiBranch, frozen=True):
    succeeded: tuple[str, ...] = ()


class _JobStatus(ApiBranch, frozen=True):
    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: _UncountedPods | None = None
    conditions: tuple[_JobCondition, ...] = ()


class _Job(_Bare, frozen=True):
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _PodStatus(ApiObject, frozen=True):
    phase: str = "Pending"


class _Pod(_Bare, frozen=True):
    spec: PodSpec = PodSpec()
    status: _PodStatus = _PodStatus()


_bare_decoder = msgspec.json.Decoder(_Bare)
_DECODERS: dict[type, msgspec.json.Decoder[_Bare]] = {}
_Object = TypeVar("_Object", bound=_Bare)


def _decode(kind: type[_Object], raw: bytes) -> _Object:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    decoded = decoder.decode(raw)
    assert isinstance(decoded, kind)
    return decoded


def _renewed(kind: str, raw: bytes) -> bytes:
    """An object in the words of v1beta2. Most are, and are not looked at twice."""
    if not any(field in raw for field in OLD_FIELDS[kind]):
        return raw
    manifest = msgspec.json.decode(raw)
    if not isinstance(manifest, dict):
        return raw
    try:
        return msgspec.json.encode(renew(kind, manifest))
    except VersionError as error:
        raise _WrongFieldError(error.field, error.why) from error


class _WrongFieldError(ValueError):
    """A value that decodes and yet makes no sense, with the field it stands in."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


# --- reading -------------------------------------------------------------------------------------------------------


def key_of(resource: str, raw: bytes) -> str:
    """
    The key of an object: its name, `<namespace>/<name>`, or the reference to a job.

    Raises UnreadableObjectError when it has no readable metadata.
    """
    try:
        metadata = _bare_decoder.decode(raw).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _unreadable(resource, raw, error) from error
    if not metadata.name:
        raise UnreadableObjectError(resource=resource, name="", field="metadata.name", why="it is missing")
    return _key_in(resource, metadata)


def version_of(raw: bytes) -> int:
    """The resource version of an object; 0 when it is no number, or cannot be read."""
    try:
        version = _bare_decoder.decode(raw).metadata.resource_version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0
    return int(version) if version.isdecimal() else 0


def cluster_id_of(raw: bytes) -> str:
    """
    What tells this cluster from every other, from the JSON of its namespace CLUSTER_NAMESPACE.

    It is the namespace's uid and the time of its creation; the latter because clusters for tests may draw the same
    uids whenever they begin anew. Raises UnreadableObjectError when it has no readable metadata.
    """
    try:
        metadata = _bare_decoder.decode(raw).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _unreadable("namespaces", raw, error) from error
    return f"{metadata.uid} {metadata.creation_timestamp or ''}".strip()


def read(resource: str, raw: bytes) -> Seen:
    """
    One object of a resource (its plural name) as a fact.

    Raises UnreadableObjectError when the object is not of the form of its kind; KeyError for a resource that is not in
    RESOURCES.
    """
    reader = _READERS[resource]
    try:
        metadata, fact = reader(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, _WrongFieldError) as error:
        raise _unreadable(resource, raw, error) from error
    if not metadata.name:
        raise UnreadableObjectError(resource=resource, name="", field="metadata.name", why="it is missing")
    return Seen(resource=resource, key=_key_in(resource, metadata), uid=metadata.uid, fact=fact)


def _key_in(resource: str, metadata: _Meta) -> str:
    kind = of_resource(resource)
    return _key(metadata) if kind is None else kind.ref(metadata.namespace, metadata.name).key


def _key(metadata: _Meta) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _unreadable(resource: str, raw: bytes, error: Exception) -> UnreadableObjectError:
    try:
        name = _key(_bare_decoder.decode(raw).metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        name = ""
    if isinstance(error, _WrongFieldError):
        return UnreadableObjectError(resource=resource, name=name, field=error.field, why=str(error))
    match = re.fullmatch(r"(?P<why>.*?) - at `\$\.?(?P<field>[^`]*)`", str(error))
    if match is None:
        return UnreadableObjectError(resource=resource, name=name, field="", why=str(error))
    return UnreadableObjectError(resource=resource, name=name, field=match["field"], why=match["why"])


_Reader = Callable[[bytes], tuple[_Meta, Fact | None]]


def _namespace(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Namespace, raw)
    meta = seen.metadata
    terminating = seen.status.phase == "Terminating" or meta.deletion_timestamp is not None
    return meta, NamespaceObserved(name=meta.name, labels=meta.labels or {}, terminating=terminating)


def _node(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Node, raw)
    meta = seen.metadata
    _check_quantities("status.allocatable", seen.status.allocatable)
    node = Node(
        name=meta.name,
        labels=meta.labels or {},
        taints=seen.spec.taints,
        unschedulable=seen.spec.unschedulable,
        allocatable=seen.status.allocatable,
        ready=any(each.type == "Ready" and each.status == "True" for each in seen.status.conditions),
    )
    return meta, NodeObserved(name=meta.name, node=node)


def _flavor(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Flavor, raw)
    meta = seen.metadata
    return meta, ResourceFlavorObserved(
        name=meta.name,
        spec=seen.spec,
        generation=meta.generation,
        uid=Uid(meta.uid),
        deleting=meta.deletion_timestamp is not None,
        finalizer=_is_held(meta),
    )


def _topology(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Topology, raw)
    return seen.metadata, TopologyObserved(name=seen.metadata.name, spec=seen.spec)


def _cohort(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Cohort, raw)
    meta = seen.metadata
    _check_quotas(seen.spec.resource_groups)
    return meta, CohortObserved(name=meta.name, spec=seen.spec, generation=meta.generation)


def _cluster_queue(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_ClusterQueue, _renewed("ClusterQueue", raw))
    meta, spec = seen.metadata, seen.spec
    _check_quotas(spec.resource_groups)
    return meta, ClusterQueueObserved(
        name=meta.name,
        spec=spec,
        uid=Uid(meta.uid),
        generation=meta.generation,
        deleting=meta.deletion_timestamp is not None,
        finalizer=_is_held(meta),
    )


def _local_queue(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_LocalQueue, raw)
    meta = seen.metadata
    queue = LocalQueueKey(_key(meta))
    fair = seen.status.fair_sharing
    remembered = fair.admission_fair_sharing_status if fair is not None else None
    return meta, LocalQueueObserved(
        queue=queue,
        spec=seen.spec,
        uid=Uid(meta.uid),
        generation=meta.generation,
        consumed=remembered.consumed_resources if remembered is not None else {},
    )


def _admission_check(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_AdmissionCheck, raw)
    active = is_true(seen.status.conditions, "Active")
    return seen.metadata, AdmissionCheckObserved(name=seen.metadata.name, spec=seen.spec, active=active)


def _workload_priority_class(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_WorkloadPriorityClass, raw)
    return seen.metadata, WorkloadPriorityClassObserved(name=seen.metadata.name, value=seen.value)


def _priority_class(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_PriorityClass, raw)
    name = seen.metadata.name
    return seen.metadata, PriorityClassObserved(name=name, value=seen.value, global_default=seen.global_default)


def _limit_range(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_LimitRange, raw)
    for number, item in enumerate(seen.spec.limits):
        for field in ("max", "min", "default", "default_request", "max_limit_request_ratio"):
            _check_quantities(f"spec.limits[{number}].{field}", getattr(item, field))
    return seen.metadata, LimitRangeObserved(limit_range=_key(seen.metadata), limits=seen.spec.limits)


def _runtime_class(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_RuntimeClass, raw)
    overhead = seen.overhead.pod_fixed if seen.overhead is not None else {}
    _check_quantities("overhead.podFixed", overhead)
    return seen.metadata, RuntimeClassObserved(name=seen.metadata.name, overhead=overhead)


def _workload(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Workload, _renewed("Workload", raw))
    meta, spec, status = seen.metadata, seen.spec, seen.status
    spec = replace(spec, pod_sets=tuple(_pod_set(number, pod_set) for number, pod_set in enumerate(spec.pod_sets)))
    if status.admission is not None:
        for assignment in status.admission.pod_set_assignments:
            _check_quantities("status.admission.podSetAssignments.resourceUsage", assignment.resource_usage)
    finished = find(status.conditions, "Finished")
    owner = _controller(meta)
    has_history = bool(status.conditions) or status.admission is not None
    return meta, WorkloadObserved(
        workload=WorkloadKey(_key(meta)),
        uid=Uid(meta.uid),
        created_ms=_created(meta),
        spec=spec,
        generation=meta.generation,
        labels=_kueue_only(meta.labels),
        annotations=_kueue_only(meta.annotations),
        owner=owner,
        deleting=meta.deletion_timestamp is not None,
        finalizer=_is_held(meta),
        checks=tuple(check for check in status.admission_checks if _is_answer(check)),
        reclaimable_pods=status.reclaimable_pods,
        finished=finished if finished is not None and finished.status == "True" else None,
        preemption_gates=status.preemption_gates,
        pods_ready=None if _is_pods_ready_ours(owner) else find(status.conditions, PODS_READY),
        deactivation_target=find(status.conditions, DEACTIVATION_TARGET),
        taken_over=status if has_history else None,
        shown=_shown(meta, status),
    )


def _shown(meta: _Meta, status: WorkloadStatus) -> ShownConditions | None:
    """The conditions in which others may say something that Headgate says too; what of it is news is asked later."""
    if not status.conditions:
        return None
    version = meta.resource_version
    return ShownConditions(
        version=int(version) if version.isdecimal() else 0,
        quota_reserved=find(status.conditions, QUOTA_RESERVED),
        evicted=find(status.conditions, EVICTED),
        requeued=find(status.conditions, REQUEUED),
    )


def _is_answer(check: CheckState) -> bool:
    """Whether a check's controller has written this: a state, or why it is still pending; not how it is reset."""
    return check.state != "Pending" or (check.message != "" and not check.message.startswith(RESET_MESSAGE))


def _is_pods_ready_ours(owner: OwnerReference | None) -> bool:
    """Whether Headgate writes the PodsReady condition of what this owns: a Job, or the parent of variants."""
    if owner is None:
        return False
    return of_owner(owner) is not None or (owner.group, owner.kind) == (KUEUE.rstrip("/"), "Workload")


def _pod_set(number: int, pod_set: PodSet) -> PodSet:
    _check_requests(f"spec.podSets[{number}].template.spec", pod_set.template.spec)
    return replace(pod_set, template=_trimmed(pod_set.template))


def _job(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Job, raw)
    meta, spec, status = seen.metadata, seen.spec, seen.status
    labels, annotations = meta.labels or {}, meta.annotations or {}
    queue = labels.get(QUEUE_LABEL) or annotations.get(QUEUE_LABEL, "")
    if not queue:
        return meta, None
    _check_requests("spec.template.spec", spec.template.spec)
    finished, message = _finish(status)
    is_elastic = annotations.get(ELASTIC_JOB) == "true"
    job = Job(
        uid=meta.uid,
        created_ms=_created(meta),
        queue_name=queue,
        priority_class=labels.get(PRIORITY_CLASS_LABEL, ""),
        suspended=bool(spec.suspend),
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        min_parallelism=_whole(annotations.get(MIN_PARALLELISM)),
        completions_equal_parallelism=annotations.get(COMPLETIONS_EQUAL_PARALLELISM, "").lower() in {"1", "t", "true"},
        max_execution_time_seconds=_whole(labels.get(MAX_EXEC_TIME_LABEL)),
        gated_by=annotations.get(GATED_BY, ""),
        elastic=is_elastic,
        generation=meta.generation if is_elastic else 0,
        template=_trimmed(spec.template),
        active=status.active,
        ready=status.ready or 0,
        succeeded=status.succeeded,
        failed=status.failed,
        done_indexes=_done_indexes(spec, status),
        pods_ready=_are_pods_ready(spec, status),
        finished=finished,
        message=message,
        deleting=meta.deletion_timestamp is not None,
    )
    return meta, JobObserved(job=BATCH_JOB.ref(meta.namespace, meta.name).key, spec=job)


def _are_pods_ready(spec: _JobSpec, status: _JobStatus) -> bool:
    """Whether as many pods of a Job as run at a time are ready or have succeeded (Kueue's PodsReady of a Job)."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    wanted = parallelism if spec.completions is None else min(parallelism, spec.completions)
    uncounted = status.uncounted_terminated_pods
    succeeded = status.succeeded + (len(uncounted.succeeded) if uncounted is not None else 0)
    return succeeded + (status.ready or 0) >= wanted


def _done_indexes(spec: _JobSpec, status: _JobStatus) -> int | None:
    """
    How many indexes of an Indexed Job are completed or have failed for good (Kueue's terminalIndexesCount).

    Those beyond the completions, and those of intervals that make no sense, are none.
    """
    if spec.completion_mode != "Indexed":
        return None
    completions = spec.completions if spec.completions is not None else spec.parallelism or 1
    intervals = []
    for interval in f"{status.completed_indexes},{status.failed_indexes}".split(","):
        first, dash, last = interval.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            intervals.append((int(first), min(int(last or first), completions - 1)))
    # They may overlap, and be too long to be spelt out.
    done, counted = 0, -1
    for start, end in sorted(intervals):
        done += max(0, end - max(start, counted + 1) + 1)
        counted = max(counted, end)
    return done


def _finish(status: _JobStatus) -> tuple[Literal["Complete", "Failed"] | None, str]:
    for condition in status.conditions:
        if condition.status == "True":
            if condition.type == "Complete":
                return "Complete", condition.message
            if condition.type == "Failed":
                return "Failed", condition.message
    return None, ""


def _whole(text: str | None) -> int | None:
    """A positive number in a label or annotation. What is none counts as not given, as with Kueue."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and int(text) > 0 else None


def _pod(raw: bytes) -> tuple[_Meta, Fact | None]:
    seen = _decode(_Pod, raw)
    meta, spec = seen.metadata, seen.spec
    workload = (meta.annotations or {}).get(WORKLOAD_ANNOTATION, "")
    ours = spec.scheduler_name == SCHEDULER_NAME or workload != "" or _is_gated_for_us(spec)
    if seen.status.phase in {"Succeeded", "Failed"} or not (spec.node_name or ours):
        return meta, None
    _check_requests("spec", spec)
    # Pending and Running hold the same room; that a bound pod has started is told by its job's counters.
    pod = Pod(
        uid=meta.uid,
        created_ms=_created(meta),
        spec=replace(spec, priority_class_name="", priority=None, runtime_class_name=None),
        workload=f"{meta.namespace}/{workload}" if workload else "",
        owner=_controller(meta),
        deleting=meta.deletion_timestamp is not None,
    )
    return meta, PodObserved(pod=PodKey(_key(meta)), spec=pod)


def _is_gated_for_us(spec: PodSpec) -> bool:
    return any(gate.name.startswith(KUEUE) for gate in spec.scheduling_gates)


_READERS: dict[str, _Reader] = {
    "namespaces": _namespace,
    "nodes": _node,
    "resourceflavors": _flavor,
    "topologies": _topology,
    "admissionchecks": _admission_check,
    "cohorts": _cohort,
    "clusterqueues": _cluster_queue,
    "localqueues": _local_queue,
    "workloadpriorityclasses": _workload_priority_class,
    "priorityclasses": _priority_class,
    "limitranges": _limit_range,
    "runtimeclasses": _runtime_class,
    BATCH_JOB.resource: _job,
    "workloads": _workload,
    "pods": _pod,
}
assert tuple(_READERS) == RESOURCES

# --- trimming and checking -----------------------------------------------------------------------------------------


def _created(meta: _Meta) -> UnixMs:
    if meta.creation_timestamp is None:
        return UnixMs(0)
    try:
        return parse_rfc3339(meta.creation_timestamp)
    except ValueError as error:
        why = f"{meta.creation_timestamp!r} is not a time such as 2026-01-15T10:00:00Z"
        raise _WrongFieldError("metadata.creationTimestamp", why) from error


def _controller(meta: _Meta) -> OwnerReference | None:
    for owner in meta.owner_references or ():
        if owner.controller:
            return OwnerReference(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid)
    return None


def _is_held(meta: _Meta) -> bool:
    return FINALIZER in (meta.finalizers or ())


def _kueue_only(labels: dict[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (labels or {}).items() if key.startswith(KUEUE)}


def _trimmed(template: PodTemplate) -> PodTemplate:
    metadata = TemplateMeta(
        labels=_kueue_only(template.metadata.labels), annotations=_kueue_only(template.metadata.annotations)
    )
    return replace(template, metadata=metadata)


def _check_quotas(groups: Iterable[ResourceGroup]) -> None:
    for group_number, group in enumerate(groups):
        for flavor in group.flavors:
            for quota in flavor.resources:
                where = f"spec.resourceGroups[{group_number}].flavors.{flavor.name}.{quota.name}"
                for field in ("nominal_quota", "borrowing_limit", "lending_limit"):
                    quantity = getattr(quota, field)
                    if quantity is not None:
                        _check_quantities(where, {field: quantity})


def _check_requests(where: str, spec: PodSpec) -> None:
    for number, container in enumerate((*spec.containers, *spec.init_containers)):
        _check_quantities(f"{where}.containers[{number}].resources.requests", container.resources.requests)
        _check_quantities(f"{where}.containers[{number}].resources.limits", container.resources.limits)
    _check_quantities(f"{where}.overhead", spec.overhead)
    if spec.resources is not None:
        _check_quantities(f"{where}.resources.requests", spec.resources.requests)
        _check_quantities(f"{where}.resources.limits", spec.resources.limits)


def _check_quantities(where: str, quantities: dict[str, str | int | float]) -> None:
    for name, quantity in quantities.items():
        try:
            parse_quantity(quantity)
        except QuantityError as error:
            raise _WrongFieldError(f"{where}.{name}", str(error)) from error
