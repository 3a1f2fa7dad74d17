"""
The wake policy: which pending workloads that a cycle set aside are tried again, and when.

A policy is an optimisation: it decides how many scheduling cycles are spent, not what a cycle decides. The queue
manager finds out what has changed (`sleeping`) and asks its policy about each sleeper for which that may matter.
`headgate.wakePolicy` in the configuration names the policy, and the configuration is in the log:

- `Bounded` (default, `headgate.machines.queue_manager.bounded`) wakes a workload only when enough quota for it may be
  available, and only as many as there is quota for.
- `CohortTree` (`headgate.machines.queue_manager.cohort_tree`) wakes every workload of a cohort tree whenever anything
  in the tree is freed, as Kueue does (`QueueInadmissibleWorkloads`).

Both must keep one promise: a workload that a cycle could admit, or for which it could preempt, does not sleep on. Extra
wakes cost cycles; a missing wake costs a workload its turn. `docs/concepts/waking.md` has an example.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from headgate.core.queueing.wake_conditions import Sleeper, Woken
from headgate.core.quota.cache import Forest
from headgate.core.state.tables import Parked, Workload
from headgate.events.commit import Commit
from headgate.events.ids import Seq, UnixMs, WorkloadKey
from headgate.events.queueing import QuotaFreed, Wake


class WakePass(Protocol):
    """One decision of the queue manager, as far as its policy is concerned. Created for each decision."""

    def came_true(self, wakes: tuple[Wake, ...], since: Seq, workload: Workload) -> Woken | None:
        """Whether something that a workload waits for has happened after position `since`; None when it has not."""
        ...

    def sleeper_came_true(self, sleeper: Sleeper, parked: Parked) -> Woken | None:
        """The same for a shape or a blocked ClusterQueue."""
        ...

    def in_order(self, due: Iterable[Sleeper]) -> Iterator[Sleeper]:
        """The sleepers in the order in which they are to be examined. May name one several times."""
        ...

    def may_wake(self, sleeper: Sleeper, woken: Woken) -> bool:
        """Whether a sleeper wakes now. If not, it is examined again after the next change in its group."""
        ...

    def may_go_on(self, workload: Workload, woken: Woken) -> bool:
        """The same for a workload that a cycle has just skipped, before it is set aside."""
        ...

    def next_of(self, sleeper: Sleeper, woken: Woken) -> Workload | None:
        """The workload to offer of a shape that sleeps on (`WakePolicy.offers_one`); None when it has none."""
        ...

    def group_of(self, cluster_queue: str) -> str:
        """The cohort tree, or the ClusterQueue, within which sleepers wait for each other."""
        ...


class WakePolicy(Protocol):
    """Lives as long as the queue manager's machine and receives every commit."""

    def watched(self, wake: QuotaFreed, cluster_queue: str) -> tuple[str, ...]:
        """The keys of `State.freed` that may fulfil a condition (`wake_conditions.Watched`); empty means any."""
        ...

    def note_commit(self, commit: Commit, concerned: Iterable[str]) -> Iterable[Sleeper]:
        """
        Process a folded commit. Returns sleepers that were held back and are to be examined again.

        `concerned`: the ClusterQueues that its events, except `retries.VAIN`, are about.
        """
        ...

    def holds_back(self, sleeper: Sleeper, head: WorkloadKey, woken: Woken) -> bool:
        """Whether a sleeper sleeps on although its condition holds. `head`: the workload that it is parked by."""
        ...

    def offers_one(self, sleeper: Sleeper, woken: Woken) -> bool:
        """Whether one workload of a shape is offered while the shape sleeps on, instead of waking the whole shape."""
        ...

    def begin(self, now_ms: UnixMs, forest: Callable[[], Forest]) -> WakePass:
        """Begin a decision. `forest` returns the quota trees, which are built on first use."""
        ...


__all__ = ["WakePass", "WakePolicy"]
