"""
Enqueueing: where a pending workload belongs now.

`place_of` reads the state and returns one of two answers: a place in the heap of a ClusterQueue, or what keeps the
workload out of every queue, with Kueue's wording and the conditions that bring the workload back. `steps` compares this
with the workload's current place and returns the events that move it; none when it is already where it belongs. So it
may be called at any time, for any pending workload, and returns the same after a crash.

One choice differs from Kueue, where the workloads of an inactive ClusterQueue stay in its heap and are never popped:
here each is parked, with Kueue's condition, until the ClusterQueue is active. `Workload.cluster_queue` still names it,
and since rank depends on priority and creation only, each returns to its former position.
"""

from collections.abc import Callable
from typing import Literal, assert_never

import msgspec

from headgate.core.api.job_kinds import kind_name, shown_name
from headgate.core.api.names import GATED_BY
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.conditions import DEACTIVATED
from headgate.core.queueing.eviction import HOLD_MESSAGE, deactivation_message, hold_of, is_deactivated
from headgate.core.queueing.scheduling_hash import shape_of
from headgate.core.queueing.wake_conditions import Woken, wakes_for
from headgate.core.state.tables import Parked, Stage, State, Workload, local_queue_of
from headgate.core.status import foreign_conditions
from headgate.core.workload.concurrent_admission import never_queues
from headgate.core.workload.ordering import priority_of, queued_at
from headgate.core.workload.pod_requests import Limits
from headgate.core.workload.variants import NEVER_QUEUES
from headgate.events.ids import Seq, Shape, UnixMs
from headgate.events.objects import Condition
from headgate.events.queueing import (
    DeadlinePassed,
    ObjectChanged,
    QueueEvent,
    TimePassed,
    Wake,
    WorkloadParked,
    WorkloadQueued,
    WorkloadRequeued,
    WorkloadWoken,
)

MISCONFIGURED, SUSPENDED, ADMISSION_GATED = "Misconfigured", "Suspended", "AdmissionGated"

_REQUEUED_BY = {
    "Deactivated": ("Reactivated", "The workload was reactivated"),
    "LocalQueueStopped": ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
    "ClusterQueueStopped": ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"),
}
Scope = Literal["workload", "shape", "queue"]

_BACKOFF_FINISHED = ("BackoffFinished", "The workload backoff was finished")


class HeapEntry(msgspec.Struct, frozen=True, gc=False):
    """A place in the heap of a ClusterQueue."""

    cluster_queue: str
    priority: int
    queued_at_ms: UnixMs
    shape: Shape


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a workload out of every heap. Written into the status in Kueue's words, except when `silent`."""

    reason: str
    message: str
    wake: tuple[Wake, ...]
    cluster_queue: str = ""
    silent: bool = False
    by_absence: bool = False
    """The workload is held because something is missing from the state."""


def requeue_at(workload: Workload) -> UnixMs | None:
    """
    When the backoff of a workload ends, according to the log; None without one.

    An unreadable time counts as past.
    """
    if workload.requeue_state is None or workload.requeue_state.requeue_at is None:
        return None
    try:
        return conditions.parse_rfc3339(workload.requeue_state.requeue_at)
    except ValueError:
        return UnixMs(0)


IsActive = Callable[[str], bool]
"""Whether a ClusterQueue that exists is active."""

CameTrue = Callable[[tuple[Wake, ...], Seq, Workload], Woken | None]
"""Which of the conditions that a workload waits for has come true after a log position; None when none has."""

MayGoOn = Callable[[Workload, Woken], bool]
"""Whether a workload whose condition came true may continue now."""


