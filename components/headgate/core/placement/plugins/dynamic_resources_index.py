"""
What devices there are and which of them are allocated, kept current by the cluster.

Allocations are counted from the status of claims, those that are decided and not yet written included, since the claims
stand in the cluster as they will be. The pools of a node are gathered once, until one of their slices or the node
changes.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, TypeVar

from headgate.core.kubernetes.quantities import QuantityError, parse_quantity
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.devices import AllocatedDevice, ClaimAllocation, ResourceClaim, ResourceSlice
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.dynamic_resources_entries import DeviceId, PoolId, SliceEntry
from headgate.core.placement.plugins.dynamic_resources_pools import DevicePool, gather_pools
from headgate.core.placement.pods import PodInfo

KeyT = TypeVar("KeyT")

NOTHING: Final[Mapping[str, Fraction]] = {}


class DeviceIndex:
    """Slices by node and pool, and the devices that claims have."""

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self._counted: dict[str, ClaimAllocation] = {}
        self._dedicated: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, int] = {}
        self._consumers: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, dict[str, Fraction]] = {}
        self._slices: dict[str, SliceEntry] = {}
        self._of_node: dict[str, dict[str, SliceEntry]] = {}
        self._of_many: dict[str, SliceEntry] = {}
        self._of_pool: dict[PoolId, dict[str, SliceEntry]] = {}
        self._pools: dict[str, tuple[NodeObject, tuple[DevicePool, ...]]] = {}
        for kind in (ResourceClaim, ResourceSlice):
            for key in cluster.objects(kind):
                self.object_put(kind, key)

    # --- what allocation reads ---------------------------------------------------------------------------------------

    def pools_of(self, node: NodeObject) -> tuple[DevicePool, ...]:
        """The pools that a node can reach, in the order in which they are tried. Raises QuantityError."""
        known = self._pools.get(node.name)
        if known is None or known[0] is not node:
            slices = (*self._of_node.get(node.name, {}).values(), *self._of_many.values())
            known = self._pools[node.name] = (node, gather_pools(node, slices, self._of_pool))
        return known[1]

    def is_dedicated(self, device: DeviceId) -> bool:
        """Whether a device is allocated to one claim alone."""
        return device in self._dedicated

    def is_allocated(self, device: DeviceId) -> bool:
        """Whether a device is allocated, to one claim or to several."""
        return device in self._dedicated or device in self._shares

    def has_consumers(self, device: DeviceId) -> bool:
        """Whether anything is allocated of the capacity of a device."""
        return device in self._consumers

    def consumed(self, device: DeviceId) -> Mapping[str, Fraction]:
        """What is allocated of the capacity of a device."""
        return self._consumed.get(device, NOTHING)

    # --- what the cluster tells --------------------------------------------------------------------------------------

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """Pods do not matter."""

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """Pods do not matter."""

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """Pools are gathered again for another Node object (`pools_of`)."""

    def node_removed(self, node: NodeInfo) -> None:
        """A node is gone."""
        self._pools.pop(node.name, None)

    def object_put(self, kind: type, key: str) -> None:
        """A claim or a slice is new, has changed or is gone."""
        if kind is ResourceClaim:
            claim = self._cluster.objects(ResourceClaim).get(key)
            self._count(key, claim.status.allocation if claim is not None else None)
        elif kind is ResourceSlice:
            self._put_slice(key, self._cluster.objects(ResourceSlice).get(key))

    # --- allocations -------------------------------------------------------------------------------------------------

    def _count(self, key: str, allocation: ClaimAllocation | None) -> None:
        before = self._counted.pop(key, None)
        if before is not None:
            self._change(before, -1)
        if allocation is not None:
            self._counted[key] = allocation
            self._change(allocation, 1)

    def _change(self, allocation: ClaimAllocation, sign: int) -> None:
        """Count an allocation, or no longer. Devices of administrators are for all others as if they were free."""
        for result in allocation.devices.results:
            device = DeviceId(result.driver, result.pool, result.device)
            if result.admin_access:
                continue
            consumed = _consumed(result)
            if result.share_id is None or consumed is None:
                _add(self._dedicated, device, sign)
                continue
            _add(self._shares, device, sign)
            if result.consumed_capacity is not None:
                _add(self._consumers, device, sign)
                total = self._consumed.setdefault(device, {})
                for name, value in consumed.items():
                    total[name] = total.get(name, Fraction(0)) + sign * value
                if device not in self._consumers:
                    del self._consumed[device]

    # --- slices ------------------------------------------------------------------------------------------------------

    def _put_slice(self, name: str, piece: ResourceSlice | None) -> None:
        old = self._slices.pop(name, None)
        if old is not None:
            self._forget_pools(old)
            self._of_many.pop(name, None)
            _discard(self._of_node, old.slice.spec.node_name or "", name)
            _discard(self._of_pool, old.pool, name)
        if piece is None:
            return
        entry = self._slices[name] = SliceEntry(piece)
        node_name = piece.spec.node_name or ""
        if node_name and not piece.spec.shared_counters:
            self._of_node.setdefault(node_name, {})[name] = entry
        else:
            self._of_many[name] = entry
        self._of_pool.setdefault(entry.pool, {})[name] = entry
        self._forget_pools(entry)

    def _forget_pools(self, changed: SliceEntry) -> None:
        """Gather pools again: for the node of a pool that is of one node alone, or else for all nodes."""
        of_pool = self._of_pool[changed.pool].values()
        name = changed.slice.spec.node_name
        if name and all(each.slice.spec.node_name == name and not each.slice.spec.shared_counters for each in of_pool):
            self._pools.pop(name, None)
        else:
            self._pools.clear()


def _consumed(result: AllocatedDevice) -> Mapping[str, Fraction] | None:
    """What a claim takes of a device; None for what cannot be read, so that nobody else gets the device."""
    try:
        return {name: parse_quantity(quantity) for name, quantity in (result.consumed_capacity or {}).items()}
    except QuantityError:
        return None


def _add(counts: dict[DeviceId, int], device: DeviceId, sign: int) -> None:
    count = counts.get(device, 0) + sign
    if count:
        counts[device] = count
    else:
        del counts[device]


def _discard(of: dict[KeyT, dict[str, SliceEntry]], key: KeyT, name: str) -> None:
    entries = of.get(key, {})
    entries.pop(name, None)
    if not entries:
        of.pop(key, None)
