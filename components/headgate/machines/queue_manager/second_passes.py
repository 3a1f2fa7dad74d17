"""
Second passes that would find what the last one found: they wait until something has changed.

A workload that holds quota and found no topology domains is tried again after a backoff (`headgate.core.queueing.
second_pass`). Kueue tries it every 30 seconds for as long as it takes. Here one whose backoff is over is tried when
nodes, pods on them, topologies or what workloads occupy have changed since the cycle that failed, and otherwise stays
as it is: the attempt would fail alike, and write so to the log.

Working memory, derived from the log. A new queue manager has none, and lets each workload be tried at most once more.
It holds one entry for each workload that waits.
"""

from collections.abc import Iterable

from headgate.core.queueing import second_pass
from headgate.core.state.tables import State, Workload
from headgate.events import decisions, facts
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Seq, UnixMs, WorkloadKey
from headgate.events.queueing import CheckUpdated, DeadlinePassed

_CAPACITY = frozenset(
    {
        facts.NodeObserved,
        facts.NodeDeleted,
        facts.ResourceFlavorObserved,
        facts.ResourceFlavorDeleted,
        facts.TopologyObserved,
        facts.TopologyDeleted,
        facts.ConfigurationObserved,
        facts.LimitRangeObserved,
        facts.LimitRangeDeleted,
        facts.RuntimeClassObserved,
        facts.RuntimeClassDeleted,
    }
)
"""After these a search may end otherwise; changes of usage are read from the indexes of the state."""

_OF_CHECKS = (facts.WorkloadObserved, facts.WorkloadDeleted, CheckUpdated)
"""After these the pods of a workload may need something else, by its checks."""


class SecondPasses:
    """The workloads whose second pass has failed, and whether anything has changed since."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._changed_at = state.position
        self._usage = self._usage_now()
        self._failed_at: dict[WorkloadKey, Seq] = {}
        """The position at which the cycle decided that found no domains."""
        self._waiting: dict[WorkloadKey, None] = {}
        """Those whose backoff is over."""

    def _usage_now(self) -> tuple[int, int]:
        return self._state.index.taken_changes, self._state.index.topology_changes

    def note(self, logged: LoggedCommit) -> Iterable[WorkloadKey]:
        """Process a folded commit. Returns the workloads that are due because of it."""
        commit, usage = logged.commit, self._usage_now()
        changed = usage != self._usage
        for event in commit.events:
            if type(event) in _CAPACITY:
                changed = True
            elif isinstance(event, decisions.SecondPassFailed):
                self._failed_at[event.workload] = commit.decided_at
            elif isinstance(event, decisions.TopologyAssigned):
                self._forget(event.workload)
            elif isinstance(event, _OF_CHECKS) and event.workload in self._failed_at:
                self._forget(event.workload)
                changed = True
        if not changed:
            return ()
        self._changed_at, self._usage = logged.seq, usage
        due, self._waiting = self._waiting, {}
        return due

    def due(self, workload: Workload, now_ms: UnixMs) -> DeadlinePassed | None:
        """The end of a workload's wait for its next second pass; None while it waits."""
        passed = second_pass.due(workload, now_ms)
        if passed is None:
            return None
        if self._changed_at <= self._failed_at.get(workload.key, Seq(0)):
            self._waiting[workload.key] = None
            return None
        return passed

    def _forget(self, key: WorkloadKey) -> None:
        self._failed_at.pop(key, None)
        self._waiting.pop(key, None)
