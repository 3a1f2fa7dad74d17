"""The fold: same log, same state; a log that cannot be is refused."""

import gc
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.fold import BrokenLogError
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.state import tables as state_module
from headgate.core.state.lifecycle import ARROWS, OVERTAKEN, IllegalTransitionError, next_stage
from headgate.core.state.tables import HOLDS_QUOTA, Note, Record, Stage, State, Workload
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadAdmitted, WorkloadPreempted, WorkloadSkipped
from headgate.events.effects import LeaderElected, ObjectQuarantined, ObjectReleased
from headgate.events.facts import (
    ClusterQueueObserved,
    ConfigurationObserved,
    NodeObserved,
    WorkloadDeleted,
    WorkloadObserved,
)
from headgate.events.ids import Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    CheckState,
    ClusterQueueSpec,
    Condition,
    Node,
    OwnerReference,
    PodSet,
    PodSetAssignment,
    ReclaimablePod,
    WorkloadSpec,
    WorkloadStatus,
)
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    HeadsWithdrawn,
    QuotaFreed,
    WorkloadEvicted,
    WorkloadFinished,
    WorkloadFollowed,
    WorkloadParked,
    WorkloadQueued,
    WorkloadReleased,
    WorkloadWoken,
)
from headgate.events.registry import TAGS

BRIDGE, MANAGER, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
W = WorkloadKey("team-a/w")


def observed(key: str = W, uid: str = "u", **more: object) -> WorkloadObserved:
    spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=4),))
    return WorkloadObserved(workload=WorkloadKey(key), uid=Uid(uid), created_ms=UnixMs(5), spec=spec, **more)  # type: ignore[arg-type]


def queued(key: str = W, uid: str = "u", priority: int = 0, shape: str = "s") -> WorkloadQueued:
    return WorkloadQueued(
        workload=WorkloadKey(key),
        uid=Uid(uid),
        cluster_queue="cq",
        priority=priority,
        queued_at_ms=UnixMs(5),
        shape=Shape(shape),
    )


def offered(*keys: str) -> HeadsOffered:
    return HeadsOffered(heads=tuple(Head(cluster_queue="cq", workload=WorkloadKey(key), uid=Uid("u")) for key in keys))


def preempted(key: str = W) -> WorkloadPreempted:
    return WorkloadPreempted(
        workload=WorkloadKey(key),
        uid=Uid("u"),
        cluster_queue="cq",
        preemptor=WorkloadKey("a/high"),
        preemptor_uid=Uid("h"),
        reason="InClusterQueue",
        message="away",
    )


def skipped(key: str = W, scope: str = "shape") -> WorkloadSkipped:
    return WorkloadSkipped(
        workload=WorkloadKey(key),
        uid=Uid("u"),
        cluster_queue="cq",
        status="notNominated",
        requeue_reason="NoFit",
        scope=scope,  # type: ignore[arg-type]
        reason="WaitingForQuota",
        message="no room",
        short=("f/cpu",),
    )


def parked(key: str = W, scope: str = "shape") -> WorkloadParked:
    return WorkloadParked(
        workload=WorkloadKey(key),
        uid=Uid("u"),
        cluster_queue="cq",
        scope=scope,  # type: ignore[arg-type]
        reason="NoFit",
        message="no room",
        wake=(QuotaFreed(tree="ClusterQueue/cq"),),
    )


def reserved(key: str = W, cpu: str = "2") -> QuotaReserved:
    assignment = PodSetAssignment(flavors={"cpu": "f"}, resource_usage={"cpu": cpu}, count=4)
    return QuotaReserved(
        workload=WorkloadKey(key),
        uid=Uid("u"),
        cluster_queue="cq",
        admission=Admission(cluster_queue="cq", pod_set_assignments=(assignment,)),
        message="Quota reserved",
    )


def admitted(key: str = W) -> WorkloadAdmitted:
    return WorkloadAdmitted(workload=WorkloadKey(key), uid=Uid("u"), cluster_queue="cq", message="Admitted")


def with_queue(*keys: str) -> TestLog:
    """A ClusterQueue with these workloads queued."""
    log = TestLog()
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), *(observed(key) for key in keys))
    log.append(MANAGER, *(queued(key) for key in keys))
    return log


