"""One scheduling attempt as plugins see it: the pod, the cluster, and what plugins have prepared for it."""

from collections.abc import Sequence
from typing import Any, Protocol

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.extenders.calls import ExtenderCalls
from headgate.core.placement.framework.status import PluginStatus, StatusTable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import PodInfo


class FilterRuntime(Protocol):
    """
    What the runtime of a profile is to plugins that run the filters of others on hypotheses.

    It is the class `Framework` of the module `runtime`, which knows the plugins and so cannot be imported here.
    """

    cluster: PlacementCluster
    statuses: StatusTable

    @property
    def filters(self) -> Sequence[Any]:
        """The filters in their order, each a `FilterStep`."""
        ...

    def filter_with_nominated(self, cycle: "PlacementCycle", node: NodeInfo) -> PluginStatus:
        """Run the filters for one node, which may be hypothetical, with the pods nominated to it and without."""
        ...

    def add_pod(self, cycle: "PlacementCycle", pod: PodInfo, node: NodeInfo) -> None:
        """The states of the pre-filters as if a pod were on a node, which already has it."""
        ...

    def remove_pod(self, cycle: "PlacementCycle", pod: PodInfo, node: NodeInfo) -> None:
        """The states of the pre-filters as if a pod were not on a node, which already lacks it."""
        ...


class PlacementCycle:
    """
    The state of an attempt (CycleState).

    `filter_states` and `score_states` have what the pre-filters and pre-scores have answered, by plugin; a plugin
    that said Skip is in `skipped_filters` (`skipped_scores`) instead, as a key. `extenders` are those of the
    configuration, with the answers that they have given for this pod.
    """

    __slots__ = (
        "cluster",
        "extenders",
        "filter_states",
        "framework",
        "pod",
        "score_states",
        "skipped_filters",
        "skipped_scores",
        "statuses",
    )

    def __init__(self, framework: FilterRuntime, pod: PodInfo, extenders: ExtenderCalls) -> None:
        self.framework = framework
        """The runtime of the profile, for plugins that run others' filters on hypotheses."""
        self.cluster: PlacementCluster = framework.cluster
        self.pod = pod
        self.extenders = extenders
        self.statuses: StatusTable = framework.statuses
        self.filter_states: dict[str, Any] = {}
        self.skipped_filters: dict[str, None] = {}
        self.score_states: dict[str, Any] = {}
        self.skipped_scores: dict[str, None] = {}

    def clone(self) -> "PlacementCycle":
        """The cycle for a hypothesis: pre-filter states of the copy can be replaced, and the states are values."""
        copy = PlacementCycle(self.framework, self.pod, self.extenders)
        copy.filter_states = dict(self.filter_states)
        copy.skipped_filters = self.skipped_filters
        copy.score_states = self.score_states
        copy.skipped_scores = self.skipped_scores
        return copy
