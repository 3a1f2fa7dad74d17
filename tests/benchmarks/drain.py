"""
How fast a full house drains: queue manager, scheduler and fold alone, over a log in memory.

The load of Kueue's own scheduler benchmark (`kube_load`): 15,000 workloads in 30 ClusterQueues of 5 cohorts, all queued
before the first cycle. Nothing is encoded, written or watched: a commit is folded once and passed to both machines,
each settles once a round, and between rounds a clock of its own lets `ROUND_MS` pass and those workloads finish whose
time is over. So a cycle sees about as few new events as it does in a running cell.

Times are CPU times: other load of the machine hardly matters.

`even` is the same number of workloads of one size in queues with quota for a share of them at a time: what a workload
costs without contention. `classes` is the benchmark's load, with and without preemption: small, medium and large
jobs of rising priority, more than the quota can hold for most of the time.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

import msgspec
from tests.benchmarks import kube_load
from tests.benchmarks.measure import Report, Row, profiled, rss_mib
from tests.support.owning import applied, gives_back

from headgate.core import fold
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append, Committed, Machine, Settled
from headgate.core.state.tables import Stage, State
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import CycleDecided, WorkloadAdmitted, WorkloadPreempted
from headgate.events.ids import Epoch, LocalQueueKey, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    ClusterQueueSpec,
    Condition,
    Container,
    FlavorQuotas,
    LabelSelector,
    LocalQueueSpec,
    PodSet,
    PodSpec,
    PodTemplate,
    Preemption,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Resources,
    WorkloadSpec,
)
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.scheduler.decide import Scheduler

START_MS: Final = UnixMs(1_700_000_000_000)
ROUND_MS: Final = 10
SPREAD_MS: Final = 101
"""Workloads of one class run longer by up to so much, so that they do not end together."""
ADMITTED_PER_S_TARGET: Final = 5_000
HEAD_US_TARGET: Final = 200


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Cohorts of queues, each with the same workloads; `preemption` of its ClusterQueues."""

    name: str
    classes: tuple[kube_load.Class, ...]
    cohorts: int = kube_load.COHORTS
    queues: int = kube_load.QUEUES_IN_COHORT
    preemption: Preemption = Preemption()

    @property
    def total(self) -> int:
        """How many workloads there are."""
        return self.cohorts * self.queues * sum(each.count for each in self.classes)


EVEN: Final = Load(
    name="even",
    classes=(kube_load.Class(name="even", size="small", count=500, cpu="1", priority=0, run_ms=100, every_ms=0),),
)
CLASSES: Final = Load(name="classes", classes=kube_load.CLASSES["baseline"])
PREEMPTING: Final = Load(
    name="classes, preempting",
    classes=kube_load.CLASSES["baseline"],
    preemption=Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any"),
)


def cluster_queue(cohort: str, preemption: Preemption = Preemption()) -> ClusterQueueSpec:  # noqa: B008  (frozen)
    """A ClusterQueue of the benchmark."""
    quota = ResourceQuota(
        name="cpu", nominal_quota=str(kube_load.NOMINAL_CPU), borrowing_limit=str(kube_load.BORROWING_CPU)
    )
    group = ResourceGroup(
        covered_resources=("cpu",), flavors=(FlavorQuotas(name=kube_load.FLAVOR, resources=(quota,)),)
    )
    return ClusterQueueSpec(
        cohort_name=cohort, namespace_selector=LabelSelector(), resource_groups=(group,), preemption=preemption
    )


def workload(key: WorkloadKey, cpu: str, priority: int, created_ms: int) -> facts.WorkloadObserved:
    """A workload of one pod."""
    pod = PodSpec(containers=(Container(name="c", resources=Resources(requests={"cpu": cpu})),))
    spec = WorkloadSpec(
        queue_name="main", priority=priority, pod_sets=(PodSet(name="main", count=1, template=PodTemplate(spec=pod)),)
    )
    uid = Uid(f"uid-{key}")
    return facts.WorkloadObserved(workload=key, uid=uid, created_ms=UnixMs(created_ms), spec=spec, generation=1)


PRODUCERS: Final = (Producer.QUEUE_MANAGER, Producer.SCHEDULER)
DONE: Final = Condition(type="Finished", status="True", reason="Succeeded", message="", last_transition_time="")


