"""
The nodes that preemption would help on, and which of them is the best.

The five criteria, in order: fewest violations of disruption budgets, lowest highest priority, lowest sum of priorities,
fewest victims, latest start of the victim of the highest priority that runs longest. Source: pickOneNodeForPreemption.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_dry_run import NOT_STARTED, PreemptionDryRun


class FoundCandidates(NamedTuple):
    """Candidates, one per place in the arrays. `priorities` are sums, each priority counted from the lowest one on."""

    rows: Rows
    violations: Ints
    highest: Ints
    priorities: Ints
    counts: Ints
    started: Ints
    victims_of: Callable[[int], tuple[PodInfo, ...]]

    def best(self) -> list[int]:
        """The places that are equal by all criteria."""
        places = np.arange(len(self.rows))
        for criterion in (self.violations, self.highest, self.priorities, self.counts, -self.started):
            if len(places) <= 1:
                break
            values = criterion[places]
            places = places[values == values.min()]
        return places.tolist()

    def only(self, places: Sequence[int] | Rows) -> "FoundCandidates":
        """Some of them."""
        chosen = np.array(places, dtype=np.intp)
        origins = chosen.tolist()
        return FoundCandidates(
            self.rows[chosen],
            self.violations[chosen],
            self.highest[chosen],
            self.priorities[chosen],
            self.counts[chosen],
            self.started[chosen],
            lambda place: self.victims_of(origins[place]),
        )


def found_of(runs: Sequence[tuple[int, PreemptionDryRun]]) -> FoundCandidates:
    """Candidates from single dry runs that found victims, by row."""

    def column(of: Callable[[PreemptionDryRun], int]) -> Ints:
        return np.array([of(run) for _, run in runs], dtype=np.int64)

    return FoundCandidates(
        rows=np.array([row for row, _ in runs], dtype=np.intp),
        violations=column(lambda run: run.violations),
        highest=column(lambda run: run.victims[0].priority),
        priorities=column(lambda run: sum(pod.priority + 2**31 for pod in run.victims)),
        counts=column(lambda run: len(run.victims)),
        started=column(lambda run: _earliest_start(run.victims)),
        victims_of=lambda place: runs[place][1].victims,
    )


def _earliest_start(victims: Sequence[PodInfo]) -> int:
    """When the first of the victims of the highest priority has started (GetEarliestPodStartTime)."""
    highest = max(pod.priority for pod in victims)
    starts = (pod.started_ms for pod in victims if pod.priority == highest)
    return min(NOT_STARTED if at is None else at for at in starts)


def joined(parts: Sequence[FoundCandidates]) -> FoundCandidates:
    """Candidates of several parts, in order."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([len(part.rows) for part in parts])

    def victims_of(place: int) -> tuple[PodInfo, ...]:
        part = int(np.searchsorted(ends, place, side="right"))
        return parts[part].victims_of(place - int(ends[part] - len(parts[part].rows)))

    def column(of: Callable[[FoundCandidates], Ints]) -> Ints:
        return np.concatenate([of(part) for part in parts])

    return FoundCandidates(
        rows=np.concatenate([part.rows for part in parts]),
        violations=column(lambda part: part.violations),
        highest=column(lambda part: part.highest),
        priorities=column(lambda part: part.priorities),
        counts=column(lambda part: part.counts),
        started=column(lambda part: part.started),
        victims_of=victims_of,
    )
