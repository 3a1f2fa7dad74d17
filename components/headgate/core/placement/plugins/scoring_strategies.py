"""
The scoring strategies of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Each scores one resource from 0 to 100, and the node by the weighted mean of its resources. The per-node form is the
definition, that for many nodes says the same. Sources: least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go, helper/shape_score.go.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from headgate.core.placement.arrays import Ints
from headgate.core.placement.framework.plugin import SCORE_MAX, Arguments
from headgate.core.placement.plugins.resource_shares import ResourceShare, Shares

UTILIZATION_MAX: Final = 100
CUSTOM_SCORE_MAX: Final = 10
"""The highest score in a shape; it means SCORE_MAX."""


class ShapePoint(Arguments, frozen=True):
    """`UtilizationShapePoint`: the score at a utilization, both as whole numbers."""

    utilization: int
    score: int


class ShareStrategy(Protocol):
    """How a node is scored by the shares of its resources."""

    def score(self, shares: Sequence[ResourceShare]) -> int:
        """The score of one node."""
        ...

    def score_rows(self, shares: Sequence[Shares], count: int) -> Ints:
        """The scores of `count` nodes."""
        ...


class LeastAllocated:
    """The more is free, the better."""

    def score(self, shares: Sequence[ResourceShare]) -> int:
        """The weighted mean of the free shares."""
        weights = sum(share.weight for share in shares)
        total = 0
        for share in shares:
            free = max(0, share.allocatable - share.requested)
            total += free * SCORE_MAX // share.allocatable * share.weight
        return total // weights if weights else 0

    def score_rows(self, shares: Sequence[Shares], count: int) -> Ints:
        """The same for many nodes."""
        return _mean(shares, [np.maximum(each.allocatable - each.requested, 0) for each in shares], count)


class MostAllocated:
    """The less is free, the better."""

    def score(self, shares: Sequence[ResourceShare]) -> int:
        """The weighted mean of the shares in use."""
        weights = sum(share.weight for share in shares)
        total = 0
        for share in shares:
            used = min(share.requested, share.allocatable)
            total += used * SCORE_MAX // share.allocatable * share.weight
        return total // weights if weights else 0

    def score_rows(self, shares: Sequence[Shares], count: int) -> Ints:
        """The same for many nodes."""
        return _mean(shares, [np.minimum(each.requested, each.allocatable) for each in shares], count)


def _mean(shares: Sequence[Shares], parts: Sequence[Ints], count: int) -> Ints:
    """The weighted mean of parts of what there is, in percent."""
    total, weights = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for share, part in zip(shares, parts, strict=True):
        counts = share.allocatable != 0
        total += np.where(counts, part * SCORE_MAX // np.where(counts, share.allocatable, 1) * share.weight, 0)
        weights += np.where(counts, share.weight, 0)
    return np.where(weights != 0, total // np.where(weights != 0, weights, 1), 0)


class RequestedToCapacityRatio:
    """By a broken line over the utilization. Resources that score 0 do not count."""

    def __init__(self, shape: Sequence[ShapePoint]) -> None:
        self._by_percent = [_on_line(shape, percent) for percent in range(UTILIZATION_MAX + 1)]
        self._table = np.array(self._by_percent, dtype=np.int64)

    def score(self, shares: Sequence[ResourceShare]) -> int:
        """The weighted mean, rounded, a half upwards."""
        total = weights = 0
        for share in shares:
            is_over = share.requested > share.allocatable
            percent = UTILIZATION_MAX if is_over else share.requested * UTILIZATION_MAX // share.allocatable
            score = self._by_percent[percent]
            if score > 0:
                total += score * share.weight
                weights += share.weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    def score_rows(self, shares: Sequence[Shares], count: int) -> Ints:
        """The same for many nodes."""
        total, weights = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for share in shares:
            counts = share.allocatable != 0
            requested = np.minimum(share.requested, share.allocatable)
            percent = np.where(counts, requested * UTILIZATION_MAX // np.where(counts, share.allocatable, 1), 0)
            scores = np.where(counts, self._table[percent], 0)
            total += scores * share.weight
            weights += np.where(scores > 0, share.weight, 0)
        return np.where(weights != 0, (2 * total + weights) // np.where(weights != 0, 2 * weights, 1), 0)


def _on_line(shape: Sequence[ShapePoint], percent: int) -> int:
    """The score at a utilization, in Go's integer arithmetic, which cuts towards zero."""
    factor = SCORE_MAX // CUSTOM_SCORE_MAX
    for index, point in enumerate(shape):
        if percent <= point.utilization:
            if index == 0:
                return point.score * factor
            left = shape[index - 1]
            rise = (point.score - left.score) * factor * (percent - left.utilization)
            run = point.utilization - left.utilization
            return left.score * factor + (abs(rise) // run if rise >= 0 else -(abs(rise) // run))
    return shape[-1].score * factor