# Large: one exit for each thing that keeps a workload out, in Kueue's order.
def place_of(state: State, workload: Workload, now_ms: UnixMs, limits: Limits, is_active: IsActive) -> HeapEntry | Held:
    """Where a pending workload belongs: the first thing that keeps it out, in Kueue's order, or its place in a heap."""
    itself = (ObjectChanged(kind="Workload", name=workload.key),)
    if workload.deleting:
        return Held(reason="Deleting", message="The workload is being deleted", wake=itself, silent=True)
    if is_deactivated(workload):
        return Held(reason=DEACTIVATED, message=deactivation_message(workload), wake=itself)
    gate = workload.annotations.get(GATED_BY, "")
    if gate:
        return Held(reason=ADMISSION_GATED, message=f"Admission is gated by: {gate}", wake=itself)
    hold = hold_of(state, workload)
    if hold is not None:
        its_job = (ObjectChanged(kind=kind_name(hold.job.made_for), name=shown_name(hold.job.made_for)),)
        return Held(reason=conditions.ON_HOLD, message=HOLD_MESSAGE, wake=its_job)
    name = workload.spec.queue_name
    key = local_queue_of(workload)
    its_queue = (ObjectChanged(kind="LocalQueue", name=key),)
    queue = state.local_queues.get(key)
    if queue is None:
        return Held(reason=MISCONFIGURED, message=f"LocalQueue {name} doesn't exist", wake=its_queue, by_absence=True)
    if queue.spec.stop_policy != "None":
        return Held(reason=SUSPENDED, message=f"LocalQueue {name} is inactive", wake=its_queue)
    name = queue.spec.cluster_queue
    its_queue = (ObjectChanged(kind="ClusterQueue", name=name),)
    if name not in state.cluster_queues:
        message = f"ClusterQueue {name} doesn't exist"
        return Held(reason=MISCONFIGURED, message=message, wake=its_queue, by_absence=True)
    if not is_active(name):
        message = f"ClusterQueue {name} is inactive"
        return Held(reason=SUSPENDED, message=message, wake=its_queue, cluster_queue=name)
    if never_queues(state, workload):
        message = "Its variants, one per flavor, stand in line in its place"
        return Held(reason=NEVER_QUEUES, message=message, wake=itself, cluster_queue=name, silent=True)
    kept_out = foreign_conditions.is_kept_out(workload)
    if kept_out is not None:
        message = kept_out.message or "Requeued is False"
        return Held(reason=kept_out.reason, message=message, wake=itself, cluster_queue=name, silent=True)
    until = requeue_at(workload)
    if until is not None and until > now_ms:
        message = f"Waits until {conditions.rfc3339(until)} before it queues again"
        wake = (TimePassed(at_ms=until),)
        return Held(reason="Backoff", message=message, wake=wake, cluster_queue=name, silent=True)
    priority, at_ms = priority_of(workload, state.configuration), queued_at(workload, state.configuration)
    return HeapEntry(name, priority, at_ms, shape_of(workload, state, limits))


def stands_at(workload: Workload, entry: HeapEntry) -> bool:
    """Whether a workload is, or was when it was parked, at this place."""
    return (
        workload.cluster_queue == entry.cluster_queue
        and workload.shape == entry.shape
        and workload.priority == entry.priority
        and workload.queued_at_ms == entry.queued_at_ms
    )


def by_verdict(parked: Parked) -> bool:
    """Whether a verdict of a cycle parked it. The queue manager's own parking is decided where it is written."""
    return parked.decided_at != parked.since


def steps(
    state: State,
    workload: Workload,
    now_ms: UnixMs,
    limits: Limits,
    is_active: IsActive,
    came_true: CameTrue,
    may_go_on: MayGoOn,
) -> list[QueueEvent]:
    """
    The events that move a pending workload to where it belongs. None when it is already there.

    `came_true` returns whether the condition of a parked workload is met; `may_go_on` whether a workload that a cycle
    parked may continue after its condition came true. Until the informers have shown every resource, no event is
    emitted because a queue is missing.
    """
    by_others = foreign_conditions.requeueing(state, workload)
    if by_others is not None:
        return _said_by_others(workload, by_others)
    place = place_of(state, workload, now_ms, limits, is_active)
    match place:
        case Held(by_absence=True) if state.relisting:
            return []
        case Held():
            return [] if _is_held(workload, place) else [_parked(workload, place)]
        case HeapEntry():
            return _towards(state, workload, place, came_true, may_go_on)
        case _:
            assert_never(place)


def _said_by_others(workload: Workload, requeued: Condition) -> list[QueueEvent]:
    """Another controller keeps a workload out of the queues by its Requeued condition, or lets it in again."""
    may, reason, message = requeued.status == "True", requeued.reason, requeued.message
    said: list[QueueEvent] = []
    if workload.stage is not Stage.PARKED and (not may or workload.stage is not Stage.NEW):
        wake = (ObjectChanged(kind="Workload", name=workload.key),)
        held = Held(reason=reason, message=message or "Requeued is False", wake=wake, silent=True)
        said.append(_parked(workload, msgspec.structs.replace(held, cluster_queue=workload.cluster_queue)))
    told = WorkloadRequeued(workload=workload.key, uid=workload.uid, reason=reason, message=message, requeued=may)
    return [*said, told]


