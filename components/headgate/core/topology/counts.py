"""
How many pods of a kind fit into each domain of a tree: phase 1 of placement (`kueue-semantics` section 9).

Per leaf it is the smallest ratio of what is free to what one pod requests; above that, sums. A leader, one pod of
another kind that has to be in the same domain, takes room: a domain can also say how many pods fit beside it. Slices
are counted in the domains of their level.

Everything is in arrays by slot of each level. `ShapeCounts.refresh` computes anew what has changed in the tree: a few
leaves one by one, with the path of each, many all at once.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.core.topology.filters import Fitness, NodeFilter
from headgate.core.topology.slots import CLAMP, IntArray
from headgate.core.topology.tree import FlavorTopology

PODS_MAX: Final = 2**31 - 1
"""The most pods that are counted in a leaf, as in Kueue."""

CACHED_MAX: Final = 2_000_000
"""The most leaves for which counts are cached, all shapes together."""

Requests = tuple[tuple[str, int], ...]
"""What one pod requires of a node, `pods` included, by resource name."""


class Shape(NamedTuple):
    """
    All that counts depend on besides the tree.

    `inner` has the size of the slices within slices, by level, 0 where there are none; `fitness` is the key of the
    requirements on nodes; `empty` counts as if no workload used anything.
    """

    requests: Requests
    leader: Requests | None
    slice_size: int
    slice_level: int
    inner: tuple[int, ...]
    fitness: str = ""
    empty: bool = False


class ShapeCounts:
    """
    The counts of a shape in a tree: lists by level of arrays by slot. Read-only for all others.

    `slices` is 0 below the level of the slices. `beside_leader` and `slices_beside_leader` are the same numbers with a
    leader in the domain, `leaders` is 1 where one fits; without a leader in the shape they are the plain ones, and 0.
    """

    __slots__ = (
        "_seen",
        "_slots",
        "beside_leader",
        "filter",
        "leaders",
        "pods",
        "shape",
        "slices",
        "slices_beside_leader",
        "tree",
        "within",
    )

    def __init__(
        self, tree: FlavorTopology, shape: Shape, node_filter: NodeFilter, within: tuple[int, int] | None = None
    ) -> None:
        self.tree = tree
        self.shape = shape
        self.filter = node_filter
        self.within = within
        """The level and the slot of the only domain that counts, if not all do."""
        self._seen = -1
        self._slots = -1
        self.refresh()

    def refresh(self) -> None:
        """Compute what has changed in the tree since the last call."""
        tree = self.tree
        self.filter.refresh()
        changes = tree.capacity_changes if self.shape.empty else tree.changes
        now = changes.count
        if now == self._seen:
            return
        missed, seen = now - self._seen, self._seen
        is_known = self._slots == tree.slots and changes.remembers(seen) and self.within is None
        self._seen = now
        if is_known and missed <= 16 + tree.slots // (64 if self.shape.leader is not None else 16):
            for leaf in changes.since(seen):
                self._update(leaf)
        else:
            self._fill()
        self._slots = tree.slots

    # --- all at once -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        tree, shape, depth = self.tree, self.shape, len(self.tree.levels)
        slots = [len(level.values) for level in tree.by_level]
        none = [np.zeros(each, np.int64) for each in slots]
        self.pods, self.slices = list(none), list(none)
        self.leaders = list(none)
        ok = self.reachable()
        fitting = self._fitting(None)
        self.pods[-1] = np.where(ok, fitting, 0)
        if shape.leader is None:
            self.beside_leader, self.slices_beside_leader = self.pods, self.slices
        else:
            self.beside_leader, self.slices_beside_leader = list(none), list(none)
            has_room = ok & (_ratio(tree, shape.leader, empty=shape.empty) > 0)
            self.leaders[-1] = has_room.astype(np.int64)
            self.beside_leader[-1] = np.where(ok, np.where(has_room, self._fitting(shape.leader), fitting), 0)
        for level in range(depth - 1, -1, -1):
            if level < depth - 1:
                self._sum_up(level, slots[level])
            if level == shape.slice_level:
                self.slices[level] = self.pods[level] // shape.slice_size
                self.slices_beside_leader[level] = self.beside_leader[level] // shape.slice_size

    def reachable(self) -> npt.NDArray[np.bool_]:
        """By leaf, whether pods may go there."""
        ok = self.filter.ok
        if self.within is None:
            return ok
        level, slot = self.within
        at = np.arange(self.tree.slots)
        for each in range(len(self.tree.levels) - 1, level, -1):
            at = self.tree.by_level[each].parent[at]
        within: npt.NDArray[np.bool_] = ok & (at == slot)
        return within

    def limiting(self, leaf: int) -> str:
        """The resource that is short in a leaf into which no pod fits; of several the first by name."""
        for request in self.shape.requests:
            if _ratio_of(self.tree, leaf, (request,), empty=self.shape.empty) == 0:
                return request[0]
        return ""

    def _fitting(self, leader: Requests | None) -> IntArray:
        return _ratio(self.tree, self.shape.requests, empty=self.shape.empty, less=leader or ())

    def _sum_up(self, level: int, slots: int) -> None:
        """Fill a level above the lowest one from the next lower one."""
        below = level + 1
        count = len(self.pods[below])
        parent = self.tree.by_level[below].parent[:count]
        size = self.shape.inner[below]
        pods = _in_multiples(self.pods[below], size)
        self.pods[level] = _sums(parent, pods, slots)
        sums_slices = level < self.shape.slice_level
        if sums_slices:
            self.slices[level] = _sums(parent, self.slices[below], slots)
        if self.shape.leader is None:
            return
        can_lead = self.leaders[below] > 0
        parents = parent[can_lead]
        leaders = self.leaders[level] = np.zeros(slots, np.int64)
        leaders[parents] = 1
        lost = pods - _in_multiples(self.beside_leader[below], size)
        self.beside_leader[level] = np.where(leaders > 0, self.pods[level] - _least(parents, lost[can_lead], slots), 0)
        if sums_slices:
            lost = self.slices[below] - self.slices_beside_leader[below]
            least = _least(parents, lost[can_lead], slots)
            self.slices_beside_leader[level] = np.where(leaders > 0, self.slices[level] - least, 0)

    # --- one leaf ----------------------------------------------------------------------------------------------------

    def _update(self, leaf: int) -> None:
        """Compute a leaf anew, and its path."""
        bottom = len(self.tree.levels) - 1
        before, slices_before = int(self.pods[bottom][leaf]), int(self.slices[bottom][leaf])
        self._put_leaf(bottom, leaf)
        if self.shape.leader is not None:
            at = leaf
            for level in range(bottom, 0, -1):
                at = int(self.tree.by_level[level].parent[at])
                self._join(level - 1, at)
            return
        pods, slices = int(self.pods[bottom][leaf]), int(self.slices[bottom][leaf])
        at, level = leaf, bottom
        while level and (pods != before or slices != slices_before):
            at = int(self.tree.by_level[level].parent[at])
            size, level = self.shape.inner[level], level - 1
            change = pods - before if size < 2 else pods // size * size - before // size * size
            before = int(self.pods[level][at])
            pods = before + change
            slices, slices_before = self._slices_after(level, at, pods, slices - slices_before)
            self.pods[level][at], self.slices[level][at] = pods, slices

    def _slices_after(self, level: int, at: int, pods: int, change: int) -> tuple[int, int]:
        """The slices of a domain when its pods, or the slices below it, have changed; and those before."""
        before = int(self.slices[level][at])
        if level == self.shape.slice_level:
            return pods // self.shape.slice_size, before
        return (before + change, before) if level < self.shape.slice_level else (0, 0)

    def _put_leaf(self, bottom: int, leaf: int) -> None:
        shape = self.shape
        ok = bool(self.filter.ok[leaf])
        pods = _ratio_of(self.tree, leaf, shape.requests, empty=shape.empty) if ok else 0
        is_sliced = bottom == shape.slice_level
        self.pods[bottom][leaf] = pods
        if is_sliced:
            self.slices[bottom][leaf] = pods // shape.slice_size
        if shape.leader is None:
            return
        has_room = ok and _ratio_of(self.tree, leaf, shape.leader, empty=shape.empty) > 0
        if has_room:
            pods = _ratio_of(self.tree, leaf, shape.requests, empty=shape.empty, less=shape.leader)
        self.leaders[bottom][leaf] = int(has_room)
        self.beside_leader[bottom][leaf] = pods
        if is_sliced:
            self.slices_beside_leader[bottom][leaf] = pods // shape.slice_size

    def _join(self, level: int, at: int) -> None:
        """Compute a domain anew from those of the next level in it; for shapes with a leader."""
        shape, below = self.shape, level + 1
        children = np.array(self.tree.by_level[level].children[at], np.int64)
        size = shape.inner[below]
        pods = _in_multiples(self.pods[below][children], size)
        slices = self.slices[below][children]
        can_lead = self.leaders[below][children] > 0
        leads = bool(can_lead.any())
        total, total_slices, beside, slices_beside = int(pods.sum()), int(slices.sum()), 0, 0
        if leads:
            lost = pods - _in_multiples(self.beside_leader[below][children], size)
            beside = total - int(lost[can_lead].min())
            lost = slices - self.slices_beside_leader[below][children]
            slices_beside = total_slices - int(lost[can_lead].min())
        if level == shape.slice_level:
            total_slices, slices_beside = total // shape.slice_size, beside // shape.slice_size
        self.pods[level][at], self.slices[level][at] = total, total_slices
        self.leaders[level][at] = int(leads)
        self.beside_leader[level][at], self.slices_beside_leader[level][at] = beside, slices_beside


def _ratio(tree: FlavorTopology, requests: Requests, *, empty: bool, less: Requests = ()) -> IntArray:
    """By leaf, how many pods fit into what is free, less what others need."""
    slots = tree.slots
    ratio = np.full(slots, PODS_MAX, np.int64)
    taken = dict(less)
    for resource, value in requests:
        if value <= 0:
            continue
        column = tree.columns.get(resource)
        if column is None:
            return np.zeros(slots, np.int64)
        free = (column.empty if empty else column.free)[:slots]
        if resource in taken:
            free = free - min(CLAMP, taken[resource])
        np.minimum(ratio, free // value, out=ratio)
    return np.maximum(ratio, 0, out=ratio)


def _ratio_of(tree: FlavorTopology, leaf: int, requests: Requests, *, empty: bool, less: Requests = ()) -> int:
    """`_ratio` of one leaf."""
    ratio = PODS_MAX
    taken = dict(less)
    for resource, value in requests:
        if value <= 0:
            continue
        column = tree.columns.get(resource)
        if column is None:
            return 0
        free = column.capacity[leaf] if empty else column.capacity[leaf] - column.used[leaf]
        ratio = min(ratio, (max(-CLAMP, min(CLAMP, free)) - min(CLAMP, taken.get(resource, 0))) // value)
    return max(0, ratio)


def _in_multiples(pods: IntArray, size: int) -> IntArray:
    return pods if size < 2 else pods // size * size


def _sums(parent: IntArray, values: IntArray, slots: int) -> IntArray:
    """The sums by parent. They are exact: bincount adds doubles, and no sum of counts reaches 2**53."""
    return np.bincount(parent, values, slots).astype(np.int64)


def _least(parent: IntArray, values: IntArray, slots: int) -> IntArray:
    """The smallest value by parent."""
    least = np.full(slots, PODS_MAX, np.int64)
    np.minimum.at(least, parent, values)
    return least


class CountedTree:
    """A tree with the counts of the shapes that were asked for last."""

    __slots__ = ("_counts", "_filters", "tree")

    def __init__(self, tree: FlavorTopology) -> None:
        self.tree = tree
        self._counts: dict[Shape, ShapeCounts] = {}
        self._filters: dict[str, NodeFilter] = {}

    def counts(self, shape: Shape, fitness: Fitness, within: tuple[int, int] | None = None) -> ShapeCounts:
        """Current counts, of the whole tree or `within` one domain, a level and its slot."""
        if within is not None:
            return ShapeCounts(self.tree, shape, self._filter(fitness), within)
        counts = self._counts.pop(shape, None)
        if counts is None:
            if len(self._counts) * self.tree.slots > CACHED_MAX:
                del self._counts[next(iter(self._counts))]
            counts = ShapeCounts(self.tree, shape, self._filter(fitness))
        else:
            counts.refresh()
        # The one that was asked for last is the last to be dropped.
        self._counts[shape] = counts
        return counts

    def _filter(self, fitness: Fitness) -> NodeFilter:
        node_filter = self._filters.pop(fitness.key, None)
        if node_filter is None:
            if len(self._filters) * self.tree.slots > CACHED_MAX:
                del self._filters[next(iter(self._filters))]
            node_filter = NodeFilter(self.tree, fitness)
        self._filters[fitness.key] = node_filter
        return node_filter
