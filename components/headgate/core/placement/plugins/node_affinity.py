"""
NodeAffinity: the pod's node selector and node affinity, and the affinity that a profile adds for all of its pods.

Required terms filter, preferred terms score. Terms that name nodes (`metadata.name` in matchFields) narrow the search.
"""

from collections.abc import Hashable
from typing import Final

import numpy as np

from headgate.core.config.fields import ConfigurationError
from headgate.core.kubernetes.label_syntax import why_no_label_key
from headgate.core.kubernetes.numbers import decimal
from headgate.core.kubernetes.selector_syntax import why_no_preference
from headgate.core.kubernetes.selectors import matches_node, matches_term, required_terms
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import Arguments, PluginFactory, PreFiltered, PreScored, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, error, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import PodSpecObject
from headgate.core.placement.plugins.normalizing import proportional
from headgate.core.placement.pods import PodInfo, PodShape
from headgate.core.placement.selection import NAME_FIELD, matching_any, matching_rows, matching_term
from headgate.events.objects import NodeAffinity as Terms
from headgate.events.objects import NodeSelectorTerm, PreferredSchedulingTerm, Requirement

NAME: Final = "NodeAffinity"
_OF_POD: Final = unresolvable("node(s) didn't match Pod's node affinity/selector")
_ADDED: Final = unresolvable("node(s) didn't match scheduler-enforced node affinity")
_CONFLICT: Final = unresolvable("pod affinity terms conflict")


class NodeAffinityArgs(Arguments, frozen=True):
    """`NodeAffinityArgs`."""

    added_affinity: Terms | None = None


class NodeAffinityPlugin:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE
    score_reads = Reads.NODE

    def __init__(self, arguments: NodeAffinityArgs) -> None:
        added = arguments.added_affinity or Terms()
        required = added.required_during_scheduling_ignored_during_execution
        self._required = required.node_selector_terms if required is not None else None
        self._preferred = added.preferred_during_scheduling_ignored_during_execution

    def filter_key(self, shape: PodShape) -> Hashable:
        """The selector and the affinity."""
        return _key(shape)

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for pods that may go anywhere; the nodes that all terms name."""
        spec = cycle.pod.spec
        terms = required_terms(spec)
        if terms is None and self._required is None and not spec.node_selector:
            return PreFiltered(SKIP)
        named = _named_nodes(terms or ())
        if named is None:
            return PreFiltered()
        return PreFiltered(nodes=named) if named else PreFiltered(_CONFLICT)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the node matches what the profile and the pod require."""
        labels, name = node.node.metadata.labels, node.name
        if self._required is not None and not any(matches_term(term, labels, name) for term in self._required):
            return _ADDED
        return SUCCESS if matches_node(cycle.pod.spec, labels, name) else _OF_POD

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        id_of = cycle.statuses.id_of
        ids = np.where(matching_rows(columns, cycle.pod.spec), 0, id_of(_OF_POD))
        if self._required is not None:
            ids = np.where(matching_any(columns, self._required), ids, id_of(_ADDED))
        return ids[rows]

    def score_key(self, shape: PodShape) -> Hashable:
        """The selector and the affinity."""
        return _key(shape)

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:  # noqa: ARG002 - of the pod alone
        """Skip where nothing is preferred."""
        why = why_no_preference(_preferred(cycle.pod.spec))
        if why:
            return PreScored(error(why))
        return PreScored() if self._preferred or _preferred(cycle.pod.spec) else PreScored(SKIP)

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """The weights of the preferred terms that the node matches."""
        labels, name = node.node.metadata.labels, node.name
        terms = (*self._preferred, *_preferred(cycle.pod.spec))
        return sum(term.weight for term in terms if matches_term(term.preference, labels, name))

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        scores = np.zeros(len(rows), dtype=np.int64)
        for term in (*self._preferred, *_preferred(cycle.pod.spec)):
            scores += matching_term(columns, term.preference)[rows] * np.int64(term.weight)
        return scores

    def normalize(self, cycle: PlacementCycle, rows: Rows, scores: Ints) -> Ints:  # noqa: ARG002 - of the scores alone
        """Most is best."""
        return proportional(scores, reverse=False)

    def events(self) -> tuple[EventHint, ...]:
        """A node is added, or its labels change."""
        return (
            EventHint(
                EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL, self._after_node_change, key=_key
            ),
        )

    def _after_node_change(
        self,
        pod: PodInfo,
        old: NodeObject | None,
        new: NodeObject,
        cluster: PlacementCluster,  # noqa: ARG002 - every hint gets it
    ) -> Hint:
        labels, name = new.metadata.labels, new.name
        if self._required is not None and not any(matches_term(term, labels, name) for term in self._required):
            return Hint.SKIP
        if not matches_node(pod.spec, labels, name):
            return Hint.SKIP
        return Hint.SKIP if old is not None and matches_node(pod.spec, old.metadata.labels, name) else Hint.QUEUE


