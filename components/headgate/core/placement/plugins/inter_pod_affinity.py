"""
InterPodAffinity: pods near to, and away from, other pods.

Source: pkg/scheduler/framework/plugins/interpodaffinity. Counts come from the index `PodCounts`; scores are in
`inter_pod_affinity_scoring`, hints in `inter_pod_affinity_hints`.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Bools, Columns
from headgate.core.placement.counts.domains import OUTSIDE, Partition
from headgate.core.placement.counts.index import PodCounts
from headgate.core.placement.counts.selections import Selection
from headgate.core.placement.counts.sums import DomainSums
from headgate.core.placement.counts.terms import NO_LABELS, PodTerms, selection_of, selection_of_all
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource
from headgate.core.placement.framework.plugin import SCORE_MAX, Arguments, PluginFactory, PreFiltered, PreScored, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, unresolvable, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.owners import Namespace
from headgate.core.placement.plugins.inter_pod_affinity_hints import after_node_change, after_pod_change
from headgate.core.placement.plugins.inter_pod_affinity_scoring import AffinityScores, prepare_scores
from headgate.core.placement.pods import SHAPES_MAX, PodInfo, PodShape

NAME: Final = "InterPodAffinity"

_NOT_NEAR: Final = unresolvable("node(s) didn't match pod affinity rules")
_TOO_NEAR: Final = unschedulable("node(s) didn't match pod anti-affinity rules")
_UNWANTED: Final = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")


class Required(msgspec.Struct, frozen=True, eq=False):
    """
    What the required terms of an incoming pod mean.

    `near` are the pods that all affinity terms mean, with the topology keys of the terms; `matches_self` is whether the
    pod is one of them. `far` are the pods that each anti-affinity term means.
    """

    near: Selection | None
    near_partitions: tuple[Partition, ...]
    matches_self: bool
    far: tuple[tuple[Selection, Partition], ...]
    reads_namespaces: bool


class KeySums(msgspec.Struct, frozen=True, eq=False):
    """How many pods are meant by terms of one topology key, by its values. `deltas` are hypothetical ones."""

    topology_key: str
    sums: tuple[DomainSums, ...]
    deltas: Mapping[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not sum(sums.total for sums in self.sums) + sum(self.deltas.values())

    def count(self, value: str) -> int:
        """How many there are where the label has a value."""
        count = self.deltas.get(value, 0)
        for sums in self.sums:
            domain = sums.domains.domain_of(value)
            if domain != OUTSIDE:
                count += int(sums.by_domain()[domain])
        return count

    def counts(self, columns: Columns) -> Ints:
        """The same by the id of the value."""
        if len(self.sums) == 1 and not self.deltas:
            return self.sums[0].by_domain()
        ids = columns.label_ids(self.topology_key)
        counts = np.zeros(len(columns.label_values(self.topology_key)), dtype=np.int64)
        for sums in self.sums:
            counts += sums.by_domain()[: len(counts)]
        for value, delta in self.deltas.items():
            if value in ids:
                counts[ids[value]] += delta
        return counts

    def with_pods(self, labels: Mapping[str, str], delta: int) -> "KeySums":
        """With so many more on a node of these labels."""
        value = labels.get(self.topology_key)
        if value is None:
            return self
        deltas = dict(self.deltas)
        deltas[value] = deltas.get(value, 0) + delta
        if not deltas[value]:
            del deltas[value]
        return msgspec.structs.replace(self, deltas=deltas)


class Neighbours(msgspec.Struct, frozen=True, eq=False):
    """
    The pods that matter to an incoming one, by topology key.

    `near` are those that its affinity means, `far` those that its anti-affinity means, and `unwilling` those whose
    anti-affinity means it.
    """

    required: Required
    near: tuple[KeySums, ...]
    far: Mapping[str, KeySums]
    unwilling: Mapping[str, KeySums]

    def with_pods(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo, delta: int) -> "Neighbours":
        """With a pod more or less on a node."""
        labels, required = node.node.metadata.labels, self.required
        near = self.near
        if required.near is not None and required.near.selects(pod.namespace, pod.labels):
            near = tuple(each.with_pods(labels, delta) for each in near)
        far = dict(self.far)
        for selected, partition in required.far:
            if selected.selects(pod.namespace, pod.labels):
                key = partition.topology_key
                far[key] = far[key].with_pods(labels, delta)
        unwilling = dict(self.unwilling)
        for term in cycle.cluster.index(PodCounts).terms_of(pod.shape).anti_affinity:
            if term.matches(cycle.pod.namespace, cycle.pod.labels, _namespace_labels(cycle)):
                known = unwilling.get(term.topology_key) or KeySums(term.topology_key, ())
                unwilling[term.topology_key] = known.with_pods(labels, delta)
        return Neighbours(required, near, far, unwilling)

    def is_first(self) -> bool:
        """Whether the pod is the first of those that want to be near each other."""
        return self.required.matches_self and all(each.is_empty for each in self.near)


class InterPodAffinityArgs(Arguments, frozen=True):
    """
    `InterPodAffinityArgs`.

    `hard_pod_affinity_weight` is what the required affinity of a pod on a node adds to the score for a pod that it
    means.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class InterPodAffinity:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER
    score_reads = Reads.CLUSTER

    def __init__(self, arguments: InterPodAffinityArgs) -> None:
        self._arguments = arguments
        self._required: dict[PodShape, tuple[int, Required]] = {}

    def events(self) -> tuple[EventHint, ...]:
        """Pods that come, go or get other labels, and nodes that change domains."""
        nodes = ActionType.ADD | ActionType.UPDATE_NODE_LABEL
        return (
            EventHint(
                EventResource.POD, ActionType.ADD | ActionType.DELETE, after_pod_change, key=attrgetter("number")
            ),
            # The labels may be those of the pod itself.
            EventHint(EventResource.POD, ActionType.UPDATE_POD_LABEL, after_pod_change),
            EventHint(EventResource.NODE, nodes, after_node_change, key=attrgetter("number")),
        )

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for a pod that requires nothing of others, and that no other pod keeps off."""
        counts = cycle.cluster.index(PodCounts)
        why = counts.terms_of(cycle.pod.shape).error
        if why:
            return PreFiltered(unresolvable(f"parsing pod: {why}"))
        unwilling = _unwilling(counts, cycle.pod)
        required = self._required_of(counts, cycle)
        if not unwilling and required.near is None and not required.far:
            return PreFiltered(SKIP)
        near: tuple[KeySums, ...] = ()
        if required.near is not None:
            near = tuple(
                KeySums(each.topology_key, (counts.by_domain(required.near, each),))
                for each in required.near_partitions
            )
        far = [(each.topology_key, counts.by_domain(selected, each)) for selected, each in required.far]
        return PreFiltered(state=Neighbours(required, near, _by_key(far), unwilling))

    def add_pod(self, cycle: PlacementCycle, state: Neighbours, added: PodInfo, node: NodeInfo) -> Neighbours:
        """The neighbours with a pod on the node."""
        return state.with_pods(cycle, added, node, 1)

    def remove_pod(self, cycle: PlacementCycle, state: Neighbours, removed: PodInfo, node: NodeInfo) -> Neighbours:
        """The neighbours without a pod of the node."""
        return state.with_pods(cycle, removed, node, -1)

    def is_eased(self, cycle: PlacementCycle) -> bool:
        """Unless the pod has to be near others."""
        state: Neighbours | None = cycle.filter_states.get(NAME)
        return state is not None and not state.near

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the pod is near those it has to be near to, away from the others, and they from it."""
        state: Neighbours = cycle.filter_states[NAME]
        labels = node.node.metadata.labels
        if not all(each.topology_key in labels for each in state.near):
            return _NOT_NEAR
        if not all(each.count(labels[each.topology_key]) > 0 for each in state.near) and not state.is_first():
            return _NOT_NEAR
        if _is_any_there(state.far, labels):
            return _TOO_NEAR
        return _UNWANTED if _is_any_there(state.unwilling, labels) else SUCCESS

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """`filter` of many nodes."""
        state: Neighbours = cycle.filter_states[NAME]
        ids = np.zeros(len(rows), dtype=np.int64)
        # The first rule that is broken gives the answer, so it is written last.
        for found, status in ((state.unwilling, _UNWANTED), (state.far, _TOO_NEAR)):
            for key, sums in found.items():
                ids[sums.counts(columns)[columns.label(key)[rows]] > 0] = cycle.statuses.id_of(status)
        if state.near:
            ids[_not_near(state, columns, rows)] = cycle.statuses.id_of(_NOT_NEAR)
        return ids

    # --- score -----------------------------------------------------------------------------------------------------

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:  # noqa: ARG002 - of all nodes
        """Skip if neither the pod prefers anything nor any other pod prefers or requires to be near it."""
        arguments = self._arguments
        scores = prepare_scores(
            cycle, arguments.hard_pod_affinity_weight, arguments.ignore_preferred_terms_of_existing_pods
        )
        return PreScored(SKIP) if scores is None else PreScored(state=scores)

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """The sum of the weights of all terms that the node meets."""
        scores: AffinityScores = cycle.score_states[NAME]
        return scores.score(node)

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """`score` of many nodes."""
        scores: AffinityScores = cycle.score_states[NAME]
        return scores.score_columns(columns, rows)

    def normalize(self, cycle: PlacementCycle, rows: Rows, scores: Ints) -> Ints:  # noqa: ARG002 - of the scores alone
        """The lowest score becomes 0, the highest 100; all 0 if they are equal."""
        lowest = int(scores.min())
        spread = int(scores.max()) - lowest
        if not spread:
            return np.zeros(len(scores), dtype=np.int64)
        return (SCORE_MAX * ((scores - lowest) / spread)).astype(np.int64)

    def _required_of(self, counts: PodCounts, cycle: PlacementCycle) -> Required:
        shape, version = cycle.pod.shape, cycle.cluster.version(Namespace)
        known = self._required.get(shape)
        if known is None or (known[0] != version and known[1].reads_namespaces):
            if len(self._required) >= SHAPES_MAX:
                self._required.clear()
            required = _required(counts.terms_of(shape), cycle)
            known = self._required[shape] = (version, required)
        return known[1]


