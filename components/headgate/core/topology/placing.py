"""
Placement of the pod sets of one workload.

Called by the cycle and by the preemption search. The algorithm is Kueue's (`kueue-semantics` section 9; KEP-2724):

1. how many pods fit into each domain (`counts`);
2. at which level the gang fits, and into which domains; then level by level downwards (`choosing`, `leading`,
   `balanced`).

Pod sets with the same group are placed together: the one with fewer pods is the leader.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headgate.core.topology.assignments import Domain, Placement
from headgate.core.topology.balanced import Balanced
from headgate.core.topology.choosing import GangSearch
from headgate.core.topology.demands import Gates, Placements, PodSetDemand, Replacement, usage_of
from headgate.core.topology.leading import Chosen
from headgate.core.topology.replacing import confined, left_behind, merged, stale_domain
from headgate.core.topology.shaping import Gang, RefusedError, gang_of, slice_size
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
    result = Placements()
    at = what_if.mark()
    try:
        flavors = sorted({demand.flavor for demand in demands})
        for flavor in flavors:
            own = [demand for demand in demands if demand.flavor == flavor]
            placer = _Placer(what_if, flavor, gates, result, empty=empty, is_last=flavor == flavors[-1])
            if replacement is not None:
                placer.replace_node(own, replacement)
            else:
                placer.place(own)
    finally:
        what_if.undo(at)
    return result


def can_place(what_if: WhatIf, demands: Sequence[PodSetDemand], gates: Gates, *, empty: bool = False) -> bool:
    """Whether `find_assignments` would place all pod sets: the same answer, at a fraction of the cost for one group."""
    groups = _groups(demands)
    if len(groups) > 1 or gates.elastic or gates.balanced:
        return not find_assignments(what_if, demands, gates, empty=empty).failures
    for group in groups:
        counted = what_if.counted(group.workers.flavor)
        try:
            gang = gang_of(counted.tree, group.workers, group.leader, gates, empty=empty)
            search = GangSearch(gang, counted.counts(gang.shape, gang.fitness))
            if not search.fits():
                return False
        except RefusedError:
            return False
    return True


class _Group(NamedTuple):
    """Pod sets that are placed together."""

    workers: PodSetDemand
    leader: PodSetDemand | None
    members: tuple[PodSetDemand, ...]


def _groups(demands: Iterable[PodSetDemand]) -> list[_Group]:
    """Pod sets by group, in the order in which each has its first; one without a group is by itself."""
    members: dict[tuple[bool, str], list[PodSetDemand]] = {}
    for index, demand in enumerate(demands):
        key = (True, demand.group) if demand.group is not None else (False, str(index))
        members.setdefault(key, []).append(demand)
    return [_group(each) for each in members.values()]


def _group(members: Sequence[PodSetDemand]) -> _Group:
    workers, leader = members[0], members[1] if len(members) > 1 else None
    if leader is not None and leader.count > workers.count:
        workers, leader = leader, workers
    return _Group(workers, leader, tuple(members))


class _Placer:
    """Places the pod sets of one flavor, adds them to `result`, and reserves what they occupy for those that follow."""

    def __init__(
        self, what_if: WhatIf, flavor: str, gates: Gates, result: Placements, *, empty: bool, is_last: bool
    ) -> None:
        self._what_if = what_if
        self._counted = what_if.counted(flavor)
        self._tree = self._counted.tree
        self._gates = gates
        self._result = result
        self._empty = empty
        self._is_last = is_last
        """Whether no pod set follows that could need what is left."""

    def place(self, demands: Sequence[PodSetDemand]) -> None:
        """Place pod sets, up to the first that fails."""
        groups = _groups(demands)
        is_last = self._is_last
        for group in groups:
            self._is_last = is_last and group is groups[-1]
            if self._gates.elastic and self._is_elastic(group):
                placed = self._resize(group)
            else:
                placed = self._place_fresh(group)
            if not placed:
                return

    def _place_fresh(self, group: _Group) -> bool:
        try:
            placements = self._find(group.workers, group.leader)
        except RefusedError as error:
            self._result.failures.update((member.name, str(error)) for member in group.members)
            return False
        self._result.placements.update(placements)
        if not self._is_last:
            for member in group.members:
                if member.name in placements:
                    self._what_if.reserve(usage_of(member, placements[member.name]))
        return True

    def _set(self, demand: PodSetDemand, placement: Placement) -> None:
        self._result.placements[demand.name] = placement
        self._what_if.reserve(usage_of(demand, placement))

    # --- one gang ----------------------------------------------------------------------------------------------------

    def _find(
        self, workers: PodSetDemand, leader: PodSetDemand | None, within: tuple[int, int] | None = None
    ) -> dict[str, Placement]:
        """The domains of a pod set and its leader. Raises RefusedError."""
        gang = gang_of(self._tree, workers, leader, self._gates, empty=self._empty)
        search = GangSearch(gang, self._counted.counts(gang.shape, gang.fitness, within))
        chosen = self._balance(gang, search) if self._gates.balanced else None
        if chosen is None:
            chosen = search.descend(search.find())
        placements = {workers.name: self._placement([(each.slot, each.pods) for each in chosen])}
        if leader is not None:
            placements[leader.name] = self._placement([(each.slot, each.leaders) for each in chosen])
        return placements

    def _balance(self, gang: Gang, search: GangSearch) -> list[Chosen] | None:
        plain = search
        if any(gang.shape.inner):
            shape = gang.shape._replace(inner=tuple(0 for _ in gang.shape.inner))
            plain = GangSearch(gang, self._counted.counts(shape, gang.fitness))
        return Balanced(search, plain).place()

    def _placement(self, pods: Sequence[tuple[int, int]]) -> Placement:
        tree = self._tree
        values, order = tree.leaves.values, tree.leaves.order
        taken = sorted([(int(order[leaf]), leaf, count) for leaf, count in pods if count])
        first = len(tree.levels) - 1 if tree.by_host else 0
        return Placement(tree.levels[first:], tuple([Domain(values[leaf][first:], count) for _, leaf, count in taken]))

    # --- replacing a node --------------------------------------------------------------------------------------------

    def replace_node(self, demands: Sequence[PodSetDemand], replacement: Replacement) -> None:
        """Find another node for the pods on one, up to the first pod set that fails."""
        for demand in demands:
            existing = replacement.placements.get(demand.name)
            if existing is None:
                continue
            if replacement.keeps_pods:
                self._result.placements[demand.name] = existing
                continue
            try:
                self._replace_in(demand, existing, replacement.node)
            except RefusedError as error:
                self._result.failures[demand.name] = str(error)
                return

    def _replace_in(self, demand: PodSetDemand, existing: Placement, node: str) -> None:
        kept, lost = left_behind(existing, node)
        stale = stale_domain(self._tree, kept)
        if stale is not None:
            raise RefusedError(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains "
                f"the stale domain {stale}"
            )
        to_place = replace(demand, count=lost)
        limited, within = confined(self._tree, to_place, kept)
        found = self._find(limited, None, within)[demand.name]
        if not found.domains:
            raise RefusedError(f"cannot find replacement assignment for unhealthy node: {node}")
        self._result.placements[demand.name] = merged(self._tree, (found, kept))
        self._what_if.reserve(usage_of(demand, found))

    # --- elastic jobs ------------------------------------------------------------------------------------------------

    def _is_elastic(self, group: _Group) -> bool:
        """Whether the pods of the workload slice that this one replaces stay where they are."""
        workers, leader = group.workers, group.leader
        if workers.previous is None or stale_domain(self._tree, workers.previous) is not None:
            return False
        before = workers.previous.pods
        if leader is not None and leader.previous is None and workers.count <= before:
            return False
        if leader is not None and leader.previous is not None and stale_domain(self._tree, leader.previous) is not None:
            return False
        size = slice_size(workers.topology)
        return before % size == 0 and workers.count % size == 0

    def _resize(self, group: _Group) -> bool:
        """Keep the pods of the previous slice, and place those that are added, or keep the first ones."""
        workers, leader = group.workers, group.leader
        assert workers.previous is not None, f"{workers.name} has no previous pods"
        more = workers.count - workers.previous.pods
        self._set(workers, workers.previous if more > 0 else workers.previous.first(workers.count))
        to_place = leader
        if leader is not None and leader.previous is not None:
            self._set(leader, leader.previous)
            to_place = None
        if more <= 0:
            return True
        added = replace(workers, count=more, previous=None)
        try:
            placements = self._find(added, to_place)
        except RefusedError as error:
            for member in group.members:
                self._result.placements.pop(member.name, None)
            self._result.failures[workers.name] = str(error)
            return False
        if to_place is not None:
            self._set(to_place, placements[to_place.name])
        found = placements[workers.name]
        self._what_if.reserve(usage_of(added, found))
        self._result.placements[workers.name] = merged(self._tree, (found, workers.previous))
        return True
