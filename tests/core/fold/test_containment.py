"""An event that cannot be folded costs the object that it is about, the same in every reader."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import msgspec
import pytest
from tests.core.fold.test_fold import (
    BRIDGE,
    MANAGER,
    SCHEDULER,
    W,
    a_life,
    admitted,
    indexes,
    observed,
    offered,
    queued,
    reserved,
    skipped,
    with_queue,
)
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.fold import quarantine
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.state.attribution import about
from headgate.core.state.tables import Stage, State
from headgate.core.views.diagnosis import standing
from headgate.events import effects, facts, queueing
from headgate.events.base import EventBase
from headgate.events.commit import Commit
from headgate.events.facts import ClusterQueueObserved, WorkloadDeleted, WorkloadObserved
from headgate.events.ids import Seq, Uid, WorkloadKey
from headgate.events.objects import ClusterQueueSpec, Condition, ReclaimablePod
from headgate.testing.world.containment import ContainedFold

X = WorkloadKey("team-a/x")
HELD = ("f", "cpu")


class DefectError(Exception):
    """The defect of these tests."""


@contextmanager
def defect(kind: type[EventBase], about_it: Callable[[Any], bool], error: Exception | None = None) -> Iterator[None]:
    """While the block runs, events of a type cannot be folded that something is true of."""
    handler = fold.HANDLERS[kind]

    def broken(state: State, event: Any, commit: Commit, seq: Seq) -> None:
        handler(state, event, commit, seq)
        if about_it(event):
            raise error or DefectError("planted")

    fold.HANDLERS[kind] = broken
    try:
        yield
    finally:
        fold.HANDLERS[kind] = handler


def of(key: str) -> Callable[[Any], bool]:
    return lambda event: bool(event.workload == key)


def contained(log: TestLog) -> State:
    return ContainedFold(log.cell, log.commits).all()


class ContainedLog(TestLog):
    """A log that continues after an event that could not be folded."""

    def append(self, producer: Any, *events: EventBase, decided_at: int = 0, epoch: int = 1) -> Any:
        logged = self.encode(producer, *events, decided_at=decided_at, epoch=epoch)
        self.commits.append(logged)
        self.folding = getattr(self, "folding", None) or ContainedFold(self.cell, self.commits)
        self.state = self.folding.apply(self.state, logged)
        return logged


def running(*keys: str) -> ContainedLog:
    """A ClusterQueue in which these workloads run with 2 cpu each."""
    log = ContainedLog()
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), *(observed(key) for key in keys))
    log.append(MANAGER, *(queued(key) for key in keys))
    log.append(MANAGER, offered(*keys))
    for key in keys:
        log.append(SCHEDULER, reserved(key), admitted(key))
    return log


def over(key: str) -> queueing.WorkloadFinished:
    return queueing.WorkloadFinished(workload=WorkloadKey(key), uid=Uid("u"), reason="Succeeded", message="ok")


def test_a_failed_event_costs_its_workload_and_no_other() -> None:
    """The one leaves the tables, with the record of the failure; the others are as without it."""
    log = a_life()
    with defect(queueing.WorkloadQueued, of(X)):
        state = contained(log)
    record = state.quarantine["Workload/team-a/x"]
    assert (record.process, record.event, record.position, record.index) == ("fold", "workload.queued", 2, 1)
    assert record.error == "DefectError: planted"
    assert record.version == quarantine.VERSION
    assert record.workload is not None
    assert record.workload.stage is Stage.NEW, "as it was before the event"
    assert X not in state.workloads
    assert state.workloads[W] == log.state.workloads[W]
    assert state.set_aside == 1


def test_a_failed_event_gives_the_same_state_wherever_a_reader_started() -> None:
    """From the start, or from a snapshot of any position: same bytes, same indexes."""
    log = a_life()
    with defect(queueing.WorkloadQueued, of(X)):
        whole = contained(log)
        snapshots = []
        for cut in range(len(log.commits) + 1):
            folding = ContainedFold("main", log.commits)
            state = fold.new_state("main")
            for logged in log.commits[:cut]:
                state = folding.apply(state, logged)
            snapshots.append(fold.encode(state))
        for cut, encoded in enumerate(snapshots):
            folding = ContainedFold("main", log.commits, lambda _, encoded=encoded: fold.restore("main", encoded))  # type: ignore[misc]
            state = fold.restore("main", encoded)
            for logged in log.commits[cut:]:
                state = folding.apply(state, logged)
            assert fold.encode(state) == fold.encode(whole)
            assert indexes(state) == indexes(whole)


def test_without_a_defect_nothing_is_set_aside() -> None:
    """A corrected version that folds the same log again has the state of a log without any trouble."""
    log = a_life()
    with defect(queueing.WorkloadQueued, of(X)):
        assert contained(log).quarantine
    assert fold.encode(contained(log)) == fold.encode(log.state)


Element = tuple[int, type[EventBase], str]
"""The part of a log that is about one object: its position, the type of the event, the object."""


@contextmanager
def stopped_at(target: Element, line: int | None) -> Iterator[list[int]]:
    """
    While the block runs, the handler of one element raises at its n-th line, in whatever function that is.

    Gives how many lines each call of it has come; with None it comes to its end.
    """
    came: list[int] = []
    handlers = dict(fold.HANDLERS)

    def broken(handler: Any) -> Any:
        def call(state: State, event: Any, commit: Commit, seq: Seq) -> None:
            parts = quarantine.elements(event)
            is_it = target in [(seq, type(each), quarantine.subject_of(each).name) for each in parts]
            if not is_it:
                handler(state, event, commit, seq)
                return
            if len(parts) > 1:
                raise DefectError("planted")
            count = 0

            def trace(frame: FrameType, what: str, _: Any) -> Any:
                nonlocal count
                if not frame.f_globals["__name__"].startswith("headgate."):
                    return None
                if what == "line":
                    count += 1
                    if line is not None and count > line:
                        raise DefectError("planted")
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                handler(state, event, commit, seq)
            finally:
                sys.settrace(before)
                came.append(count)

        return call

    fold.HANDLERS.update({kind: broken(handler) for kind, handler in handlers.items()})
    try:
        yield came
    finally:
        fold.HANDLERS.update(handlers)


def lives() -> TestLog:
    """A log in which workloads wait, run, finish, are evicted and deleted, with everything that can befall them."""
    log = a_life()
    y = "team-a/y"
    log.append(BRIDGE, observed(y))
    log.append(MANAGER, queued(y))
    log.append(MANAGER, offered(W, y))
    log.append(SCHEDULER, reserved(y), admitted(y), skipped(W, scope="queue"))
    log.append(MANAGER, effects.StatusApplied(workload=WorkloadKey(y), uid=Uid("u"), digest="d"))
    log.append(BRIDGE, observed(y, reclaimable_pods=(ReclaimablePod(name="main", count=1),)))
    evicted = queueing.WorkloadEvicted(workload=WorkloadKey(y), uid=Uid("u"), reason="Preempted", message="away")
    released = queueing.WorkloadReleased(
        workload=WorkloadKey(y), uid=Uid("u"), requeued=True, reason="Preempted", message="away"
    )
    log.append(MANAGER, evicted)
    log.append(MANAGER, released, over(W))
    log.append(BRIDGE, WorkloadDeleted(workload=W, uid=Uid("u")))
    return log


ELEMENTS: list[Element] = [
    (logged.seq, type(each), quarantine.subject_of(each).name)
    for logged in lives().commits
    for event in logged.commit.events
    for each in quarantine.elements(event)
]


@pytest.mark.parametrize("target", ELEMENTS, ids=lambda each: f"{each[0]}-{each[1].__name__}-{each[2]}")
def test_it_does_not_matter_how_far_a_handler_has_come(target: Element) -> None:
    """Whichever line of the fold raises, the state is that in which the event's object is set aside."""
    log = lives()
    with stopped_at(target, None) as came:
        contained(log)
    expected = b""
    for line in range(came[-1]):
        with stopped_at(target, line) as came_now:
            state = contained(log)
        assert came_now[-1] == line + 1
        for record in state.quarantine.values():
            record.where = ""
        # Later events may follow from the one that is missing, and be set aside too.
        assert state.set_aside >= 1
        expected = expected or fold.encode(state)
        assert fold.encode(state) == expected
        assert indexes(fold.restore("main", expected)) == indexes(state)


