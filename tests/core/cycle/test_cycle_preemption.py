"""The cycle with preemption: victims, the workloads that wait for them, and the effect on others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import NAMESPACE, Cell, cluster_queue, cohort, pod_set, reservations, verdicts

from headgate.core import fold
from headgate.core.config import feature_gates
from headgate.core.cycle import CycleEntry, decide_cycle, deciding, evaluate, events_of
from headgate.core.flavors.catalog import Catalog
from headgate.core.quota.cache import Forest
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, Stage
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration, FairSharingConfiguration, WaitForPodsReady
from headgate.events.decisions import CycleDecided, WorkloadPreempted
from headgate.events.facts import ConfigurationObserved, WorkloadDeleted, WorkloadObserved
from headgate.events.ids import WorkloadKey
from headgate.events.objects import BorrowWithinCohort, Condition, Preemption
from headgate.events.queueing import WorkloadReleased
from headgate.events.registry import Event

BY_PRIORITY = Preemption(within_cluster_queue="LowerPriority")
RECLAIMS = Preemption(reclaim_within_cohort="Any")
FAIR = ConfigurationObserved(configuration=Configuration(fair_sharing=FairSharingConfiguration()))


def gated(**on: bool) -> ConfigurationObserved:
    """A configuration of feature gates."""
    return ConfigurationObserved(configuration=Configuration(feature_gates=on))


def victims(events: tuple[Event, ...]) -> dict[str, str]:
    """The targets of a cycle, by name, and their preemptors."""
    return {
        event.workload.partition("/")[2]: event.preemptor.partition("/")[2]
        for event in events
        if isinstance(event, WorkloadPreempted)
    }


def leave(cell: Cell, *names: str) -> None:
    """The jobs of evicted workloads have stopped."""
    for name in names:
        workload = cell.state.workloads[WorkloadKey(f"{NAMESPACE}/{name}")]
        released = WorkloadReleased(
            workload=workload.key, uid=workload.uid, reason="Preempted", message="m", requeued=True
        )
        cell.log.append(Producer.QUEUE_MANAGER, released)


def urgent_one(strategy: str = "BestEffortFIFO") -> Cell:
    """A full ClusterQueue of a cohort, with an urgent workload for which two have to go, and a neighbour."""
    cell = Cell(
        cluster_queue("cq", {"f": {"gpu": 4}}, cohort_name="co", preemption=BY_PRIORITY, queueing_strategy=strategy),
        cluster_queue("other", {"f": {"gpu": 0}}, cohort_name="co"),
    )
    for name in ("a", "b", "c", "d"):
        cell.submit("cq", name, pod_set({"gpu": 1}))
        cell.cycle()
    cell.submit("cq", "urgent", pod_set({"gpu": 2}), priority=1)
    return cell


# --- preempting ----------------------------------------------------------------------------------------------------


def test_victims_are_told_before_the_verdict_that_waits_for_them() -> None:
    """They are evicted from there on; the preemptor blocks its ClusterQueue until they have left."""
    cell = urgent_one()
    events = cell.cycle()
    assert [type(event).__name__ for event in events] == [
        "CycleDecided",
        "WorkloadPreempted",
        "WorkloadPreempted",
        "WorkloadSkipped",
    ]
    verdict = verdicts(events)["urgent"]
    assert set(victims(events).values()) == {"urgent"}
    assert {key.partition("/")[2] for key in verdict.targets} == set(victims(events))
    assert (verdict.requeue_reason, verdict.reason, verdict.scope) == (
        "PendingPreemption",
        "WaitingForPreemptedWorkloads",
        "queue",
    )
    assert verdict.message.endswith("2 more needed. Pending the preemption of 2 workload(s)")
    assert {cell.state.workloads[key].stage for key in verdict.targets} == {Stage.EVICTED}
    assert cell.cycle() == ()


def test_who_has_to_leave_already_is_not_told_again() -> None:
    """A preemptor that is decided while its victims leave counts them, and preempts no other."""
    cell = urgent_one()
    first = cell.cycle()
    leave(cell, sorted(victims(first))[0])
    cell.submit("other", "another", pod_set({"gpu": 1}))
    again = cell.cycle()
    assert victims(again) == {}
    verdict = verdicts(again)["urgent"]
    assert verdict.message.endswith("1 more needed. Pending the preemption of 1 workload(s)")


def test_when_its_victims_have_left_the_preemptor_is_admitted() -> None:
    """Also by a cycle for another head: it keeps its place in all of its tree."""
    cell = urgent_one()
    gone = victims(cell.cycle())
    leave(cell, *gone)
    cell.submit("other", "another", pod_set({"gpu": 1}))
    events = cell.cycle()
    assert reservations(events) == ["urgent"]
    assert verdicts(events)["another"].scope == "immediate"
    assert isinstance(events[0], CycleDecided)
    assert [head.workload for head in events[0].heads] == [f"{NAMESPACE}/another"]


def test_nobody_is_admitted_on_quota_that_victims_still_hold() -> None:
    """A workload that fits only without another's victims waits; where these leave at once, it is admitted, too."""
    lower = Preemption(within_cluster_queue="LowerPriority")
    cell = Cell(
        cohort("co"),
        cluster_queue("one", {"f": {"cpu": 4}}, cohort_name="co", preemption=lower),
        cluster_queue("two", {"f": {"cpu": 0}}, cohort_name="co"),
        cluster_queue("three", {"f": {"cpu": 1}}, cohort_name="co"),
    )
    cell.submit("one", "victim", pod_set({"cpu": 4}), at_ms=0)
    cell.cycle()
    cell.submit("one", "urgent", pod_set({"cpu": 2}), priority=1, at_ms=1)
    cell.submit("three", "taker", pod_set({"cpu": 1}), at_ms=2, priority=2)
    cell.submit("two", "late", pod_set({"cpu": 1}), at_ms=3)
    heads = [
        (cell.state.workloads[WorkloadKey(f"{NAMESPACE}/{name}")], queue)
        for name, of in (("urgent", "one"), ("taker", "three"), ("late", "two"))
        if (queue := Catalog(cell.state).queue(of)) is not None
    ]
    done = {entry.workload.key: entry for entry in evaluate(cell.state, Catalog(cell.state), heads).entries}
    at_once = {
        entry.workload.key: entry
        for entry in evaluate(cell.state, Catalog(cell.state), heads, victims_leave_at_once=True).entries
    }
    late = WorkloadKey(f"{NAMESPACE}/late")
    assert [target.workload for target in done[WorkloadKey(f"{NAMESPACE}/urgent")].targets] == [f"{NAMESPACE}/victim"]
    assert (done[late].mode, done[late].status, done[late].requeue_reason) == ("DeferredFit", "", "PendingPreemption")
    assert (at_once[late].mode, at_once[late].status) == ("Fit", "assumed")


