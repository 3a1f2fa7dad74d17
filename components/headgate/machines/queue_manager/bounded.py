"""
The wake policy `Bounded`: a workload wakes when enough quota for it may be free, and as many as there is quota for.

Three questions, each answered from the state in a separate module:

- Is there enough (`headgate.core.queueing.wake_conditions.Unused`, with `headgate.core.preemption.bound` where
  workloads may be preempted)? A verdict lists what a workload needs at the same time (`needs`). This is a necessary
  condition: without it no cycle admits the workload.
- Which is next (`turns`)? Where there is enough for each of several workloads and not for all of them, those wake
  first that the next cycles would decide first.
- Is it only the end of a claim (`retries`)? That wakes a sleeper once, not repeatedly.

`docs/concepts/waking.md` has an example.
"""

from collections.abc import Callable, Iterable

from headgate.core.queueing.wake_conditions import Sleeper, Unused, Woken, watched
from headgate.core.quota.cache import Forest
from headgate.core.state.tables import State
from headgate.events.commit import Commit
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.queueing import QuotaFreed
from headgate.machines.queue_manager.retries import Retries
from headgate.machines.queue_manager.turns import Turns


class BoundedPolicy:
    """See `headgate.machines.queue_manager.wake_policy.WakePolicy`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._retries = Retries(state)

    def watched(self, wake: QuotaFreed, cluster_queue: str) -> tuple[str, ...]:
        """See `WakePolicy`."""
        return watched(wake, cluster_queue, self._state)

    def note_commit(self, commit: Commit, concerned: Iterable[str]) -> Iterable[Sleeper]:
        """See `WakePolicy`."""
        return self._retries.note(commit, concerned)

    def holds_back(self, sleeper: Sleeper, head: WorkloadKey, woken: Woken) -> bool:
        """See `WakePolicy`: true when only claims have ended since it was last woken by the end of one."""
        return self._retries.hold_back(sleeper, head, woken)

    def offers_one(self, sleeper: Sleeper, woken: Woken) -> bool:
        """See `WakePolicy`: true when the free amount is known."""
        return bool(sleeper.shape and woken.needs) and not self._retries.by_a_claim(sleeper, woken)

    def begin(self, now_ms: UnixMs, forest: Callable[[], Forest]) -> Turns:
        """See `WakePolicy`."""
        trees = forest()
        return Turns(self._state, trees, Unused(self._state, trees), now_ms)