def test_what_a_workload_in_quarantine_holds_stays_charged() -> None:
    """Until its object is gone; and it cannot be preempted."""
    with defect(effects.StatusApplied, of(W)):
        log = running(W, X)
        log.append(MANAGER, effects.StatusApplied(workload=W, uid=Uid("u"), digest="d"))
        assert list(log.state.quarantine) == [f"Workload/{W}"]
        assert log.state.index.usage["cq"] == {HELD: 4000}
        assert list(log.state.index.holders["cq"]) == [X]
        log.append(BRIDGE, observed(W, generation=2))
        assert log.state.index.usage["cq"] == {HELD: 4000}, "a fact changes nothing"
        restored = fold.restore("main", fold.encode(log.state))
        assert indexes(restored) == indexes(log.state)
        assert restored.index.usage["cq"] == {HELD: 4000}
        log.append(BRIDGE, WorkloadDeleted(workload=W, uid=Uid("u")))
    assert log.state.index.usage["cq"] == {HELD: 2000}
    assert log.state.quarantine == {}
    assert log.state.freed["ClusterQueue/cq"]["f/cpu"] == log.state.position


def test_a_workload_in_quarantine_that_is_seen_finished_gives_its_quota_back() -> None:
    """When it is marked finished; its object still exists, and is still in quarantine."""
    with defect(effects.StatusApplied, of(W)):
        log = running(W)
        log.append(MANAGER, effects.StatusApplied(workload=W, uid=Uid("u"), digest="d"))
        log.append(BRIDGE, observed(W, finished=Condition(type="Finished", status="True")))
    assert log.state.index.usage["cq"] == {}
    assert list(log.state.quarantine) == [f"Workload/{W}"]


