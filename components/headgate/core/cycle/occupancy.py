"""
Occupancy: the topology domains that the entries of one cycle get, and that their victims leave.

Processing keeps one for all quota trees of a cycle, since a domain may be used from any of them. What an entry will
occupy is added to the cycle's topologies (`headgate.core.flavors.placing.Topologies`) as soon as it is processed, so
the entries after it are placed elsewhere. Victims stay there while they run: without them a domain is free only for who
may wait for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headgate.core.flavors.placing import Topologies
from headgate.core.state.tables import DomainUsage, State
from headgate.events.ids import WorkloadKey


class Occupancy:
    """What has been added to the topologies of a cycle so far, and who counts as gone."""

    __slots__ = ("_gone", "_state", "_topologies", "_waiting")

    def __init__(self, state: State, topologies: Topologies | None) -> None:
        self._state = state
        self._topologies = topologies
        self._gone: dict[WorkloadKey, tuple[DomainUsage, ...]] = {}
        self._waiting: list[DomainUsage] = []
        """What is reserved for entries that do not run yet."""

    def _held(self, key: WorkloadKey) -> tuple[DomainUsage, ...]:
        return self._state.index.topology_usage_of.get(key, ())

    def leave(self, keys: Iterable[WorkloadKey]) -> None:
        """Count these workloads as gone for the rest of the cycle."""
        if self._topologies is not None:
            for key in keys:
                if key not in self._gone and (held := self._held(key)):
                    self._gone[key] = held

    def add(self, usages: Sequence[DomainUsage], *, runs: bool) -> None:
        """Occupy domains for the rest of the cycle; an entry that does not run yet reserves them."""
        if usages and self._topologies is not None:
            self._topologies.what_if.add(usages)
            if not runs:
                self._waiting.extend(usages)

    def fits(self, usages: Sequence[DomainUsage], leaving: Iterable[WorkloadKey]) -> bool:
        """Whether these domains are free after all victims so far, and these workloads, have gone."""
        if not usages or self._topologies is None or self._topologies.what_if.fits(usages):
            return True
        gone = self._gone | {key: self._held(key) for key in leaving}
        with self._topologies.without([each for held in gone.values() for each in held]):
            return self._topologies.what_if.fits(usages)

    def has_room(self, usages: Sequence[DomainUsage], replaced: Iterable[WorkloadKey]) -> bool:
        """Whether these domains are free now, with every victim still there and without reservations."""
        if not usages or self._topologies is None or self._topologies.what_if.fits(usages):
            return True
        gone = [each for key in replaced for each in self._held(key)]
        with self._topologies.without([*gone, *self._waiting]):
            return self._topologies.what_if.fits(usages)

    @contextmanager
    def without_victims(self, but: Iterable[WorkloadKey]) -> Iterator[None]:
        """The topologies without the victims so far; the caller has removed some of them already."""
        skipped = dict.fromkeys(but)
        gone = [each for key, held in self._gone.items() if key not in skipped for each in held]
        if self._topologies is None or not gone:
            yield
            return
        with self._topologies.without(gone):
            yield
