"""
The search for nodes that preemption would help on.

Nodes are tried in their order until there are enough candidates, one of them at least without a violation of a
disruption budget. Source: DryRunPreemption of the kube-scheduler, with one thread.
"""

from typing import NamedTuple

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.preemption_arithmetic import SIMULATE, Arithmetic
from headgate.core.placement.preemption_dry_run import PreemptionDryRun, dry_run, no_victim
from headgate.core.placement.preemption_found import FoundCandidates, found_of, joined


class Searched(NamedTuple):
    """The candidates; and the nodes that were tried in vain, with the ids of the statuses that say why."""

    found: FoundCandidates
    hopeless: Rows
    ids: Ints


def search(cycle: PlacementCycle, rows: Rows, wanted: int) -> Searched:
    """Try nodes in this order, until so many candidates are found."""
    arithmetic = Arithmetic.of(cycle)
    return _one_by_one(cycle, rows, wanted) if arithmetic is None else _at_once(cycle, arithmetic, rows, wanted)


def _one_by_one(cycle: PlacementCycle, rows: Rows, wanted: int) -> Searched:
    runs: list[tuple[int, PreemptionDryRun]] = []
    hopeless: list[int] = []
    ids: list[int] = []
    allowed, violating = 0, 0
    for row in rows.tolist():
        run = dry_run(cycle, cycle.cluster.info_of(row))
        if not run.status.is_success:
            hopeless.append(row)
            ids.append(cycle.statuses.id_of(run.status))
            continue
        if run.violations:
            violating += 1
        else:
            allowed += 1
        if not run.violations or violating <= wanted:
            runs.append((row, run))
        if allowed and allowed + min(violating, wanted) >= wanted:
            break
    return Searched(found_of(runs), np.array(hopeless, dtype=np.intp), np.array(ids, dtype=np.int64))


def _at_once(cycle: PlacementCycle, arithmetic: Arithmetic, rows: Rows, wanted: int) -> Searched:
    ids = arithmetic.verdicts(rows)
    trying = np.flatnonzero(ids <= 0)
    parts: list[FoundCandidates] = []
    allowed, violating = 0, 0
    end = len(rows)
    for start in range(0, len(trying), max(wanted, 1)):
        found, places = _found(cycle, arithmetic, rows, ids, trying[start : start + wanted])
        if not len(places):
            continue
        # How many candidates there are at each place, and where that is enough.
        is_violating = found.violations > 0
        without = allowed + np.cumsum(~is_violating)
        with_violations = violating + np.cumsum(is_violating)
        enough = np.flatnonzero((without > 0) & (without + np.minimum(with_violations, wanted) >= wanted))
        last = int(enough[0]) if len(enough) else len(places) - 1
        is_kept = ~is_violating | (with_violations <= wanted)
        parts.append(found.only(np.flatnonzero(is_kept[: last + 1])))
        if len(enough):
            end = int(places[last]) + 1
            break
        allowed, violating = int(without[-1]), int(with_violations[-1])
    tried, ids = rows[:end], ids[:end]
    return Searched(joined(parts) if parts else found_of([]), tried[ids > 0], ids[ids > 0])


def _found(
    cycle: PlacementCycle, arithmetic: Arithmetic, rows: Rows, ids: Ints, places: Ints
) -> tuple[FoundCandidates, Ints]:
    """The candidates among some places of the rows, and their places; `ids` of those that are none are set."""
    by_sums = places[ids[places] == 0]
    found = arithmetic.found(rows[by_sums])
    of_sums = found.only(np.flatnonzero(found.counts > 0)) if (found.counts == 0).any() else found
    for place in by_sums[found.counts == 0].tolist():
        name = cycle.cluster.name_of(int(rows[place]))
        ids[place] = cycle.statuses.id_of(no_victim(name))
    by_sums = by_sums[found.counts > 0]
    simulated = [(place, dry_run(cycle, cycle.cluster.info_of(int(rows[place])))) for place in _simulated(ids, places)]
    if not simulated:
        return of_sums, by_sums
    for place, run in simulated:
        ids[place] = cycle.statuses.id_of(run.status)
    helped = [(place, run) for place, run in simulated if run.status.is_success]
    together = np.concatenate((by_sums, np.array([place for place, _ in helped], dtype=np.intp)))
    order = np.argsort(together)
    single = found_of([(int(rows[place]), run) for place, run in helped])
    return joined([of_sums, single]).only(order), together[order]


def _simulated(ids: Ints, places: Ints) -> list[int]:
    simulated: list[int] = places[ids[places] == SIMULATE].tolist()
    return simulated