def _key(shape: PodShape) -> Hashable:
    affinity = shape.spec.affinity
    terms = affinity.node_affinity if affinity is not None else None
    return (tuple(sorted(shape.spec.node_selector.items())), terms)


def _preferred(spec: PodSpecObject) -> tuple[PreferredSchedulingTerm, ...]:
    terms = spec.affinity.node_affinity if spec.affinity is not None else None
    return terms.preferred_during_scheduling_ignored_during_execution if terms is not None else ()


def _named_nodes(terms: tuple[NodeSelectorTerm, ...]) -> tuple[str, ...] | None:
    """The only nodes that any of the terms can match by their names, sorted; None if one matches any name."""
    named: dict[str, None] = {}
    for term in terms:
        lists = [each.values for each in term.match_fields if each.key == NAME_FIELD and each.operator == "In"]
        if not lists:
            return None
        common = [name for name in lists[0] if all(name in others for others in lists[1:])]
        named.update(dict.fromkeys(common))
    return tuple(sorted(named)) if terms else None


# --- arguments -----------------------------------------------------------------------------------------------------


def _check(arguments: NodeAffinityArgs, path: str) -> None:
    added = arguments.added_affinity or Terms()
    at = f"{path}.addedAffinity"
    required = added.required_during_scheduling_ignored_during_execution
    for index, term in enumerate(required.node_selector_terms if required is not None else ()):
        place = f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]"
        _check_term(term, place)
    for index, preferred in enumerate(added.preferred_during_scheduling_ignored_during_execution):
        place = f"{at}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        _check_term(preferred.preference, f"{place}.preference")


def _check_term(term: NodeSelectorTerm, path: str) -> None:
    for index, requirement in enumerate(term.match_expressions):
        _check_requirement(requirement, f"{path}.matchExpressions[{index}]")
        problem = why_no_label_key(requirement.key)
        if problem:
            raise ConfigurationError(f"{path}.matchExpressions[{index}].key", problem, "write a label key")
    for index, field in enumerate(term.match_fields):
        at = f"{path}.matchFields[{index}]"
        if field.key != NAME_FIELD or field.operator not in ("In", "NotIn") or len(field.values) != 1:
            raise ConfigurationError(at, "it is not supported", f"write {NAME_FIELD} In or NotIn with one value")


def _check_requirement(requirement: Requirement, path: str) -> None:
    count = len(requirement.values)
    match requirement.operator:
        case "In" | "NotIn":
            is_right, remedy = count > 0, "write one value or more"
        case "Exists" | "DoesNotExist":
            is_right, remedy = count == 0, "write no values"
        case "Gt" | "Lt":
            is_right, remedy = count == 1 and decimal(requirement.values[0]) is not None, "write one integer"
        case _:
            remedy = "write In, NotIn, Exists, DoesNotExist, Gt or Lt"
            raise ConfigurationError(f"{path}.operator", f"{requirement.operator!r} is not an operator", remedy)
    if not is_right:
        raise ConfigurationError(f"{path}.values", f"they do not go with {requirement.operator}", remedy)


FACTORY: Final = PluginFactory(NAME, NodeAffinityPlugin, arguments=NodeAffinityArgs, check=_check)
