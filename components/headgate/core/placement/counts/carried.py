"""
Counts of the affinity terms that the pods on nodes have, by what they mean for an incoming pod.

A term is found by a label that it requires of the incoming pod, so a pod is held against few of them; what it is held
against is kept for its shape while the terms and the namespaces stay the same.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from headgate.core.placement.counts.selections import Requirers
from headgate.core.placement.counts.sums import RowCounts, SumsTable
from headgate.core.placement.counts.terms import NO_LABELS, PodTerms, Term, terms_of
from headgate.core.placement.objects.owners import Namespace
from headgate.core.placement.pods import SHAPES_MAX, PodInfo, PodShape
from headgate.events.objects import LabelSelector


class TermRole(Enum):
    """What a term is for the pod that has it."""

    AFFINITY = "required affinity"
    ANTI_AFFINITY = "required anti-affinity"
    PREFERENCE = "preferred affinity, or, with a negative weight, anti-affinity"


class CarriedTerm(RowCounts):
    """A term, and how many pods on each node have it."""

    __slots__ = ("key", "role", "term", "weight")

    def __init__(self, key: "CarriedKey", role: TermRole, weight: int, term: Term) -> None:
        super().__init__()
        self.key = key
        self.role = role
        self.weight = weight
        """That of a preference; 0 of required terms."""
        self.term = term

    @property
    def selectors(self) -> tuple[LabelSelector | None, ...]:
        """The selectors that an incoming pod has to match."""
        return (self.term.selector,)


CarriedKey = tuple[str, int, bytes]


class Meant(msgspec.Struct, frozen=True, eq=False):
    """The terms that mean an incoming pod: required anti-affinity, and those that count for scores."""

    anti_affinity: tuple[CarriedTerm, ...]
    scored: tuple[CarriedTerm, ...]


class _KeptMeant(msgspec.Struct, frozen=True, eq=False):
    version: int
    namespaces_version: int
    meant: Meant


class CarriedTable:
    """All terms that pods on nodes have."""

    def __init__(self, sums: SumsTable) -> None:
        self._sums = sums
        self._terms: dict[CarriedKey, CarriedTerm] = {}
        self._requirers: Requirers[CarriedTerm] = Requirers()
        self._version = 0
        """Changes with the set of terms."""
        self._of_shapes: dict[int, PodTerms] = {}
        self._meant: dict[int, _KeptMeant] = {}

    def terms_of(self, shape: PodShape) -> PodTerms:
        """The terms of pods of a shape."""
        known = self._of_shapes.get(shape.number)
        if known is None:
            if len(self._of_shapes) >= SHAPES_MAX:
                self._of_shapes.clear()
            known = self._of_shapes[shape.number] = terms_of(shape)
        return known

    def add(self, pod: PodInfo, row: int, pods: int) -> None:
        """A pod is on a node (1), or no longer (-1)."""
        affinity = pod.spec.affinity
        if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
            return
        terms = self.terms_of(pod.shape)
        for term in terms.affinity:
            self._add(TermRole.AFFINITY, 0, term, row, pods)
        for term in terms.anti_affinity:
            self._add(TermRole.ANTI_AFFINITY, 0, term, row, pods)
        for term, weight in terms.preferred:
            self._add(TermRole.PREFERENCE, weight, term, row, pods)

    def meaning(self, pod: PodInfo, namespaces: Mapping[str, Namespace], namespaces_version: int) -> Meant:
        """The terms that mean an incoming pod."""
        number = pod.shape.number
        known = self._meant.get(number)
        if known is None or known.version != self._version or known.namespaces_version != namespaces_version:
            if len(self._meant) >= SHAPES_MAX:
                self._meant.clear()
            known = _KeptMeant(self._version, namespaces_version, self._meaning(pod, namespaces))
            self._meant[number] = known
        return known.meant

    def _meaning(self, pod: PodInfo, namespaces: Mapping[str, Namespace]) -> Meant:
        namespace = namespaces.get(pod.namespace)
        labels = namespace.metadata.labels if namespace is not None else NO_LABELS
        found = [
            each
            for each in self._requirers.candidates(pod.labels)
            if each.term.matches(pod.namespace, pod.labels, labels)
        ]
        return Meant(
            tuple(each for each in found if each.role == TermRole.ANTI_AFFINITY),
            tuple(each for each in found if each.role != TermRole.ANTI_AFFINITY),
        )

    def _add(self, role: TermRole, weight: int, term: Term, row: int, pods: int) -> None:
        key = (role.name, weight, term.key)
        carried = self._terms.get(key)
        if carried is None:
            carried = self._terms[key] = CarriedTerm(key, role, weight, term)
            self._requirers.add(carried)
            self._version += 1
        carried.add(row, pods)
        if not carried.total:
            del self._terms[key]
            self._requirers.remove(carried)
            self._sums.forget(carried)
            self._version += 1
