"""
Placement of the pod sets of one workload.

Called by the cycle and by the preemption search. The algorithm is Kueue's (`kueue-semantics` section 9; KEP-2724).
"""

from collections.abc import Sequence

from headgate.core.topology.demands import Gates, Placements, PodSetDemand, Replacement
from headgate.core.topology.what_if import WhatIf


def find_assignments(
    what_if: WhatIf,
    demands: Sequence[PodSetDemand],
    gates: Gates,
    *,
    empty: bool = False,
    replacement: Replacement | None = None,
) -> Placements:
    """
    The domains of each pod set; pod sets that come first are considered by those that follow. Changes nothing.

    Each flavor must have a tree. `empty` places them as if no workload occupied anything. With a `replacement` only the
    pods on that node are placed, and the others stay.
    """
    raise NotImplementedError


def can_place(what_if: WhatIf, demands: Sequence[PodSetDemand], gates: Gates, *, empty: bool = False) -> bool:
    """Whether `find_assignments` would place all pod sets: the same answer, at a fraction of the cost if it is no."""
    raise NotImplementedError
