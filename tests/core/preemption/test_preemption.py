"""The preemption search: the candidates, their order, and the oracle's result."""

import random

import msgspec
import pytest
from tests.core.preemption.worlds import INCOMING, Asked, Holding, World
from tests.support.cells import NAMESPACE, cluster_queue, cohort

from headgate.core.flavors import Grade
from headgate.core.kubernetes.quantities import UNLIMITED
from headgate.core.preemption import SnapshotOracle, can_always_reclaim, find_targets
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import AdmissionFairSharingConfiguration, Configuration, FairSharingConfiguration
from headgate.events.facts import ClusterQueueObserved
from headgate.events.ids import LocalQueueKey, WorkloadKey
from headgate.events.objects import AdmissionScope, Preemption
from headgate.events.queueing import WorkloadEvicted

CPU = ("f", "cpu")
QUOTA = {"f": {"cpu": "4", "gpu": 4}}
OWN = Preemption(within_cluster_queue="LowerPriority")
RECLAIM = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


def holding(name: str, queue: str = "a", cpu: int = 1, priority: int = 0, reserved_s: int = 1) -> Holding:
    return Holding(name, queue, {"cpu": 1000 * cpu, "gpu": 0}, priority, 0, reserved_s)


def world(*events: EventBase, holdings: tuple[Holding, ...], cpu: int = 1) -> World:
    requests = {"cpu": 1000 * cpu}
    return World(events=events, holdings=holdings, queue="a", priority=5, created_s=1, requests=requests)


def names(asked: Asked) -> list[str]:
    return [target.workload.removeprefix(f"{NAMESPACE}/") for target in asked.targets]


def test_lower_priority_goes_first_then_who_got_quota_later_then_by_uid() -> None:
    """Times within one second are equal: there the uid decides."""
    order = [
        holding("low", priority=0, reserved_s=1),
        holding("late", priority=1, reserved_s=3),
        holding("y", priority=1, reserved_s=2),
        holding("z", priority=1, reserved_s=2),
    ]
    queue = cluster_queue("a", QUOTA, preemption=OWN)
    for count in range(1, 5):
        assert names(Asked(world(queue, holdings=tuple(reversed(order)), cpu=count))) == [
            each.name for each in order[:count]
        ]


def test_who_is_evicted_anyway_goes_before_all_others() -> None:
    """Its quota is being released: no other target is needed for it. It still has a reason."""
    asked = Asked(
        world(
            cluster_queue("a", QUOTA, preemption=OWN),
            holdings=tuple(holding(f"w{i}", priority=i) for i in range(4)),
        )
    )
    gone = asked.state.workloads[WorkloadKey(f"{NAMESPACE}/w3")]
    event = WorkloadEvicted(workload=gone.key, uid=gone.uid, reason="PodsReadyTimeout", message="slow")
    asked.cell.log.append(Producer.QUEUE_MANAGER, event)
    assert asked.again(1000) == [gone.key]


def test_workloads_of_an_inactive_cluster_queue_keep_what_they_borrowed() -> None:
    """A ClusterQueue on hold lends as before, and keeps its usage; but none of its workloads is preempted."""
    stopped = cluster_queue("b", {"f": {"cpu": 0, "gpu": 0}}, cohort_name="co", stop_policy="Hold")
    active = msgspec.structs.replace(stopped, spec=msgspec.structs.replace(stopped.spec, stop_policy="None"))
    own = cluster_queue("a", QUOTA, cohort_name="co", preemption=RECLAIM)
    borrowed = (holding("b1", "b", 4),)
    assert names(Asked(world(own, active, holdings=borrowed))) == ["b1"]
    asked = Asked(world(own, stopped, holdings=borrowed))
    assert names(asked) == []
    assert not asked.snapshot.ledger.available(asked.snapshot.node("a"), CPU)
    assert asked.snapshot.holders("b") == ()


def test_only_who_was_assigned_something_contested_goes() -> None:
    """A workload of the lowest priority stays if it uses other quota only."""
    memory = Holding("memory", "a", {"gpu": 4}, 0, 0, 1)
    assert names(
        Asked(world(cluster_queue("a", QUOTA, preemption=OWN), holdings=(memory, holding("cpu", "a", 4))))
    ) == ["cpu"]


def test_borrowed_quota_is_fair_game_whatever_its_priority_below_the_threshold_or_not() -> None:
    """Nominal quota is reclaimed from every borrower, as far as reclaimWithinCohort allows."""
    own = cluster_queue("a", QUOTA, cohort_name="co", preemption=RECLAIM)
    other = cluster_queue("b", {"f": {"cpu": 0, "gpu": 0}}, cohort_name="co")
    asked = Asked(world(own, other, holdings=(holding("b1", "b", 4, priority=9),)))
    assert [(each.workload, each.reason) for each in asked.targets] == [(f"{NAMESPACE}/b1", "InCohortReclamation")]
    assert can_always_reclaim(asked.queue)


