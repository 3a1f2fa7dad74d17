"""
The pods of each node in the order of their importance, as arrays: what preemption on many nodes at once reads.

A row has the pods of a node from the most important to the least, so those of lower priority than a pod are its end.
Rows are brought up to date when they are read next, each in the time of the pods on it. For thresholds of priority that
are in use it also keeps how much would be free without the pods below.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster, RowJournal, distinct
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_budgets import UNPROTECTED, Budgets
from headgate.core.placement.preemption_dry_run import NOT_STARTED, importance
from headgate.core.placement.requests import PODS

THRESHOLDS_MAX: Final = 32
"""Priorities that sums are kept for; that which was used least recently goes first."""

NO_PRIORITY: Final = 2**62
"""In place of a pod, where a node has no more of them: below no threshold."""

_WIDTH_FIRST: Final = 16


class Below:
    """Per row the pods below a threshold: how many, and what they request in all."""

    __slots__ = ("position", "sums")

    def __init__(self) -> None:
        self.position = -1
        self.sums: dict[str, Ints] = {}


class PodsByImportance:
    """The arrays: an index, `cluster.index(PodsByImportance)`."""

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self._stale: dict[int, None] = {}
        self._journal = RowJournal()
        self._pods: list[list[PodInfo]] = []
        self._requests: dict[str, NDArray[np.int64]] = {}
        self._below: dict[int, Below] = {}
        self.priorities: NDArray[np.int64] = np.full((0, _WIDTH_FIRST), NO_PRIORITY, dtype=np.int64)
        """By row and place: the priority of a pod, NO_PRIORITY where there is none."""
        self.started: NDArray[np.int64] = np.zeros((0, _WIDTH_FIRST), dtype=np.int64)
        """By row and place: when the pod started."""
        self._groups: NDArray[np.int64] = np.zeros((0, _WIDTH_FIRST), dtype=np.int64)
        self._grouped: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Per row the version of the budgets by which its groups are, 0 for none."""

    # --- what preemption reads -------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the rows up to date. To be called before anything else is read."""
        if not self._stale:
            return
        infos = self._cluster.columns.infos
        rows = list(self._stale)
        self._stale.clear()
        pods_of: dict[int, list[PodInfo]] = {}
        for row in rows:
            info = infos[row] if row < len(infos) else None
            pods_of[row] = sorted(info.pods.values(), key=importance) if info is not None else []
        self._grow(self._cluster.columns.size, max(map(len, pods_of.values())))
        for row, pods in pods_of.items():
            self._pods[row] = pods
            self._write(row, pods)
            self._journal.add(row)

    def pods(self, row: int) -> list[PodInfo]:
        """The pods of a row."""
        return self._pods[row]

    def requests(self, resource: str) -> NDArray[np.int64]:
        """By row and place: what the pod requests. Of `pods`, 1 each."""
        known = self._requests.get(resource)
        if known is None:
            known = self._requests[resource] = np.zeros_like(self.priorities)
            for row, pods in enumerate(self._pods):
                known[row, : len(pods)] = [_request(pod, resource) for pod in pods]
        return known

    def groups(self, rows: Rows, width: int) -> NDArray[np.int64]:
        """By some rows and places: the groups of `Budgets`."""
        budgets = self._cluster.index(Budgets)
        for row in rows[self._grouped[rows] != budgets.version].tolist():
            pods = self._pods[row]
            self._groups[row, : len(pods)] = [budgets.group_of(pod.shape) for pod in pods]
            self._grouped[row] = budgets.version
        return self._groups[rows, :width]

    def below(self, priority: int, resource: str) -> Ints:
        """Per row: what the pods below a priority request in all. Of `pods`, how many they are."""
        kept = self._below.pop(priority, None)
        if kept is None:
            if len(self._below) >= THRESHOLDS_MAX:
                del self._below[next(iter(self._below))]
            kept = Below()
        self._below[priority] = kept
        self._sum_up(kept, priority)
        known = kept.sums.get(resource)
        if known is None:
            every = np.arange(len(self.priorities))
            known = kept.sums[resource] = self._sum(every, priority, resource)
        return known

    # --- what the cluster tells ------------------------------------------------------------------------------------

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:  # noqa: ARG002 - any pod
        """A row has changed."""
        self._stale[node.row] = None

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:  # noqa: ARG002 - any pod
        """A row has changed."""
        self._stale[node.row] = None

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """A row is new."""
        if old is None:
            self._stale[node.row] = None

    def node_removed(self, node: NodeInfo) -> None:
        """A row is free."""
        self._stale[node.row] = None

    def object_put(self, kind: type, key: str) -> None:
        """Without effect."""

    # --- arrays ----------------------------------------------------------------------------------------------------

    def _write(self, row: int, pods: list[PodInfo]) -> None:
        end = len(pods)
        self.priorities[row] = NO_PRIORITY
        self.priorities[row, :end] = [pod.priority for pod in pods]
        self._grouped[row] = 0
        self._groups[row] = UNPROTECTED
        self.started[row, :end] = [NOT_STARTED if pod.started_ms is None else pod.started_ms for pod in pods]
        for resource, requests in self._requests.items():
            requests[row] = 0
            requests[row, :end] = [_request(pod, resource) for pod in pods]

    def _grow(self, size: int, width: int) -> None:
        rows, places = self.priorities.shape
        if size > rows or width > places:
            shape = (max(rows * 2, size) if size > rows else rows, max(places * 2, width) if width > places else places)
            self.priorities = _grown(self.priorities, shape, NO_PRIORITY)
            self.started = _grown(self.started, shape, 0)
            self._groups = _grown(self._groups, shape, UNPROTECTED)
            self._grouped = np.concatenate((self._grouped, np.zeros(shape[0] - rows, dtype=np.int64)))
            self._requests = {name: _grown(array, shape, 0) for name, array in self._requests.items()}
            if shape[0] > rows:
                self._below.clear()
        self._pods.extend([] for _ in range(len(self.priorities) - len(self._pods)))

    def _sum_up(self, kept: Below, priority: int) -> None:
        """Bring kept sums up to date."""
        if kept.sums and kept.position != self._journal.end:
            touched = self._journal.since(kept.position)
            if touched is None:
                kept.sums.clear()
            else:
                rows = distinct(touched)
                for resource, sums in kept.sums.items():
                    sums[rows] = self._sum(rows, priority, resource)
        kept.position = self._journal.end

    def _sum(self, rows: Rows, priority: int, resource: str) -> Ints:
        is_below = self.priorities[rows] < priority
        summed: Ints = (is_below if resource == PODS else self.requests(resource)[rows] * is_below).sum(axis=1)
        return summed


def _request(pod: PodInfo, resource: str) -> int:
    return 1 if resource == PODS else pod.requests.requests.get(resource, 0)


def _grown(array: NDArray[np.int64], shape: tuple[int, int], filling: int) -> NDArray[Any]:
    grown = np.full(shape, filling, dtype=np.int64)
    grown[: array.shape[0], : array.shape[1]] = array
    return grown