def a_life() -> TestLog:
    """A log in which two workloads live: one waits, one runs and finishes."""
    log = with_queue("team-a/w", "team-a/x")
    log.append(MANAGER, offered("team-a/w", "team-a/x"))
    log.append(SCHEDULER, CycleDecided(cycle=1, decided_at=Seq(3)), skipped("team-a/w"), decided_at=3)
    log.append(MANAGER, parked("team-a/w"))
    woken = WorkloadWoken(
        workload=W, uid=Uid("u"), cluster_queue="cq", by="test", by_position=Seq(1), scope="shape", shape=Shape("s")
    )
    log.append(MANAGER, woken, offered("team-a/x"))
    log.append(SCHEDULER, CycleDecided(cycle=2, decided_at=Seq(6)), reserved("team-a/x"), admitted("team-a/x"))
    log.append(
        MANAGER, WorkloadFinished(workload=WorkloadKey("team-a/x"), uid=Uid("u"), reason="Succeeded", message="ok")
    )
    return log


def test_folding_twice_gives_the_same_bytes() -> None:
    """Same log, same state, byte for byte."""
    log = a_life()
    assert fold.encode(log.refold()) == fold.encode(log.state)


def test_a_snapshot_with_its_tail_equals_the_whole_fold() -> None:
    """Restored at any position and folded on, the state and its indexes are those of the whole fold."""
    log = a_life()
    for cut in range(len(log.commits) + 1):
        head = fold.new_state("main")
        for logged in log.commits[:cut]:
            fold.apply(head, logged)
        state = fold.restore("main", fold.encode(head))
        assert fold.encode(state) == fold.encode(head)
        for logged in log.commits[cut:]:
            fold.apply(state, logged)
        assert fold.encode(state) == fold.encode(log.state)
        assert indexes(state) == indexes(log.state)


def indexes(state: State) -> object:
    """What the indexes answer, without the empty entries that only history leaves."""
    index = state.index
    return (
        {name: queue.in_order() for name, queue in index.pending.items() if len(queue)},
        {name: list(keys) for name, keys in index.offered.items() if keys},
        sorted(index.offers.items()),
        {name: sorted(keys) for name, keys in index.holders.items() if keys},
        {name: usage for name, usage in index.usage.items() if usage},
        index.usage_of,
        sorted(index.reserved),
        index.by_owner,
        {name: sorted(keys) for name, keys in index.in_local_queue.items()},
        index.trees,
        index.selecting,
    )


def test_a_finished_workload_is_none_of_its_local_queue_whatever_is_seen_of_it() -> None:
    """Neither a fact that comes late nor a status that is taken over lists it: a restored state would not have it."""
    log = a_life()
    log.append(BRIDGE, observed("team-a/x", generation=2))
    done = WorkloadStatus(conditions=(Condition(type="Finished", status="True"),))
    log.append(BRIDGE, observed("team-a/y", taken_over=done))
    assert [log.state.workloads[WorkloadKey(key)].stage for key in ("team-a/x", "team-a/y")] == [Stage.FINISHED] * 2
    assert {name: list(keys) for name, keys in log.state.index.in_local_queue.items()} == {"team-a/main": [W]}
    assert indexes(fold.restore("main", fold.encode(log.state))) == indexes(log.state)


def test_a_workload_stands_in_the_local_queue_that_it_names_now() -> None:
    """Another spec may name another LocalQueue; one without references is not listed."""
    log = with_queue(W)
    elsewhere = msgspec.structs.replace(observed().spec, queue_name="other")
    log.append(BRIDGE, msgspec.structs.replace(observed(), spec=elsewhere))
    assert {name: list(keys) for name, keys in log.state.index.in_local_queue.items()} == {"team-a/other": [W]}


def test_an_owner_that_changes_is_followed() -> None:
    """The new owner's uid leads to the workload, the former one's to none."""
    log = with_queue(W)
    for uid in ("first", "second"):
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid=uid)
        log.append(BRIDGE, observed(owner=owner))
    assert log.state.index.by_owner == {"second": W}
    assert log.state.workloads[W].owner == owner


