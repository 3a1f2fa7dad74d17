"""
Quarantine: objects that are set aside because of a defect.

An object is set aside when an event about it cannot be folded, or when a machine has failed over it and records that
(`object.quarantined`). Everything here works on the tables in plain steps that do not read the object's contents, and
the indexes are rebuilt afterwards: what has failed over the object cannot fail again while it is set aside.

A Workload is removed from the tables and with them from every queue; its record is kept. What it holds stays charged to
its ClusterQueue and cannot be preempted, until its object is gone, is observed as finished, or its Job is. Until then
only the newest fact of all events about it is kept. Variants of one parent are set aside together with it: they are one
job. An object of any other kind keeps its last form. The next fact about it is folded as usual; an object whose event
could not be folded leaves quarantine with the first one that can. One that a machine has failed over is ignored by that
machine (`is_aside`) until its generation changes.

`object.released` ends a quarantine: the record is restored, to be evaluated from the start if it is pending, and the
newest fact is folded.
"""
# Over 400 lines: quarantine, the events in the meantime and the release work on the same records, step after step.

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from headgate import __version__
from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import title
from headgate.core.api.watched_kinds import KIND_OF
from headgate.core.fold import topology_usage
from headgate.core.fold.objects import ANY, free, tree_in
from headgate.core.fold.transitions import touch, usage_of
from headgate.core.kubernetes.pod_manifests import shown_pod
from headgate.core.state.attribution import ObjectFailedError
from headgate.core.state.error_text import describe, where
from headgate.core.state.tables import (
    HOLDS_QUOTA,
    PENDING,
    ClusterQueueRecord,
    LocalQueueRecord,
    QuarantineRecord,
    Stage,
    State,
    Workload,
)
from headgate.core.workload.variants import is_variant, parent_uid
from headgate.events import effects, facts, queueing
from headgate.events.base import EventBase, Producer, tag_of
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import JobKey, LocalQueueKey, PodKey, Seq, Uid, WorkloadKey
from headgate.events.objects import Admission, Job, OwnerReference, Pod
from headgate.events.registry import MODULES, Event
from headgate.events.subjects import subject_key

VERSION: Final = __version__
FOLD: Final = "fold"
"""`QuarantineRecord.process` of an object with an event that could not be folded."""

KINDS: Final[Mapping[str, str]] = {
    **{kind.lower(): kind for kind in KIND_OF.values()},
    "variant": "Workload",
    "job": "Job",
    "configuration": "Configuration",
    "schedulerconfiguration": "KubeSchedulerConfiguration",
}
"""The first word of an event's tag -> the kind of the object that the event is about."""

_REQUEST: Final = "provisioningrequest"
"""What is decided about one is about its workload."""


def kind_of(resource: str) -> str:
    """
    The kind of a watched resource; "Job" for jobs of every kind.

    Raises KeyError for a resource that is not watched.
    """
    return "Job" if job_kinds.of_resource(resource) is not None else KIND_OF[resource]


CONFIGURATION: Final = "Configuration/"
"""The name of the configuration in `Tables.quarantine`."""

QUARANTINED: Final = "headgate.dev/Quarantined"
"""The condition of a Workload in quarantine."""

RETRY: Final = "headgate.dev/retry"
"""The annotation that requests a retry of an object in quarantine, each time with another value."""


class ObjectRef(NamedTuple):
    """An object: its kind, its name or `<namespace>/<name>`, its uid where that is known."""

    kind: str
    key: str
    uid: str = ""

    @property
    def name(self) -> str:
        """Its key in `Tables.quarantine`."""
        return f"{self.kind}/{self.key}"


class EventPart(NamedTuple):
    """A part of an event: the commit's position, the event's number in it, the element's number in the event."""

    seq: Seq
    nth: int
    sub: int


class Failure(NamedTuple):
    """Which object failed, and why."""

    object: ObjectRef
    error: str
    where: str