def _required(terms: PodTerms, cycle: PlacementCycle) -> Required:
    pod, namespaces = cycle.pod, cycle.cluster.objects(Namespace)
    near = selection_of_all(terms.affinity, namespaces) if terms.affinity else None
    partitions = {term.topology_key: term.partition for term in terms.affinity}
    return Required(
        near=near,
        near_partitions=tuple(partitions.values()),
        matches_self=near is not None and near.selects(pod.namespace, pod.labels),
        far=tuple((selection_of(term, namespaces), term.partition) for term in terms.anti_affinity),
        reads_namespaces=any(term.namespace_selector for term in (*terms.affinity, *terms.anti_affinity)),
    )


def _unwilling(counts: PodCounts, pod: PodInfo) -> Mapping[str, KeySums]:
    """The pods whose anti-affinity means an incoming one."""
    found = []
    for carried in counts.terms_meaning(pod).anti_affinity:
        sums = counts.sums_of(carried, carried.term.partition)
        if sums.total:
            found.append((carried.term.topology_key, sums))
    return _by_key(found)


def _by_key(found: Iterable[tuple[str, DomainSums]]) -> Mapping[str, KeySums]:
    by_key: dict[str, KeySums] = {}
    for key, sums in found:
        by_key[key] = KeySums(key, (*by_key[key].sums, sums) if key in by_key else (sums,))
    return by_key