@given(st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["", "0", "2", "-1"]), min_size=1), st.data())
def test_what_a_local_queue_uses_follows_from_who_is_admitted(cpus: dict[str, str], data: st.DataObject) -> None:
    """Whatever they hold, also nothing, and in whatever order they end: as in a state rebuilt from the tables."""
    keys = {f"team-a/{name}": cpu for name, cpu in cpus.items()}
    log = with_queue(*keys)
    log.append(MANAGER, offered(*keys))
    for key, cpu in keys.items():
        charged = {"flavors": {"cpu": "f"}, "resource_usage": {"cpu": cpu}} if cpu else {}
        admission = Admission(cluster_queue="cq", pod_set_assignments=(PodSetAssignment(count=4, **charged),))  # type: ignore[arg-type]
        log.append(SCHEDULER, msgspec.structs.replace(reserved(key), admission=admission), admitted(key))
    for key in data.draw(st.permutations(sorted(keys))):
        restored = fold.restore("main", fold.encode(log.state)).index
        assert restored.admitted_usage == log.state.index.admitted_usage
        assert restored.admitted_count == log.state.index.admitted_count
        log.append(BRIDGE, WorkloadDeleted(workload=WorkloadKey(key), uid=Uid("u")))
    assert (log.state.index.admitted_usage, log.state.index.admitted_count) == ({}, {})


def test_who_moves_to_another_local_queue_holds_in_its_name() -> None:
    """Its spec may change after the reservation, before the API server has it: then all that it holds moves along."""
    log = with_queue("team-a/x")
    log.append(MANAGER, offered("team-a/x"))
    log.append(SCHEDULER, reserved("team-a/x"), admitted("team-a/x"))
    moved = msgspec.structs.replace(observed("team-a/x"), spec=WorkloadSpec(queue_name="other"))
    log.append(BRIDGE, moved)
    restored = fold.restore("main", fold.encode(log.state)).index
    assert set(log.state.index.admitted_usage) == {"team-a/other"}
    assert restored.admitted_usage == log.state.index.admitted_usage
    assert restored.admitted_count == log.state.index.admitted_count


def test_of_the_state_only_its_root_is_tracked() -> None:
    """Records hold trees: a full collection costs the same with any number of them. Cycles may go through the root."""
    structs = [
        each for each in vars(state_module).values() if isinstance(each, type) and issubclass(each, Record | Note)
    ]
    assert [each for each in structs if each.__struct_config__.gc] == [State]
    assert Workload in structs
    log = a_life()
    assert not any(gc.is_tracked(each) for each in log.state.workloads.values())


def test_the_state_does_not_depend_on_the_hash_seed() -> None:
    """Two interpreters with different hash seeds fold one log into the same hash."""
    program = "from tests.core.fold.test_fold import a_life, fold; print(fold.state_hash(a_life().state))"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_usage_is_charged_from_reservation_to_the_end() -> None:
    """Quota is held by reserved, admitted and evicted workloads, and is free when they finish or are released."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, reserved())
    assert log.state.index.usage["cq"] == {("f", "cpu"): 2000}
    log.append(SCHEDULER, admitted())
    log.append(MANAGER, WorkloadEvicted(workload=W, uid=Uid("u"), reason="Deactivated", message="off"))
    assert log.state.index.usage["cq"] == {("f", "cpu"): 2000}
    released = WorkloadReleased(workload=W, uid=Uid("u"), requeued=False, reason="Deactivated", message="off")
    position = log.append(MANAGER, released).seq
    assert log.state.index.usage["cq"] == {}
    assert log.state.freed["ClusterQueue/cq"]["f/cpu"] == position
    assert log.state.workloads[W].stage is Stage.NEW


def test_reclaimable_pods_give_quota_back() -> None:
    """Usage is divided by the admitted count and multiplied by what is left."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, reserved(cpu="2"), admitted())
    log.append(BRIDGE, observed(reclaimable_pods=(ReclaimablePod(name="main", count=1),)))
    assert log.state.index.usage["cq"] == {("f", "cpu"): 1500}


