"""
The pools of devices that a node can reach: which slices count, whether a pool is complete and valid, in which order.

Drivers replace the slices of a pool generation by generation: older slices are passed over, and nothing is allocated
from a pool that lacks slices of its newest generation. Source: structured/internal/incubating/pools_incubating.go.
"""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

import msgspec

from headgate.core.kubernetes.selectors import matches_term
from headgate.core.placement.objects.devices import CounterSet
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.dynamic_resources_entries import (
    DeviceEntry,
    DeviceId,
    PoolId,
    SliceEntry,
    value_of,
)
from headgate.events.objects import NodeSelector

Counters = Mapping[tuple[str, str], Fraction]
"""By counter set and counter."""

NO_DEVICES: frozenset[DeviceId] = frozenset()


class DevicePool(msgspec.Struct, frozen=True, eq=False):
    """
    A pool as one node sees it.

    `devices` are in the order in which they are tried, `elsewhere` those of them that the node cannot reach, `others`
    the rest of the pool. An incomplete or invalid pool has none of them.
    """

    id: PoolId
    is_incomplete: bool = False
    invalid: str = ""
    devices: tuple[DeviceEntry, ...] = ()
    elsewhere: frozenset[DeviceId] = NO_DEVICES
    others: tuple[DeviceEntry, ...] = ()
    counters: Counters = {}

    @property
    def is_usable(self) -> bool:
        """Whether devices of it can be allocated."""
        return not self.is_incomplete and not self.invalid


def reaches(node: NodeObject, name: str | None, selector: NodeSelector | None, *, all_nodes: bool | None) -> bool:
    """Whether what is of a node name, of all nodes or of a selector's is of a node."""
    if name:
        return node.name == name
    if all_nodes:
        return True
    return selector is not None and selects(selector, node)


def selects(selector: NodeSelector, node: NodeObject) -> bool:
    """Whether a node selector selects a node."""
    return any(matches_term(term, node.metadata.labels, node.name) for term in selector.node_selector_terms)


def gather_pools(
    node: NodeObject, candidates: Iterable[SliceEntry], all_of: Mapping[PoolId, Mapping[str, SliceEntry]]
) -> tuple[DevicePool, ...]:
    """The pools of a node. `candidates` are the slices that may be of it, `all_of` all there are, by pool and name."""
    relevant: dict[PoolId, list[SliceEntry]] = {}
    for entry in candidates:
        if _is_relevant(entry, node):
            _add(relevant, entry)
    pools: list[DevicePool] = []
    for pool_id, entries in relevant.items():
        pool = _pool_of(pool_id, entries, all_of[pool_id].values(), node)
        if pool is not None:
            pools.append(pool)
    # Devices that still have to be prepared before a pod can be bound are the last resort.
    pools.sort(key=lambda pool: (_has_binding_conditions(pool), pool.id))
    return tuple(pools)


def _is_relevant(entry: SliceEntry, node: NodeObject) -> bool:
    """Whether a slice has something for a node. Counters are needed wherever a device of the pool is."""
    spec = entry.slice.spec
    if spec.shared_counters:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return reaches(node, spec.node_name, spec.node_selector, all_nodes=spec.all_nodes)
    return spec.per_device_node_selection and any(_is_here(device, node) for device in entry.devices)


def _is_here(entry: DeviceEntry, node: NodeObject) -> bool:
    device = entry.device
    return reaches(node, device.node_name, device.node_selector, all_nodes=device.all_nodes)


def _add(relevant: dict[PoolId, list[SliceEntry]], entry: SliceEntry) -> None:
    """Add a slice to its pool, unless it is out of date; a newer one replaces all that are."""
    entries = relevant.setdefault(entry.pool, [])
    generation = entry.slice.spec.pool.generation
    if entries and generation < entries[0].slice.spec.pool.generation:
        return
    if entries and generation > entries[0].slice.spec.pool.generation:
        entries.clear()
    entries.append(entry)


def _pool_of(
    pool_id: PoolId, entries: list[SliceEntry], everywhere: Collection[SliceEntry], node: NodeObject
) -> DevicePool | None:
    """A pool of its slices for a node; None when a newer generation has nothing for the node."""
    expected = entries[0].slice.spec.pool
    rest: list[SliceEntry] = []
    if len(entries) != expected.resource_slice_count:
        # Slices for other nodes belong to the pool too.
        if any(each.slice.spec.pool.generation > expected.generation for each in everywhere):
            return None
        whole = [each for each in everywhere if each.slice.spec.pool.generation == expected.generation]
        if len(whole) != expected.resource_slice_count:
            return DevicePool(pool_id, is_incomplete=True)
        here = {each.name for each in entries}
        rest = [each for each in whole if each.name not in here]
    return _built(pool_id, sorted(entries, key=lambda each: each.name), rest, node)


def _built(pool_id: PoolId, entries: list[SliceEntry], rest: list[SliceEntry], node: NodeObject) -> DevicePool:
    with_devices = [each for each in entries if not each.slice.spec.shared_counters]
    devices = tuple(device for each in with_devices for device in each.devices)
    others = tuple(device for each in rest for device in each.devices)
    sets = [counter_set for each in entries for counter_set in each.slice.spec.shared_counters]
    invalid = (
        _duplicate("device", (device.id.device for device in devices))
        or _duplicate("counter set", (counter_set.name for counter_set in sets))
        or _unknown_counter(sets, entries + rest)
    )
    if invalid:
        return DevicePool(pool_id, invalid=invalid)
    counters = {(each.name, name): value_of(counter) for each in sets for name, counter in each.counters.items()}
    elsewhere = frozenset(
        device.id
        for each in with_devices
        if each.slice.spec.per_device_node_selection
        for device in each.devices
        if not _is_here(device, node)
    )
    return DevicePool(pool_id, devices=devices, elsewhere=elsewhere, others=others, counters=counters)


def _duplicate(kind: str, names: Iterable[str]) -> str:
    """Why names of a kind cannot be; "" if they can."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {kind} name {name}"
        seen.add(name)
    return ""


def _unknown_counter(sets: list[CounterSet], entries: list[SliceEntry]) -> str:
    """What a device takes of that the pool does not have; "" for nothing."""
    counters = {each.name: each.counters for each in sets}
    for consumed in (each for entry in entries for device in entry.devices for each in device.device.consumes_counters):
        if consumed.counter_set not in counters:
            return f"counter set {consumed.counter_set} not found"
        for name in consumed.counters:
            if name not in counters[consumed.counter_set]:
                return f"counter {name} not found in counter set {consumed.counter_set}"
    return ""


def _has_binding_conditions(pool: DevicePool) -> bool:
    return any(entry.device.binding_conditions is not None for entry in pool.devices)
