"""
Statistics of a running cell: pending and running workloads, waiting times, borrowing and preemptions.

`RunTally` follows the log beside a state that another component folds: it is fed each commit after it was applied. The
demo and benchmarks report from it; everything in it is derived from events, so a recorded log gives the same
statistics.
"""

import msgspec

from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.views.descriptions import nominal_quotas, tree_totals
from headgate.core.workload.owners import job_of
from headgate.events import decisions, facts, queueing
from headgate.events.commit import LoggedCommit
from headgate.events.ids import JobKey, Uid, UnixMs


class QueueTally(msgspec.Struct, kw_only=True):
    """
    One ClusterQueue: its waits from queueing to reservation in ms, and how many reservations borrowed.

    `preempted` counts its workloads that were preempted.
    """

    waits_ms: list[int] = []
    borrowed: int = 0
    preempted: int = 0
    finished: int = 0


class Standings(msgspec.Struct, frozen=True, kw_only=True):
    """One ClusterQueue now: pending, admitted and not yet running, running, finished."""

    pending: int
    admitted: int
    running: int
    finished: int


class RunTally:
    """Feed it each commit after the state has folded it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.queues: dict[str, QueueTally] = {}
        self.jobs_finished: dict[JobKey, str] = {}
        self.busiest: tuple[int, str] = (0, "")
        """The longest wait of all in ms, and its workload."""
        self.used_ms: dict[str, int] = {}
        self.quota_ms: dict[str, int] = {}
        """Per resource: the integrals over time of usage and of quota."""
        self._queued: dict[Uid, UnixMs] = {}
        self._last_ms: UnixMs | None = None
        self._rates: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def of(self, cluster_queue: str) -> QueueTally:
        """The statistics of a ClusterQueue."""
        return self.queues.setdefault(cluster_queue, QueueTally())

    def feed(self, logged: LoggedCommit) -> None:
        """Count the events of a commit."""
        at_ms = logged.commit.time_ms
        changed = False
        for event in logged.commit.events:
            match event:
                case queueing.WorkloadQueued():
                    self._queued.setdefault(event.uid, at_ms)
                case decisions.QuotaReserved():
                    self._reserved(event, at_ms)
                    changed = True
                case decisions.WorkloadPreempted():
                    self.of(event.cluster_queue).preempted += 1
                case queueing.WorkloadFinished():
                    workload = self.state.workloads.get(event.workload)
                    if workload is not None:
                        self.of(workload.cluster_queue).finished += 1
                    changed = True
                case facts.JobObserved() if event.spec.finished is not None:
                    self.jobs_finished[event.job] = event.spec.finished
                case (
                    facts.ClusterQueueObserved()
                    | queueing.WorkloadReleased()
                    | queueing.WorkloadHeld()
                    | decisions.WorkloadReplaced()
                ):
                    changed = True
                case _:
                    pass
        if changed:
            self._integrate(at_ms)

    def _reserved(self, event: decisions.QuotaReserved, at_ms: UnixMs) -> None:
        since = self._queued.pop(event.uid, None)
        tally = self.of(event.cluster_queue)
        if since is not None:
            waited_ms = max(0, at_ms - since)
            tally.waits_ms.append(waited_ms)
            self.busiest = max(self.busiest, (waited_ms, event.workload))
        record = self.state.cluster_queues.get(event.cluster_queue)
        if record is None:
            return
        nominal = nominal_quotas(record.spec.resource_groups)
        usage = self.state.index.usage.get(event.cluster_queue, {})
        charged = self.state.index.usage_of.get(event.workload, {})
        if any(usage.get(each, 0) > nominal.get(each, 0) for each in charged):
            tally.borrowed += 1

    def _integrate(self, at_ms: UnixMs) -> None:
        if self._last_ms is not None:
            for total, rate in zip((self.used_ms, self.quota_ms), self._rates, strict=True):
                for resource, value in rate.items():
                    total[resource] = total.get(resource, 0) + value * max(0, at_ms - self._last_ms)
        self._last_ms = UnixMs(max(at_ms, self._last_ms or at_ms))
        self._rates = self.in_use()

    def in_use(self) -> tuple[dict[str, int], dict[str, int]]:
        """Current usage and quota, by resource, over all trees."""
        used: dict[str, int] = {}
        nominal: dict[str, int] = {}
        for tree in dict.fromkeys(self.state.index.trees.values()):
            for (_, resource), total in tree_totals(self.state, tree).items():
                used[resource] = used.get(resource, 0) + total.used
                nominal[resource] = nominal.get(resource, 0) + total.nominal
        return used, nominal

    def utilisation(self, resource: str) -> float:
        """The mean share of a resource's quota that was in use, over the time in which anything happened."""
        there = self.quota_ms.get(resource, 0)
        return self.used_ms.get(resource, 0) / there if there else 0.0

    def standings(self) -> dict[str, Standings]:
        """The number of workloads by status, per ClusterQueue; one pass over the workloads."""
        counts: dict[str, list[int]] = {name: [0, 0, 0, 0] for name in self.state.cluster_queues}
        for workload in self.state.workloads.values():
            queue = workload.cluster_queue or self._queue_of(workload.key, workload.spec.queue_name)
            if queue not in counts:
                continue
            if workload.stage in PENDING:
                where = 0
            elif workload.stage is Stage.FINISHED:
                where = 3
            else:
                where = 2 if self._is_running(workload) else 1
            counts[queue][where] += 1
        return {
            name: Standings(pending=pending, admitted=admitted, running=running, finished=finished)
            for name, (pending, admitted, running, finished) in counts.items()
        }

    def _queue_of(self, key: str, local_queue: str) -> str:
        wanted = f"{key.partition('/')[0]}/{local_queue}"
        record = next((each for name, each in self.state.local_queues.items() if name == wanted), None)
        return record.spec.cluster_queue if record is not None else ""

    def _is_running(self, workload: Workload) -> bool:
        record = job_of(self.state, workload)
        return record is not None and record.job.active > 0


def percentile(values: list[int], share: float) -> int:
    """The nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0
