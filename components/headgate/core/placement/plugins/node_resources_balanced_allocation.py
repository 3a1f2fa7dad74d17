"""
NodeResourcesBalancedAllocation: nodes whose resources the pod would bring to more equal use are better.

The score of a use is 100 less the standard deviation of the fractions in use, in percent; that of the node is 50 and
half of what the pod improves. Source: noderesources/balanced_allocation.go.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import SCORE_MAX, Arguments, PluginFactory, PreScored, Reads
from headgate.core.placement.framework.status import SKIP
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.plugins.resource_shares import (
    DEFAULT_RESOURCES,
    ResourceSpec,
    shares_of,
    shares_of_rows,
    wanted_of,
    weighted,
)
from headgate.core.placement.pods import PodShape

NAME: Final = "NodeResourcesBalancedAllocation"
_HALF: Final = SCORE_MAX // 2

Floats = NDArray[np.float64]


class NodeResourcesBalancedAllocationArgs(Arguments, frozen=True):
    """`NodeResourcesBalancedAllocationArgs`."""

    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES


class NodeResourcesBalancedAllocation:
    """The plugin."""

    name = NAME
    score_reads = Reads.NODE_AND_PODS

    def __init__(self, arguments: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = arguments.resources

    def score_key(self, shape: PodShape) -> Hashable:
        """The requests that count."""
        return self._wanted(shape)

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:  # noqa: ARG002 - of the pod alone
        """Skip for pods that request nothing: they would all go to the same node."""
        return PreScored() if any(self._wanted(cycle.pod.shape)) else PreScored(SKIP)

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """What the pod improves."""
        wanted = self._wanted(cycle.pod.shape)
        if not any(wanted):
            return 0
        shares = shares_of(node, self._resources, wanted, nonzero=False)
        after = _balance([min(each.requested / each.allocatable, 1.0) for each in shares])
        before = _balance([min(each.allocated / each.allocatable, 1.0) for each in shares])
        return _HALF + (_HALF + after - before) // 2

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        wanted = self._wanted(cycle.pod.shape)
        if not any(wanted):
            return np.zeros(len(rows), dtype=np.int64)
        shares = shares_of_rows(columns, rows, self._resources, wanted, nonzero=False)
        has = [each.allocatable != 0 for each in shares]
        whole = [np.where(there, each.allocatable, 1) for there, each in zip(has, shares, strict=True)]
        after = [np.minimum(each.requested / all_, 1.0) for each, all_ in zip(shares, whole, strict=True)]
        before = [np.minimum(each.allocated / all_, 1.0) for each, all_ in zip(shares, whole, strict=True)]
        return _HALF + (_HALF + _balances(after, has, len(rows)) - _balances(before, has, len(rows))) // 2

    def _wanted(self, shape: PodShape) -> tuple[int, ...]:
        return wanted_of(self._resources, shape.requests.requests)


def _balance(fractions: Sequence[float]) -> int:
    """100 less the deviation; of two fractions that is half their distance."""
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        # Added one by one, as in Go: `sum` compensates for rounding.
        total = squares = 0.0
        for fraction in fractions:
            total = total + fraction
        mean = total / len(fractions)
        for fraction in fractions:
            squares = squares + (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * SCORE_MAX)


def _balances(fractions: Sequence[Floats], has: Sequence[NDArray[np.bool_]], count: int) -> Ints:
    """The same for many nodes, each of which may lack some resources."""
    if len(fractions) == 2 and has[0].all() and has[1].all():
        return _percent(np.abs((fractions[0] - fractions[1]) / 2))
    present, total = np.zeros(count, dtype=np.int64), np.zeros(count)
    # The difference of the first two that are present, for nodes that have two.
    distance, sign = np.zeros(count), np.ones(count)
    for fraction, there in zip(fractions, has, strict=True):
        present += there
        total = total + np.where(there, fraction, 0.0)
        distance = distance + np.where(there, sign * fraction, 0.0)
        sign = np.where(there, -sign, sign)
    mean, squares = total / np.maximum(present, 1), np.zeros(count)
    for fraction, there in zip(fractions, has, strict=True):
        squares = squares + np.where(there, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.where(present == 2, np.abs(distance / 2), np.sqrt(squares / np.maximum(present, 1)))
    return _percent(np.where(present < 2, 0.0, deviation))


def _percent(deviation: Floats) -> Ints:
    return ((1 - deviation) * SCORE_MAX).astype(np.int64)


def _defaulted(arguments: NodeResourcesBalancedAllocationArgs) -> NodeResourcesBalancedAllocationArgs:
    return msgspec.structs.replace(arguments, resources=weighted(arguments.resources))


def _check(arguments: NodeResourcesBalancedAllocationArgs, path: str) -> None:
    names = [each.name for each in arguments.resources]
    for index, resource in enumerate(arguments.resources):
        at = f"{path}.resources[{index}]"
        if resource.name in names[:index]:
            raise ConfigurationError(f"{at}.name", f"{resource.name!r} is named twice", "name it once")
        if resource.weight != 1:
            raise ConfigurationError(f"{at}.weight", f"{resource.weight} cannot be", "write 1")


FACTORY: Final = PluginFactory(
    NAME,
    NodeResourcesBalancedAllocation,
    arguments=NodeResourcesBalancedAllocationArgs,
    defaulted=_defaulted,
    check=_check,
)