class EventFailedError(Exception):
    """
    Raised by the fold when an event cannot be applied. The state must not be used any more.

    `event` is the element of the event that failed: an event about several objects is folded object by object.
    """

    def __init__(self, at: EventPart, event: Event, error: Exception) -> None:
        self.at = at
        self.event = event
        self.own = subject_of(event)
        named = ObjectRef(error.kind, error.key) if isinstance(error, ObjectFailedError) else self.own
        # An error that passed through `about` has the description from its origin.
        text, line = (
            (error.error, error.where) if isinstance(error, ObjectFailedError) else (describe(error), where(error))
        )
        self.named = Failure(named, text, line)
        super().__init__(
            f"position {at.seq}.{at.nth}: {tag_of(event)} of {self.own.kind} {self.own.key or '(none)'} cannot be "
            f"applied: {text} in {line}"
        )


class Treatments:
    """
    What to do at events that could not be applied.

    At each of them the indexes are rebuilt. The objects named there are set aside before the event is applied, and the
    event itself is not applied when it is about one of these.
    """

    def __init__(self) -> None:
        self._at: dict[Seq, dict[tuple[int, int], list[Failure]]] = {}

    def __contains__(self, seq: Seq) -> bool:
        return seq in self._at

    def of(self, at: EventPart) -> Sequence[Failure] | None:
        """The objects to set aside before this event; None when it never failed."""
        return self._at.get(at.seq, {}).get((at.nth, at.sub))

    def all_of(self, seq: Seq) -> list[tuple[EventPart, Failure]]:
        """All objects that are set aside at a position, and where."""
        found = self._at.get(seq, {})
        return [(EventPart(seq, *where), failure) for where, failures in found.items() for failure in failures]

    def failed_at(self, where: str, *, behind: Seq) -> list[str]:
        """The names of the objects set aside behind a position because of a failure in this line."""
        return [
            failure.object.name
            for seq, events in self._at.items()
            if seq > behind
            for failures in events.values()
            for failure in failures
            if failure.where == where
        ]

    def note(self, failed: EventFailedError) -> None:
        """
        Record what to do about a failure at the next attempt.

        Raises the failure when nothing is left to try: setting aside has failed, or has not helped.
        """
        events = self._at.setdefault(failed.at.seq, {})
        failures = events.get((failed.at.nth, failed.at.sub))
        if failures is None:
            events[failed.at.nth, failed.at.sub] = []
            return
        done = {failure.object.name for failure in failures}
        if failed.own.name in done:
            raise failed
        named = failed.named
        if named.object.name in done:
            named = named._replace(object=failed.own)
        failures.append(named)


def _uid_in(manifest: facts.Manifest) -> str:
    try:
        return shown_pod(manifest).uid
    except msgspec.MsgspecError:
        # The object is to be named all the more if it is none.
        return ""


def subject_of(event: EventBase) -> ObjectRef:
    """The object that an event, or the element of one, is about."""
    if isinstance(event, queueing.HeadsOffered):
        return ObjectRef("Workload", event.heads[0].workload, event.heads[0].uid) if event.heads else ObjectRef("", "")
    if isinstance(event, queueing.HeadsWithdrawn):
        return ObjectRef("ClusterQueue", event.cluster_queues[0] if event.cluster_queues else "")
    if isinstance(event, queueing.LocalQueuesSampled):
        return ObjectRef("LocalQueue", event.queues[0] if event.queues else "")
    if isinstance(event, effects.ObjectQuarantined | effects.ObjectReleased):
        return ObjectRef(event.kind, event.name, event.uid)
    if isinstance(event, facts.ObjectObserved | facts.ObjectDeleted):
        kind = KIND_OF.get(event.resource, event.resource)
        return ObjectRef(kind, event.name, _uid_in(event.object) if isinstance(event, facts.ObjectObserved) else "")
    entity = tag_of(event).partition(".")[0]
    if isinstance(event, facts.JobObserved | facts.PodObserved | facts.ProvisioningRequestObserved):
        uid: str = event.spec.uid
    else:
        uid = getattr(event, "job_uid" if entity == "job" and not isinstance(event, facts.JobDeleted) else "uid", "")
    if (entity not in KINDS or entity == _REQUEST) and (workload := getattr(event, "workload", "")):
        return ObjectRef("Workload", workload, uid)
    return ObjectRef(KINDS.get(entity, entity), subject_key(event), uid)


