"""
What filters say of many nodes with the pods on them that are nominated to them, computed from what those pods claim.

That can be computed where all that pods on a node change is how much is free.
"""

from collections.abc import Sequence

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.claims import NodeClaims
from headgate.core.placement.framework.amounts import AmountsQuestion, is_static
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.steps import FilterStep
from headgate.core.placement.requests import PODS


def crowded(cycle: PlacementCycle, steps: Sequence[FilterStep], claims: NodeClaims, rows: Rows) -> Ints | None:
    """
    Per row the id of the first rejection by the filters with the claiming pods on their nodes, or 0.

    None where sums do not tell: where a filter reads more of the pods on a node than how much they leave free.
    """
    question = AmountsQuestion.of(cycle, steps)
    if not all(is_static(step) or (question is not None and step is question.step) for step in steps):
        return None
    columns = cycle.cluster.columns

    def used(some: Rows, resource: str) -> Ints:
        assert question is not None, "only the filter of the question asks"
        already = columns.pod_count[some] if resource == PODS else columns.requested(resource)[some]
        return already + claims.of(resource)[some] + question.wanted[resource]

    ids = np.zeros(len(rows), dtype=np.int64)
    for step in steps:
        places = np.flatnonzero(ids == 0)
        if question is not None and step is question.step:
            ids[places] = question.lacking(rows[places], used)
        elif len(places):
            ids[places] = step.answer_rows(cycle, rows[places])
    return ids
