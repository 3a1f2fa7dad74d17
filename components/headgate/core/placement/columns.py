"""
The nodes as flat columns: one array per resource and property, one row per node.

Rows are places that nodes keep while they exist; a freed row is used again, and `alive` tells which ones have a node.
Columns of a resource or label exist from the first time that they are asked for, and are kept current from then on.
Text is interned: a label column has ids, 0 for absent, and `taints` has ids of distinct lists of taints, so that a
plugin evaluates each distinct list once. Arrays are as long as there are rows; they are read-only for plugins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.nodes import NodeInfo
from headgate.events.objects import Taint

Bools = NDArray[np.bool_]

_ROWS_FIRST: Final = 64


class NodeColumn:
    """One growing array and what fills it."""

    __slots__ = ("_array", "value_of")

    def __init__(self, value_of: Callable[[NodeInfo], int], kind: type[np.generic], capacity: int) -> None:
        self.value_of = value_of
        self._array: NDArray[Any] = np.zeros(capacity, dtype=kind)

    def set(self, row: int, value: int) -> None:
        """One row has another value."""
        if row >= len(self._array):
            self._array = np.concatenate((self._array, np.zeros_like(self._array)))
        self._array[row] = value

    def values(self, size: int) -> NDArray[Any]:
        """The array, for so many rows."""
        if size > len(self._array):
            more = np.zeros(max(size - len(self._array), len(self._array)), dtype=self._array.dtype)
            self._array = np.concatenate((self._array, more))
        return self._array[:size]


class Columns:
    """The columns. `rows` is the place of each node by name; `size` is how many rows there are, free ones included."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.size = 0
        self.infos: list[NodeInfo | None] = []
        """The nodes by row."""
        self._free: list[int] = []
        self._of_nodes: dict[str, NodeColumn] = {}
        self._of_pods: dict[str, NodeColumn] = {}
        self._label_values: dict[str, dict[str, int]] = {}
        self._taint_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self.taint_lists: list[tuple[Taint, ...]] = [()]
        """The distinct lists of taints, by the ids of the column `taints`."""
        self._alive = self._of_nodes["alive"] = NodeColumn(lambda _: 1, np.bool_, _ROWS_FIRST)
        self._unschedulable = self._node_column(
            "unschedulable", lambda info: int(info.node.spec.unschedulable), np.bool_
        )
        self._taints = self._node_column("taints", lambda info: self._taint_id(info.node.spec.taints))
        self._pod_count = self._pod_column("pods", lambda info: len(info.pods))

    # --- what plugins read -----------------------------------------------------------------------------------------

    @property
    def alive(self) -> Bools:
        """Which rows have a node."""
        return self._alive.values(self.size)

    @property
    def unschedulable(self) -> Bools:
        """`spec.unschedulable`."""
        return self._unschedulable.values(self.size)

    @property
    def taints(self) -> Ints:
        """Ids of lists of taints (`taint_lists`)."""
        return self._taints.values(self.size)

    @property
    def pod_count(self) -> Ints:
        """How many pods are on each node."""
        return self._pod_count.values(self.size)

    def allocatable(self, resource: str) -> Ints:
        """What each node has to give; 0 where it has none. Cpu in milli-units."""
        column = self._of_nodes.get(f"allocatable {resource}") or self._node_column(
            f"allocatable {resource}", lambda info: info.allocatable.get(resource, 0)
        )
        return column.values(self.size)

    def requested(self, resource: str) -> Ints:
        """What the pods of each node request."""
        column = self._of_pods.get(f"requested {resource}") or self._pod_column(
            f"requested {resource}", lambda info: info.requested.get(resource, 0)
        )
        return column.values(self.size)

    def nonzero_requested(self, resource: str) -> Ints:
        """The same of cpu and memory, with the defaults for pods that request none."""
        match resource:
            case "cpu":
                column = self._of_pods.get("nonzero cpu") or self._pod_column(
                    "nonzero cpu", lambda info: info.nonzero_cpu_milli
                )
            case "memory":
                column = self._of_pods.get("nonzero memory") or self._pod_column(
                    "nonzero memory", lambda info: info.nonzero_memory_bytes
                )
            case _:
                return self.requested(resource)
        return column.values(self.size)

    def label(self, key: str) -> Ints:
        """Ids of the values of a label (`label_ids`); 0 where a node does not have it."""
        column = self._of_nodes.get(f"label {key}")
        if column is None:
            ids = self._label_values.setdefault(key, {})
            column = self._node_column(f"label {key}", lambda info: _label_id(ids, info.node.metadata.labels.get(key)))
        return column.values(self.size)

    def label_ids(self, key: str) -> Mapping[str, int]:
        """The ids of the values of a label that any node has had since its column exists."""
        self.label(key)
        return self._label_values[key]

    def all_rows(self) -> Rows:
        """The rows that have a node, ascending."""
        return np.flatnonzero(self.alive)

    def rows_of(self, names: Iterable[str]) -> Rows:
        """The rows of nodes by name, in their order; names without a node are left out."""
        return np.array([self.rows[name] for name in names if name in self.rows], dtype=np.intp)

    def nodes(self) -> Iterator[NodeInfo]:
        """The nodes in the order of their rows."""
        return (info for info in self.infos if info is not None)

    # --- what the cluster writes -----------------------------------------------------------------------------------

    def add(self, info: NodeInfo) -> None:
        """A node exists: it gets a row."""
        row = self._free.pop() if self._free else self.size
        info.row = row
        if row == self.size:
            self.size += 1
            self.infos.append(None)
        self.infos[row] = info
        self.rows[info.name] = row
        self.node_changed(info)
        self.pods_changed(info)

    def remove(self, name: str) -> int:
        """A node is gone: its row is free, and returned."""
        row = self.rows.pop(name)
        self.infos[row] = None
        self._free.append(row)
        for column in self._of_nodes.values():
            column.set(row, 0)
        for column in self._of_pods.values():
            column.set(row, 0)
        return row

    def node_changed(self, info: NodeInfo) -> None:
        """The Node object of a row is another one."""
        for column in self._of_nodes.values():
            column.set(info.row, column.value_of(info))

    def pods_changed(self, info: NodeInfo) -> None:
        """The pods of a row are other ones."""
        for column in self._of_pods.values():
            column.set(info.row, column.value_of(info))

    # --- columns ---------------------------------------------------------------------------------------------------

    def _node_column(
        self, name: str, value_of: Callable[[NodeInfo], int], kind: type[np.generic] = np.int64
    ) -> NodeColumn:
        return self._filled(self._of_nodes, name, NodeColumn(value_of, kind, max(self.size, _ROWS_FIRST)))

    def _pod_column(self, name: str, value_of: Callable[[NodeInfo], int]) -> NodeColumn:
        return self._filled(self._of_pods, name, NodeColumn(value_of, np.int64, max(self.size, _ROWS_FIRST)))

    def _filled(self, columns: dict[str, NodeColumn], name: str, column: NodeColumn) -> NodeColumn:
        columns[name] = column
        for info in self.nodes():
            column.set(info.row, column.value_of(info))
        return column

    def _taint_id(self, taints: tuple[Taint, ...]) -> int:
        known = self._taint_ids.get(taints)
        if known is None:
            known = self._taint_ids[taints] = len(self.taint_lists)
            self.taint_lists.append(taints)
        return known


def _label_id(ids: dict[str, int], value: str | None) -> int:
    return 0 if value is None else ids.setdefault(value, len(ids) + 1)
