"""Kueue's own rhythm where things take their time: an oracle of what Kueue could have come to as well."""

import random
from collections.abc import Iterator

from tests.support.rounds import Placed, placed

from headgate.core.state.tables import Stage, Workload
from headgate.events.ids import Seq, WorkloadKey
from headgate.testing.reference.rhythm import ReferencePlan
from headgate.testing.reference.scenario import Scenario

CYCLES_MAX = 80
DELAYS = ((1, 0), (2, 0), (0, 1), (1, 1), (3, 0), (2, 2), (5, 1), (3, 3))
"""At most so many cycles until what was set aside comes back, and until a job has stopped."""


class Delayed(ReferencePlan):
    """
    The rhythm of a running Kueue.

    The recordings let one second pass from cycle to cycle, in which every evicted job stops and everything that was
    set aside comes back. A running Kueue makes many cycles a second: jobs take theirs to stop, and what was set aside
    comes back a second after something was freed (`requeueBatchPeriod`). Here each takes a random number of cycles.
    """

    def __init__(self, scenario: Scenario, rng: random.Random, comes_back: int, stops: int) -> None:
        super().__init__(
            scenario.facts,
            scenario.configuration,
            scenario.now_ms,
            notes_queues=False,
            victims_leave_at_once=not stops,
        )
        self._rng = rng
        self._comes_back, self._stops = comes_back, stops
        self._now = 0
        self._trees_due: dict[str, int] = {}
        self._stops_at: dict[tuple[WorkloadKey, Seq], int] = {}

    def is_busy(self) -> bool:
        """Whether something will happen without a cycle."""
        return bool(self._trees_due) or any(each.stage is Stage.EVICTED for each in self.everybody)

    def pass_time(self) -> None:
        """A second without a cycle."""
        self._next_second()

    def _give_back(self, workload: Workload) -> bool:
        eviction = (workload.key, workload.last_seq)
        if self._stops_at.setdefault(eviction, self._now + self._rng.randint(0, self._stops)) > self._now:
            return False
        return super()._give_back(workload)

    def _next_second(self) -> None:
        self._now += 1
        self._react([each.key for each in self.everybody if each.stage is Stage.EVICTED])
        for tree in sorted(self._due):
            self._trees_due.setdefault(tree, self._now + self._rng.randint(0, self._comes_back))
        self._due = {tree for tree, at in self._trees_due.items() if at <= self._now}
        for tree in self._due:
            del self._trees_due[tree]
        super()._next_second()


def outcomes(scenario: Scenario, tries: int) -> Iterator[Placed]:
    """Who holds what in the end, for one delay after the other. A loop is left after some time, wherever it is."""
    for seed in range(tries):
        rhythm = Delayed(scenario, random.Random(seed), *DELAYS[seed % len(DELAYS)])
        rhythm.look()
        quiet, before = 0, -1
        for _ in range(CYCLES_MAX):
            if rhythm.has_heads():
                rhythm.run_cycle()
            elif rhythm.is_busy():
                rhythm.pass_time()
            else:
                break
            changes = rhythm.state.index.changes
            quiet = quiet + 1 if changes == before and not rhythm.is_busy() else 0
            before = changes
            if quiet > len(rhythm.everybody):
                break
        yield placed(rhythm.state)