def elements(event: Event) -> Sequence[Event]:
    """An event about several objects, as one of each."""
    match event:
        case queueing.HeadsOffered(heads=heads) if len(heads) > 1:
            return [replace(event, heads=(head,)) for head in heads]
        case queueing.HeadsWithdrawn(cluster_queues=names) if len(names) > 1:
            return [replace(event, cluster_queues=(name,)) for name in names]
        case queueing.LocalQueuesSampled(queues=queues) if len(queues) > 1:
            return [replace(event, queues=(queue,)) for queue in queues]
        case _:
            return (event,)


class about_event:  # noqa: N801 - reads as a statement
    """`about` the object of an event. The object is determined only after a failure."""

    __slots__ = ("event",)

    def __init__(self, event: EventBase) -> None:
        self.event: Final = event

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return
        subject = subject_of(self.event)
        if isinstance(error, ObjectFailedError):
            error.around.append((subject.kind, subject.key))
        else:
            raise ObjectFailedError(subject.kind, subject.key, error) from error


# --- queries ---------------------------------------------------------------------------------------------------------


def is_aside(state: State, kind: str, key: str, process: Producer) -> bool:
    """Whether the machine of a process has failed over an object, so that the machine ignores it."""
    if not state.quarantine:
        return False
    record = state.quarantine.get(f"{kind}/{key}")
    return record is not None and record.process == process.value


def is_about_aside(state: State, event: Event, process: Producer) -> bool:
    """
    Whether an event is about an object that the machine of a process has failed over, so that the machine ignores it.

    One about several objects is processed because of the others.
    """
    if not state.quarantine or len(elements(event)) > 1:
        return False
    subject = subject_of(event)
    return is_aside(state, subject.kind, subject.key, process)


def to_blame(state: State, failed: ObjectFailedError, process: Producer) -> ObjectRef | None:
    """The innermost object that a machine has failed over and that it does not ignore yet; None without one."""
    for kind, key in ((failed.kind, failed.key), *failed.around):
        if kind and key and not is_aside(state, kind, key, process):
            return ObjectRef(kind, key)
    return None


def has_workload_aside(state: State, owner_uid: str) -> bool:
    """Whether a Workload of this owner is in quarantine: its owner is not changed then."""
    return owner_uid in state.index.set_aside_owners


def is_charged(state: State, cluster_queue: str) -> bool:
    """Whether an object in quarantine holds quota of a ClusterQueue."""
    return any(record.charged and record.cluster_queue == cluster_queue for record in state.quarantine.values())


def find(state: State, subject: ObjectRef) -> QuarantineRecord | None:
    """The entry of an object; None when it is another object of the same name."""
    record = state.quarantine.get(subject.name)
    if record is None or (record.uid and subject.uid and record.uid != subject.uid):
        return None
    return record


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


def retry_of(raw: bytes) -> str | None:
    """The retry request that an object carries; None without one."""
    try:
        annotations = msgspec.json.decode(raw, type=_Annotated).metadata.annotations
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return (annotations or {}).get(RETRY)


def _uid_of(state: State, blamed: ObjectRef) -> Uid | None:
    """The uid of an object as the state has it; None for one that it does not have, or not the uid of."""
    found: Workload | Job | Pod | ClusterQueueRecord | LocalQueueRecord | None = None
    match blamed.kind:
        case "Workload":
            found = state.workloads.get(WorkloadKey(blamed.key))
        case "Job":
            job = state.jobs.get(JobKey(blamed.key))
            found = job.job if job is not None else None
        case "Pod":
            pod = state.pods.get(PodKey(blamed.key))
            found = pod.pod if pod is not None else None
        case "ClusterQueue":
            found = state.cluster_queues.get(blamed.key)
        case "LocalQueue":
            found = state.local_queues.get(LocalQueueKey(blamed.key))
        case _:
            pass
    return Uid(found.uid) if found is not None else None


def event_of(state: State, blamed: ObjectRef, failed: ObjectFailedError) -> effects.ObjectQuarantined:
    """The event that a process appends when its machine has failed over an object."""
    return effects.ObjectQuarantined(
        kind=blamed.kind,
        name=blamed.key,
        uid=_uid_of(state, blamed) or Uid(""),
        error=failed.error,
        where=failed.where,
        version=VERSION,
    )


