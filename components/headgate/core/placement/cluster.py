"""
The cluster as placement sees it: nodes with their pods, nominated pods, and the other objects that plugins read.

The owner of the state tells it every change (`set_node`, `set_pod`, `put`, …); it keeps the columns, and what was
derived of it, current, each change in the time of what it touches. Plugins read it. Nothing here depends on the order
in which equal states were reached, except rows.

A row that changes is written into a journal, so that kept answers look again at that row alone (`RowJournal`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from headgate.core.placement.arrays import Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.groups import PodGroups
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo, Shapes
from headgate.core.state.error_text import describe

JOURNAL_LEN_MAX: Final = 65_536
"""Entries of a journal. Who has not looked for longer looks at all rows."""

NO_NOMINATIONS: Final[Mapping[str, PodInfo]] = {}


class RowJournal:
    """Which rows have changed, in order. Positions count from the first change on."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._dropped = 0

    @property
    def end(self) -> int:
        """The position behind the last change."""
        return self._dropped + len(self._rows)

    def add(self, row: int) -> None:
        """A row has changed."""
        if len(self._rows) >= JOURNAL_LEN_MAX:
            self._dropped += len(self._rows)
            self._rows.clear()
        self._rows.append(row)

    def since(self, position: int) -> list[int] | None:
        """The rows that have changed from a position on, repetitions included; None when it is too long ago."""
        return self._rows[position - self._dropped :] if position >= self._dropped else None


class ClusterIndex(Protocol):
    """Something counted over all pods and nodes, kept current by the cluster (`PlacementCluster.index`)."""

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """A pod is on a node (which has it already)."""
        ...

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """A pod is no longer on a node (which lacks it already)."""
        ...

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """A node exists (`old` is None; pods that are on it already have not been announced), or has changed."""
        ...

    def node_removed(self, node: NodeInfo) -> None:
        """A node is gone, and with it the pods on it, which are not announced one by one."""
        ...

    def object_put(self, kind: type, key: str) -> None:
        """An object of another kind (`PlacementCluster.objects`) is new, has changed or is gone."""
        ...


IndexT = TypeVar("IndexT", bound=ClusterIndex)
ObjectT = TypeVar("ObjectT")


