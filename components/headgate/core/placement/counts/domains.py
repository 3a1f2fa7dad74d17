"""
Topology domains: the nodes that have the same value of a label, and which nodes belong to one for a given pod.

A `Partition` names the label and who belongs: nodes that have certain labels, that a pod's node selector and required
node affinity allow, and whose taints it tolerates. `Domains` holds, for one partition, the domain of every node, and
tells the sums that depend on it when that changes.
"""

from typing import Final, Protocol

import msgspec
import numpy as np

from headgate.core.kubernetes.selectors import HARD_EFFECTS, matches_node, untolerated_taint
from headgate.core.placement.arrays import Ints
from headgate.core.placement.columns import Bools, Columns
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import PodSpecObject
from headgate.core.placement.selection import matching_rows
from headgate.events.objects import Toleration

OUTSIDE: Final = -1
"""The place of a node that belongs to no domain."""

EACH_NODE: Final = ""
"""The topology key by which every node is a domain of its own, its row."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


class Partition(msgspec.Struct, frozen=True, eq=False):
    """
    Nodes by the values of the label `topology_key`.

    Only nodes with all of `required_keys` belong; if the topology key is not among them, those without it are a domain
    too, of id 0. `selecting` is the spec whose node selector and required affinity have to allow the node, None for
    none; `tolerations` those that have to tolerate its taints, None if taints are ignored. `key` is equal for equal
    partitions.
    """

    key: bytes
    topology_key: str
    required_keys: tuple[str, ...] = ()
    selecting: PodSpecObject | None = None
    tolerations: tuple[Toleration, ...] | None = None

    def admits(self, node: NodeObject) -> bool:
        """Whether a node belongs to a domain."""
        labels = node.metadata.labels
        if not all(key in labels for key in self.required_keys):
            return False
        if self.selecting is not None and not matches_node(self.selecting, labels, node.name):
            return False
        return self.tolerations is None or untolerated_taint(node.spec.taints, self.tolerations, HARD_EFFECTS) is None


def partition(
    topology_key: str,
    required_keys: tuple[str, ...],
    selecting: PodSpecObject | None = None,
    tolerations: tuple[Toleration, ...] | None = None,
) -> Partition:
    """A partition with its key. A spec that selects no nodes is left out."""
    affinity = None
    if selecting is not None:
        affinity = selecting.affinity.node_affinity if selecting.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
        selectors = (selecting.node_selector, required)
        if not selecting.node_selector and required is None:
            selecting = None
    else:
        selectors = ({}, None)
    keys = tuple(sorted(dict.fromkeys(required_keys)))
    key = _encoder.encode((topology_key, keys, selectors, tolerations))
    return Partition(key, topology_key, keys, selecting, tolerations)


class Dependent(Protocol):
    """What is summed over the nodes of domains."""

    def moved(self, row: int, old: int, new: int) -> None:
        """A node belongs to another domain, or (`OUTSIDE`) to none."""
        ...


class Domains:
    """The domain of every node by one partition. Domains are the ids of the label's values (`Columns.label_ids`)."""

    __slots__ = ("_columns", "_existing", "dependents", "partition", "places", "sizes")

    def __init__(self, partition: Partition, columns: Columns) -> None:
        self.partition = partition
        self.dependents: dict[Dependent, None] = {}
        self._columns = columns
        self.places = self._all_places()
        """The domain of each row; `OUTSIDE` for rows without a node too."""
        self.sizes: Ints = np.bincount(self.places[self.places >= 0], minlength=self.ids_len).astype(np.int64)
        """How many nodes belong to each domain."""
        self._existing: Ints | None = None

    @property
    def ids_len(self) -> int:
        """All ids of domains are below this."""
        key = self.partition.topology_key
        return self._columns.size if key == EACH_NODE else len(self._columns.label_values(key))

    @property
    def existing(self) -> Ints:
        """The domains that nodes belong to, ascending."""
        if self._existing is None:
            self._existing = np.flatnonzero(self.sizes)
        return self._existing

    def domain_of(self, value: str | None) -> int:
        """The domain of a value of the label, None for absent, whoever belongs to it; `OUTSIDE` if there is none."""
        key = self.partition.topology_key
        if value is None:
            return OUTSIDE if key in self.partition.required_keys else 0
        return self._columns.label_ids(key).get(value, OUTSIDE)

    def exists(self, domain: int) -> bool:
        """Whether nodes belong to a domain."""
        return domain != OUTSIDE and domain < len(self.sizes) and bool(self.sizes[domain])

    def node_set(self, row: int, node: NodeObject) -> None:
        """A node exists or has changed; the columns know it already."""
        self._move(row, self._place(row) if self.partition.admits(node) else OUTSIDE)

    def node_removed(self, row: int) -> None:
        """A node is gone."""
        self._move(row, OUTSIDE)

    def _place(self, row: int) -> int:
        key = self.partition.topology_key
        return row if key == EACH_NODE else int(self._columns.label(key)[row])

    def _move(self, row: int, new: int) -> None:
        self.places = grown(self.places, row + 1, OUTSIDE)
        old = int(self.places[row])
        if new == old:
            return
        self.places[row] = new
        self.sizes = grown(self.sizes, new + 1, 0)
        if old != OUTSIDE:
            self.sizes[old] -= 1
        if new != OUTSIDE:
            self.sizes[new] += 1
        self._existing = None
        for dependent in self.dependents:
            dependent.moved(row, old, new)

    def _all_places(self) -> Ints:
        columns, key = self._columns, self.partition.topology_key
        ids = np.arange(columns.size, dtype=np.int64) if key == EACH_NODE else columns.label(key)
        return np.where(self._admitted(), ids, OUTSIDE)

    def _admitted(self) -> Bools:
        """`Partition.admits` of all rows."""
        columns, partition = self._columns, self.partition
        admitted = columns.alive.copy()
        for key in partition.required_keys:
            admitted &= columns.label(key) != 0
        if partition.tolerations is not None:
            tolerated = [
                untolerated_taint(taints, partition.tolerations, HARD_EFFECTS) is None for taints in columns.taint_lists
            ]
            admitted &= np.array(tolerated, dtype=np.bool_)[columns.taints]
        if partition.selecting is not None:
            admitted &= matching_rows(columns, partition.selecting)
        return admitted


def grown(array: Ints, size: int, fill: int) -> Ints:
    """An array of at least this length: itself, or a longer copy with `fill` in the new places."""
    if size <= len(array):
        return array
    longer = np.full(max(size, 2 * len(array)), fill, dtype=array.dtype)
    longer[: len(array)] = array
    return longer