def to_retry(state: State, producer: Producer) -> tuple[Event, ...]:
    """Releases of objects that another version of a process has failed over: this version may succeed."""
    failed = [each for each in state.quarantine.values() if each.process == producer.value and each.version != VERSION]
    why = f"version {VERSION} tries again"
    released: list[Event] = [
        effects.ObjectReleased(kind=each.kind, name=each.key, uid=each.uid, why=why) for each in failed
    ]
    if producer is Producer.INFORMER_BRIDGE:
        jobs = job_kinds.resources_of(job_kinds.enabled(state.configuration))
        released += (shown_again(each) for each in (*KIND_OF, *jobs) if any(kind_of(each) == f.kind for f in failed))
    return tuple(released)


def shown_again(resource: str) -> facts.InformersSynced:
    """A request to list a resource again: a resumed watch does not repeat objects that the bridge could not read."""
    return facts.InformersSynced(resource_versions={resource: ""})


def shown_object(kind: str, key: str) -> str:
    """The display name of an object that may be set aside: `Workload team-a/train`, `Job team-a/train`."""
    return title(key) if kind == "Job" else f"{kind} {key}"


def retried_by(record: QuarantineRecord) -> str:
    """How to retry an object in quarantine, as text for users."""
    by_hand = f"`headgate quarantine retry {shown_object(record.kind, record.key)}`"
    if record.process != FOLD:
        return f"another version of the {record.process} tries again when it starts; or {by_hand}"
    if record.kind == "Workload":
        return f"another version folds the log again from before it when it starts; or {by_hand}"
    return f"the next change of the object is folded as ever; or {by_hand}"


def version_to_retry(state: State) -> str | None:
    """Another version that could not fold an event, so that this one should retry; None when there was none."""
    others = [each.version for each in state.quarantine.values() if each.process == FOLD and each.version != VERSION]
    return others[0] if others else None


# --- setting aside -------------------------------------------------------------------------------------------------


def set_aside(state: State, failure: Failure, event: Event, at: EventPart, process: str = FOLD) -> None:
    """
    Remove an object from the tables, if it is a Workload, and record why.

    `event` is the one at which it failed, or was about to. The indexes must be rebuilt before anything else.
    """
    subject = failure.object
    record = find(state, subject)
    if record is None:
        _drop_former(state, subject, at.seq)
        record = state.quarantine[subject.name] = QuarantineRecord(kind=subject.kind, key=subject.key)
        record.since_ms = state.now_ms
    record.position, record.index, record.process = at.seq, at.nth, process
    record.event = tag_of(event)
    record.error, record.where, record.version = failure.error, failure.where, VERSION
    record.uid = Uid(subject.uid) or record.uid
    if subject.kind == "Workload":
        _set_aside_workload(state, record, at.seq)
        for relative in _relatives(state, record):
            again = failure._replace(object=relative, error=f"set aside with {subject.key}: {failure.error}")
            set_aside(state, again, event, at, process)
    else:
        record.generation = _generation_of(state, subject)


def set_aside_event(state: State, event: Event, at: EventPart) -> None:
    """
    Skip an event: the record of its object, which is set aside, keeps what is needed of it.

    The deletion of an object ends its quarantine, too, where the state no longer has it.
    """
    state.set_aside += 1
    subject = subject_of(event)
    record = state.quarantine[subject.name]
    if isinstance(event, effects.ObjectReleased):
        _note_request(state, event)
    elif isinstance(event, facts.WorkloadDeleted):
        _drop(state, subject.name, at.seq)
    else:
        _keep(state, record, event, at.seq)


def _set_aside_workload(state: State, record: QuarantineRecord, seq: Seq) -> None:
    key = WorkloadKey(record.key)
    workload = state.workloads.pop(key, None)
    if workload is None:
        return
    state.unconfirmed.pop(key, None)
    record.uid = workload.uid
    record.workload = workload
    record.cluster_queue = workload.cluster_queue
    if workload.stage in HOLDS_QUOTA:
        held = state.index.usage_of.get(key, {})
        record.charged = {f"{flavor}/{resource}": value for (flavor, resource), value in held.items() if value}
    for name, sleep in list(state.sleeps.items()):
        if sleep.blocked_by == key:
            sleep.blocked_by, sleep.blocked = WorkloadKey(""), None
            if not sleep.shapes:
                del state.sleeps[name]
    for usage in state.local_queue_usage.values():
        usage.penalties.pop(key, None)
    if workload.cluster_queue and workload.stage in PENDING:
        # It no longer blocks other workloads or reserves quota against them.
        free(state, tree_in(state, workload.cluster_queue), (ANY,), seq)


