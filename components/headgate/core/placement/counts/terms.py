"""
The pod affinity terms of a pod, with their namespaces.

Source: `PodInfo.Update`, `GetAffinityTerms` and `AffinityTerm.Matches` of k8s.io/kube-scheduler/framework/types.go, and
`mergeAffinityTermNamespacesIfNotEmpty` of the plugin InterPodAffinity.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.core.kubernetes.selector_syntax import why_no_selector
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.placement.counts.domains import Partition, partition
from headgate.core.placement.counts.selections import Selection, selection
from headgate.core.placement.objects.owners import Namespace
from headgate.core.placement.objects.pods import PodAffinity, PodAffinityTerm
from headgate.core.placement.pods import PodShape
from headgate.events.objects import LabelSelector

NO_LABELS: Final[Mapping[str, str]] = {}

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


class Term(msgspec.Struct, frozen=True, eq=False):
    """
    A term. `namespaces` are those named, or the pod's own if neither names nor a selector are given.

    `key` is equal for equal terms.
    """

    key: bytes
    topology_key: str
    partition: Partition
    """The nodes that have the topology key."""
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether the term means pods of this namespace, with these labels of its own, and these labels."""
        if namespace not in self.namespaces and not matches_labels(self.namespace_selector, namespace_labels):
            return False
        return matches_labels(self.selector, labels)

    def namespaces_meant(self, namespaces: Mapping[str, Namespace]) -> tuple[str, ...] | None:
        """
        The namespaces whose pods a term of an incoming pod means; None for all.

        Upstream adds the selected namespaces to the names and then holds the selector against no labels. So one that
        no labels meet (`DoesNotExist`, `NotIn`) means all namespaces.
        """
        if matches_labels(self.namespace_selector, NO_LABELS):
            return None
        if self.namespace_selector is None:
            return self.namespaces
        selected = (
            name for name, each in namespaces.items() if matches_labels(self.namespace_selector, each.metadata.labels)
        )
        return tuple(dict.fromkeys((*self.namespaces, *selected)))


class PodTerms(msgspec.Struct, frozen=True, eq=False):
    """
    The terms of a pod: required, and preferred ones with weights, of anti-affinity negative.

    Of a list with a selector that cannot be read there are no terms, and `error` says why: such a pod cannot be placed,
    and on a node the rest of its terms count.
    """

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()
    error: str = ""


NO_TERMS: Final = PodTerms()
_NO_AFFINITY: Final = PodAffinity()


def terms_of(shape: PodShape) -> PodTerms:
    """The terms of pods of a shape."""
    affinity = shape.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    near, far = affinity.pod_affinity or _NO_AFFINITY, affinity.pod_anti_affinity or _NO_AFFINITY
    errors: list[str] = []

    def readable(name: str, terms: tuple[PodAffinityTerm, ...]) -> tuple[Term, ...]:
        selectors = (selector for term in terms for selector in (term.label_selector, term.namespace_selector))
        why = next(filter(None, map(why_no_selector, selectors)), "")
        if why:
            errors.append(f"{name}: {why}")
        return () if why else tuple(_term(term, shape) for term in terms)

    required = readable("requiredAffinityTerms", near.required_during_scheduling_ignored_during_execution)
    anti_affinity = readable("requiredAntiAffinityTerms", far.required_during_scheduling_ignored_during_execution)
    preferred: list[tuple[Term, int]] = []
    for name, weighted, sign in (
        ("preferredAffinityTerms", near.preferred_during_scheduling_ignored_during_execution, 1),
        ("preferredAntiAffinityTerms", far.preferred_during_scheduling_ignored_during_execution, -1),
    ):
        terms = readable(name, tuple(each.pod_affinity_term for each in weighted))
        preferred += [(term, sign * each.weight) for term, each in zip(terms, weighted, strict=False)]
    error = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
    return PodTerms(required, anti_affinity, tuple(preferred), error)


def _term(term: PodAffinityTerm, shape: PodShape) -> Term:
    namespaces = tuple(sorted(dict.fromkeys(term.namespaces)))
    if not namespaces and term.namespace_selector is None:
        namespaces = (shape.namespace,)
    key = _encoder.encode((term.topology_key, namespaces, term.namespace_selector, term.label_selector))
    return Term(
        key,
        term.topology_key,
        partition(term.topology_key, (term.topology_key,)),
        namespaces,
        term.namespace_selector,
        term.label_selector,
    )


def selection_of(term: Term, namespaces: Mapping[str, Namespace]) -> Selection:
    """The pods that a term of an incoming pod means."""
    return selection(term.namespaces_meant(namespaces), (term.selector,), counts_terminating=True)


def selection_of_all(terms: tuple[Term, ...], namespaces: Mapping[str, Namespace]) -> Selection:
    """The pods that every one of the terms of an incoming pod means."""
    meant: tuple[str, ...] | None = None
    for term in terms:
        names = term.namespaces_meant(namespaces)
        if meant is None:
            meant = names
        elif names is not None:
            meant = tuple(name for name in meant if name in names)
    return selection(meant, tuple(term.selector for term in terms), counts_terminating=True)
