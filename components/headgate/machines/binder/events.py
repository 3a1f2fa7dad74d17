"""
The binder's Kubernetes Events: what `kubectl describe` shows under a Workload and a Job, in Kueue's wording.

Events are for people who inspect one object, and each costs the API server a quarter of an admission. So they are
derived from the log as it is folded, and limited in three ways. Which: `summary` omits Events whose content is in the
conditions or implied by another Event (QuotaReserved directly before Admitted, CreatedWorkload, FinishedWorkload),
`all` writes what Kueue writes, `off` writes none. How often: the same reason about the same object once per REPEAT_MS,
and the reason why a workload waits only if it still waits after DELAY_MS. How many: a budget that shrinks under load;
at most WAITING_MAX wait for it, the newest are kept, and `dropped` counts the others. Events about pods wait by
themselves, as long as those of a kube-scheduler: it loses none, and creates as many a second as its client may.

Repetitions are counted, as Kubernetes' recorders do: Events of one reason about one object, each within SERIES_MS of
the one before, are one Event with a series. It keeps its first note; its count is updated at the second occurrence and
then every REFRESH_MS.

An Event's name consists of the name of its object and the log position that it reports, so that a repeated one is
answered 409 and the first one stays. Positions from before this binder led are not reported: a restart writes no Event
again. Events that the API server refuses are dropped: nothing depends on an Event.
"""
# Over 400 lines: deriving, delaying, counting and sending Events work on the same list of those that wait.

from collections import OrderedDict, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, assert_never, get_args

import msgspec

from headgate.core.api.job_kinds import kind_of, shown_name
from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.kubernetes import conditions
from headgate.core.machine.api_results import is_success
from headgate.core.machine.contract import MERGE_PATCH, Call, Command, Completed
from headgate.core.preemption import preempted_event_message, preemptor_event_message
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.status import event_messages
from headgate.core.status.event_messages import JOB_KEPT, WORKLOAD_KEPT
from headgate.core.status.server_side_apply import API_VERSION, Json
from headgate.core.workload.concurrent_admission import NO_VARIANT, VARIANT_EVICTED
from headgate.core.workload.owners import TOO_DEEP, is_job, job_key, owner_uid
from headgate.core.workload.slices import SLICE_REPLACED
from headgate.core.workload.stops import NO_MATCHING_WORKLOAD, PARENT_NOT_ADMITTED, WORKLOAD_DELETED, WORKLOAD_EVICTED
from headgate.core.workload.unadmitted_reasons import shown_reason
from headgate.core.workload.variants import GATE
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase
from headgate.events.commit import Position
from headgate.events.families import OfWorkload
from headgate.events.ids import JobKey, JobRef, PodKey, UnixMs, WorkloadKey, split_key
from headgate.events.registry import Event
from headgate.machines.binder.event_note import EventNote, OfPod, about_placement
from headgate.machines.binder.job_edits import OWNERS_ADDED, JobEdits
from headgate.machines.binder.retention import Deleted

if TYPE_CHECKING:
    from typing_extensions import TypeIs

EventDetail = Literal["off", "summary", "all"]
"""Which Events are written."""

_Reported = (
    effects.WorkloadCreated
    | effects.WorkloadCreateRejected
    | effects.PodRemoved
    | effects.PodFailed
    | effects.VariantChanged
    | effects.JobStarted
    | effects.JobStopped
    | OfPod
    | OfWorkload
)
"""The events of the log from which Events may follow."""

_REPORTED: Final[frozenset[type[EventBase]]] = frozenset(get_args(_Reported))

WAITING_MAX: Final = 500
"""The maximum number of Events that wait for the budget. Beyond it the oldest are dropped."""

POD_EVENTS_MAX: Final = 20_000
"""The same for Events about pods: `Scheduled` of as many pods as are bound in a burst."""

SAID_MAX: Final = 10_000
"""How many reasons about objects are kept, to suppress repetition."""

DELAY_MS: Final = 1_000
"""How long a workload has waited before an Event gives the reason."""

REPEAT_MS: Final = 300_000
"""How long a reason to wait is valid before another Event repeats it."""

SERIES_MS: Final = 360_000
"""How long after the last occurrence a repetition still belongs to a series: the time of Kubernetes' recorders."""

REFRESH_MS: Final = 10_000
"""The shortest time between two writes of a series' count, after the second occurrence."""

SERIES_MAX: Final = 10_000
"""How many Events are kept that may become a series."""