def test_what_victims_leave_is_for_whom_they_left() -> None:
    """No other workload borrows it in the meantime, in this cycle or a later one."""
    cell = urgent_one()
    gone = victims(cell.cycle())
    leave(cell, sorted(gone)[0])
    cell.submit("other", "thief", pod_set({"gpu": 1}))
    events = cell.cycle()
    assert reservations(events) == []
    assert verdicts(events)["thief"].message == "Workload no longer fits after processing another workload"
    assert verdicts(events)["thief"].scope == "queue"


def test_a_standing_verdict_is_told_only_when_it_is_another() -> None:
    """A cycle for another workload of the tree has no verdict on a preemptor that still waits."""
    cell = urgent_one()
    cell.cycle()
    cell.submit("other", "another", pod_set({"gpu": 1}))
    events = cell.cycle()
    assert set(verdicts(events)) == {"another"}
    assert victims(events) == {}


def test_a_higher_priority_of_its_own_queue_is_decided_instead_of_a_standing_head() -> None:
    """One head of each ClusterQueue: the offered one. Only a StrictFIFO queue lets it come first."""
    cell = urgent_one("StrictFIFO")
    cell.cycle()
    cell.submit("cq", "more-urgent", pod_set({"gpu": 2}), priority=9)
    events = cell.cycle()
    assert set(verdicts(events)) == {"more-urgent"}
    assert victims(events) == {}


# --- two preemptors ------------------------------------------------------------------------------------------------


def rivals(*events: EventBase, spare: int = 0) -> Cell:
    """Two ClusterQueues of a cohort reclaim their quota from the same borrower."""
    cell = Cell(
        cohort("co", "", {"f": {"gpu": spare}}),
        cluster_queue("a", {"f": {"gpu": 2}}, cohort_name="co", preemption=RECLAIMS),
        cluster_queue("b", {"f": {"gpu": 2}}, cohort_name="co", preemption=RECLAIMS),
        cluster_queue("z", {"f": {"gpu": 0}}, cohort_name="co"),
        *events,
    )
    cell.submit("z", "borrower", pod_set({"gpu": 4 + spare}))
    cell.cycle()
    cell.submit("a", "first", pod_set({"gpu": 2}), at_ms=1)
    cell.submit("b", "second", pod_set({"gpu": 2}), at_ms=2)
    return cell