def _towards(
    state: State, workload: Workload, entry: HeapEntry, came_true: CameTrue, may_go_on: MayGoOn
) -> list[QueueEvent]:
    match workload.stage:
        case Stage.NEW:
            return [*_requeued(workload), _queued(workload, entry)]
        case Stage.PARKED:
            assert workload.parked is not None, f"{workload.key} is parked for no reason"
            by, at = _what_held(workload.parked), state.position
            if by_verdict(workload.parked) and stands_at(workload, entry):
                woken = came_true(workload.parked.wake, workload.parked.decided_at, workload)
                if woken is None or not may_go_on(workload, woken):
                    return []
                by, at = woken.by, woken.at
            wake = WorkloadWoken(
                workload=workload.key, uid=workload.uid, cluster_queue=entry.cluster_queue, by=by, by_position=at
            )
            return [wake, *_requeued(workload), _queued(workload, entry)]
        case Stage.QUEUED | Stage.OFFERED:
            return [] if stands_at(workload, entry) else _replaced(state, workload, entry)
        case Stage.SKIPPED if stands_at(workload, entry):
            return [_after_verdict(state, workload, came_true, may_go_on)]
        case Stage.SKIPPED:
            return _replaced(state, workload, entry)
        case _:
            raise AssertionError(f"{workload.key} is {workload.stage}: only pending workloads are placed")


def _is_held(workload: Workload, held: Held) -> bool:
    parked = workload.parked
    return (
        workload.stage is Stage.PARKED
        and parked is not None
        and not by_verdict(parked)
        and (parked.reason, parked.message, parked.wake) == (held.reason, held.message, held.wake)
    )


def _what_held(parked: Parked) -> str:
    for wake in parked.wake:
        match wake:
            case ObjectChanged():
                return f"{wake.kind} {wake.name} changed"
            case TimePassed():
                return f"its time, {conditions.rfc3339(wake.at_ms)}, had come"
            case _:
                pass
    return "its place has changed"


def _parked(workload: Workload, held: Held) -> WorkloadParked:
    return WorkloadParked(
        workload=workload.key,
        uid=workload.uid,
        reason=held.reason,
        message=held.message,
        wake=held.wake,
        cluster_queue=held.cluster_queue,
        writes_condition=not held.silent,
    )


def _queued(workload: Workload, entry: HeapEntry) -> WorkloadQueued:
    return WorkloadQueued(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=entry.cluster_queue,
        priority=entry.priority,
        queued_at_ms=entry.queued_at_ms,
        shape=entry.shape,
    )


def _replaced(state: State, workload: Workload, entry: HeapEntry) -> list[QueueEvent]:
    """Move a workload from its current place to the one where it belongs now, in one commit."""
    message = f"It belongs elsewhere now: ClusterQueue {entry.cluster_queue}, priority {entry.priority}"
    wake = (ObjectChanged(kind="Workload", name=workload.key),)
    return [
        _parked(workload, Held(reason="Replaced", message=message, wake=wake, silent=True)),
        WorkloadWoken(
            workload=workload.key,
            uid=workload.uid,
            cluster_queue=entry.cluster_queue,
            by="its place has changed",
            by_position=state.position,
        ),
        *_requeued(workload),
        _queued(workload, entry),
    ]


def _requeued(workload: Workload) -> list[QueueEvent]:
    """What ends when an evicted workload queues again: its backoff, its stop."""
    said: list[QueueEvent] = []
    until = requeue_at(workload)
    if until is not None:
        said.append(DeadlinePassed(workload=workload.key, uid=workload.uid, deadline="RequeueAt", at_ms=until))
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is not None and requeued.status == "False":
        by = DEACTIVATED if requeued.reason.startswith(DEACTIVATED) else requeued.reason
        reason, message = _REQUEUED_BY.get(by, _BACKOFF_FINISHED)
        said.append(WorkloadRequeued(workload=workload.key, uid=workload.uid, reason=reason, message=message))
    return said


def _after_verdict(state: State, workload: Workload, came_true: CameTrue, may_go_on: MayGoOn) -> QueueEvent:
    """Carry out the scheduler's verdict; or wake what it covers, when a condition came true in the meantime."""
    verdict = workload.verdict
    assert verdict is not None, f"{workload.key} was skipped without a verdict"
    wake = wakes_for(verdict, workload.key, workload.cluster_queue, state)
    woken = came_true(wake, verdict.since, workload)
    scope: Scope = "shape" if verdict.scope == "shape" else "queue" if verdict.scope == "queue" else "workload"
    if woken is not None and may_go_on(workload, woken):
        return WorkloadWoken(
            workload=workload.key,
            uid=workload.uid,
            cluster_queue=workload.cluster_queue,
            by=woken.by,
            by_position=woken.at,
            scope=scope,
            shape=workload.shape if scope == "shape" else Shape(""),
        )
    return WorkloadParked(
        workload=workload.key,
        uid=workload.uid,
        reason=verdict.reason,
        message=verdict.message,
        wake=wake,
        cluster_queue=workload.cluster_queue,
        scope=scope,
        decided_at=verdict.since,
    )
