"""One scheduling attempt as plugins see it: the pod, the cluster, and what plugins have prepared for it."""

from typing import TYPE_CHECKING, Any

from headgate.core.placement.framework.status import StatusTable

if TYPE_CHECKING:
    from headgate.core.placement.cluster import Cluster
    from headgate.core.placement.framework.runtime import Framework
    from headgate.core.placement.pods import Pod


class Cycle:
    """
    The state of an attempt (CycleState).

    `filter_states` and `score_states` have what the pre-filters and pre-scores have answered, by plugin; a plugin
    that said Skip is in `skipped_filters` (`skipped_scores`) instead, as a key.
    """

    __slots__ = (
        "cluster",
        "filter_states",
        "framework",
        "pod",
        "score_states",
        "skipped_filters",
        "skipped_scores",
        "statuses",
    )

    def __init__(self, framework: "Framework", pod: "Pod") -> None:
        self.framework = framework
        """The runtime of the profile, for plugins that run others' filters on hypotheses."""
        self.cluster: Cluster = framework.cluster
        self.pod = pod
        self.statuses: StatusTable = framework.statuses
        self.filter_states: dict[str, Any] = {}
        self.skipped_filters: dict[str, None] = {}
        self.score_states: dict[str, Any] = {}
        self.skipped_scores: dict[str, None] = {}

    def clone(self) -> "Cycle":
        """The cycle for a hypothesis: pre-filter states of the copy can be replaced, and the states are values."""
        copy = Cycle(self.framework, self.pod)
        copy.filter_states = dict(self.filter_states)
        copy.skipped_filters = self.skipped_filters
        copy.score_states = self.score_states
        copy.skipped_scores = self.skipped_scores
        return copy
