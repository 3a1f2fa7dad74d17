"""
The nodes as flat columns: one array per resource and property, one row per node.

Rows are places that nodes keep while they exist; a freed row is used again, and `alive` tells which ones have a node.
Columns of a resource or label exist from the first time that they are asked for, and are kept current from then on;
that of a label until no node has the label any more. Text is interned: a label column has ids, 0 for absent, and
`taints` has ids of distinct lists of taints, so that a plugin evaluates each distinct list once. An id is that of
another value once no node has the value. Arrays are as long as there are rows; they are read-only for plugins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.node_columns import InternedColumn, NodeColumn, NumberColumn
from headgate.core.placement.nodes import NodeInfo
from headgate.events.objects import Taint

Bools = NDArray[np.bool_]

_ROWS_FIRST: Final = 64

ColumnT = TypeVar("ColumnT", bound=NodeColumn)


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
        self._labels: dict[str, InternedColumn[str | None]] = {}
        self._label_nodes: dict[str, int] = {}
        """How many nodes have each label."""
        self._labels_by_row: list[Mapping[str, str]] = []
        self._nowhere: InternedColumn[str | None] = InternedColumn(lambda _: None, None, _ROWS_FIRST)
        """The column of all labels that no node has."""
        self._alive = self._node_column("alive", lambda _: 1, np.bool_)
        self._unschedulable = self._node_column(
            "unschedulable", lambda info: int(info.node.spec.unschedulable), np.bool_
        )
        self._taints = InternedColumn[tuple[Taint, ...]](lambda info: info.node.spec.taints, (), _ROWS_FIRST)
        self._of_nodes["taints"] = self._taints
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
    def taint_lists(self) -> Sequence[tuple[Taint, ...]]:
        """The distinct lists of taints, by the ids of the column `taints`."""
        return self._taints.by_id

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
        return self._label(key).values(self.size)

    def label_ids(self, key: str) -> Mapping[str | None, int]:
        """The ids of the values of a label that nodes have."""
        return self._label(key).ids

    def label_values(self, key: str) -> Sequence[str | None]:
        """The value of a label by id; None for 0, and for an id that no node has."""
        return self._label(key).by_id

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
            self._labels_by_row.append({})
        self.infos[row] = info
        self.rows[info.name] = row
        self.node_changed(info)
        self.pods_changed(info)

    def remove(self, name: str) -> int:
        """A node is gone: its row is free, and returned."""
        row = self.rows.pop(name)
        self.infos[row] = None
        self._free.append(row)
        for column in (*self._of_nodes.values(), *self._labels.values(), *self._of_pods.values()):
            column.clear(row)
        self._count_labels(row, {})
        return row

    def node_changed(self, info: NodeInfo) -> None:
        """The Node object of a row is another one."""
        for column in (*self._of_nodes.values(), *self._labels.values()):
            column.update(info)
        self._count_labels(info.row, info.node.metadata.labels)

    def pods_changed(self, info: NodeInfo) -> None:
        """The pods of a row are other ones."""
        for column in self._of_pods.values():
            column.update(info)

    # --- columns ---------------------------------------------------------------------------------------------------

    def _node_column(
        self, name: str, value_of: Callable[[NodeInfo], int], kind: type[np.generic] = np.int64
    ) -> NodeColumn:
        column = self._of_nodes[name] = NumberColumn(value_of, kind, max(self.size, _ROWS_FIRST))
        return self._filled(column)

    def _pod_column(self, name: str, value_of: Callable[[NodeInfo], int]) -> NodeColumn:
        column = self._of_pods[name] = NumberColumn(value_of, np.int64, max(self.size, _ROWS_FIRST))
        return self._filled(column)

    def _label(self, key: str) -> InternedColumn[str | None]:
        known = self._labels.get(key)
        if known is not None:
            return known
        if key not in self._label_nodes:
            return self._nowhere
        capacity = max(self.size, _ROWS_FIRST)
        column = self._labels[key] = InternedColumn(lambda info: info.node.metadata.labels.get(key), None, capacity)
        return self._filled(column)

    def _filled(self, column: ColumnT) -> ColumnT:
        for info in self.nodes():
            column.update(info)
        return column

    def _count_labels(self, row: int, labels: Mapping[str, str]) -> None:
        """The node of a row has these labels. The columns of labels that no node has any more are dropped."""
        old = self._labels_by_row[row]
        self._labels_by_row[row] = labels
        for key in labels:
            if key not in old:
                self._label_nodes[key] = self._label_nodes.get(key, 0) + 1
        for key in old:
            if key not in labels:
                self._label_nodes[key] -= 1
                if not self._label_nodes[key]:
                    del self._label_nodes[key]
                    self._labels.pop(key, None)
