"""What an `AmountsFilter` would answer for many nodes, were other pods on them, from sums and without the filter."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.framework.asking import failed
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import Reads
from headgate.core.placement.framework.steps import FilterStep
from headgate.core.placement.framework.supposing import AmountsFilter
from headgate.core.placement.requests import PODS


class AmountsQuestion:
    """The question of one pod. `wanted` is what it has to have of each resource."""

    def __init__(
        self, cycle: PlacementCycle, step: FilterStep, asking: AmountsFilter, wanted: Mapping[str, int]
    ) -> None:
        self._cycle = cycle
        self._asking = asking
        self.step = step
        self.wanted = wanted

    @classmethod
    def of(cls, cycle: PlacementCycle, steps: Sequence[FilterStep]) -> "AmountsQuestion | None":
        """That of the first filter that asks for free amounts; None without one, or if its answer depends on more."""
        step = next((step for step in steps if isinstance(step.plugin, AmountsFilter)), None)
        if step is None or not isinstance(step.plugin, AmountsFilter):
            return None
        try:
            wanted = step.plugin.amounts(cycle)
        except Exception as failure:
            raise failed(step.name, "Filter", failure) from failure
        return cls(cycle, step, step.plugin, wanted) if wanted is not None else None

    def lacking(self, rows: Rows, used: Callable[[Rows, str], Ints]) -> Ints:
        """Per row the id of the rejection for want of something, 0 if there is enough; `used` counts this pod too."""
        columns = self._cycle.cluster.columns
        lacks = np.zeros(len(rows), dtype=np.int64)
        for bit, (resource, wanted) in enumerate(self.wanted.items()):
            allocatable = columns.allocatable(resource)[rows]
            lacking = used(rows, resource) > allocatable
            lacks |= lacking.astype(np.int64) << bit
            if resource != PODS:
                final = lacking & (wanted > allocatable)
                lacks |= final.astype(np.int64) << len(self.wanted)
        if not lacks.any():
            return lacks
        distinct, inverse = np.unique(lacks, return_inverse=True)
        return np.array([self._rejection(lack) for lack in distinct.tolist()], dtype=np.int64)[inverse]

    def _rejection(self, lack: int) -> int:
        resources = [resource for bit, resource in enumerate(self.wanted) if lack >> bit & 1]
        if not resources:
            return 0
        is_final = bool(lack >> len(self.wanted) & 1)
        try:
            rejection = self._asking.lacking(resources, is_final=is_final).of(self.step.name)
            return self._cycle.statuses.id_of(rejection)
        except Exception as failure:
            raise failed(self.step.name, "Filter", failure) from failure


def is_static(step: FilterStep) -> bool:
    """Whether a filter reads Node objects alone, so that it answers the same whatever pods are there."""
    return step.reads in (Reads.NODE, Reads.NODES)
