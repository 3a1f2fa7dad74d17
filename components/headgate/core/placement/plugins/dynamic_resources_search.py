"""
The search for devices on one node: claim by claim, request by request, device by device, depth first.

The order is the kube-scheduler's, so that the first solution is the same: pools, slices and devices in their order,
each request from the start, the devices of one request in ascending order. What was chosen is given up again when
nothing further on can be had with it. Source: structured/internal/incubating/allocator_incubating.go (`allocateOne`).

Recursion is by generators that one loop runs, so that no number of devices exhausts the stack.
"""

from collections.abc import Generator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple

from headgate.core.kubernetes.quantities import parse_quantity
from headgate.core.placement.objects.devices import QuantityText, ResourceClaim
from headgate.core.placement.plugins.dynamic_resources_capacity import consumption_of, has_capacity
from headgate.core.placement.plugins.dynamic_resources_constraints import AttributeConstraint, constraint_of
from headgate.core.placement.plugins.dynamic_resources_counters import PoolCounters
from headgate.core.placement.plugins.dynamic_resources_entries import AllocationError, DeviceEntry, DeviceId
from headgate.core.placement.plugins.dynamic_resources_index import NOTHING, DeviceIndex
from headgate.core.placement.plugins.dynamic_resources_pools import DevicePool
from headgate.core.placement.plugins.dynamic_resources_requests import (
    RESULTS_MAX,
    ChosenClaim,
    ChosenDevice,
    RequestSlot,
    RequestView,
)

LOOKS_MAX: Final = 200_000
"""
How many devices a search looks at on one node.

The kube-scheduler stops after ten seconds (`filterTimeout`). There is no clock here, so that the same state always
gives the same answer.
"""


class SearchTooLongError(Exception):
    """Raised when a search has looked at LOOKS_MAX devices."""


class SearchOutcome(Enum):
    """How a part of a search ends: with devices, without, or without since a claim would have too many of them."""

    FOUND = "found"
    NOTHING = "nothing"
    TOO_MANY = "too many"


class _Place(NamedTuple):
    """The device that is looked for: of a claim, a request, an alternative of it, and which one of those."""

    claim: int
    request: int = 0
    alternative: int = 0
    device: int = 0


class _Candidate(NamedTuple):
    entry: DeviceEntry
    pool: DevicePool


class _Undo(NamedTuple):
    """What choosing a device has changed."""

    candidate: _Candidate
    view: RequestView
    claim: int
    has_counters: bool
    is_marked: bool
    consumed: Mapping[str, QuantityText] | None
    was_shared: bool


_Search = Generator[Any, SearchOutcome, SearchOutcome]
"""What it yields is a search that it needs the outcome of."""

_FIRST: Final = (0, 0)


