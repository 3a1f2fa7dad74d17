"""
Selectors, taints and tolerations, as Kubernetes evaluates them.

Shared by all placement checks: quota admission matches pods against flavors, the binder pods against nodes,
ClusterQueues their namespaces. Everything here is a pure predicate; nothing is looked up.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from headgate.core.kubernetes.numbers import decimal
from headgate.events.objects import (
    LabelSelector,
    NodeAffinity,
    NodeSelectorTerm,
    PodSpec,
    Requirement,
    Taint,
    Toleration,
)


class _Affinity(Protocol):
    @property
    def node_affinity(self) -> NodeAffinity | None: ...


class NodeSelecting(Protocol):
    """What of a pod's spec selects nodes: `PodSpec` of facts, and that of placement, which has more."""

    @property
    def node_selector(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def affinity(self) -> _Affinity | None: ...  # noqa: D102


HARD_EFFECTS = ("NoSchedule", "NoExecute")
"""The taint effects that keep a new pod away; PreferNoSchedule only discourages."""


def matches_requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement. An operator that Kubernetes does not define is never met."""
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            return present and _compares(labels[requirement.key], requirement)
        case _:
            return False


_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,63}")
"""The canonical form of an integer: numeric tolerations and their taints require it."""


def _compares(value: str, requirement: Requirement) -> bool:
    """Gt and Lt compare integers; any other value never compares."""
    have, bound = decimal(value), decimal(requirement.values[0]) if requirement.values else None
    if have is None or bound is None:
        return False
    return have > bound if requirement.operator == "Gt" else have < bound


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects labels. An empty one selects everything, an absent one nothing."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        matches_requirement(requirement, labels) for requirement in selector.match_expressions
    )


def matches_term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str = "") -> bool:
    """Whether a node of these labels and name meets a node selector term. An empty term is never met."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(matches_requirement(requirement, labels) for requirement in term.match_expressions) and all(
        matches_requirement(requirement, fields) for requirement in term.match_fields
    )


def required_terms(spec: NodeSelecting) -> tuple[NodeSelectorTerm, ...] | None:
    """The terms of a pod's required node affinity; None when it has none."""
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return required.node_selector_terms if required is not None else None


def matches_node(spec: NodeSelecting, labels: Mapping[str, str], name: str) -> bool:
    """Whether a pod's node selector and required node affinity allow a node of these labels and this name."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    terms = required_terms(spec)
    return terms is None or any(matches_term(term, labels, name) for term in terms)


def matches_flavor(spec: PodSpec, labels: Mapping[str, str]) -> bool:
    """
    Whether a pod's node selector and required node affinity allow a flavor of these node labels.

    Only keys that the flavor defines count, since it does not define the others. A term without any such key is met by
    every flavor, and terms are alternatives, so it makes the whole affinity void (`kueue-semantics` section 4).
    """
    for key, value in spec.node_selector.items():
        if key in labels and labels[key] != value:
            return False
    terms = required_terms(spec)
    if not terms:
        return True
    for term in terms:
        known = [requirement for requirement in term.match_expressions if requirement.key in labels]
        if all(matches_requirement(requirement, labels) for requirement in known):
            return True
    # A later term without a known key would have been met above: no requirement of it counts.
    return False


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration tolerates a taint. Without an effect it covers all effects, without a key all keys."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _outweighs(toleration, taint)
        case _:
            return False


def _outweighs(toleration: Toleration, taint: Taint) -> bool:
    """Numeric tolerations (KEP-5471): Gt tolerates a taint whose value is greater than the toleration's."""
    if not _PLAIN_INTEGER.fullmatch(taint.value) or not _PLAIN_INTEGER.fullmatch(toleration.value):
        return False
    have, bound = decimal(taint.value), decimal(toleration.value)
    if have is None or bound is None:
        return False
    return have > bound if toleration.operator == "Gt" else have < bound


def untolerated_taint(
    taints: Iterable[Taint], tolerations: Collection[Toleration], effects: Collection[str] = HARD_EFFECTS
) -> Taint | None:
    """The first taint of one of the effects that nothing tolerates; None when all is tolerated."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def taint_text(taint: Taint) -> str:
    """A taint as in Kueue's messages: `{key value NoSchedule <nil>}`."""
    return f"{{{taint.key} {taint.value} {taint.effect} <nil>}}"
