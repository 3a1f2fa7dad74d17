"""
Which devices the claims of a pod get on each node.

One allocator is of one attempt: what depends on the cluster alone is computed once, and the answer for a node is kept,
since filter, score and reserve ask for the same one.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, error, unresolvable
from headgate.core.placement.objects.devices import ClaimAllocation, DeviceClass, ResourceClaim
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.dynamic_resources_counters import AvailableCounters, PoolCounters
from headgate.core.placement.plugins.dynamic_resources_entries import AllocationError
from headgate.core.placement.plugins.dynamic_resources_index import DeviceIndex
from headgate.core.placement.plugins.dynamic_resources_requests import ChosenClaim, RequestSlot, slots_of
from headgate.core.placement.plugins.dynamic_resources_results import allocation_of
from headgate.core.placement.plugins.dynamic_resources_search import LOOKS_MAX, NodeSearch, SearchTooLongError

CANNOT_ALLOCATE: Final = "cannot allocate all claims"


class NodeAllocation(msgspec.Struct, frozen=True):
    """Success with the devices of each claim, or why there are none. `steps` is how long it took to find out."""

    status: PluginStatus
    chosen: tuple[ChosenClaim, ...] = ()
    steps: int = 0


class DeviceAllocator:
    """The allocations of some claims, by node."""

    def __init__(
        self, index: DeviceIndex, classes: Mapping[str, DeviceClass], claims: Sequence[ResourceClaim], pod: str
    ) -> None:
        self._index = index
        self._claims = claims
        self._pod = pod
        self._counters = AvailableCounters(index)
        self._by_node: dict[str, NodeAllocation] = {}
        self._failed: NodeAllocation | None = None
        self._slots: list[tuple[RequestSlot, ...]] = []
        try:
            self._slots = [slots_of(claim, classes) for claim in claims]
        except AllocationError as reason:
            self._failed = NodeAllocation(error(str(reason)))

    def on(self, node: NodeObject) -> NodeAllocation:
        """
        The devices on a node.

        What is wrong with a claim or a class is wrong on every node, and so is a search without end: after the first
        such answer no other node is searched.
        """
        if self._failed is not None:
            return self._failed
        known = self._by_node.get(node.name)
        if known is None:
            known = self._by_node[node.name] = self._search(node)
            if not known.status.is_success and not known.status.is_rejected:
                self._failed = known
        return known

    def allocations(self, node: NodeObject) -> tuple[ClaimAllocation, ...]:
        """What is to be written of each claim for a node that has devices for all. Raises AllocationError."""
        return tuple(allocation_of(each, node.name, self._pod) for each in self.on(node).chosen)

    def _search(self, node: NodeObject) -> NodeAllocation:
        try:
            return self._searched(node)
        except (AllocationError, QuantityError) as reason:
            return NodeAllocation(error(str(reason)))
        except SearchTooLongError:
            return NodeAllocation(
                error(
                    f"node {node.name}: gave up allocating devices after looking at {LOOKS_MAX} of them: "
                    "ask for fewer devices in one claim, or narrow them down by selectors"
                )
            )

    def _searched(self, node: NodeObject) -> NodeAllocation:
        pools = self._index.pools_of(node)
        search = NodeSearch(self._index, pools, PoolCounters(self._counters), self._claims, self._slots)
        chosen = search.run()
        if chosen is not None:
            return NodeAllocation(SUCCESS, chosen, search.steps)
        if any(pool.invalid for pool in pools):
            return NodeAllocation(unresolvable("invalid resource pools were encountered"), steps=search.steps)
        reason = CANNOT_ALLOCATE
        if search.passed_over:
            reason += " without devices that have binding conditions, which this scheduler does not wait for"
        return NodeAllocation(unresolvable(reason), steps=search.steps)
