"""
Which pods a PodDisruptionBudget protects, and which of some victims it does not allow to go.

Source: filterPodsWithPDBViolation of the kube-scheduler.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.placement.arrays import Ints
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.owners import PodDisruptionBudget
from headgate.core.placement.pods import PodInfo, PodShape
from headgate.events.objects import LabelSelector

SHAPES_MAX: Final = 50_000
"""Shapes whose budgets are remembered; beyond it they are looked up again."""

UNPROTECTED: Final = 0
"""The group of pods without a budget."""


class Budgets:
    """
    The budgets, and the pods in groups that the same budgets protect: an index, `cluster.index(Budgets)`.

    Budgets and groups are numbers: their places in `all` and `groups`.
    """

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self.all: list[PodDisruptionBudget] = []
        """The budgets that select any pod."""
        self.groups: list[tuple[int, ...]] = [()]
        """The budgets of each group."""
        self.version = 1
        """Rises whenever groups mean something else; not with what budgets allow."""
        self._of_shape: dict[int, int] = {}
        self._group_of: dict[tuple[int, ...], int] = {(): UNPROTECTED}
        self._selecting: tuple[object, ...] = ()
        self._read()

    def group_of(self, shape: PodShape) -> int:
        """The group of the pods of a shape."""
        known = self._of_shape.get(shape.number)
        if known is None:
            if len(self._of_shape) >= SHAPES_MAX:
                self._of_shape.clear()
            budgets = tuple(number for number, budget in enumerate(self.all) if _selects(budget, shape))
            known = self._of_shape[shape.number] = self._group_of.setdefault(budgets, len(self.groups))
            if known == len(self.groups):
                self.groups.append(budgets)
        return known

    def violating(self, pods: Sequence[PodInfo]) -> list[bool]:
        """Of each of some pods that would go, in this order, whether a budget does not allow it any more."""
        left: dict[int, int] = {}
        violating = []
        for pod in pods:
            is_violating = False
            for number in self.groups[self.group_of(pod.shape)]:
                if not self.is_counted(number, pod):
                    left[number] = left.get(number, self.allowed(number)) - 1
                    is_violating = is_violating or left[number] < 0
            violating.append(is_violating)
        return violating

    def allowed(self, number: int) -> int:
        """How many pods a budget allows to go."""
        return self.all[number].status.disruptions_allowed

    def is_counted(self, number: int, pod: PodInfo) -> bool:
        """Whether a budget counts a pod as gone already."""
        return pod.name in self.all[number].status.disrupted_pods

    def has_counted(self) -> bool:
        """Whether any budget counts any pod as gone already."""
        return any(budget.status.disrupted_pods for budget in self.all)

    def members(self) -> list[Ints]:
        """The first budget of each group, the second one, and so on; -1 where there is none."""
        most = max(map(len, self.groups))
        return [
            np.array([budgets[nth] if nth < len(budgets) else -1 for budgets in self.groups], dtype=np.int64)
            for nth in range(most)
        ]

    # --- what the cluster tells ------------------------------------------------------------------------------------

    def object_put(self, kind: type, key: str) -> None:  # noqa: ARG002 - all are read again
        """A budget has changed."""
        if kind is PodDisruptionBudget:
            self._read()

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """Without effect."""

    def node_removed(self, node: NodeInfo) -> None:
        """Without effect."""

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def _read(self) -> None:
        budgets = self._cluster.objects(PodDisruptionBudget).values()
        # A budget without a selector, or with an empty one, selects nothing here.
        self.all = [budget for budget in budgets if budget.spec.selector not in (None, LabelSelector())]
        selecting = tuple((budget.metadata.namespace, budget.spec.selector) for budget in self.all)
        if selecting != self._selecting:
            self._selecting = selecting
            self._of_shape.clear()
            self._group_of = {(): UNPROTECTED}
            self.groups = [()]
            self.version += 1


def _selects(budget: PodDisruptionBudget, shape: PodShape) -> bool:
    if not shape.labels or budget.metadata.namespace != shape.namespace:
        return False
    return matches_labels(budget.spec.selector, shape.labels)