class PlacementCluster:
    """The state. `pods` are all that are not over, by key, those without a node included."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        self.columns = Columns()
        self.pods: dict[str, PodInfo] = {}
        self.groups = PodGroups()
        self.node_journal = RowJournal()
        """Rows whose Node object has changed."""
        self.pod_journal = RowJournal()
        """Rows whose pods have changed."""
        self._ghosts: dict[str, dict[str, PodInfo]] = {}
        self._objects: dict[type, dict[str, Any]] = {}
        self._versions: dict[type, int] = {}
        self._nominated_to: dict[str, dict[str, PodInfo]] = {}
        self._nominations: dict[str, str] = {}
        self.nominations_version = 0
        """Changes with every nomination."""
        self._indexes: dict[type, ClusterIndex] = {}
        self._built_on: dict[type, list[type]] = {}
        self._making: list[type] = []
        self.index_failures: dict[str, str] = {}
        """By the name of an index the last error that it raised for a change, and was dropped for."""

    # --- what plugins read -----------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeInfo | None:
        """A node with its pods; None if it does not exist."""
        row = self.columns.rows.get(name)
        return self.columns.infos[row] if row is not None else None

    def name_of(self, row: int) -> str:
        """The name of the node of a row."""
        info = self.columns.infos[row]
        assert info is not None, f"row {row} is free"
        return info.name

    def info_of(self, row: int) -> NodeInfo:
        """The node of a row."""
        info = self.columns.infos[row]
        assert info is not None, f"row {row} is free"
        return info

    def objects(self, kind: type[ObjectT]) -> Mapping[str, ObjectT]:
        """All objects of a kind of `placement.objects`, by `namespace/name` or name, in order of arrival."""
        return self._objects.get(kind, {})

    def version(self, kind: type) -> int:
        """A number that changes whenever an object of the kind does."""
        return self._versions.get(kind, 0)

    def nominated_to(self, node: str) -> Mapping[str, PodInfo]:
        """The pods that are nominated to a node, by key."""
        return self._nominated_to.get(node, NO_NOMINATIONS)

    def nominated_nodes(self) -> Iterator[str]:
        """The nodes that pods are nominated to."""
        return iter(self._nominated_to)

    def nomination_of(self, pod: str) -> str:
        """The node that a pod is nominated to; "" for none."""
        return self._nominations.get(pod, "")

    def index(self, kind: type[IndexT]) -> IndexT:
        """
        The index of a type, made by `kind(cluster)` at first and kept current from then on.

        One that raises an exception for a change is dropped, with those that asked for it while they were made. The
        next question makes them anew; what they raise then is the failure of who asks.
        """
        if self._making:
            self._built_on.setdefault(self._making[-1], []).append(kind)
        known = self._indexes.get(kind)
        if known is None:
            known = self._made(kind)
        assert isinstance(known, kind)
        return known

    def _made(self, kind: type[IndexT]) -> IndexT:
        self._built_on.pop(kind, None)
        self._making.append(kind)
        try:
            made = kind(self)  # type: ignore[call-arg]
            for info in self.columns.nodes():
                made.node_set(info, None)
        finally:
            self._making.pop()
        self._indexes[kind] = made
        return made

    # --- what the owner tells --------------------------------------------------------------------------------------

    def set_node(self, node: NodeObject) -> None:
        """A node exists or has changed."""
        info = self.node(node.name)
        if info is None:
            info = NodeInfo(node, 0)
            for pod in self._ghosts.pop(node.name, {}).values():
                info.add(pod)
            self.columns.add(info)
            self.pod_journal.add(info.row)
            old = None
        else:
            old = info.node
            info.set_node(node)
            self.columns.node_changed(info)
        self.node_journal.add(info.row)
        self._tell(lambda index: index.node_set(info, old))

    def remove_node(self, name: str) -> None:
        """A node is gone. Pods that are still on it count again if it comes back."""
        info = self.node(name)
        if info is None:
            return
        if info.pods:
            self._ghosts[name] = dict(info.pods)
        self.columns.remove(name)
        self.node_journal.add(info.row)
        self.pod_journal.add(info.row)
        self._tell(lambda index: index.node_removed(info))

    def set_pod(self, pod: PodInfo) -> None:
        """A pod exists or has changed: it takes up what it requests on its node, unless it is over."""
        old = self._take_off(pod.key)
        if pod.is_over:
            self.nominate(pod.key, "")
            return
        self.pods[pod.key] = pod
        self.groups.add(pod)
        if pod.node_name:
            self.nominate(pod.key, "")
            self._put_on(pod)
            return
        nominated = pod.nominated_node_name
        if not nominated and (old is None or not old.nominated_node_name):
            # A change of something else, while a nomination is decided and not yet written: it stands.
            nominated = self._nominations.get(pod.key, "")
        self.nominate(pod.key, nominated)

    def remove_pod(self, key: str) -> None:
        """A pod is gone."""
        self.nominate(key, "")
        self._take_off(key)

    def nominate(self, key: str, node: str) -> None:
        """A pod is nominated to a node, or ("") to none."""
        before = self._nominations.pop(key, "")
        if before or node:
            self.nominations_version += 1
        if before:
            del self._nominated_to[before][key]
            if not self._nominated_to[before]:
                del self._nominated_to[before]
        if node and key in self.pods:
            self._nominations[key] = node
            self._nominated_to.setdefault(node, {})[key] = self.pods[key]

    def put(self, kind: type[ObjectT], key: str, value: ObjectT | None) -> None:
        """An object of another kind is new, has changed or (None) is gone."""
        objects = self._objects.setdefault(kind, {})
        if value is None:
            objects.pop(key, None)
        else:
            objects[key] = value
        self._versions[kind] = self._versions.get(kind, 0) + 1
        self._tell(lambda index: index.object_put(kind, key))

    # --- pods on nodes ---------------------------------------------------------------------------------------------

    def _put_on(self, pod: PodInfo) -> None:
        info = self.node(pod.node_name)
        if info is None:
            self._ghosts.setdefault(pod.node_name, {})[pod.key] = pod
            return
        info.add(pod)
        self._touched(info)
        self._tell(lambda index: index.pod_added(pod, info))

    def _take_off(self, key: str) -> PodInfo | None:
        pod = self.pods.pop(key, None)
        if pod is None:
            return None
        self.groups.remove(pod)
        if not pod.node_name:
            return pod
        info = self.node(pod.node_name)
        if info is None:
            ghosts = self._ghosts[pod.node_name]
            del ghosts[key]
            if not ghosts:
                del self._ghosts[pod.node_name]
            return pod
        info.remove(pod)
        self._touched(info)
        self._tell(lambda index: index.pod_removed(pod, info))
        return pod

    def _tell(self, change: Callable[[ClusterIndex], None]) -> None:
        """Tell all indexes a change, which has happened, whatever they make of it."""
        broken: list[type] = []
        for kind, index in list(self._indexes.items()):
            try:
                change(index)
            except MemoryError:
                raise
            except Exception as failure:  # noqa: BLE001 - an index may be of another package
                self.index_failures[kind.__name__] = describe(failure)
                broken.append(kind)
        while broken:
            gone = broken.pop()
            self._indexes.pop(gone, None)
            broken.extend(kind for kind in self._indexes if gone in self._built_on.get(kind, ()))

    def _touched(self, info: NodeInfo) -> None:
        self.columns.pods_changed(info)
        self.pod_journal.add(info.row)


def distinct(rows: list[int]) -> Rows:
    """Rows without repetitions, ascending."""
    return np.unique(np.array(rows, dtype=np.intp))