class Cell:
    """A queue manager and a scheduler over one state. `spent_s` is by what was done, `events` by type."""

    def __init__(self) -> None:
        self.state: State = fold.new_state("drain")
        self.now_ms = START_MS
        self.machines: tuple[tuple[str, Machine], ...] = (
            ("queue manager", QueueManager(self.state)),
            ("scheduler", Scheduler(self.state)),
        )
        self.spent_s: dict[str, float] = defaultdict(float)
        self.events: Counter[str] = Counter()
        self.heads = self.cycles = self.vain = self.commits = 0
        self.admitted: list[WorkloadKey] = []
        """The workloads that the last commits admitted."""
        self._evicted: dict[WorkloadKey, None] = {}

    def append(self, producer: Producer, events: Sequence[EventBase], decided_at: Seq = Seq(0)) -> None:  # noqa: B008
        """Fold a commit and pass it to both machines."""
        append = Append(events=tuple(events), decided_at=decided_at)  # type: ignore[arg-type]
        commit, _ = next_commit(self.state, producer, Epoch(1), append, self.now_ms)
        seq = Seq(self.state.position + 1)
        logged = LoggedCommit(seq=seq, hash=f"{seq}", commit=commit)
        begun = time.process_time()
        fold.apply(self.state, logged)
        self._spent("fold", begun)
        for name, machine in self.machines:
            begun = time.process_time()
            machine.decide(Committed(logged))
            self._spent(name, begun)
        self._count(events)

    def _spent(self, what: str, begun: float) -> None:
        self.spent_s[what] += time.process_time() - begun

    def _count(self, events: Sequence[EventBase]) -> None:
        self.commits += 1
        admitted = [event.workload for event in events if isinstance(event, WorkloadAdmitted)]
        self.admitted.extend(admitted)
        for event in events:
            self.events[type(event).__name__] += 1
            if isinstance(event, WorkloadPreempted):
                self._evicted[event.workload] = None
            if isinstance(event, CycleDecided):
                self.cycles += 1
                self.heads += len(event.heads)
                self.vain += not admitted

    def _stop_evicted(self) -> None:
        """A preempted workload stops at once, and is reported."""
        evicted = [self.state.workloads[key] for key in self._evicted]
        self._evicted.clear()
        stopping = [each for each in evicted if each.stage is Stage.EVICTED]
        if stopping:
            self.append(Producer.BINDER, [applied(self.state, each) for each in stopping])
            self.append(Producer.INFORMER_BRIDGE, [gives_back(each) for each in stopping])

    def settle(self) -> bool:
        """Let each machine decide once. Whether one had something to say."""
        said = False
        self._stop_evicted()
        for producer, (name, machine) in zip(PRODUCERS, self.machines, strict=True):
            begun = time.process_time()
            commands = machine.decide(Settled(self.now_ms))
            self._spent(name, begun)
            for command in commands:
                if isinstance(command, Append):
                    self.append(producer, command.events, command.decided_at)
                    said = True
        return said


def filled(load: Load) -> Cell:
    """A cell with all of the load known and queued."""
    cell = Cell()
    known: list[EventBase] = [facts.ResourceFlavorObserved(name=kube_load.FLAVOR, spec=ResourceFlavorSpec())]
    for cohort in range(load.cohorts):
        for queue in range(load.queues):
            name = f"cq-{queue}-cohort-{cohort}"
            known.append(facts.NamespaceObserved(name=name))
            known.append(facts.ClusterQueueObserved(name=name, spec=cluster_queue(f"cohort-{cohort}", load.preemption)))
            local = LocalQueueKey(f"{name}/main")
            known.append(facts.LocalQueueObserved(queue=local, spec=LocalQueueSpec(cluster_queue=name)))
            known += [
                workload(WorkloadKey(f"{name}/{each.name}-{n}"), each.cpu, each.priority, START_MS + n * each.every_ms)
                for each in load.classes
                for n in range(each.count)
            ]
    cell.append(Producer.INFORMER_BRIDGE, [*known, facts.InformersSynced()])
    while any(each.stage is Stage.NEW for each in cell.state.workloads.values()):
        for command in cell.machines[0][1].decide(Settled(cell.now_ms)):
            if isinstance(command, Append):
                cell.append(Producer.QUEUE_MANAGER, command.events, command.decided_at)
    cell.spent_s.clear()
    cell.events.clear()
    return cell


def drain(cell: Cell, load: Load, *, rounds: int | None = None) -> None:
    """Run until all are finished, or for so many rounds."""
    run_ms = {each.name: each.run_ms for each in load.classes}
    ends: list[tuple[int, WorkloadKey, int]] = []
    left = len(cell.state.workloads)
    while left and rounds != 0:
        rounds = None if rounds is None else rounds - 1
        said = cell.settle()
        for key in cell.admitted:
            kind = key.partition("/")[2].rpartition("-")[0]
            spread_ms = int(key.rpartition("-")[2]) * 37 % SPREAD_MS
            heappush(ends, (cell.now_ms + run_ms[kind] + spread_ms, key, cell.state.workloads[key].admitted_at_ms))
        cell.admitted.clear()
        cell.now_ms = UnixMs(cell.now_ms + ROUND_MS)
        finished: list[EventBase] = []
        while ends and ends[0][0] <= cell.now_ms:
            _, key, admitted_ms = heappop(ends)
            found = cell.state.workloads[key]
            if found.stage is Stage.ADMITTED and found.admitted_at_ms == admitted_ms:
                finished.append(
                    facts.WorkloadObserved(
                        workload=key,
                        uid=found.uid,
                        created_ms=found.created_ms,
                        spec=found.spec,
                        generation=found.generation,
                        finished=DONE,
                    )
                )
        if finished:
            left -= len(finished)
            cell.append(Producer.INFORMER_BRIDGE, finished)
        else:
            assert said or ends, "some are left that nothing will bring back"