class NodeSearch:
    """One search. `slots` are the requests by claim."""

    def __init__(
        self,
        index: DeviceIndex,
        pools: Sequence[DevicePool],
        counters: PoolCounters,
        claims: Sequence[ResourceClaim],
        slots: Sequence[Sequence[RequestSlot]],
    ) -> None:
        self._index = index
        self._pools = pools
        self._counters = counters
        self._claims = claims
        self._slots = slots
        self._all: dict[tuple[int, int, int], list[_Candidate]] = {}
        self._constraints: list[list[AttributeConstraint]] = []
        self._selectable: dict[tuple[int, int, int, DeviceId], bool] = {}
        self._chosen: list[list[ChosenDevice]] = [[] for _ in claims]
        self._picked: dict[tuple[int, int], int] = {}
        self._devices: dict[DeviceId, set[int]] = {}
        self._taken: dict[DeviceId, dict[str, Fraction]] = {}
        self._looks = 0
        self.steps = 0
        """Calls of the kube-scheduler's `allocateOne`."""
        self.passed_over = 0
        """Devices that were passed over for their binding conditions."""

    def run(self) -> tuple[ChosenClaim, ...] | None:
        """
        The devices for all claims, or None when the node does not have them.

        Raises AllocationError for what no node can give, SearchTooLongError, QuantityError.
        """
        self._prepare()
        outcome = self._driven(self._find(_Place(0), is_alternative=False, start=_FIRST))
        if outcome == SearchOutcome.TOO_MANY:
            raise AllocationError("allocation max size exceeded")
        if outcome == SearchOutcome.NOTHING:
            return None
        return tuple(
            ChosenClaim(claim, tuple(self._chosen[number]), self._views(number))
            for number, claim in enumerate(self._claims)
        )

    def _views(self, claim: int) -> tuple[RequestView, ...]:
        return tuple(slot.views[self._picked.get((claim, number), 0)] for number, slot in enumerate(self._slots[claim]))

    # --- before the search -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for claim, slots in enumerate(self._slots):
            devices_min = 0
            for request, slot in enumerate(slots):
                for alternative, view in enumerate(slot.views):
                    if view.is_all:
                        place = _Place(claim, request, alternative)
                        self._all[place[:3]] = self._all_devices(place, view)
                devices_min += min(
                    self._count(_Place(claim, request, number), view) for number, view in enumerate(slot.views)
                )
            key = self._claims[claim].metadata.key
            if devices_min > RESULTS_MAX:
                raise AllocationError(
                    f"claim {key}: number of requested devices {devices_min} exceeds the claim limit of {RESULTS_MAX}"
                )
            constraints = self._claims[claim].spec.devices.constraints
            self._constraints.append([constraint_of(each, key, number) for number, each in enumerate(constraints)])

    def _all_devices(self, place: _Place, view: RequestView) -> list[_Candidate]:
        """The devices that "all" means. Raises AllocationError while a pool changes, since more may be to come."""
        found: list[_Candidate] = []
        for pool in self._pools:
            if not pool.is_usable:
                why = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"claim {view.claim}, request {view.name}: asks for all devices, "
                    f"but resource pool {pool.id} is currently {why}"
                )
            found.extend(
                _Candidate(entry, pool)
                for entry in pool.devices
                if self._is_selectable(place, view, entry, pool) and self._has_capacity(view, entry)
            )
        return found

    def _count(self, place: _Place, view: RequestView) -> int:
        return len(self._all[place[:3]]) if view.is_all else view.count

    # --- the search --------------------------------------------------------------------------------------------------

    def _driven(self, search: _Search) -> SearchOutcome:
        """Run a search with all that it starts, on a stack of its own."""
        stack = [search]
        answer: SearchOutcome | None = None
        while True:
            try:
                stack.append(stack[-1].send(answer) if answer is not None else next(stack[-1]))
                answer = None
            except StopIteration as end:
                stack.pop()
                answer = end.value
                if not stack:
                    return SearchOutcome(answer)

    def _find(self, place: _Place, *, is_alternative: bool, start: tuple[int, int]) -> _Search:
        """Find the device of a place and all further ones. `start` is where its request goes on: pool, device."""
        self.steps += 1
        if place.claim >= len(self._claims):
            return SearchOutcome.FOUND
        slots = self._slots[place.claim]
        if place.request >= len(slots):
            # With other devices for the claims before, an alternative may need fewer.
            outcome = yield self._find(_Place(place.claim + 1), is_alternative=False, start=_FIRST)
            return SearchOutcome.NOTHING if outcome == SearchOutcome.TOO_MANY else outcome
        slot = slots[place.request]
        if slot.is_list and not is_alternative:
            return (yield self._find_alternative(place, slot))
        view = slot.views[place.alternative]
        count = self._count(place, view)
        if view.is_all and not count:
            return SearchOutcome.NOTHING
        if place.device >= count:
            following = _Place(place.claim, place.request + 1)
            return (yield self._find(following, is_alternative=False, start=_FIRST))
        if len(self._chosen[place.claim]) + count - place.device > RESULTS_MAX:
            return SearchOutcome.TOO_MANY
        if view.is_all:
            return (yield self._find_next_of_all(place, view, is_alternative=is_alternative))
        return (yield self._find_candidate(place, view, start, is_alternative=is_alternative))

    def _find_alternative(self, place: _Place, slot: RequestSlot) -> _Search:
        outcomes: list[SearchOutcome] = []
        for number in range(len(slot.views)):
            outcome = yield self._find(place._replace(alternative=number), is_alternative=True, start=_FIRST)
            if outcome == SearchOutcome.FOUND:
                self._picked[place.claim, place.request] = number
                return outcome
            outcomes.append(outcome)
        return SearchOutcome.NOTHING if SearchOutcome.NOTHING in outcomes else SearchOutcome.TOO_MANY

    def _find_next_of_all(self, place: _Place, view: RequestView, *, is_alternative: bool) -> _Search:
        """All devices are known, so there is nothing else to try when one of them is not to be had."""
        undo = self._choose(place, view, self._all[place[:3]][place.device], is_required=True)
        if undo is None:
            return SearchOutcome.NOTHING
        following = place._replace(device=place.device + 1)
        outcome = yield self._find(following, is_alternative=is_alternative, start=_FIRST)
        if outcome != SearchOutcome.FOUND:
            self._give_up(undo)
        return outcome

    def _find_candidate(
        self, place: _Place, view: RequestView, start: tuple[int, int], *, is_alternative: bool
    ) -> _Search:
        for pool_number in range(start[0], len(self._pools)):
            pool = self._pools[pool_number]
            if not pool.is_usable:
                continue
            first = start[1] if pool_number == start[0] else 0
            for number in range(first, len(pool.devices)):
                entry = pool.devices[number]
                if not self._is_candidate(place, view, entry, pool):
                    continue
                undo = self._choose(place, view, _Candidate(entry, pool), is_required=False)
                if undo is None:
                    continue
                following = place._replace(device=place.device + 1)
                outcome = yield self._find(following, is_alternative=is_alternative, start=(pool_number, number + 1))
                if outcome == SearchOutcome.FOUND:
                    return outcome
                self._give_up(undo)
                if outcome == SearchOutcome.TOO_MANY:
                    return outcome
        return SearchOutcome.NOTHING

    # --- one device --------------------------------------------------------------------------------------------------

    def _is_candidate(self, place: _Place, view: RequestView, entry: DeviceEntry, pool: DevicePool) -> bool:
        self._looks += 1
        if self._looks > LOOKS_MAX:
            raise SearchTooLongError
        if self._is_in_use(view, entry.id, place.claim):
            return False
        return self._is_selectable(place, view, entry, pool) and self._has_capacity(view, entry)

    def _is_in_use(self, view: RequestView, device: DeviceId, claim: int) -> bool:
        """Administrators may have any device, each once per claim."""
        if view.is_admin:
            return claim in self._devices.get(device, ())
        return self._index.is_dedicated(device) or bool(self._devices.get(device))

    def _is_selectable(self, place: _Place, view: RequestView, entry: DeviceEntry, pool: DevicePool) -> bool:
        if entry.device.binding_conditions:
            self.passed_over += 1
            return False
        key = (place.claim, place.request, place.alternative, entry.id)
        known = self._selectable.get(key)
        if known is None:
            known = self._selectable[key] = view.selects(entry) and entry.id not in pool.elsewhere
        return known

    def _has_capacity(self, view: RequestView, entry: DeviceEntry) -> bool:
        taken = self._taken.get(entry.id, NOTHING)
        if not view.capacity and not entry.has_policies and not taken and not self._index.has_consumers(entry.id):
            return True
        return has_capacity(view.capacity, entry.device, self._index.consumed(entry.id), taken)

    def _choose(self, place: _Place, view: RequestView, candidate: _Candidate, *, is_required: bool) -> _Undo | None:
        """Choose a device; None if it cannot be had, with everything as it was."""
        entry, pool = candidate
        device, is_shared = entry.id, entry.device.allow_multiple_allocations
        if self._is_in_use(view, device, place.claim) and not (is_shared and view.is_admin):
            return None
        has_counters = bool(entry.consumptions) and not (is_shared and self._is_shared_already(device))
        if has_counters and not self._counters.take(pool, entry):
            return None
        undo = _Undo(candidate, view, place.claim, has_counters, not is_shared, None, device in self._taken)
        if not view.tolerates(entry.device.taints) or not self._meets_constraints(undo, is_required=is_required):
            if has_counters:
                self._counters.give_back(pool, entry)
            return None
        if not is_shared:
            self._devices.setdefault(device, set()).add(place.claim)
        if not self._has_capacity(view, entry):
            self._revert(undo)
            return None
        consumed: Mapping[str, QuantityText] | None = None
        if is_shared:
            consumed = consumption_of(view.capacity, entry.device)
            taken = self._taken.setdefault(device, {})
            for name, quantity in consumed.items():
                taken[name] = taken.get(name, Fraction(0)) + parse_quantity(quantity)
        self._chosen[place.claim].append(ChosenDevice(view, entry, consumed))
        return undo._replace(consumed=consumed)

    def _is_shared_already(self, device: DeviceId) -> bool:
        """Whether a share of the device is in use: then its counters are taken."""
        return self._index.has_consumers(device) or device in self._taken

    def _meets_constraints(self, undo: _Undo, *, is_required: bool) -> bool:
        view, entry = undo.view, undo.candidate.entry
        constraints = self._constraints[undo.claim]
        for number, constraint in enumerate(constraints):
            if constraint.add(view.base, view.alternative, entry):
                continue
            for added in reversed(constraints[:number]):
                added.remove(view.base, view.alternative, entry)
            if is_required:
                raise AllocationError(
                    f"claim {view.claim}, request {view.name}: cannot add device {entry.id} "
                    "because a claim constraint would not be satisfied"
                )
            return False
        return True

    def _give_up(self, undo: _Undo) -> None:
        """A device that was chosen is not."""
        self._chosen[undo.claim].pop()
        device = undo.candidate.entry.id
        if undo.consumed is not None:
            taken = self._taken[device]
            for name, quantity in undo.consumed.items():
                taken[name] -= parse_quantity(quantity)
            if not undo.was_shared:
                del self._taken[device]
        self._revert(undo)

    def _revert(self, undo: _Undo) -> None:
        entry, pool = undo.candidate
        if undo.is_marked:
            self._devices[entry.id].discard(undo.claim)
        for constraint in reversed(self._constraints[undo.claim]):
            constraint.remove(undo.view.base, undo.view.alternative, entry)
        if undo.has_counters:
            self._counters.give_back(pool, entry)
