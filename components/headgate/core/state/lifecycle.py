"""
The lifecycle of a workload, as one table.

Every event that moves a workload is looked up here: (stage, event) gives the next stage, or marks the event as
overtaken: its producer decided on a state in which the workload had not yet moved on, and the log's order has settled
it. A pair that is in neither part is an illegal transition. It cannot happen while every producer follows its rules, so
it puts the workload into quarantine (`headgate.core.fold.quarantine`). The table in `components/README.md` is generated
from this one.
"""

from typing import NamedTuple

from headgate.core.state.tables import HOLDS_QUOTA, PENDING, Stage
from headgate.events.base import EventBase
from headgate.events.decisions import (
    QuotaReserved,
    SecondPassFailed,
    TopologyAssigned,
    WorkloadAdmitted,
    WorkloadMigrated,
    WorkloadPreempted,
    WorkloadReplaced,
    WorkloadSkipped,
)
from headgate.events.effects import StatusApplied, StatusRejected
from headgate.events.ids import Seq, WorkloadKey
from headgate.events.queueing import (
    CheckUpdated,
    DeadlinePassed,
    HeadsOffered,
    HeadsWithdrawn,
    PreemptionGateOpened,
    WorkloadEvicted,
    WorkloadFinished,
    WorkloadFollowed,
    WorkloadHeld,
    WorkloadNodeFailed,
    WorkloadNodeRecovered,
    WorkloadParked,
    WorkloadQueued,
    WorkloadReleased,
    WorkloadRequeued,
    WorkloadWoken,
)

ALL = frozenset(Stage)

OfOneWorkload = (
    WorkloadQueued
    | WorkloadParked
    | WorkloadWoken
    | WorkloadSkipped
    | QuotaReserved
    | TopologyAssigned
    | SecondPassFailed
    | WorkloadAdmitted
    | WorkloadEvicted
    | WorkloadPreempted
    | WorkloadMigrated
    | WorkloadFollowed
    | PreemptionGateOpened
    | WorkloadReplaced
    | WorkloadReleased
    | WorkloadHeld
    | WorkloadRequeued
    | WorkloadFinished
    | WorkloadNodeFailed
    | WorkloadNodeRecovered
    | CheckUpdated
    | DeadlinePassed
    | StatusApplied
    | StatusRejected
)
"""The events of the table that are about one workload, which they name by key and uid."""

LifecycleEvent = OfOneWorkload | HeadsOffered | HeadsWithdrawn
"""The events of the table."""


class Arrow(NamedTuple):
    """From any of `start`, `event` leads to `end` (None: the stage stays) because of `when`."""

    event: type[LifecycleEvent]
    start: frozenset[Stage]
    end: Stage | None
    when: str


class Overtaken(NamedTuple):
    """In any of `start`, `event` changes nothing, and why that can happen."""

    event: type[LifecycleEvent]
    start: frozenset[Stage]
    why: str


def _of(*stages: Stage) -> frozenset[Stage]:
    return frozenset(stages)


N, Q, O, S, P = Stage.NEW, Stage.QUEUED, Stage.OFFERED, Stage.SKIPPED, Stage.PARKED  # noqa: E741  (one letter a stage)
R, A, E, F = Stage.RESERVED, Stage.ADMITTED, Stage.EVICTED, Stage.FINISHED

ARROWS: tuple[Arrow, ...] = (
    Arrow(WorkloadQueued, _of(N), Q, "it has a usable queue"),
    Arrow(WorkloadParked, _of(N, Q, O, S, P), P, "it is set aside alone; with scope shape or queue it stays queued"),
    Arrow(WorkloadWoken, _of(P), N, "what it waited for has come true; with scope shape or queue it is queued"),
    Arrow(WorkloadWoken, _of(Q, S, O), Q, "its shape or its queue is awake again"),
    Arrow(HeadsOffered, _of(Q), O, "it is among the next of its ClusterQueue"),
    Arrow(HeadsWithdrawn, _of(O), Q, "the offer is taken back"),
    Arrow(WorkloadSkipped, _of(O), S, "a cycle did not admit it; with scope immediate it stays offered"),
    Arrow(WorkloadSkipped, _of(Q, S), S, "it blocks its ClusterQueue, and a cycle has come to another verdict"),
    Arrow(QuotaReserved, _of(N, Q, O, S, P), R, "a cycle reserved its quota"),
    Arrow(TopologyAssigned, _of(R, A), None, "a second pass has found topology domains for its pods"),
    Arrow(SecondPassFailed, _of(R, A), None, "a second pass has found no topology domains for its pods"),
    Arrow(WorkloadAdmitted, _of(R), A, "all its admission checks are Ready"),
    Arrow(WorkloadEvicted, PENDING | _of(R, A), E, "it has to give its quota back, or may no longer wait"),
    Arrow(WorkloadPreempted, _of(R, A), E, "another workload needs its quota"),
    Arrow(WorkloadMigrated, _of(R, A), E, "its sibling in a better flavor fits"),
    Arrow(WorkloadFollowed, PENDING, A, "a variant of it is admitted"),
    Arrow(PreemptionGateOpened, ALL, None, "it may preempt now; one that waits is looked at anew"),
    Arrow(WorkloadReplaced, HOLDS_QUOTA, F, "a larger slice of its job has got its place"),
    Arrow(WorkloadReleased, _of(R, E), N, "its job has stopped, or its queue before it was admitted"),
    Arrow(WorkloadHeld, _of(R, A), N, "its job is on hold, and has no pods"),
    Arrow(WorkloadRequeued, _of(N, P), None, "it may queue again"),
    Arrow(WorkloadFinished, ALL - {F}, F, "its job is over"),
    Arrow(WorkloadNodeFailed, _of(R, A), None, "a node that its pods were assigned to has failed"),
    Arrow(WorkloadNodeRecovered, _of(R, A), None, "its failed node can take its pods again"),
    Arrow(CheckUpdated, _of(R, A), None, "a check that Headgate decides itself has another state or message"),
    Arrow(DeadlinePassed, ALL, None, "a time written in the log is over"),
    Arrow(StatusApplied, ALL, None, "the API server has its status"),
    Arrow(StatusRejected, ALL, None, "the API server refused its status"),
)

