"""
Random damage, from seeds: found, or harmless; never believed, never a hang.

Harmless is what leaves the state that a process starts with as it would be without the damage, and every decision in
the log as it was. `make corrupt N=1000` runs more of them, and prints how many there were of each kind.
"""

import random
from collections import Counter

from tests.corruption.cells import Cell, decoded, judged, meaning, recorded
from tests.corruption.damages import KINDS

from headgate.core import fold
from headgate.core.state.tables import State

SEED = 5

COUNTS: Counter[tuple[str, str]] = Counter()
"""By kind and outcome, for who runs many."""


def undamaged(cell: Cell, position: int) -> State:
    """The state of the undamaged log at a position."""
    state = fold.new_state("sim")
    for logged in decoded(cell.entries[:position]):
        fold.apply(state, logged)
    return state


def test_an_undamaged_cell_is_sound() -> None:
    """The counterpart of all that follows: no check finds anything."""
    verdict = judged(recorded(SEED))
    assert not verdict.is_found, verdict
    assert verdict.state is not None


def test_random_damage_is_found_or_harmless(corruption_seed: int) -> None:
    """One damage a seed, of each kind in turn."""
    kind = [*KINDS][corruption_seed % len(KINDS)]
    cell = recorded(SEED).copy()
    said = KINDS[kind](cell, random.Random(f"corruption-{corruption_seed}"))
    verdict = judged(cell)
    if verdict.is_found:
        COUNTS[kind, "found"] += 1
        return
    assert verdict.state is not None
    assert meaning(verdict.state) == meaning(undamaged(recorded(SEED), verdict.state.position)), (
        f"believed: {kind}, {said}"
    )
    COUNTS[kind, "harmless"] += 1
