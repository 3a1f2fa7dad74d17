"""
PodTopologySpread: pods that belong together are spread over topology domains.

Source: pkg/scheduler/framework/plugins/podtopologyspread. Counts come from the index `PodCounts`; scores are in
`pod_topology_spread_scoring`, hints in `pod_topology_spread_hints`.
"""

from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np

from headgate.core.config.fields import ConfigurationError
from headgate.core.kubernetes.label_syntax import why_no_label_key
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.counts.domains import OUTSIDE
from headgate.core.placement.counts.index import PodCounts
from headgate.core.placement.counts.sums import DomainSums
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource
from headgate.core.placement.framework.plugin import Arguments, PluginFactory, PreFiltered, PreScored, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, error, unresolvable, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.pods import TopologySpreadConstraint
from headgate.core.placement.plugins.pod_topology_spread_constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    Constraint,
    ConstraintsReader,
)
from headgate.core.placement.plugins.pod_topology_spread_hints import after_node_change, after_pod_change
from headgate.core.placement.plugins.pod_topology_spread_scoring import SpreadScores, prepare_scores
from headgate.core.placement.pods import PodInfo

NAME: Final = "PodTopologySpread"

_SKEWED: Final = unschedulable("node(s) didn't match pod topology spread constraints")
_WITHOUT_LABEL: Final = unresolvable("node(s) didn't match pod topology spread constraints (missing required label)")

COUNT_MAX: Final = 2**31 - 1
"""The lowest count while nothing was counted."""

Deltas = Mapping[str, int]
"""Hypothetical pods more (or fewer) by topology value."""

_NO_DELTAS: Final[Deltas] = {}


class Spread(msgspec.Struct, frozen=True, eq=False):
    """One hard constraint of the pod, and how pods are spread."""

    constraint: Constraint
    sums: DomainSums
    deltas: Deltas = _NO_DELTAS

    def minimum(self) -> int:
        """The lowest count of a domain, and 0 while there are fewer domains than there should be."""
        existing = self.sums.domains.existing
        if not self.deltas:
            return self.sums.minimum() if len(existing) >= self.constraint.min_domains else 0
        counts = self.counts()[existing]
        # A hypothetical node may make a domain that the cluster does not have.
        added = [delta for value, delta in self.deltas.items() if not self._exists(value)]
        if len(counts) + len(added) < self.constraint.min_domains:
            return 0
        return min(*added, int(counts.min(initial=COUNT_MAX)), COUNT_MAX)

    def count(self, value: str) -> int:
        """How many pods there are in the domain of a topology value."""
        domain = self.sums.domains.domain_of(value)
        return (int(self.sums.by_domain()[domain]) if domain != OUTSIDE else 0) + self.deltas.get(value, 0)

    def counts(self) -> Ints:
        """The same by domain."""
        counts = self.sums.by_domain()
        if self.deltas:
            counts = counts.copy()
            for value, delta in self.deltas.items():
                domain = self.sums.domains.domain_of(value)
                if domain != OUTSIDE:
                    counts[domain] += delta
        return counts

    def with_pods(self, value: str, delta: int) -> "Spread":
        """With so many pods more in the domain of a topology value."""
        deltas = dict(self.deltas)
        deltas[value] = deltas.get(value, 0) + delta
        if not deltas[value]:
            del deltas[value]
        return msgspec.structs.replace(self, deltas=deltas)

    def _exists(self, value: str) -> bool:
        domains = self.sums.domains
        return domains.exists(domains.domain_of(value))


