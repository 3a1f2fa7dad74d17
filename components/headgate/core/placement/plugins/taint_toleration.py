"""TaintToleration: nodes with taints are for pods that tolerate them; PreferNoSchedule only counts against a node."""

from typing import Final

import numpy as np

from headgate.core.kubernetes.selectors import tolerates, untolerated_taint
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, PreScored, Reads
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.normalizing import proportional
from headgate.core.placement.pods import PodInfo, PodShape
from headgate.events.objects import Taint, Toleration

NAME: Final = "TaintToleration"
_PREFERENCE: Final = "PreferNoSchedule"
_REJECTED: Final = unresolvable("node(s) had untolerated taint(s)")

Tolerations = tuple[Toleration, ...]


class TaintToleration:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE
    score_reads = Reads.NODE

    def filter_key(self, shape: PodShape) -> Tolerations:
        """What the pod tolerates."""
        return shape.spec.tolerations

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the pod tolerates all hard taints of the node."""
        return SUCCESS if _is_tolerated(node.node.spec.taints, cycle.pod.spec.tolerations) else _REJECTED

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes: each distinct list of taints once."""
        rejected, tolerations = cycle.statuses.id_of(_REJECTED), cycle.pod.spec.tolerations
        ids = [0 if _is_tolerated(taints, tolerations) else rejected for taints in columns.taint_lists]
        return np.array(ids, dtype=np.int64)[columns.taints[rows]]

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:  # noqa: ARG002 - of the pod alone
        """The tolerations of soft taints."""
        soft = [each for each in cycle.pod.spec.tolerations if each.effect in ("", _PREFERENCE)]
        return PreScored(state=tuple(soft))

    def score_key(self, shape: PodShape) -> Tolerations:
        """What the pod tolerates."""
        return shape.spec.tolerations

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """How many soft taints of the node the pod does not tolerate."""
        return _untolerated_count(node.node.spec.taints, cycle.score_states.get(NAME, ()))

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        soft = cycle.score_states.get(NAME, ())
        counts = [_untolerated_count(taints, soft) for taints in columns.taint_lists]
        return np.array(counts, dtype=np.int64)[columns.taints[rows]]

    def normalize(self, cycle: PlacementCycle, rows: Rows, scores: Ints) -> Ints:  # noqa: ARG002 - of the scores alone
        """Fewest is best."""
        return proportional(scores, reverse=True)

    def events(self) -> tuple[EventHint, ...]:
        """A node is added or its taints change, or the pod tolerates more."""
        return (
            EventHint(
                EventResource.NODE,
                ActionType.ADD | ActionType.UPDATE_NODE_TAINT,
                _after_node_change,
                key=self.filter_key,
            ),
            EventHint(EventResource.POD, ActionType.UPDATE_POD_TOLERATION, _after_toleration_change),
        )


def _is_tolerated(taints: tuple[Taint, ...], tolerations: Tolerations) -> bool:
    return untolerated_taint(taints, tolerations) is None


def _untolerated_count(taints: tuple[Taint, ...], tolerations: Tolerations) -> int:
    soft = (taint for taint in taints if taint.effect == _PREFERENCE)
    return sum(not any(tolerates(toleration, taint) for toleration in tolerations) for taint in soft)


def _after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    tolerations = pod.spec.tolerations
    was_closed = old is None or not _is_tolerated(old.spec.taints, tolerations)
    return Hint.QUEUE if was_closed and _is_tolerated(new.spec.taints, tolerations) else Hint.SKIP


def _after_toleration_change(pod: PodInfo, old: PodInfo | None, new: PodInfo, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if pod.uid == new.uid else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: TaintToleration())
