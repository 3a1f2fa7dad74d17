"""
Endless preemption under fair sharing: workloads that take the same quota from each other for ever.

Fair sharing orders the heads of a cycle by the shares of their ClusterQueues, but victims are chosen by other rules. So
a workload may be preempted for one that goes behind it: it waits again, is a head of the same cycle as its preemptor,
goes first, and takes the quota back; then it is preempted once more. Three workloads may do so in a circle. Kueue does
the same (kubernetes-sigs/kueue#3779, #14543); only finished or changed work ends it.

`Contests` reads a log as it is written and recognizes this, and nothing else, so that the player of a run can tell it
from a cell that does not come to rest because of a defect. Preemptions alone never close a circle: that is a defect.
"""

from typing import Final

from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import QuotaReserved, WorkloadPreempted, WorkloadSkipped
from headgate.events.ids import WorkloadKey
from headgate.events.queueing import WorkloadFinished

ROUNDS_MIN: Final = 50
"""So many preemptions in a row, with no other admission and nothing that finishes, go on for ever."""

_Before = dict[WorkloadKey, set[WorkloadKey]]
"""By workload: those that it was put before."""


class Contests:
    """
    Counts the preemptions of workloads that were admitted before another head of their cycle, which then did not fit.

    The count starts again when a workload finishes, and when one is preempted that was not admitted so.
    """

    def __init__(self) -> None:
        self._admitted: _Before = {}
        """By admitted workload that is not preempted yet: the heads that no longer fitted after it."""
        self._preempted: _Before = {}
        self._ordered: _Before = {}
        self._count = 0

    def commit(self, state: State, logged: LoggedCommit) -> None:
        """A commit has been folded into `state`."""
        if state.configuration.fair_sharing is None:
            self._start_again()
            return
        events = logged.commit.events
        lost = {
            each.workload
            for each in events
            if isinstance(each, WorkloadSkipped) and each.requeue_reason == "FailedAfterNomination"
        }
        for event in events:
            match event:
                case WorkloadFinished():
                    self._start_again()
                case WorkloadPreempted():
                    self._on_preempted(event)
                case QuotaReserved():
                    self._admitted[event.workload] = lost
                case _:
                    pass

    @property
    def is_endless(self) -> bool:
        """Whether each victim comes before its preemptor in turn, only by the order of the heads, many times over."""
        if self._count < ROUNDS_MIN or not self._admitted.keys() <= self._preempted_ones():
            return False
        both = {key: self._preempted.get(key, set()) | self._ordered.get(key, set()) for key in self._all()}
        pairs = [(victim, preemptor) for preemptor, victims in self._preempted.items() for victim in victims]
        return all(_leads(both, *pair) and not _leads(self._preempted, *pair) for pair in pairs)

    def _on_preempted(self, event: WorkloadPreempted) -> None:
        lost = self._admitted.pop(event.workload, None)
        if not lost:
            self._start_again()
            return
        self._ordered.setdefault(event.workload, set()).update(lost)
        self._preempted.setdefault(event.preemptor, set()).add(event.workload)
        self._count += 1

    def _all(self) -> set[WorkloadKey]:
        return {*self._preempted, *self._ordered}

    def _preempted_ones(self) -> set[WorkloadKey]:
        return set().union(*self._preempted.values())

    def _start_again(self) -> None:
        self._admitted.clear()
        self._preempted.clear()
        self._ordered.clear()
        self._count = 0


def _leads(before: _Before, start: WorkloadKey, end: WorkloadKey) -> bool:
    """Whether a way leads from one workload to another."""
    seen, left = {start}, [start]
    while left:
        for key in before.get(left.pop(), ()):
            if key == end:
                return True
            if key not in seen:
                seen.add(key)
                left.append(key)
    return False