def test_a_reservation_that_cannot_be_folded_is_charged() -> None:
    """The scheduler has given the quota away, and a version that can fold it will find it charged from here on."""
    with defect(msgspec.structs.replace(reserved(W)).__class__, of(W)):
        log = running(W)
    assert list(log.state.quarantine) == [f"Workload/{W}"]
    assert log.state.index.usage["cq"] == {HELD: 2000}
    assert fold.restore("main", fold.encode(log.state)).index.usage["cq"] == {HELD: 2000}


def test_an_end_that_cannot_be_folded_gives_the_quota_back() -> None:
    """The queue manager has seen that nothing runs any more."""
    with defect(queueing.WorkloadFinished, of(W)):
        log = running(W, X)
        log.append(MANAGER, over(W), over(X))
    assert list(log.state.quarantine) == [f"Workload/{W}"]
    assert log.state.index.usage["cq"] == {}


def test_a_transition_that_cannot_be_costs_its_workload() -> None:
    """The rules are broken for one, and the others continue."""
    log = running(W, X)
    log.append(MANAGER, over(W))
    log.append(MANAGER, over(W), over(X))
    (record,) = log.state.quarantine.values()
    assert (record.key, record.event) == (W, "workload.finished")
    assert record.error.startswith("IllegalTransitionError: position 7: WorkloadFinished cannot happen")
    assert log.state.workloads[X].stage is Stage.FINISHED


def test_of_an_event_about_several_objects_only_the_one_is_set_aside() -> None:
    """Of three heads offered the second cannot be: the first and the third are."""
    keys = ("team-a/u", W, X)
    log = with_queue(*keys)
    log.append(MANAGER, offered(*keys))
    with defect(queueing.HeadsOffered, lambda event: any(head.workload == W for head in event.heads)):
        state = contained(log)
    assert list(state.quarantine) == [f"Workload/{W}"]
    assert {key: each.stage for key, each in state.workloads.items()} == {
        "team-a/u": Stage.OFFERED,
        X: Stage.OFFERED,
    }


