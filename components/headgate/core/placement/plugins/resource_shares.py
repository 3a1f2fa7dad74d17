"""
How full a node would be with the pod: the numbers that NodeResourcesFit and NodeResourcesBalancedAllocation score by.

Per resource: what the node has, what its pods request, and the same with this pod. Scalar resources that the pod does
not request, and resources that the node does not have, are left out (resource_allocation.go).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.plugin import Arguments
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.requests import CPU, MEMORY, is_scalar


class ResourceSpec(Arguments, frozen=True):
    """`ResourceSpec`: a resource and its weight; a weight of 0 is that of 1."""

    name: str
    weight: int = 0


DEFAULT_RESOURCES: Final = (ResourceSpec(name=CPU, weight=1), ResourceSpec(name=MEMORY, weight=1))


def weighted(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    """Resources with weights of 1 where none is given; cpu and memory if there are no resources."""
    return tuple(msgspec.structs.replace(each, weight=each.weight or 1) for each in resources) or DEFAULT_RESOURCES


class ResourceShare(msgspec.Struct, frozen=True):
    """One resource of one node: all of it, what is requested without the pod, and with it."""

    weight: int
    allocatable: int
    allocated: int
    requested: int


class Shares(msgspec.Struct, frozen=True):
    """One resource of many nodes; `allocatable` is 0 where a node does not have it, and it does not count there."""

    weight: int
    allocatable: Ints
    allocated: Ints
    requested: Ints


def wanted_of(resources: Sequence[ResourceSpec], requests: Mapping[str, int]) -> tuple[int, ...]:
    """What a pod requests of each of some resources."""
    return tuple(requests.get(each.name, 0) for each in resources)


def shares_of(
    node: NodeInfo, resources: Sequence[ResourceSpec], wanted: Sequence[int], *, nonzero: bool
) -> list[ResourceShare]:
    """The shares of a node. With `nonzero`, cpu and memory that nothing requests count by their defaults."""
    shares = []
    for spec, value in zip(resources, wanted, strict=True):
        allocatable = node.allocatable.get(spec.name, 0)
        if allocatable and (value or not is_scalar(spec.name)):
            allocated = _allocated(node, spec.name, nonzero=nonzero)
            shares.append(ResourceShare(spec.weight, allocatable, allocated, allocated + value))
    return shares


def _allocated(node: NodeInfo, resource: str, *, nonzero: bool) -> int:
    if nonzero and resource == CPU:
        return node.nonzero_cpu_milli
    if nonzero and resource == MEMORY:
        return node.nonzero_memory_bytes
    return node.requested.get(resource, 0)


def shares_of_rows(
    columns: Columns, rows: Rows, resources: Sequence[ResourceSpec], wanted: Sequence[int], *, nonzero: bool
) -> list[Shares]:
    """The shares of many nodes, one entry per resource that may count."""
    shares = []
    for spec, value in zip(resources, wanted, strict=True):
        if value or not is_scalar(spec.name):
            requested = columns.nonzero_requested if nonzero else columns.requested
            allocated = requested(spec.name)[rows]
            shares.append(Shares(spec.weight, columns.allocatable(spec.name)[rows], allocated, allocated + value))
    return shares