CALLS_MAX: Final = 16
"""The maximum number of concurrent Event creations."""

BUDGETS: Final = {
    "off": BudgetSettings(rate_max=1, rate_min=1, burst=1),
    "summary": BudgetSettings(rate_max=20, rate_min=0.5, burst=100),
    "all": BudgetSettings(rate_max=100, rate_min=5, burst=500),
}

POD_BUDGET: Final = BudgetSettings(rate_max=100, rate_min=50, burst=200)
"""Events about pods, a second; the kube-scheduler's client has 50, and 100 at once, for these and all else it does."""

_TOLD_EACH_TIME: Final = frozenset(
    {
        "AdmissionCheckUpdated",
        "CreatedVariant",
        "DeletedVariant",
        "ErrWorkloadCompose",
        "ProvisioningRequestCreated",
        "UpdatedAdmissionCheck",
    }
)
"""Reasons whose notes differ each time."""

_ACTIONS: Final = {
    SLICE_REPLACED: "Replaced",
    "PodTerminatedByKueue": "PodTerminated",
    "WorkloadNameConflict": "Admission",
    "ProvisioningRequestCreated": "Created",
}
"""The actions that are called otherwise than the reason of their Event, in Kueue."""

_DEACTIVATED: Final = "The workload is deactivated"
_COMPONENT: Final = "headgate"
_NAME_LEN_MAX: Final = 253
_AFTERWARDS: Final = 99
"""The number of an Event about an effect after a position, following those about the events at that position."""


class _Line:
    """Events that wait for their turn, in order, and the budget that they wait for."""

    def __init__(self, budget: Budget) -> None:
        self.budget: Final = budget
        self.waiting: Final[deque[EventNote]] = deque()


class _Series(msgspec.Struct):
    """An Event that was created, the count of its repetitions since, and the count that is written."""

    line: _Line
    path: str
    count: int
    last_ms: UnixMs
    written: int = 1
    due_ms: UnixMs = UnixMs(0)


_What = tuple[str, str, str]
"""The key of a series: uid of the object, type, reason."""