OVERTAKEN: tuple[Overtaken, ...] = (
    Overtaken(WorkloadParked, HOLDS_QUOTA, "a cycle reserved its quota while the queue manager set it aside"),
    Overtaken(WorkloadWoken, HOLDS_QUOTA | {N}, "a cycle reserved its quota while the queue manager woke it"),
    Overtaken(WorkloadQueued, HOLDS_QUOTA, "a cycle reserved its quota while the queue manager queued it"),
    Overtaken(HeadsOffered, _of(S), "its verdict came while it was offered anew"),
    Overtaken(HeadsOffered, HOLDS_QUOTA | {N}, "its quota was reserved, or its object changed, while it was offered"),
    Overtaken(HeadsWithdrawn, ALL - {O}, "a cycle decided it while the offer was taken back"),
    Overtaken(WorkloadSkipped, _of(N, P, E, F), "its offer was taken back while the cycle skipped it"),
    Overtaken(QuotaReserved, _of(E, F), "it was deactivated or finished while the cycle reserved its quota"),
    Overtaken(TopologyAssigned, PENDING | {E, F}, "it was evicted or finished while the cycle found its domains"),
    Overtaken(SecondPassFailed, PENDING | {E, F}, "it was evicted or finished while the cycle found it no domains"),
    Overtaken(WorkloadAdmitted, PENDING | {E, F}, "it was evicted or finished while the cycle admitted it"),
    Overtaken(
        WorkloadEvicted, _of(E, F), "a cycle preempted, migrated or replaced it while the queue manager evicted it"
    ),
    Overtaken(WorkloadPreempted, PENDING | {E, F}, "it was evicted or finished while the cycle preempted it"),
    Overtaken(WorkloadReleased, _of(A), "it was admitted while its queue stopped"),
    Overtaken(WorkloadHeld, PENDING | {E, F}, "it was evicted or finished while its job was put on hold"),
    Overtaken(WorkloadFollowed, HOLDS_QUOTA | {F}, "it was deactivated or finished while its variant was admitted"),
    Overtaken(WorkloadMigrated, PENDING | {E, F}, "it was evicted or finished while the cycle migrated it"),
    Overtaken(WorkloadNodeFailed, PENDING | {E, F}, "it was preempted while its node failed"),
    Overtaken(WorkloadNodeRecovered, PENDING | {E, F}, "it was preempted while its node recovered"),
    Overtaken(CheckUpdated, PENDING | {E, F}, "it was preempted or finished while its check was decided"),
    Overtaken(WorkloadReplaced, PENDING | {F}, "it was released or finished while the cycle replaced it"),
    Overtaken(WorkloadRequeued, _of(Q, O, S, R, A, E), "it moved on while its backoff ended"),
)


def _tables() -> tuple[dict[type[EventBase], dict[Stage, Stage]], dict[type[EventBase], frozenset[Stage]]]:
    arrows: dict[type[EventBase], dict[Stage, Stage]] = {}
    for arrow in ARROWS:
        ends = arrows.setdefault(arrow.event, {})
        for stage in sorted(arrow.start):
            assert stage not in ends, f"two arrows for {arrow.event.__name__} from {stage}"
            ends[stage] = stage if arrow.end is None else arrow.end
    overtaken: dict[type[EventBase], frozenset[Stage]] = {}
    for row in OVERTAKEN:
        clash = row.start & arrows.get(row.event, {}).keys()
        assert not clash, f"{row.event.__name__} is both legal and overtaken in {sorted(clash)}"
        overtaken[row.event] = overtaken.get(row.event, frozenset()) | row.start
    return arrows, overtaken


_ARROWS, _OVERTAKEN = _tables()


class IllegalTransitionError(Exception):
    """
    Raised by the fold when an event is not allowed in the stage of its workload.

    A producer has violated its rules, or the log is damaged: the workload is set aside. `headgate explain` shows the
    history of `workload`.
    """

    def __init__(self, *, workload: WorkloadKey, uid: str, stage: Stage, event: str, seq: Seq, since: Seq) -> None:
        super().__init__(
            f"position {seq}: {event} cannot happen to workload {workload} (uid {uid}), which is {stage.value} "
            f"since position {since}. A producer has broken its rules or the log is damaged; read the story with "
            f"`headgate explain {workload}` and check the log with `headgate audit`."
        )
        self.workload = workload
        self.stage = stage
        self.event = event
        self.seq = seq


def next_stage(stage: Stage, event: type[EventBase]) -> Stage | None:
    """
    The stage that an event leads to; None when the event was overtaken.

    Raises LookupError when the table has neither (the fold turns it into an IllegalTransitionError).
    """
    end = _ARROWS[event].get(stage)
    if end is not None:
        return end
    if stage in _OVERTAKEN.get(event, ()):
        return None
    raise LookupError(f"{event.__name__} in {stage}")