def _relatives(state: State, record: QuarantineRecord) -> list[ObjectRef]:
    """The Workloads that form one job with this one: its parent, its variants, the other variants of its parent."""
    workload = record.workload
    if workload is None:
        return []
    parent = parent_uid(workload) or workload.uid
    return [
        ObjectRef("Workload", each.key, each.uid)
        for each in state.workloads.values()
        if parent_uid(each) == parent or (is_variant(workload) and each.uid == parent)
    ]


def _generation_of(state: State, subject: ObjectRef) -> int:
    tables = {"ClusterQueue": state.cluster_queues, "LocalQueue": state.local_queues, "ResourceFlavor": state.flavors}
    found = tables.get(subject.kind, {}).get(subject.key)  # type: ignore[attr-defined]
    return getattr(found, "generation", 0)


# --- during quarantine -----------------------------------------------------------------------------------------------


def applies(state: State, event: Event, seq: Seq) -> bool:
    """Whether an event is to be applied while something is in quarantine. Others are kept where necessary."""
    subject = subject_of(event)
    record = state.quarantine.get(subject.name)
    if record is None or isinstance(event, effects.ObjectQuarantined | effects.ObjectReleased):
        return True
    if find(state, subject) is None:
        # About another object of that name. If that one exists, ours is gone.
        if tag_of(event).endswith(".observed"):
            _drop(state, subject.name, seq)
        return True
    if record.kind != "Workload":
        return True
    if isinstance(event, queueing.WorkloadWoken) and event.scope != "workload":
        # It names the workload by which the shape is identified, and wakes others too.
        return True
    if isinstance(event, facts.WorkloadDeleted):
        _drop(state, subject.name, seq)
    else:
        _keep(state, record, event, seq)
        state.overtaken += 1
    return False


def applied(state: State, event: Event, seq: Seq) -> None:
    """Update quarantine records after an event that was applied."""
    if isinstance(event, facts.JobObserved) and event.spec.finished is not None:
        _end_charges(state, event.spec.uid, seq)
    subject = subject_of(event)
    record = state.quarantine.get(subject.name)
    if record is None or record.kind == "Workload":
        return
    if record.process == FOLD:
        is_over = _is_fact(event) or tag_of(event) == record.event
    else:
        changed = getattr(event, "generation", record.generation) != record.generation
        is_over = _is_fact(event) and (changed or tag_of(event).endswith(".deleted"))
    if is_over:
        del state.quarantine[subject.name]


def _is_fact(event: EventBase) -> bool:
    return MODULES[tag_of(event)] == "fact"


def _keep(state: State, record: QuarantineRecord, event: Event, seq: Seq) -> None:
    """Keep the newest fact about an object, and record the quota that it may hold."""
    if record.kind == "Workload":
        state.unconfirmed.pop(WorkloadKey(record.key), None)
    if _is_fact(event):
        record.fact = event  # type: ignore[assignment]
        _list_owners(state)
    if isinstance(event, facts.WorkloadObserved):
        if event.finished is not None:
            _uncharge(state, record, seq)
        elif event.taken_over is not None and event.taken_over.admission is not None and record.workload is None:
            # The log has it from this status only.
            _charge(state, record, event.taken_over.admission)
    elif isinstance(event, QuotaReserved) and not record.charged:
        # The scheduler has reserved the quota: no other workload may get it.
        _charge(state, record, event.admission)
    elif isinstance(event, queueing.WorkloadFinished | queueing.WorkloadReleased | queueing.WorkloadHeld):
        # The queue manager has observed that nothing of it runs any more.
        _uncharge(state, record, seq)


def _charge(state: State, record: QuarantineRecord, admission: Admission) -> None:
    try:
        held = usage_of(admission)
    except Exception:  # noqa: BLE001 - what cannot be read cannot be charged
        return
    _uncharge(state, record, state.position)
    record.cluster_queue, record.admission = admission.cluster_queue, admission
    record.charged = {f"{flavor}/{resource}": value for (flavor, resource), value in held.items() if value}
    _add(state, record, 1)