def _is_any_there(found: Mapping[str, KeySums], labels: Mapping[str, str]) -> bool:
    return any(key in labels and sums.count(labels[key]) > 0 for key, sums in found.items())


def _not_near(state: Neighbours, columns: Columns, rows: Rows) -> Bools:
    """Which nodes the affinity of the pod refuses."""
    refused = np.zeros(len(rows), dtype=np.bool_)
    is_first = state.is_first()
    for each in state.near:
        domains = columns.label(each.topology_key)[rows]
        refused |= domains == 0
        if not is_first:
            refused |= each.counts(columns)[domains] <= 0
    return refused


def _namespace_labels(cycle: PlacementCycle) -> Mapping[str, str]:
    namespace = cycle.cluster.objects(Namespace).get(cycle.pod.namespace)
    return namespace.metadata.labels if namespace is not None else NO_LABELS


def _check(arguments: InterPodAffinityArgs, path: str) -> None:
    """Raise ConfigurationError for arguments that upstream refuses (`ValidateInterPodAffinityArgs`)."""
    weight = arguments.hard_pod_affinity_weight
    if not 0 <= weight <= 100:
        raise ConfigurationError(f"{path}.hardPodAffinityWeight", f"{weight} cannot be", "write a number from 0 to 100")


FACTORY: Final = PluginFactory(NAME, InterPodAffinity, arguments=InterPodAffinityArgs, check=_check)