def test_whoever_waited_behind_a_head_in_quarantine_goes_on() -> None:
    """It blocks its ClusterQueue no longer."""
    log = with_queue(W, X)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, skipped(W, scope="queue"))
    assert log.state.sleeps["cq"].blocked_by == W
    log.append(MANAGER, queueing.DeadlinePassed(workload=W, uid=Uid("u"), deadline="RequeueAt", at_ms=log.now_ms))
    with defect(queueing.DeadlinePassed, of(W)):
        state = contained(log)
    assert state.sleeps == {}
    assert state.index.pending["cq"].blocked is None
    assert state.freed["ClusterQueue/cq"] == {"*": 5}


def test_of_another_kind_the_object_keeps_its_form_until_a_fact_can_be_folded() -> None:
    """The next fact is tried again, and ends the quarantine when it can be folded."""
    log = ContainedLog()
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), observed(W))
    with defect(ClusterQueueObserved, lambda event: event.generation in (2, 3)):
        for generation in (2, 3):
            spec = ClusterQueueSpec(cohort_name=f"c{generation}")
            log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=spec, generation=generation))
            assert log.state.cluster_queues["cq"].spec.cohort_name == ""
            (record,) = log.state.quarantine.values()
            assert (record.kind, record.key, record.position) == ("ClusterQueue", "cq", generation)
            assert isinstance(record.fact, ClusterQueueObserved)
            assert record.fact.generation == generation
        log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec(cohort_name="c4"), generation=4))
    assert log.state.quarantine == {}
    assert log.state.cluster_queues["cq"].spec.cohort_name == "c4"


def test_what_fails_over_an_index_only_leaves_no_trace() -> None:
    """A wrong index is rebuilt from the tables, and the event is folded."""
    log = running(W, X)
    log.state.index.usage.clear()
    log.append(MANAGER, over(W))
    assert log.state.quarantine == {}
    assert log.state.index.usage["cq"] == {HELD: 2000}
    assert fold.encode(log.state) == fold.encode(log.refold())


def test_an_error_that_names_another_object_sets_that_one_aside() -> None:
    """And the event is applied to the others."""
    handler = fold.HANDLERS[ClusterQueueObserved]

    def broken(state: State, event: Any, commit: Commit, seq: Seq) -> None:
        for key in state.workloads:
            with about("Workload", key):
                assert key != W, "planted"
        handler(state, event, commit, seq)

    log = running(W, X)
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec(), generation=2))
    fold.HANDLERS[ClusterQueueObserved] = broken
    try:
        state = contained(log)
    finally:
        fold.HANDLERS[ClusterQueueObserved] = handler
    assert list(state.quarantine) == [f"Workload/{W}"]
    assert state.quarantine[f"Workload/{W}"].error == "AssertionError: planted"
    assert state.cluster_queues["cq"].generation == 2
    assert list(state.workloads) == [X]
    assert state.index.usage["cq"] == {HELD: 4000}


def test_an_object_made_anew_under_the_name_is_another_one() -> None:
    """The former one is gone, and what it held is free."""
    with defect(effects.StatusApplied, lambda event: event.uid == "u"):
        log = running(W)
        log.append(MANAGER, effects.StatusApplied(workload=W, uid=Uid("u"), digest="d"))
        assert log.state.index.usage["cq"] == {HELD: 2000}
        log.append(BRIDGE, observed(W, uid="v"))
    assert log.state.quarantine == {}
    assert log.state.workloads[W].uid == "v"
    assert log.state.index.usage["cq"] == {}


def test_a_released_workload_goes_on_with_its_newest_fact() -> None:
    """One that waits is looked at from the start, one that runs runs on."""
    with defect(effects.StatusApplied, lambda _: True):
        log = running(W)
        log.append(BRIDGE, observed(X))
        log.append(MANAGER, queued(X))
        for key in (W, X):
            log.append(MANAGER, effects.StatusApplied(workload=WorkloadKey(key), uid=Uid("u"), digest="d"))
        log.append(BRIDGE, observed(W, generation=7), observed(X, generation=8))
        assert log.state.workloads == {}
    log.append(BRIDGE, *(effects.ObjectReleased(kind="Workload", name=key, why="test") for key in (W, X)))
    assert log.state.quarantine == {}
    stages = {key: (each.stage, each.generation) for key, each in log.state.workloads.items()}
    assert stages == {W: (Stage.ADMITTED, 7), X: (Stage.NEW, 8)}
    assert log.state.index.usage["cq"] == {HELD: 2000}
    assert fold.encode(log.state) != b""
    assert indexes(fold.restore("main", fold.encode(log.state))) == indexes(log.state)