class PodTopologySpreadArgs(Arguments, frozen=True):
    """`PodTopologySpreadArgs`: the constraints of pods that have none; `System` stands for those built in."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


State = tuple[Spread, ...]


class PodTopologySpread:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER
    score_reads = Reads.CLUSTER

    def __init__(self, arguments: PodTopologySpreadArgs) -> None:
        is_system = arguments.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if is_system else arguments.default_constraints
        self._reader = ConstraintsReader(defaults, are_of_system=is_system)

    def events(self) -> tuple[EventHint, ...]:
        """Pods that come, go or get other labels, and nodes that change domains."""
        pods, number = partial(after_pod_change, self._reader), attrgetter("number")
        updates = ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION
        nodes = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT
        return (
            EventHint(EventResource.POD, ActionType.ADD | ActionType.DELETE, pods, key=number),
            # The labels and tolerations may be those of the pod itself.
            EventHint(EventResource.POD, updates, pods),
            EventHint(EventResource.NODE, nodes, partial(after_node_change, self._reader), key=number),
        )

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip without hard constraints."""
        read = self._reader.of(cycle.pod, cycle.cluster)
        if read.hard_error:
            return PreFiltered(error(f"get constraints from pod: {read.hard_error}"))
        constraints = read.hard
        if not constraints:
            return PreFiltered(SKIP)
        counts = cycle.cluster.index(PodCounts)
        state = tuple(Spread(each, counts.by_domain(each.counted, each.partition)) for each in constraints)
        return PreFiltered(state=state)

    def add_pod(self, cycle: PlacementCycle, state: State, added: PodInfo, node: NodeInfo) -> State:
        """The spread with a pod on the node."""
        return _with_pods(cycle, state, added, node, 1)

    def remove_pod(self, cycle: PlacementCycle, state: State, removed: PodInfo, node: NodeInfo) -> State:
        """The spread without a pod of the node."""
        return _with_pods(cycle, state, removed, node, -1)

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """A domain with fewer pods is no further above the least one."""
        return True

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether no constraint would be skewed too much, with the pod on the node."""
        state: State = cycle.filter_states[NAME]
        for spread in state:
            constraint = spread.constraint
            value = node.node.metadata.labels.get(constraint.topology_key)
            if value is None:
                return _WITHOUT_LABEL
            skew = spread.count(value) + constraint.matches_self - spread.minimum()
            if skew > constraint.max_skew:
                return _SKEWED
        return SUCCESS

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """`filter` of many nodes."""
        state: State = cycle.filter_states[NAME]
        ids = np.zeros(len(rows), dtype=np.int64)
        skewed, without_label = cycle.statuses.id_of(_SKEWED), cycle.statuses.id_of(_WITHOUT_LABEL)
        for spread in reversed(state):
            # The first constraint that is not met gives the answer, so it is written last.
            constraint = spread.constraint
            domains = columns.label(constraint.topology_key)[rows]
            count_max = constraint.max_skew + spread.minimum() - constraint.matches_self
            ids[spread.counts()[domains] > count_max] = skewed
            ids[domains == 0] = without_label
        return ids

    # --- score -----------------------------------------------------------------------------------------------------

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:
        """Skip without soft constraints."""
        constraints = self._reader.of(cycle.pod, cycle.cluster)
        if constraints.soft_error:
            where = "calculating preScoreState: obtaining pod's soft topology spread constraints"
            return PreScored(error(f"{where}: {constraints.soft_error}"))
        return PreScored(state=prepare_scores(cycle, constraints, rows)) if constraints.soft else PreScored(SKIP)

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """The lower, the fewer pods there are in the node's domains."""
        scores: SpreadScores = cycle.score_states[NAME]
        return scores.score(node)

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """`score` of many nodes."""
        scores: SpreadScores = cycle.score_states[NAME]
        return scores.score_columns(columns, rows)

    def normalize(self, cycle: PlacementCycle, rows: Rows, scores: Ints) -> Ints:
        """The node with the fewest pods gets most; nodes without all topology keys get nothing."""
        prepared: SpreadScores = cycle.score_states[NAME]
        return prepared.normalize(cycle.cluster.columns, rows, scores)


def _with_pods(cycle: PlacementCycle, state: State, pod: PodInfo, node: NodeInfo, delta: int) -> State:
    """
    The spread with a pod more or less on a node.

    As upstream, and unlike the counts of the cluster, a terminating pod counts here, and every pod if the selector
    requires nothing.
    """
    if pod.namespace != cycle.pod.namespace:
        return state
    labels = node.node.metadata.labels
    return tuple(
        spread.with_pods(labels[spread.constraint.topology_key], delta)
        if spread.constraint.selects(pod.labels) and spread.constraint.partition.admits(node.node)
        else spread
        for spread in state
    )


def _check(arguments: PodTopologySpreadArgs, path: str) -> None:
    """Raise ConfigurationError for arguments that upstream refuses (`ValidatePodTopologySpreadArgs`)."""
    kind, constraints = arguments.defaulting_type, arguments.default_constraints
    if kind not in ("System", "List"):
        raise ConfigurationError(f"{path}.defaultingType", f"{kind!r} is not supported", "write System or List")
    if kind == "System" and constraints:
        raise ConfigurationError(
            f"{path}.defaultingType", "System has constraints of its own", "write List, or no defaultConstraints"
        )
    seen: list[tuple[str, str]] = []
    for index, constraint in enumerate(constraints):
        at = f"{path}.defaultConstraints[{index}]"
        _check_constraint(constraint, at)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            raise ConfigurationError(at, f"a constraint before has {', '.join(pair)} too", "write each pair once")
        seen.append(pair)


def _check_constraint(constraint: TopologySpreadConstraint, path: str) -> None:
    if constraint.max_skew <= 0:
        raise ConfigurationError(f"{path}.maxSkew", f"{constraint.max_skew} cannot be", "write a number above 0")
    if why := why_no_label_key(constraint.topology_key):
        raise ConfigurationError(f"{path}.topologyKey", why, "write the key of a node label")
    if constraint.when_unsatisfiable not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
        raise ConfigurationError(
            f"{path}.whenUnsatisfiable",
            f"{constraint.when_unsatisfiable!r} is not supported",
            f"write {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}",
        )
    if constraint.label_selector is not None:
        raise ConfigurationError(
            f"{path}.labelSelector", "the selector is deduced for each pod", "remove the labelSelector"
        )


FACTORY: Final = PluginFactory(NAME, PodTopologySpread, arguments=PodTopologySpreadArgs, check=_check)