def test_the_gate_of_reclaimable_pods_recharges_what_is_held() -> None:
    """Off (ReclaimablePods), all that was reserved counts; a restored state charges the same either way."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, reserved(cpu="2"), admitted())
    log.append(BRIDGE, observed(reclaimable_pods=(ReclaimablePod(name="main", count=1),)))
    for is_on, expected in ((False, 2000), (True, 1500), (False, 2000)):
        configuration = Configuration(feature_gates={"ReclaimablePods": is_on})
        position = log.append(BRIDGE, ConfigurationObserved(configuration=configuration)).seq
        assert log.state.index.usage["cq"] == {("f", "cpu"): expected}
        assert log.state.freed["ClusterQueue/cq"]["*"] == position
        restored = fold.restore("main", fold.encode(log.state))
        assert indexes(restored) == indexes(log.state)


def test_a_check_state_from_before_an_eviction_admits_nobody_after_it() -> None:
    """Until its controller has answered again, a check of a workload that was evicted is Pending again."""
    ready = CheckState(name="gate", state="Ready", last_transition_time="2026-01-01T00:00:00Z")
    again = CheckState(name="gate", state="Ready", last_transition_time="2026-01-01T00:01:00Z")
    pending = CheckState(name="gate", state="Pending")
    with_check = msgspec.structs.replace(reserved(), checks=(pending,))
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, with_check)
    log.append(BRIDGE, observed(checks=(ready,)))
    assert [check.state for check in log.state.workloads[W].checks] == ["Ready"]
    log.append(MANAGER, WorkloadEvicted(workload=W, uid=Uid("u"), reason="AdmissionCheck", message="retry"))
    released = WorkloadReleased(workload=W, uid=Uid("u"), requeued=True, reason="AdmissionCheck", message="retry")
    log.append(MANAGER, released, queued(), offered(W))
    log.append(SCHEDULER, with_check)
    assert [check.state for check in log.state.workloads[W].checks] == ["Pending"]
    log.append(BRIDGE, observed(checks=(again,)))
    assert [check.state for check in log.state.workloads[W].checks] == ["Ready"]


def test_a_shape_sleeps_together_and_wakes_together() -> None:
    """A verdict of scope shape sets aside all of the shape at once, also the offered ones and those to come."""
    log = with_queue("a/1", "a/2", "a/3")
    log.append(MANAGER, offered("a/1", "a/2"))
    log.append(SCHEDULER, skipped("a/1"))
    queue = log.state.index.pending["cq"]
    assert list(queue.ahead()) == []
    assert "cq" not in log.state.index.offered
    log.append(MANAGER, parked("a/1"))
    log.append(BRIDGE, observed("a/4"))
    log.append(MANAGER, queued("a/4"))
    assert list(queue.ahead()) == []
    woken = WorkloadWoken(
        workload=WorkloadKey("a/1"),
        uid=Uid("u"),
        cluster_queue="cq",
        by="x",
        by_position=Seq(1),
        scope="shape",
        shape=Shape("s"),
    )
    log.append(MANAGER, woken)
    assert list(queue.ahead()) == ["a/1", "a/2", "a/3", "a/4"]


def test_a_blocked_strict_queue_lets_only_higher_ranks_pass() -> None:
    """A verdict of scope queue stops everything behind the head; a higher priority still goes ahead."""
    log = with_queue("a/1", "a/2")
    log.append(MANAGER, offered("a/1", "a/2"))
    log.append(SCHEDULER, skipped("a/1", scope="queue"))
    log.append(MANAGER, parked("a/1", scope="queue"))
    queue = log.state.index.pending["cq"]
    assert list(queue.ahead()) == []
    log.append(BRIDGE, observed("a/3"))
    log.append(MANAGER, queued("a/3", priority=10))
    assert list(queue.ahead()) == ["a/3"]
    log.append(BRIDGE, WorkloadDeleted(workload=WorkloadKey("a/1"), uid=Uid("u")))
    assert list(queue.ahead()) == ["a/3", "a/2"]


def test_an_event_for_a_workload_that_was_made_anew_is_overtaken() -> None:
    """Same name, other uid: what was decided about the former one changes nothing."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(BRIDGE, WorkloadDeleted(workload=W, uid=Uid("u")), observed(W, "other"))
    before = log.state.workloads[W].stage
    log.append(SCHEDULER, reserved(), admitted())
    assert log.state.workloads[W].stage is before
    assert log.state.index.usage == {}
    assert log.state.overtaken == 2


def test_an_eviction_of_one_that_a_cycle_has_preempted_meanwhile_is_overtaken() -> None:
    """The queue manager decided it before it saw the preemption: the workload stays preempted, counted once."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, reserved(), admitted())
    log.append(SCHEDULER, preempted())
    log.append(MANAGER, WorkloadEvicted(workload=W, uid=Uid("u"), reason="NodeFailures", message="gone"))
    workload = log.state.workloads[W]
    assert (workload.stage, log.state.overtaken) == (Stage.EVICTED, 1)
    assert [stat.reason for stat in workload.evictions] == ["Preempted"]


def test_a_decision_that_was_on_its_way_counts_after_the_offer_was_taken_back() -> None:
    """The scheduler's reservation holds although the queue manager has withdrawn the offer meanwhile."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(MANAGER, HeadsWithdrawn(cluster_queues=("cq",), reason="test"))
    log.append(SCHEDULER, reserved())
    assert log.state.workloads[W].stage is Stage.RESERVED