def _uncharge(state: State, record: QuarantineRecord, seq: Seq) -> None:
    """Release what an object in quarantine held."""
    if record.charged:
        _add(state, record, -1)
        free(state, tree_in(state, record.cluster_queue), record.charged, seq)
        record.charged, record.admission = {}, None


def _add(state: State, record: QuarantineRecord, sign: int) -> None:
    """Adjust the usage of its ClusterQueue by what an object in quarantine holds."""
    total = state.index.usage.setdefault(record.cluster_queue, {})
    for name, value in record.charged.items():
        flavor, _, resource = name.partition("/")
        left = total.get((flavor, resource), 0) + sign * value
        if left:
            total[flavor, resource] = left
        else:
            total.pop((flavor, resource), None)
    if sign < 0:
        topology_usage.vacate(state, WorkloadKey(record.key))
    else:
        topology_usage.occupy_aside(state, record)
    touch(state, record.cluster_queue)


def _end_charges(state: State, owner_uid: str, seq: Seq) -> None:
    """The Job of a Workload in quarantine is over: nothing runs any more."""
    for record in state.quarantine.values():
        if _owner_uid(record) == owner_uid:
            _uncharge(state, record, seq)


def owner_of(record: QuarantineRecord) -> OwnerReference | None:
    """The owner of an object in quarantine, if the log has it."""
    seen = record.workload if record.workload is not None else record.fact
    owner = getattr(seen, "owner", None)
    return owner if isinstance(owner, OwnerReference) else None


def _owner_uid(record: QuarantineRecord) -> str:
    owner = owner_of(record)
    return owner.uid if owner is not None else ""


def _list_owners(state: State) -> None:
    owners = {_owner_uid(each): WorkloadKey(each.key) for each in state.quarantine.values() if each.kind == "Workload"}
    owners.pop("", None)
    state.index.set_aside_owners = owners


def _drop(state: State, name: str, seq: Seq) -> None:
    _uncharge(state, state.quarantine.pop(name), seq)
    state.retried.pop(name, None)
    _list_owners(state)


def _drop_former(state: State, subject: ObjectRef, seq: Seq) -> None:
    if subject.name in state.quarantine:
        _drop(state, subject.name, seq)


# --- the events ----------------------------------------------------------------------------------------------------


def quarantined(state: State, event: effects.ObjectQuarantined, logged: LoggedCommit, at: EventPart) -> bool:
    """A machine has failed over an object. False when that object no longer exists."""
    subject = ObjectRef(event.kind, event.name, event.uid)
    if event.kind == "Workload" and event.uid:
        workload = state.workloads.get(WorkloadKey(event.name))
        if workload is None or workload.uid != event.uid:
            state.overtaken += 1
            return False
    set_aside(state, Failure(subject, event.error, event.where), event, at, logged.commit.producer.value)
    state.quarantine[subject.name].version = event.version
    return True


def released(state: State, event: effects.ObjectReleased) -> tuple[facts.Fact, ...] | None:
    """
    Restore an object. The indexes must be rebuilt, and then the returned events be applied.

    None when it is not in quarantine.
    """
    record = find(state, ObjectRef(event.kind, event.name, event.uid))
    if record is None:
        state.overtaken += 1
        return None
    _note_request(state, event)
    del state.quarantine[f"{event.kind}/{event.name}"]
    if record.workload is not None:
        state.workloads[record.workload.key] = _as_new(record.workload)
    return (record.fact,) if record.fact is not None else ()


def _note_request(state: State, event: effects.ObjectReleased) -> None:
    if event.request:
        state.retried[f"{event.kind}/{event.name}"] = event.request


def _as_new(workload: Workload) -> Workload:
    """A record as it is restored: a pending one is evaluated from the start, and its status is written again."""
    workload.applied, workload.taken_over = "", None
    workload.refused, workload.refused_code = (), 0
    if workload.stage in PENDING:
        workload.stage = Stage.NEW
        workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
        workload.preemptor = workload.sticky = False
    return workload


def reindex(state: State) -> None:
    """Charge what objects in quarantine hold, and list their owners, in rebuilt indexes that lack them."""
    for record in state.quarantine.values():
        if record.charged:
            _add(state, record, 1)
    _list_owners(state)