def test_who_fits_when_anothers_victims_have_left_waits_with_it() -> None:
    """It preempts none, keeps its place, and its verdict is that it will fit."""
    cell = rivals()
    events = cell.cycle()
    assert victims(events) == {"borrower": "first"}
    second = verdicts(events)["second"]
    assert (second.requeue_reason, second.reason, second.scope) == (
        "PendingPreemption",
        "WaitingForPreemptedWorkloads",
        "queue",
    )
    assert second.message.endswith("but will fit after these preemptions complete")
    assert second.targets == ()
    assert cell.cycle() == ()
    leave(cell, "borrower")
    cell.submit("z", "small", pod_set({"gpu": 1}))
    assert sorted(reservations(cell.cycle())) == ["first", "second"]


def test_without_the_gate_overlapping_targets_are_left_to_the_first() -> None:
    """The second is skipped, retries at once, and then waits behind the first."""
    cell = rivals(gated(**{feature_gates.RECOMPUTE_UPON_OVERLAP: False}))
    second = verdicts(cell.cycle())["second"]
    assert (second.status, second.scope) == ("skipped", "immediate")
    assert second.message == "Workload has overlapping preemption targets with another workload"
    again = verdicts(cell.cycle())["second"]
    assert (again.status, again.scope) == ("skipped", "queue")
    assert cell.cycle() == ()


# --- sizes ---------------------------------------------------------------------------------------------------------


def test_a_cycle_stops_before_its_commit_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads for which there is no room stay offered, and the next cycle decides them."""
    monkeypatch.setattr(deciding, "EVENTS_MAX", 4)
    cell = Cell(*(cluster_queue(f"cq{i}", {"f": {"gpu": 1}}) for i in range(5)))
    for i in range(5):
        cell.submit(f"cq{i}", f"w{i}", pod_set({"gpu": 1}), at_ms=i)
    assert reservations(cell.cycle()) == ["w0", "w1"]
    assert reservations(cell.cycle()) == ["w2", "w3"]
    assert reservations(cell.cycle()) == ["w4"]


def test_more_victims_than_a_cycle_tells_are_told_cycle_by_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preemptor stays offered until all targets have their event; no target gets two."""
    monkeypatch.setattr(deciding, "EVENTS_MAX", 3)
    cell = Cell(cluster_queue("cq", {"f": {"gpu": 8}}, preemption=BY_PRIORITY))
    for i in range(8):
        cell.submit("cq", f"w{i}", pod_set({"gpu": 1}))
        cell.cycle()
    cell.submit("cq", "urgent", pod_set({"gpu": 8}), priority=1)
    told: list[str] = []
    scopes: list[str] = []
    while events := cell.cycle():
        told += victims(events)
        scopes.append(verdicts(events)["urgent"].scope)
    assert sorted(told) == [f"w{i}" for i in range(8)]
    assert scopes == ["immediate", "immediate", "queue"]


# --- waiting for pods ----------------------------------------------------------------------------------------------


def blocking() -> Cell:
    """With blockAdmission, the heads of two ClusterQueues of a cohort, of which the first was admitted."""
    waits = Configuration(wait_for_pods_ready=WaitForPodsReady(block_admission=True))
    cell = Cell(
        *(cluster_queue(f"cq{i}", {"f": {"gpu": 1}}, cohort_name="co") for i in range(3)),
        ConfigurationObserved(configuration=waits),
    )
    for i in range(2):
        cell.submit(f"cq{i}", f"w{i}", pod_set({"gpu": 1}), at_ms=i)
    return cell


def test_with_block_admission_one_workload_is_admitted_at_a_time() -> None:
    """A workload that fits in the meantime names what it waits for, and blocks its ClusterQueue."""
    cell = blocking()
    events = cell.cycle()
    assert reservations(events) == ["w0"]
    waits = verdicts(events)["w1"]
    assert (waits.reason, waits.scope) == ("WaitingForPodsReady", "queue")
    assert waits.message == "waiting for all admitted workloads to be in PodsReady condition"