class Events:
    """The Events that are still to be created. The binder's machine passes on what concerns them."""

    def __init__(self, state: State, load: Load, told: EventDetail) -> None:
        self.dropped = 0
        """The number of Events that were never created because too many were waiting."""
        self._state = state
        self._told = told
        self._line = _Line(Budget(BUDGETS[told], load))
        self._pods = _Line(Budget(POD_BUDGET, load))
        self._calls: dict[str, None] = {}
        self._edits = JobEdits(state)
        self._said: OrderedDict[tuple[str, str], UnixMs] = OrderedDict()
        self._series: OrderedDict[_What, _Series] = OrderedDict()
        """By series key, the latest occurrence at the end."""
        self._grown: dict[_What, None] = {}
        """Series whose count is to be written."""
        self._patches: dict[str, _What] = {}

    def on_event(self, event: Event, at: Position, at_ms: UnixMs) -> None:
        """Derive the Events about an event that has just been folded."""
        if self._told == "off" or not _is_reported(event):
            return
        for nth, told in enumerate(self._derive(event, at, at_ms)):
            self._wait(told._replace(nth=nth))

    def _wait(self, told: EventNote) -> None:
        line, waiting_max = (self._pods, POD_EVENTS_MAX) if told.kind == "Pod" else (self._line, WAITING_MAX)
        if len(line.waiting) >= waiting_max:
            line.waiting.popleft()
            self.dropped += 1
        line.waiting.append(told)

    def on_deleted(self, deleted: Deleted, now_ms: UnixMs) -> None:
        """An object was deleted after its retention period. It is reported at the current position of the log."""
        if self._told == "off":
            return
        at = Position(self._state.position)
        if deleted.what == "job":
            told = _about_job(JobKey(deleted.key), deleted.uid, "Deleted", JOB_KEPT, at, now_ms)
        else:
            told = EventNote(
                "Workload", deleted.key, deleted.uid, "Normal", "Deleted", WORKLOAD_KEPT, at, now_ms, now_ms
            )
        self._wait(told._replace(nth=_AFTERWARDS))

    def on_completed(self, completed: Completed) -> None:
        """Created, existing already, or refused: the call is finished."""
        self._calls.pop(completed.call_id, None)
        what = self._patches.pop(completed.call_id, None)
        if what is not None and not is_success(completed):
            # It has expired: a repetition becomes a new Event.
            self._series.pop(what, None)
            self._grown.pop(what, None)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Create and count what the budget allows. Returns when to check again."""
        due = [self._count(now_ms, calls)]
        due += [self._create(line, now_ms, calls) for line in (self._line, self._pods)]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def _count(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Update the counts of series. Returns when to check again."""
        waits: list[UnixMs] = []
        for what in list(self._grown):
            series = self._series[what]
            if series.due_ms > now_ms:
                continue
            if len(self._calls) >= CALLS_MAX:
                return None
            if not series.line.budget.take(now_ms):
                waits.append(series.line.budget.ready_at(now_ms))
                continue
            del self._grown[what]
            series.written, series.due_ms = series.count, UnixMs(now_ms + REFRESH_MS)
            call = _recount(series)
            self._calls[call.id], self._patches[call.id] = None, what
            calls.append(call)
        waits += [due_ms for what in self._grown if (due_ms := self._series[what].due_ms) > now_ms]
        return min(waits, default=None)

    def _belongs_to_series(self, line: _Line, told: EventNote, now_ms: UnixMs) -> bool:
        """Whether an Event repeats a recent one; it is counted then. A new one may start a series."""
        if told.due_ms != told.at_ms or told.reason in _TOLD_EACH_TIME:
            # The reason why a workload waits is an exception too, because its numbers change.
            return False
        what = (told.uid, told.type, told.reason)
        series = self._series.get(what)
        if series is None or now_ms > series.last_ms + SERIES_MS:
            self._grown.pop(what, None)
            self._series.pop(what, None)
            self._series[what] = _Series(line=line, path=_path(told), count=1, last_ms=now_ms)
            while len(self._series) > SERIES_MAX:
                oldest, _ = self._series.popitem(last=False)
                self._grown.pop(oldest, None)
            return False
        series.count, series.last_ms = series.count + 1, now_ms
        self._series.move_to_end(what)
        self._grown[what] = None
        return True

    def _create(self, line: _Line, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Create Events of a line. Returns when to check again."""
        while line.waiting and len(self._calls) < CALLS_MAX:
            told = line.waiting[0]
            if told.due_ms > now_ms:
                return told.due_ms
            if self._is_over(told, now_ms):
                line.waiting.popleft()
                continue
            if line.budget.ready_at(now_ms) > now_ms:
                return line.budget.ready_at(now_ms)
            line.waiting.popleft()
            if self._belongs_to_series(line, told, now_ms):
                continue
            line.budget.take(now_ms)
            self._remember(told, now_ms)
            call = _call(told)
            self._calls[call.id] = None
            calls.append(call)
        return None

    # --- what is worth reporting ------------------------------------------------------------------------------------

    def _is_over(self, told: EventNote, now_ms: UnixMs) -> bool:
        """Whether a reason to wait no longer holds, or was reported recently."""
        if told.kind != "Workload" or told.type != "Warning" or told.due_ms == told.at_ms:
            return False
        workload = self._state.workloads.get(WorkloadKey(told.key))
        if workload is None or workload.uid != told.uid or workload.stage not in PENDING:
            return True
        said_ms = self._said.get((told.uid, told.reason))
        return said_ms is not None and now_ms < said_ms + REPEAT_MS

    def _remember(self, told: EventNote, now_ms: UnixMs) -> None:
        if told.due_ms != told.at_ms:
            self._say((told.uid, told.reason), now_ms)

    def _say(self, what: tuple[str, str], now_ms: UnixMs) -> None:
        self._said[what] = now_ms
        self._said.move_to_end(what)
        if len(self._said) > SAID_MAX:
            self._said.popitem(last=False)

    # --- from the log ----------------------------------------------------------------------------------------------

    # Large: one case for each kind of event that is reported.
    def _derive(self, event: _Reported, at: Position, at_ms: UnixMs) -> Iterator[EventNote]:
        match event:
            case effects.WorkloadCreated():
                if self._told == "all":
                    note = f"Created Workload: {event.workload}"
                    yield self._about_job(event.job, event.job_uid, "CreatedWorkload", note, at, at_ms)
            case effects.WorkloadCreateRejected():
                reason = event.reason if event.reason in ("WorkloadNameConflict", TOO_DEEP) else "ErrWorkloadCompose"
                about = self._about_job(event.job, event.job_uid, reason, event.message, at, at_ms)
                yield about._replace(type="Warning")
            case effects.PodRemoved():
                yield _about_pod(event.pod, event.uid, "ExcessPodDeleted", "Excess pod deleted", at, at_ms)
            case effects.PodFailed():
                yield _about_pod(event.pod, event.uid, "PodTerminatedByKueue", event.message, at, at_ms)
            case effects.VariantChanged():
                yield from self._about_variant(event, at, at_ms)
            case effects.JobStarted():
                workload = self._state.workloads.get(event.workload)
                queue = workload.cluster_queue if workload is not None else ""
                note = f"Admitted by clusterQueue {queue}"
                yield self._about_job(event.job, event.job_uid, "Started", note, at, at_ms)
            case effects.JobStopped():
                reason = "Suspended" if event.reason == PARENT_NOT_ADMITTED else "Stopped"
                yield self._about_job(event.job, event.job_uid, reason, self._why_stopped(event), at, at_ms)
            case (
                decisions.PodUnschedulable()
                | decisions.PodWithdrawn()
                | effects.PodBound()
                | effects.PodBindRejected()
                | effects.PodPreempted()
            ):
                yield from about_placement(self._state, event, at, at_ms)
            case facts.WorkloadDeleted():
                if event.workload not in self._state.workloads:
                    self._edits.forget(event.workload)
            case _:
                workload = self._state.workloads.get(event.workload)
                if workload is not None and workload.uid == event.uid:
                    yield from self._about_workload(event, workload, at, at_ms)

    def _about_job(self, job: JobKey, uid: str, reason: str, note: str, at: Position, at_ms: UnixMs) -> EventNote:
        """An Event about a job. That of a group of a set is about the set: the API has no pod groups."""
        record = self._state.jobs.get(job)
        made_for = self._state.jobs.get(JobKey(record.job.made_for)) if record is not None else None
        if record is not None and made_for is not None:
            job, uid = JobKey(record.job.made_for), made_for.job.uid
        return _about_job(job, uid, reason, note, at, at_ms)

    def _about_variant(self, event: effects.VariantChanged, at: Position, at_ms: UnixMs) -> Iterator[EventNote]:
        """Kueue reports the creation and deletion of a variant on its parent."""
        its_own = EventNote("Workload", event.variant, event.uid, "Normal", "", "", at, at_ms, at_ms)
        of_parent = its_own._replace(key=event.parent, uid=event.parent_uid)
        match event.change:
            case "created":
                if self._told == "all":
                    yield of_parent._replace(
                        reason="CreatedVariant", note=f'Variant Workload "{event.variant}" created'
                    )
            case "deleted":
                note = f'Variant Workload "{event.variant}" deleted; flavor "{event.flavor}" no longer in ClusterQueue'
                yield of_parent._replace(reason="DeletedVariant", note=note)
            case "activated":
                yield its_own._replace(reason="ActivatedVariant", note=f"Variant Workload activated due to {event.why}")
            case "deactivated":
                yield its_own._replace(
                    reason="DeactivatedVariant", note=f"Variant Workload deactivated due to {event.why}"
                )
            case _:
                assert_never(event.change)

    def _why_stopped(self, event: effects.JobStopped) -> str:
        """Kueue's wording: that of the eviction, else the reason why the Job may not run."""
        workload = self._state.workloads.get(event.workload)
        evicted = conditions.find(workload.conditions, conditions.EVICTED) if workload is not None else None
        if evicted is not None and event.reason == WORKLOAD_EVICTED:
            return evicted.message
        return {
            WORKLOAD_DELETED: "Workload is deleted",
            NO_MATCHING_WORKLOAD: "No matching Workload",
            PARENT_NOT_ADMITTED: "Kueue managed child job suspended",
        }.get(event.reason, "Not admitted by cluster queue")

    # Large: one case for each event type that Kueue writes an Event about.
    def _about_workload(
        self, event: OfWorkload, workload: Workload, at: Position, at_ms: UnixMs
    ) -> Iterator[EventNote]:
        def normal(reason: str, note: str) -> EventNote:
            return EventNote("Workload", workload.key, workload.uid, "Normal", reason, note, at, at_ms, at_ms)

        def warning(reason: str, note: str, delay_ms: int = 0) -> EventNote:
            return normal(reason, note)._replace(type="Warning", due_ms=UnixMs(at_ms + delay_ms))

        match event:
            case facts.WorkloadObserved():
                if workload.stage is Stage.RESERVED:
                    yield from self._about_checks(workload, at, at_ms)
                edit, added = self._edits.look_at(workload, at.seq)
                if edit is not None:
                    yield _about_job(edit.job, edit.job_uid, edit.reason, edit.note, at, at_ms)
                if added:
                    yield normal(OWNERS_ADDED, f"Added {added} owner reference(s)")
            case decisions.QuotaReserved():
                if self._told == "all" or event.checks:
                    yield normal("QuotaReserved", event_messages.quota_reserved(workload, event, at_ms))
            case decisions.WorkloadAdmitted():
                yield normal("Admitted", event_messages.admitted(workload, event, at_ms))
            case decisions.SecondPassFailed() if not event.evict:
                yield warning(event_messages.PLACEMENT_FAILED, event.message, DELAY_MS)
            case decisions.WorkloadSkipped() if event.status != "nominated":
                reason = shown_reason(self._state.configuration, event.reason)
                yield warning(reason, event.message, 1 if self._told == "all" else DELAY_MS)
            case queueing.WorkloadParked() if event.reason == "AdmissionGated":
                yield normal("AdmissionGated", "Workload a" + event.message.removeprefix("A"))
            case queueing.WorkloadQueued() if self._told == "all":
                reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
                if reserved is not None and reserved.message == conditions.GATE_CLEARED:
                    yield normal("AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
            case queueing.DeadlinePassed() if event.deadline == "MaximumExecutionTime":
                allowed_s = workload.spec.maximum_execution_time_seconds
                yield warning("MaximumExecutionTimeExceeded", f"The maximum execution time ({allowed_s}s) exceeded")
            case queueing.PreemptionGateOpened() if self._told == "all" and event.gate == GATE:
                note = f'Opened preemption gate for variant workload "{workload.key}"'
                yield normal("PreemptionUngatedVariant", note)
            case queueing.WorkloadEvicted() if event.reason in (VARIANT_EVICTED, NO_VARIANT):
                # Kueue reports the variant's eviction only.
                return
            case queueing.WorkloadEvicted() if workload.admission is not None:
                if event.underlying_cause == "AdmissionCheck":
                    yield warning("AdmissionCheckRejected", event.message.replace(_DEACTIVATED, "Deactivated", 1))
                yield normal(event_messages.evicted_reason(event), event.message)
            case decisions.WorkloadPreempted():
                yield from self._about_preemption(event, workload, at, at_ms)
            case decisions.WorkloadMigrated():
                yield normal(event_messages.MIGRATED, event.message)
            case decisions.WorkloadReplaced():
                yield normal(SLICE_REPLACED, event.message)
            case queueing.WorkloadFinished() if self._told == "all" and is_job(self._state, workload.owner):
                note = f"Workload '{workload.key}' is declared finished"
                yield _about_owner(self._state, workload, "FinishedWorkload", note, at, at_ms)
            case queueing.CheckUpdated():
                if event.before != event.check.state:
                    yield normal("AdmissionCheckUpdated", event_messages.check_updated(event))
                if workload.stage is Stage.RESERVED:
                    yield from self._about_checks(workload, at, at_ms)
            case effects.ProvisioningCreated():
                name = split_key(event.request)[1]
                yield normal("ProvisioningRequestCreated", f'Created ProvisioningRequest: "{name}"')
            case effects.ProvisioningRejected():
                yield warning("FailedCreate", event.message)
            case _:
                pass

    def _about_checks(self, workload: Workload, at: Position, at_ms: UnixMs) -> Iterator[EventNote]:
        """Kueue's Event about the messages of pending checks, on the Job; Kueue repeats it, here each is new once."""
        owner, note = workload.owner, event_messages.checks_pending(workload)
        if not note or owner is None or not is_job(self._state, owner):
            return
        said_ms = self._said.get((owner.uid, note))
        if said_ms is None or at_ms >= said_ms + REPEAT_MS:
            self._say((owner.uid, note), at_ms)
            yield _about_owner(self._state, workload, "UpdatedAdmissionCheck", note, at, at_ms)

    def _about_preemption(
        self, event: decisions.WorkloadPreempted, victim: Workload, at: Position, at_ms: UnixMs
    ) -> Iterator[EventNote]:
        """Kueue's Events about a preemption: on the preempted workload, and on the preemptor."""
        preempted = event_messages.PREEMPTED
        about = EventNote("Workload", victim.key, victim.uid, "Normal", preempted, event.message, at, at_ms, at_ms)
        if self._told == "all":
            yield about._replace(reason=event_messages.EVICTED_BY_PREEMPTION)
        preemptor = self._state.workloads.get(event.preemptor)
        if preemptor is None or preemptor.uid != event.preemptor_uid:
            yield about
            return
        configuration = self._state.configuration
        yield about._replace(note=preempted_event_message(event.message, preemptor, victim, configuration))
        note = preemptor_event_message(preemptor, victim, event.cluster_queue, configuration)
        yield about._replace(key=preemptor.key, uid=preemptor.uid, reason=event_messages.PREEMPTED_WORKLOAD, note=note)


def _is_reported(event: EventBase) -> "TypeIs[_Reported]":
    return type(event) in _REPORTED


def _about_job(job: JobKey, uid: str, reason: str, note: str, at: Position, at_ms: UnixMs) -> EventNote:
    told = EventNote(JobRef.parse(job).kind, shown_name(job), uid, "Normal", reason, note, at, at_ms, at_ms)
    return told._replace(api_version=kind_of(job).api_version)


def _about_pod(pod: PodKey, uid: str, reason: str, note: str, at: Position, at_ms: UnixMs) -> EventNote:
    return EventNote("Pod", pod, uid, "Normal", reason, note, at, at_ms, at_ms, api_version="v1")


def _about_owner(state: State, workload: Workload, reason: str, note: str, at: Position, at_ms: UnixMs) -> EventNote:
    job = job_key(state, workload)
    assert job is not None
    return _about_job(job, owner_uid(state, workload), reason, note, at, at_ms)


def _name(told: EventNote) -> str:
    suffix = f".{told.at.seq:x}.{told.at.index:x}" + (f".{told.nth}" if told.nth else "")
    return split_key(told.key)[1][: _NAME_LEN_MAX - len(suffix)] + suffix


def _path(told: EventNote) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{split_key(told.key)[0]}/events/{_name(told)}"


def _recount(series: _Series) -> Call:
    body = {"series": {"count": series.count, "lastObservedTime": _micro_time(series.last_ms)}}
    call_id = f"series/{series.path}"
    return Call(id=call_id, method="PATCH", path=series.path, body=body, content_type=MERGE_PATCH, lane=series.path)


def _micro_time(at_ms: UnixMs) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_API_VERSIONS: Final = {
    "Pod": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "LimitRange": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
}
"""The API versions of kinds that are not Kueue's."""


def quarantined_event(kind: str, key: str, uid: str, note: str, at: Position, at_ms: UnixMs) -> Call:
    """The Event for an object in quarantine. For a cluster-scoped object it is in the namespace default."""
    told = EventNote(kind, key, uid, "Warning", "Quarantined", note, at, at_ms, at_ms)
    told = told._replace(api_version=_API_VERSIONS.get(kind, API_VERSION))
    if kind == "Job":
        told = _about_job(JobKey(key), uid, "Quarantined", note, at, at_ms)._replace(type="Warning")
    call = _call(told._replace(nth=_AFTERWARDS))
    namespace = split_key(told.key)[0]
    body: Json = call.body
    if not namespace:
        del body["regarding"]["namespace"]
        body["metadata"]["namespace"] = "default"
        call = msgspec.structs.replace(call, path="/apis/events.k8s.io/v1/namespaces/default/events")
    return msgspec.structs.replace(call, id=f"quarantined/{kind}/{key}")


def _call(told: EventNote) -> Call:
    namespace, name = split_key(told.key)
    body: Json = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": _name(told)},
        "eventTime": _micro_time(told.at_ms),
        "reportingController": told.controller or _COMPONENT,
        "reportingInstance": f"{_COMPONENT}-binder",
        "action": told.action or _ACTIONS.get(told.reason, told.reason),
        "reason": told.reason,
        "type": told.type,
        "note": event_messages.cut(told.note),
        "regarding": {
            "apiVersion": told.api_version,
            "kind": told.kind,
            "namespace": namespace,
            "name": name,
            "uid": told.uid,
        },
    }
    if told.related is not None:
        other, uid = split_key(told.related[0]), told.related[1]
        body["related"] = {"apiVersion": "v1", "kind": "Pod", "namespace": other[0], "name": other[1], "uid": uid}
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    # A call that counts its repetition must not be executed before it.
    return Call(id=f"event/{told.at}.{told.nth}", method="POST", path=path, body=body, lane=_path(told))
