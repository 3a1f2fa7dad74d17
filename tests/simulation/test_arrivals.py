"""
Work that arrives over time, as in Kueue's scheduler benchmark, under virtual time: the order of admission.

One cohort of it: six ClusterQueues of 20 cpu that borrow, small, medium and large workloads of rising priority, more
than there is room for. An admission takes two and a half seconds more than the work, so that it lasts as long as on a
real API server.
"""

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush

from tests.benchmarks import kube_load
from tests.benchmarks.drain import CLASSES, PREEMPTING, Load, cluster_queue, workload
from tests.support.logs import TestLog
from tests.support.rounds import Rounds

from headgate.core.state.tables import Stage
from headgate.events.base import EventBase, Producer
from headgate.events.facts import ClusterQueueObserved as QueueObserved
from headgate.events.facts import (
    InformersSynced,
    LocalQueueObserved,
    NamespaceObserved,
    ResourceFlavorObserved,
    WorkloadObserved,
)
from headgate.events.ids import LocalQueueKey, UnixMs, WorkloadKey
from headgate.events.objects import Condition, LocalQueueSpec, ResourceFlavorSpec

ROUND_MS = 100
OVERHEAD_MS = 2_500
DONE = Condition(type="Finished", status="True", reason="Succeeded", message="", last_transition_time="")

Arrivals = list[tuple[int, WorkloadObserved, int]]
"""When it arrives, what, and how long it holds its quota."""


def _cell(load: Load, classes: Sequence[kube_load.Class]) -> tuple[Rounds, Arrivals]:
    log = TestLog()
    facts: list[EventBase] = [ResourceFlavorObserved(name=kube_load.FLAVOR, spec=ResourceFlavorSpec())]
    arrivals: Arrivals = []
    for number in range(load.queues):
        name = f"cq-{number}"
        facts.append(NamespaceObserved(name=name))
        facts.append(QueueObserved(name=name, spec=cluster_queue("cohort", load.preemption)))
        queue = LocalQueueKey(f"{name}/main")
        facts.append(LocalQueueObserved(queue=queue, spec=LocalQueueSpec(cluster_queue=name)))
        for each in classes:
            for n in range(each.count):
                at = log.now_ms + (n + 1) * each.every_ms
                fact = workload(WorkloadKey(f"{name}/{each.name}-{n}"), each.cpu, each.priority, at)
                arrivals.append((at, fact, each.run_ms + OVERHEAD_MS))
    log.append(Producer.INFORMER_BRIDGE, *facts, InformersSynced())
    return Rounds(log), sorted(arrivals, key=lambda each: (each[0], each[1].workload))


def waits(load: Load, classes: Sequence[kube_load.Class]) -> dict[str, float]:
    """How long the workloads of each class wait for the admission that they finish with, in seconds on average."""
    rounds, arrivals = _cell(load, classes)
    state, left = rounds.state, len(arrivals)
    holds = {fact.workload: holds_ms for _, fact, holds_ms in arrivals}
    arrivals.reverse()
    admitted: dict[WorkloadKey, int] = {}
    ends: list[tuple[int, WorkloadKey, int]] = []
    waited: dict[str, list[int]] = defaultdict(list)
    while left:
        coming: list[EventBase] = []
        while arrivals and arrivals[-1][0] <= rounds.log.now_ms:
            coming.append(arrivals.pop()[1])
        while ends and ends[0][0] <= rounds.log.now_ms:
            _, key, admitted_ms = heappop(ends)
            each = state.workloads[key]
            if each.stage is Stage.ADMITTED and each.admitted_at_ms == admitted_ms:
                left -= 1
                waited[key.partition("/")[2].partition("-")[0]].append(admitted_ms - each.created_ms)
                coming.append(
                    WorkloadObserved(
                        workload=key, uid=each.uid, created_ms=each.created_ms, spec=each.spec, finished=DONE
                    )
                )
        if coming:
            rounds.hear(Producer.INFORMER_BRIDGE, *coming)
        rounds.run_by_turns(0, 1)
        for name in state.cluster_queues:
            for key in state.index.holders.get(name, ()):
                each = state.workloads[key]
                if each.stage is Stage.ADMITTED and admitted.get(key) != each.admitted_at_ms:
                    admitted[key] = each.admitted_at_ms
                    heappush(ends, (each.admitted_at_ms + holds[key], key, each.admitted_at_ms))
        rounds.log.now_ms = UnixMs(rounds.log.now_ms + ROUND_MS)
    return {name: sum(each) / len(each) / 1000 for name, each in waited.items()}


SCALED = kube_load.classes(0.3)


def test_with_preemption_those_of_higher_priority_go_first() -> None:
    """Large before medium before small; and large ones wait hardly longer than if they were alone."""
    waited = waits(PREEMPTING, SCALED)
    alone = waits(PREEMPTING, [each for each in SCALED if each.name == "large"])
    assert waited["large"] < waited["medium"] < waited["small"]
    assert waited["large"] < alone["large"] + 3


def test_without_preemption_large_ones_wait_for_room() -> None:
    """None is preempted for them, so small ones find room first."""
    waited = waits(CLASSES, SCALED)
    assert waited["large"] > waited["medium"]