@pytest.mark.parametrize("how", ["ready", "gone"])
def test_once_all_pods_are_ready_who_waits_may_be_tried(how: str) -> None:
    """Also when the workload that was not ready has left: that wakes, and the next cycle admits."""
    cell = blocking()
    cell.cycle()
    before = cell.state.position
    first = cell.state.workloads[WorkloadKey(f"{NAMESPACE}/w0")]
    if how == "ready":
        ready = Condition(type="PodsReady", status="True", reason="Started")
        seen: EventBase = WorkloadObserved(
            workload=first.key, uid=first.uid, created_ms=first.created_ms, spec=first.spec, pods_ready=ready
        )
    else:
        seen = WorkloadDeleted(workload=first.key, uid=first.uid)
    cell.log.append(Producer.INFORMER_BRIDGE, seen)
    assert cell.state.freed["co"]["*"] > before
    cell.submit("cq2", "another", pod_set({"gpu": 1}), at_ms=9)
    assert reservations(cell.cycle()) == ["w1"]


# --- laws ----------------------------------------------------------------------------------------------------------

policies = st.builds(
    Preemption,
    reclaim_within_cohort=st.sampled_from(["Never", "LowerPriority", "Any"]),
    within_cluster_queue=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    borrow_within_cohort=st.sampled_from([None, BorrowWithinCohort(policy="LowerPriority", max_priority_threshold=1)]),
)
workloads = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(st.fixed_dictionaries({"cpu": st.integers(1, 6)}, optional={"gpu": st.integers(1, 2)}), max_size=2),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=10,
)
crowds = st.tuples(
    workloads,
    st.tuples(*[st.sampled_from(["BestEffortFIFO", "StrictFIFO"])] * 4),
    st.tuples(*[policies] * 4),
    st.booleans(),
)


def crowded(crowd: Any, turns: list[int] | None = None) -> Cell:
    """
    Four ClusterQueues in two levels of cohorts, several flavors, and more work than there is room for.

    `turns`: in which order the ClusterQueues get their workloads, each ClusterQueue its own in the order they have.
    """
    heads, strategy, preemption, fair = crowd
    groups: tuple[dict[str, dict[str, Any]], ...] = (
        {"a": {"cpu": 3}, "b": {"cpu": 2}, "c": {"cpu": (1, 2, None)}},
        {"g": {"gpu": 1}, "h": {"gpu": (1, 0, 0)}},
    )
    cell = Cell(
        cohort("root"),
        cohort("left", "root"),
        *(
            cluster_queue(
                f"cq{i}",
                *groups,
                cohort_name="left" if i < 2 else "root",
                queueing_strategy=strategy[i],
                preemption=preemption[i],
            )
            for i in range(4)
        ),
        *((FAIR,) if fair else ()),
    )
    coming = list(enumerate(heads))
    if turns is not None:
        coming.sort(key=lambda each: turns.index(each[1][0]))
    for number, (queue, requests, priority) in coming:
        sets = [pod_set(each, name=f"p{i}") for i, each in enumerate(requests or [{"cpu": 1}])]
        cell.submit(f"cq{queue}", f"w{number}", *sets, priority=priority, at_ms=number)
    return cell


def run(cell: Cell, bound: int = 400) -> None:
    """Cycles until nothing is left to decide."""
    while cell.cycle():
        bound -= 1
        assert bound > 0, "cycles do not end"


@given(crowds)
def test_cycles_come_to_an_end_with_preemption_too(crowd: Any) -> None:
    """On a state that nothing else changes they stop, and no workload is left offered."""
    cell = crowded(crowd)
    run(cell)
    assert not cell.state.index.offered


@given(crowds, st.integers(1, 4))
def test_no_quota_is_exceeded_while_victims_leave(crowd: Any, rounds: int) -> None:
    """After every cycle no quota is exceeded, the evicted still counted."""
    cell = crowded(crowd)
    for _ in range(rounds):
        run(cell)
        tree = Forest(cell.state).tree("root")
        ledger = Ledger(tree, cell.state.index.usage)
        for held in cell.state.index.usage.values():
            for fr in held:
                assert all(ledger.available(node, fr) >= 0 for node in tree.nodes)
        evicted = [each for each in cell.state.workloads.values() if each.stage is Stage.EVICTED]
        leave(cell, *(each.key.partition("/")[2] for each in evicted))


