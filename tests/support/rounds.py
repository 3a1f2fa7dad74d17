"""Queue manager and scheduler over one log in memory, round by round, and what they come to."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from tests.support.driven import Driven
from tests.support.logs import TestLog
from tests.support.owning import applied, gives_back

from headgate.core.cycle import CycleEntry, evaluate
from headgate.core.engine.outputs import Send
from headgate.core.flavors.catalog import Catalog
from headgate.core.plan.dry_run import MakeMachine
from headgate.core.state.tables import HOLDS_QUOTA, Stage, State, Workload
from headgate.core.workload.owners import is_run_here
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit
from headgate.events.configuration import WakePolicyName
from headgate.events.decisions import WorkloadMigrated, WorkloadPreempted
from headgate.events.facts import ConfigurationObserved, InformersSynced
from headgate.events.ids import Seq, UnixMs, WorkloadKey
from headgate.events.queueing import WorkloadEvicted
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.scheduler.decide import Scheduler
from headgate.testing.reference.scenario import Scenario

MANAGER, SCHEDULER = Producer.QUEUE_MANAGER, Producer.SCHEDULER
MACHINES: dict[Producer, MakeMachine] = {MANAGER: QueueManager, SCHEDULER: Scheduler}
SECOND_MS = 1000

Placed = dict[WorkloadKey, Any]
"""Who holds quota: ClusterQueue, and of each pod set name, count and flavors."""


class Rounds:
    """Both machines. An evicted workload stops at once: its owner has reported it before the queue manager decides."""

    def __init__(self, log: TestLog) -> None:
        self.log = log
        self.preempted: Counter[WorkloadKey] = Counter()
        self._evicted: dict[WorkloadKey, None] = {}
        self._driven = {producer: Driven(log, producer, make) for producer, make in MACHINES.items()}

    @classmethod
    def of(cls, scenario: Scenario, policy: WakePolicyName = "Bounded") -> "Rounds":
        """Both at the start of a recorded scenario."""
        log = TestLog()
        log.now_ms = scenario.now_ms
        configuration = msgspec.structs.replace(scenario.configuration.configuration, wake_policy=policy)
        observed = ConfigurationObserved(configuration=configuration)
        log.append(Producer.INFORMER_BRIDGE, observed, *scenario.facts, InformersSynced())
        return cls(log)

    @property
    def state(self) -> State:
        """The present state."""
        return self.log.state

    def hear(self, producer: Producer, *events: EventBase) -> None:
        """Append another producer's events, and pass them to both."""
        self._tell(producer, events, 0)

    def settle(self, producer: Producer) -> bool:
        """Let one of them decide once. Whether it had something to say."""
        said = False
        if producer is MANAGER:
            self._stop_evicted()
        driven = self._driven[producer]
        for output in driven.settle():
            if isinstance(output, Send):
                self._note(driven.store(output))
                said = True
        return said

    def _stop_evicted(self) -> None:
        evicted, self._evicted = self._evicted, {}
        for key in evicted:
            workload = self.state.workloads.get(key)
            if workload is not None and workload.stage is Stage.EVICTED and not is_run_here(self.state, workload):
                self._tell(Producer.BINDER, [applied(self.state, workload)], 0)
                self._tell(Producer.INFORMER_BRIDGE, [gives_back(workload)], 0)

    def _tell(self, producer: Producer, events: Sequence[EventBase], decided_at: int) -> None:
        self._note(self.log.append(producer, *events, decided_at=decided_at))

    def _note(self, logged: LoggedCommit) -> None:
        events = logged.commit.events
        for driven in self._driven.values():
            driven.folded(logged)
        self.preempted.update(event.workload for event in events if isinstance(event, WorkloadPreempted))
        evictions = (WorkloadPreempted, WorkloadEvicted, WorkloadMigrated)
        self._evicted.update((event.workload, None) for event in events if isinstance(event, evictions))

    def react(self) -> bool:
        """Let the queue manager decide until it has nothing to say. Whether it had."""
        said = False
        while self.settle(MANAGER):
            said = True
        return said

    def run_as_kueue(self, rounds_max: int) -> list[Placed]:
        """
        Kueue's recorded rhythm: everything that follows from a cycle, the next cycle a second later.

        Who holds what before each cycle, and at the end; as many as `rounds_max` when it does not come to an end.
        """
        seen: list[Placed] = []
        while len(seen) < rounds_max:
            said = self.react()
            seen.append(placed(self.state))
            if not self.settle(SCHEDULER) and not said:
                break
            self.log.now_ms = UnixMs(self.log.now_ms + SECOND_MS)
        return seen

    def run_by_turns(self, round_ms: int, rounds_max: int) -> bool:
        """Each decides once a round. Whether they come to an end within so many."""
        for _ in range(rounds_max):
            said = [self.settle(MANAGER), self.settle(SCHEDULER)]
            if not any(said):
                return True
            self.log.now_ms = UnixMs(self.log.now_ms + round_ms)
        return False


def placed(state: State) -> Placed:
    """Who holds quota, and where."""
    return {
        key: (
            workload.cluster_queue,
            [(each.name, each.count, each.flavors) for each in workload.admission.pod_set_assignments],
        )
        for key, workload in state.workloads.items()
        if workload.stage in HOLDS_QUOTA and workload.admission is not None
    }


def could_go(state: State) -> list[WorkloadKey]:
    """
    Those left waiting whom a cycle would admit, or let preempt, now.

    Each workload in line is decided together with the heads that are decided in every cycle, which keep their
    reservations. Left out are workloads behind a head that none may overtake; and in a BestEffortFIFO ClusterQueue,
    those set aside by a cycle that only continued with the flavors not tried before, or that found no candidate
    before one that they may preempt was admitted: there Kueue, too, starts again only when quota is freed.
    """
    catalog = Catalog(state)
    found = []
    for name, queue in sorted(state.index.pending.items()):
        of = catalog.queue(name)
        if of is None or not of.active.active:
            continue
        tree = state.index.trees[name]
        heads = {other: state.workloads[state.sleeps[other].blocked_by] for other in state.index.standing.get(tree, ())}
        for key, _ in queue.in_order():
            workload = state.workloads[key]
            if queue.blocked is not None and queue.rank_of(key) > queue.blocked:
                break
            verdict = workload.verdict
            if verdict is not None and not verdict.short and verdict.scope != "queue":
                continue
            entry = _decided(state, catalog, workload, {**heads, name: workload})
            set_aside = verdict is not None and verdict.scope == "shape" and _admitted_since(state, tree, verdict.at)
            if entry.status == "assumed" or (entry.preempts and not set_aside):
                found.append(key)
    return found


def _admitted_since(state: State, tree: str, position: Seq) -> bool:
    """Whether a workload in a tree holds quota since this position or a later one."""
    return any(
        state.workloads[key].last_seq >= position
        for cluster_queue, holders in state.index.holders.items()
        if state.index.trees.get(cluster_queue) == tree
        for key in holders
    )


def _decided(state: State, catalog: Catalog, workload: Workload, heads: dict[str, Workload]) -> CycleEntry:
    """A workload as a cycle decides it beside these heads, also one that it turns away without looking at quota."""
    asked = []
    for name, head in heads.items():
        queue = catalog.queue(name)
        if queue is not None and queue.active.active:
            asked.append((head, queue))
    cycle = evaluate(state, catalog, asked, standing=frozenset(head.key for head in heads.values()))
    (entry,) = (entry for entry in (*cycle.entries, *cycle.rejected) if entry.key == workload.key)
    return entry