def test_an_illegal_transition_names_the_story() -> None:
    """An event that no rule-abiding producer can have appended is not applied."""
    log = with_queue(W)
    finished = WorkloadFinished(workload=W, uid=Uid("u"), reason="Succeeded", message="ok")
    log.append(MANAGER, finished)
    with pytest.raises(
        EventFailedError, match=r"position 4: WorkloadFinished .* team-a/w .*headgate explain"
    ) as caught:
        log.append(MANAGER, finished)
    assert isinstance(caught.value.__cause__, IllegalTransitionError)


def test_a_status_at_first_sight_is_taken_over() -> None:
    """An admitted workload of another Kueue stays admitted and charged."""
    status = WorkloadStatus(
        conditions=(
            Condition(type="QuotaReserved", status="True", last_transition_time="2026-01-01T00:00:00Z"),
            Condition(type="Admitted", status="True", last_transition_time="2026-01-01T00:00:00Z"),
        ),
        admission=reserved().admission,
    )
    log = TestLog()
    log.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), observed(taken_over=status))
    assert log.state.workloads[W].stage is Stage.ADMITTED
    assert log.state.index.usage["cq"] == {("f", "cpu"): 2000}


BREAKS = {
    "a commit is missing": lambda commit: msgspec.structs.replace(commit, number=commit.number + 1),
    "the chain is broken": lambda commit: msgspec.structs.replace(commit, prev="0" * 32),
    "an old epoch writes": lambda commit: msgspec.structs.replace(commit, epoch=0),
    "an id is wrong": lambda commit: msgspec.structs.replace(commit, id="binder-1-1"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_log_is_refused_with_its_position(how: str) -> None:
    """Lost, changed or unfenced commits stop the fold, with position and what to do."""
    log = TestLog()
    log.append(BRIDGE, LeaderElected(holder="a"))
    good = log.encode(BRIDGE, NodeObserved(name="n", node=Node(name="n")))
    bad = msgspec.structs.replace(good, commit=BREAKS[how](good.commit))
    with pytest.raises(BrokenLogError, match=r"broken at position 2: .*headgate audit"):
        fold.apply(log.state, bad)


def test_a_commit_cannot_come_twice() -> None:
    """The fold goes forward only."""
    log = TestLog()
    logged = log.append(BRIDGE, LeaderElected(holder="a"))
    with pytest.raises(BrokenLogError, match="comes after position 1"):
        fold.apply(log.state, logged)


def test_every_event_can_be_folded() -> None:
    """No event of the contract is unknown to the fold."""
    known = {LeaderElected, ObjectQuarantined, ObjectReleased, *fold.HANDLERS}
    assert [tag for tag, kind in TAGS.items() if kind not in known] == []


def test_the_lifecycle_is_unambiguous_and_reaches_every_stage() -> None:
    """Each (stage, event) has one meaning; every stage but the first can be entered, every one can end."""
    entered = {arrow.end for arrow in ARROWS if arrow.end is not None}
    assert entered == set(Stage)
    assert {stage for arrow in ARROWS if arrow.end is Stage.FINISHED for stage in arrow.start} == set(Stage) - {
        Stage.FINISHED
    }
    events: set[type[EventBase]] = {arrow.event for arrow in ARROWS}
    assert {row.event for row in OVERTAKEN} <= events


def test_quota_is_entered_by_reservation_only() -> None:
    """
    No arrow but `workload.quota_reserved` leads from a stage without quota to one with it (or to an eviction).

    A parent that follows its variant is charged nothing.
    """
    for arrow in ARROWS:
        if arrow.end in HOLDS_QUOTA and not arrow.start <= HOLDS_QUOTA:
            assert arrow.event in (QuotaReserved, WorkloadFollowed) or arrow.end is Stage.EVICTED


def test_what_no_rule_foresees_is_no_transition() -> None:
    """The table answers only for what it lists."""
    with pytest.raises(LookupError):
        next_stage(Stage.FINISHED, WorkloadQueued)