@pytest.mark.parametrize(
    ("holdings", "grade", "level"),
    [
        ((holding("b1", "b", 4),), Grade.RECLAIM, 0),
        ((holding("a1", "a", 4),), Grade.PREEMPT, 0),
        ((holding("a1", "a", 4, priority=9),), Grade.NO_CANDIDATES, 1),
    ],
)
def test_the_oracle_says_who_would_have_to_go(holdings: tuple[Holding, ...], grade: Grade, level: int) -> None:
    """Only other queues: reclaim; own queue, too: preempt; none: no candidates. Levels are those after it."""
    own = cluster_queue("a", QUOTA, cohort_name="co", preemption=RECLAIM)
    other = cluster_queue("b", {"f": {"cpu": 0, "gpu": 0}}, cohort_name="co")
    asked = Asked(world(own, other, holdings=holdings))
    oracle = SnapshotOracle(asked.snapshot, asked.queue, asked.incoming)
    assert oracle.simulate(asked.snapshot.node("a"), CPU, 1000) == (grade, level)
    assert asked.usage() == asked.before


def test_a_replaced_slice_comes_first_and_without_reason_when_there_are_targets() -> None:
    """It is finished when the new slice is admitted; no workload is evicted."""
    asked = Asked(world(cluster_queue("a", QUOTA, preemption=OWN), holdings=(holding("old", cpu=3), holding("w"))))
    old = asked.state.workloads[WorkloadKey(f"{NAMESPACE}/old")]
    targets = find_targets(asked.snapshot, asked.queue, asked.incoming, {CPU: 1000}, {CPU}, replaced=old)
    assert (targets[0].workload, targets[0].reason) == (old.key, "")
    assert len(targets) == 2
    assert not find_targets(asked.snapshot, asked.queue, asked.incoming, {CPU: 9000}, {CPU}, replaced=old)


def test_whose_local_queue_has_used_more_goes_first_where_usage_counts() -> None:
    """Admission fair sharing: between LocalQueues of one ClusterQueue usage ranks above priority."""
    queue = cluster_queue(
        "a", QUOTA, preemption=OWN, admission_scope=AdmissionScope(admission_mode="UsageBasedAdmissionFairSharing")
    )
    asked = Asked(
        msgspec.structs.replace(
            world(queue, holdings=(holding("low", cpu=2, priority=0), holding("high", cpu=2, priority=1))),
            configuration=Configuration(admission_fair_sharing=AdmissionFairSharingConfiguration()),
        )
    )
    high = asked.state.workloads[WorkloadKey(f"{NAMESPACE}/high")]
    high.spec = msgspec.structs.replace(high.spec, queue_name="busy")
    usage = {LocalQueueKey(f"{NAMESPACE}/a"): 1.0, LocalQueueKey(f"{NAMESPACE}/busy"): 2.0}
    asked.state.index.local_queue_usage.update(usage)
    assert asked.again(1000) == [high.key]
    asked.state.index.local_queue_usage[LocalQueueKey(f"{NAMESPACE}/a")] = 3.0
    assert asked.again(1000) == [WorkloadKey(f"{NAMESPACE}/low")]


def test_of_equal_cohorts_the_last_by_name_gives_way_first() -> None:
    """Kueue lets a later one win; its recordings have gone through them by name."""
    names_of = ["m1", "m2", "m0"]
    cohorts = [cohort("co", "", {"f": {"cpu": "6", "gpu": 1}}), *(cohort(name, "co") for name in names_of)]
    none = {"f": {"cpu": 0, "gpu": 0}}
    queues: list[ClusterQueueObserved] = [cluster_queue("a", none, cohort_name="co", preemption=RECLAIM)]
    queues += [cluster_queue(f"q{name}", none, cohort_name=name) for name in names_of]
    fair = msgspec.structs.replace(
        world(
            *cohorts,
            *queues,
            holdings=tuple(holding(f"{name}-{i}", f"q{name}") for name in names_of for i in range(2)),
        ),
        configuration=Configuration(fair_sharing=FairSharingConfiguration()),
    )
    for seed in range(3):
        assert names(Asked(fair, random.Random(seed))) == ["m2-0"]


def test_an_unlimited_quota_needs_nobody_to_go() -> None:
    """Amounts saturate: a quota beyond 64 bits always has room."""
    queue = cluster_queue("a", {"f": {"cpu": f"{UNLIMITED}", "gpu": 1}}, preemption=OWN)
    asked = Asked(world(queue, holdings=(holding("w", cpu=9_000_000_000_000),), cpu=9_000_000_000_000))
    assert asked.contested == frozenset()
    assert asked.snapshot.holder(WorkloadKey(f"{NAMESPACE}/w")).usage[CPU] == 9_000_000_000_000_000
    assert INCOMING not in asked.state.index.usage_of
