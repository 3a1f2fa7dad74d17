"""
Retries after the end of a claim, in the policy `Bounded`: once, until something else changes.

A head that blocks its ClusterQueue reserves quota in every cycle and uses none: a claim. When the claim ends, workloads
behind it may be admitted, so they wake as if quota had been freed (`headgate.core.fold.transitions.end_claim`). Kueue
does not wake them. A workload that wakes may claim quota in turn and so change the verdict on that head, which ends its
claim once more; this could repeat without end while nothing is admitted. So the end of a claim wakes each sleeper once,
and then not until the next change in its cohort tree: a workload left or was changed, quota was taken or returned, a
spec has changed. Sleepers that were held back are due again then.

Working memory, derived from the log. A new queue manager has none and wakes each sleeper at most once more. It holds at
most one entry for each sleeper, and for each that was woken since the last change.
"""

from collections.abc import Iterable

from headgate.core.fold.objects import tree_in
from headgate.core.queueing.wake_conditions import Sleeper, Woken
from headgate.core.state.tables import State
from headgate.events import decisions, effects
from headgate.events.commit import Commit
from headgate.events.ids import Seq, Shape, WorkloadKey
from headgate.events.queueing import (
    CheckUpdated,
    HeadsOffered,
    HeadsWithdrawn,
    LocalQueuesSampled,
    ProvisioningRequested,
    ProvisioningWithdrawn,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)

VAIN = (
    decisions.CycleDecided,
    decisions.WorkloadSkipped,
    effects.StatusApplied,
    effects.StatusRejected,
    effects.ProvisioningCreated,
    effects.ProvisioningRejected,
    effects.ProvisioningRemoved,
    CheckUpdated,
    HeadsOffered,
    HeadsWithdrawn,
    LocalQueuesSampled,
    ProvisioningRequested,
    ProvisioningWithdrawn,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)
"""Events after which all quota is held as before and all workloads are still queued: they can only end claims."""


class Retries:
    """The sleepers woken by the end of a claim, and those held back, since the last change in the cohort tree."""

    __slots__ = ("_happened", "_held_back", "_noted_until", "_started_at", "_state", "_woken")

    def __init__(self, state: State) -> None:
        self._state = state
        self._started_at = self._noted_until = state.position
        self._happened: dict[str, Seq] = {}
        """The position of the last change, by tree. Only what was freed there after that is certainly a claim."""
        self._woken: dict[str, dict[Sleeper, None]] = {}
        self._held_back: dict[str, dict[Sleeper, None]] = {}

    def note(self, commit: Commit, concerned: Iterable[str]) -> list[Sleeper]:
        """
        Process a folded commit; its events except the `VAIN` concern these ClusterQueues.

        Returns the sleepers that were held back and are due again.
        """
        state = self._state
        for event in commit.events:
            if isinstance(event, WorkloadWoken):
                tree = tree_in(state, event.cluster_queue)
                if self._ended_a_claim(tree, event.by_position):
                    woken = _named(event.cluster_queue, event.shape, event.workload)
                    self._woken.setdefault(tree, {})[woken] = None
        due: list[Sleeper] = []
        if not all(isinstance(event, VAIN) for event in commit.events):
            trees = {tree_in(state, cluster_queue): None for cluster_queue in concerned}
            trees.update(dict.fromkeys(self._freed_in()))
            for tree in trees:
                self._happened[tree] = state.position
                self._woken.pop(tree, None)
                due.extend(self._held_back.pop(tree, {}))
        self._noted_until = state.position
        return due

    def hold_back(self, sleeper: Sleeper, head: WorkloadKey, woken: Woken) -> bool:
        """
        Whether a sleeper, in whose name its first would be woken, has to sleep on instead.

        True when the end of a claim has woken it before, does so again, and nothing has changed since. A sleeper
        whose time has come is not held back: the time comes once, and it would be due again at once, without end.
        """
        if woken.in_time:
            return False
        tree = tree_in(self._state, sleeper.cluster_queue)
        before = self._woken.get(tree, {})
        if _named(sleeper.cluster_queue, sleeper.shape, head) not in before or not self._ended_a_claim(tree, woken.at):
            return False
        self._held_back.setdefault(tree, {})[sleeper] = None
        return True

    def by_a_claim(self, sleeper: Sleeper, woken: Woken) -> bool:
        """Whether the only reason to wake a sleeper may be the end of a claim."""
        return self._ended_a_claim(tree_in(self._state, sleeper.cluster_queue), woken.at)

    def _ended_a_claim(self, tree: str, at: Seq) -> bool:
        """Whether what was freed in a tree at this position was freed after the last change there."""
        return at > self._happened.get(tree, self._started_at)

    def _freed_in(self) -> Iterable[str]:
        """The trees in which something was freed since the last commit. The fold keeps them at the end."""
        for tree in reversed(self._state.freed):
            if all(at <= self._noted_until for at in self._state.freed[tree].values()):
                return
            yield tree


def _named(cluster_queue: str, shape: Shape, workload: WorkloadKey) -> Sleeper:
    """The key of a sleeper in its wake event: another head that blocks the same ClusterQueue has another key."""
    return Sleeper(cluster_queue, shape=shape) if shape else Sleeper(cluster_queue, workload=workload)
