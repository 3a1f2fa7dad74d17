"""
Assignments of pods to topology domains, in the form that placement computes with.

The API has them compressed (`events.objects.TopologyAssignment`); here each domain is one entry. Called by all of
topology-aware scheduling.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from headgate.core.state.tables import Values
from headgate.events.objects import LevelValues, TopologyAssignment, TopologySlice

HOSTNAME = "kubernetes.io/hostname"
"""The level whose domains are single nodes. Where it is the lowest one, assignments have no other level."""


class Domain(NamedTuple):
    """How many pods of a pod set a domain gets."""

    values: Values
    pods: int


class Placement(NamedTuple):
    """The domains of the pods of one pod set, ordered by their values of all levels. `levels` are node label keys."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(domain.pods for domain in self.domains)

    def first(self, count: int) -> "Placement":
        """The placement of the first pods of it alone."""
        kept: list[Domain] = []
        left = count
        for domain in self.domains:
            if left <= 0:
                break
            kept.append(Domain(domain.values, min(left, domain.pods)))
            left -= domain.pods
        return Placement(self.levels, tuple(kept))


def expand(assignment: TopologyAssignment) -> Placement:
    """An assignment of the API with one entry for each domain, in the order in which it has them."""
    return Placement(assignment.levels, tuple(_domains(assignment.slices)))


def nodes(assignment: TopologyAssignment) -> tuple[str, ...]:
    """The value of the lowest level of each domain: host names, where that is the lowest level."""
    return tuple(domain.values[-1] for domain in expand(assignment).domains)


def _domains(slices: Iterable[TopologySlice]) -> Iterator[Domain]:
    for each in slices:
        counts = each.pod_counts
        per_domain = repeat(counts.universal or 0) if counts.individual is None else counts.individual
        columns = [_values(level) for level in each.values_per_level]
        for _, count, values in zip(range(each.domain_count), per_domain, zip(*columns, strict=False), strict=False):
            yield Domain(values, count)


def _values(level: LevelValues) -> Iterable[str]:
    if level.individual is None:
        return repeat(level.universal or "")
    prefix, suffix = level.individual.prefix or "", level.individual.suffix or ""
    return (f"{prefix}{root}{suffix}" for root in level.individual.roots)