def test_a_release_that_fails_again_says_so() -> None:
    """The object stays aside, with the newer failure and the request that was followed."""
    log = ContainedLog()
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()))
    with defect(WorkloadObserved, of(W)):
        log.append(BRIDGE, observed(W), observed(X))
        request = effects.ObjectReleased(kind="Workload", name=W, why="asked for", request="r1")
        log.append(BRIDGE, request)
        (record,) = log.state.quarantine.values()
        assert (record.position, record.event) == (3, "object.released")
        assert log.state.retried == {f"Workload/{W}": "r1"}
        assert isinstance(record.fact, facts.WorkloadObserved)
    log.append(BRIDGE, msgspec.structs.replace(request, request="r2"))
    assert log.state.quarantine == {}
    assert log.state.workloads[W].stage is Stage.NEW


def test_what_a_machine_has_failed_over_is_set_aside_by_the_log() -> None:
    """Everybody reads it; a Workload leaves the tables, another object stays in them."""
    log = running(W)
    failed = effects.ObjectQuarantined(
        kind="Workload", name=W, uid=Uid("u"), error="KeyError: 'x'", where="headgate.m:1", version="0.0.1"
    )
    log.append(SCHEDULER, failed, msgspec.structs.replace(failed, kind="ClusterQueue", name="cq", uid=Uid("")))
    assert list(log.state.quarantine) == [f"Workload/{W}", "ClusterQueue/cq"]
    assert {(each.process, each.version) for each in log.state.quarantine.values()} == {("scheduler", "0.0.1")}
    assert log.state.workloads == {}
    assert list(log.state.cluster_queues) == ["cq"]
    assert log.state.index.usage["cq"] == {HELD: 2000}
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()))
    assert "ClusterQueue/cq" in log.state.quarantine, "nothing has changed"
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec(), generation=1))
    assert "ClusterQueue/cq" not in log.state.quarantine


def test_a_failure_that_setting_aside_does_not_end_is_raised() -> None:
    """Two objects are never blamed for ever: what is left is a defect of the fold itself."""
    log = with_queue(W)

    def fail(*_: object) -> None:
        raise DefectError("everywhere")

    before = quarantine.set_aside
    quarantine.set_aside = fail  # type: ignore[assignment]
    try:
        with defect(queueing.WorkloadQueued, of(W)), pytest.raises(EventFailedError, match="everywhere"):
            contained(log)
    finally:
        quarantine.set_aside = before


def test_the_words_of_an_error_are_the_same_in_every_process() -> None:
    """No address and no order of a set is in them: they are a part of the state."""
    log = with_queue(W)
    for error, text in (
        (KeyError({"b", "a"}), "KeyError"),
        (ValueError(f"bad {object()!r}"), "ValueError: bad <object object>"),
        (RuntimeError("first\nsecond"), "RuntimeError: first"),
    ):
        with defect(queueing.WorkloadQueued, of(W), error):
            (record,) = contained(log).quarantine.values()
        assert record.error == text
        assert record.where.startswith("headgate.core.fold.applying:")


def test_where_a_workload_in_quarantine_stands_is_told() -> None:
    """With the error, what it holds, and how it comes to be tried again."""
    with defect(effects.StatusApplied, of(W)):
        log = running(W)
        log.append(MANAGER, effects.StatusApplied(workload=W, uid=Uid("u"), digest="d"))
    told = standing(log.state, W)
    assert (told.stage, told.since) == ("Quarantined", 5)
    assert "its workload.status_applied could not be folded: DefectError: planted" in told.why
    assert "holds quota of ClusterQueue cq" in told.why
    assert f"`headgate quarantine retry Workload {W}`" in told.would_change[0]