@given(crowds)
def test_usage_returns_to_zero_when_everything_has_left(crowd: Any) -> None:
    """Nothing stays charged, for preempted, admitted and waiting workloads alike."""
    cell = crowded(crowd)
    run(cell)
    for key in sorted(cell.state.workloads):
        gone = WorkloadDeleted(workload=key, uid=cell.state.workloads[key].uid)
        cell.log.append(Producer.INFORMER_BRIDGE, gone)
    assert not any(value for usage in cell.state.index.usage.values() for value in usage.values())
    assert not any(cell.state.index.holders.values())


@given(crowds, st.permutations(range(4)))
def test_neither_tables_nor_the_order_of_heads_matter(crowd: Any, order: list[int]) -> None:
    """With holders, victims and standing heads about: a restored state, in another order, decides the same."""
    cell = crowded(crowd)
    for _ in range(3):
        state = cell.state
        decided = decide_cycle(state)
        restored = fold.restore("main", fold.encode(state))
        for table in ("workloads", "cluster_queues", "sleeps"):
            setattr(restored, table, dict(reversed(list(getattr(restored, table).items()))))
        restored.index.offered = dict(reversed(list(restored.index.offered.items())))
        restored.index.holders = {
            name: dict(reversed(list(keys.items()))) for name, keys in restored.index.holders.items()
        }
        assert decide_cycle(restored) == decided
        cell.cycle()
    catalog = Catalog(cell.state)
    heads = _one_of_each_queue(cell, catalog)
    straight = evaluate(cell.state, catalog, heads)
    shuffled = evaluate(cell.state, catalog, [heads[i] for i in order if i < len(heads)])
    assert events_of(cell.state, straight) == events_of(cell.state, shuffled)


@given(crowds, st.permutations(range(4)))
def test_the_order_of_unrelated_events_does_not_matter(crowd: Any, turns: list[int]) -> None:
    """Workloads of different ClusterQueues may become known in any order: the same are admitted the same way."""
    one, other = crowded(crowd), crowded(crowd, turns)
    for cell in (one, other):
        run(cell)
    assert one.reserved() == other.reserved()
    assert {key: each.stage for key, each in one.state.workloads.items()} == {
        key: each.stage for key, each in other.state.workloads.items()
    }


def _one_of_each_queue(cell: Cell, catalog: Catalog) -> list[Any]:
    found: dict[str, Any] = {}
    for key in sorted(cell.state.workloads):
        workload = cell.state.workloads[key]
        queue = catalog.queue(workload.cluster_queue)
        if workload.stage in PENDING and queue is not None:
            found.setdefault(queue.name, (workload, queue))
    return list(found.values())


@given(crowds)
def test_deciding_changes_nothing(crowd: Any) -> None:
    """A cycle can be decided repeatedly: state and catalog give the same, byte for byte."""
    cell = crowded(crowd)
    catalog = Catalog(cell.state)
    before = fold.encode(cell.state)
    first = decide_cycle(cell.state, catalog)
    assert decide_cycle(cell.state, catalog) == first
    assert fold.encode(cell.state) == before


@given(crowds)
def test_only_holders_are_preempted_and_only_once(crowd: Any) -> None:
    """Each victim holds quota, is not leaving yet, and is named by one preemptor of its tree."""
    cell = crowded(crowd)
    while True:
        events = decide_cycle(cell.state)
        told = [event for event in events if isinstance(event, WorkloadPreempted)]
        assert len({event.workload for event in told}) == len(told)
        for event in told:
            stage = cell.state.workloads[event.workload].stage
            assert stage in HOLDS_QUOTA
            assert stage is not Stage.EVICTED
        if not cell.cycle():
            return


def test_an_entry_says_how_a_head_was_decided() -> None:
    """What a plan shows of it: mode, flavors, targets with their reasons, in Kueue's words."""
    cell = urgent_one()
    catalog = Catalog(cell.state)
    queue = catalog.queue("cq")
    assert queue is not None
    (entry,) = evaluate(cell.state, catalog, [(cell.state.workloads[f"{NAMESPACE}/urgent"], queue)]).entries
    assert isinstance(entry, CycleEntry)
    assert (entry.mode, entry.borrowing, entry.status) == ("Preempt", 0, "")
    assert entry.flavors == {"main": {"gpu": "f"}}
    assert [target.reason for target in entry.targets] == ["InClusterQueue", "InClusterQueue"]