def grown(queues: int, pending: int) -> Load:
    """So many ClusterQueues in cohorts of 100, with so many workloads in all."""
    each = kube_load.Class(
        name="grown", size="medium", count=pending // queues, cpu="5", priority=0, run_ms=100, every_ms=0
    )
    return Load(name=f"{queues:,} queues", classes=(each,), cohorts=queues // 100, queues=100)


GROWTH: Final = ((100, 50_000), (1_000, 50_000), (10_000, 50_000))
ROUNDS: Final = 20


def growth(report: Report) -> None:
    """What the same operations cost with ten and a hundred times as many ClusterQueues: the first rounds of a drain."""
    for queues, pending in GROWTH:
        load = grown(queues, pending)
        begun = time.process_time()
        cell = filled(load)
        filled_s = time.process_time() - begun
        drain(cell, load, rounds=ROUNDS)
        events = sum(cell.events.values())
        manager, scheduler, folded = (cell.spent_s[name] for name in ("queue manager", "scheduler", "fold"))
        report.rows.append(
            Row(
                what=f"{queues:,} queues in cohorts of 100, {pending:,} pending, per head considered",
                figure=f"{scheduler / max(1, cell.heads) * 1e6:.0f} us",
                target=f"<= {HEAD_US_TARGET}",
                met=scheduler / max(1, cell.heads) * 1e6 <= HEAD_US_TARGET,
                compared=f"{cell.heads:,} heads in {cell.cycles} cycles; queue manager "
                f"{manager / max(1, cell.heads) * 1e6:.0f} us a head, fold {folded / max(1, events) * 1e6:.1f} us an "
                f"event, queueing {filled_s / pending * 1e6:.0f} us a workload, {rss_mib():.0f} MiB",
            )
        )
        del cell


def run(*, profile: bool = False, loads: Sequence[Load] = (EVEN, CLASSES, PREEMPTING)) -> Report:
    """Drain each load once."""
    report = Report(name="drain")
    for load in loads:
        cell = filled(load)
        begun = time.process_time()
        drain(cell, load)
        total_s = time.process_time() - begun
        _rows(report, load, cell, total_s)
        if profile:
            again = filled(load)
            report.profile += profiled(lambda cell=again, load=load: drain(cell, load), 40)  # type: ignore[misc]
    if len(loads) > 1:
        growth(report)
    return report


def _rows(report: Report, load: Load, cell: Cell, total_s: float) -> None:
    core_s = sum(cell.spent_s.values())
    per_s, head_us = load.total / core_s, cell.spent_s["scheduler"] / max(1, cell.heads) * 1e6
    has_target = load is EVEN
    report.rows += [
        Row(
            what=f"drain {load.name}, through the core",
            figure=f"{per_s:,.0f} workloads/s",
            target=f">= {ADMITTED_PER_S_TARGET:,}" if has_target else "",
            met=per_s >= ADMITTED_PER_S_TARGET if has_target else None,
            compared=f"{load.total:,} workloads in {core_s:.1f} s; {total_s:.1f} s with the driver",
        ),
        Row(
            what=f"drain {load.name}, per head considered",
            figure=f"{head_us:.0f} us",
            target=f"<= {HEAD_US_TARGET}",
            met=head_us <= HEAD_US_TARGET,
            compared=f"{cell.cycles:,} cycles, {cell.vain:,} admit nobody; "
            f"{cell.heads / load.total:.1f} heads a workload",
        ),
    ]
    spent = ", ".join(
        f"{what} {s / load.total * 1e6:.0f}" for what, s in sorted(cell.spent_s.items(), key=lambda each: -each[1])
    )
    events = ", ".join(f"{name} {n / load.total:.2f}" for name, n in cell.events.most_common())
    report.notes += [
        f"{load.name}: us a workload: {spent}; {(cell.now_ms - START_MS) / 1000:.0f} s of the cell's own time, "
        f"{cell.commits:,} commits, {rss_mib():.0f} MiB",
        f"{load.name}: {sum(cell.events.values()) / load.total:.1f} events a workload: {events}",
    ]


if __name__ == "__main__":
    import sys

    from tests.benchmarks.measure import show

    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    chosen = [load for load in (EVEN, CLASSES, PREEMPTING) if not names or load.name in names]
    print(show([run(profile="--profile" in sys.argv, loads=chosen)]))
