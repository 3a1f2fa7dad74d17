"""
Room: the free capacity of each node, and the first node that a pod fits on.

The binder's index of the state's nodes and pods. Nodes are tried in the order of their names (first fit): a pod fits
where its node selector, required node affinity and the node's taints allow it, the node is ready and schedulable, and
every requested resource is free, one of `pods` included.

Pods of one kind (`Ask`) need the same and may go to the same nodes, and capacity only shrinks while pods are placed. So
for each kind the index keeps a scan cursor, and returns only to those nodes that have gained capacity or have changed:
placing n pods of k kinds on m nodes costs O(n + k·m), not O(n·m), a pod that fits nowhere costs nothing until something
changes, and a change of one node costs one check of it per kind.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import amount
from headgate.core.kubernetes.selectors import matches_node, untolerated_taint
from headgate.core.state.tables import PodRecord
from headgate.events.ids import PodKey
from headgate.events.objects import Affinity, Node, PodSpec, Toleration

KINDS_MAX: Final = 10_000
"""The most kinds of pods that are cached. Beyond it the cache is cleared, which costs time and nothing else."""


class Ask(msgspec.Struct, frozen=True):
    """A kind of pod: its requirements on a node."""

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: str = ""
    tolerations: tuple[Toleration, ...] = ()


_encoder = msgspec.json.Encoder(order="deterministic")


def ask_of(spec: PodSpec) -> Ask:
    """The requirements of a pod on a node; equal for pods that can go to the same nodes."""
    requests = {resource: value for resource, value in pod_requests(spec).items() if value > 0}
    requests["pods"] = requests.get("pods", 0) + 1
    affinity = spec.affinity if spec.affinity is not None else Affinity()
    return Ask(
        requests=tuple(sorted(requests.items())),
        node_selector=tuple(sorted(spec.node_selector.items())),
        affinity=_encoder.encode(affinity).decode() if affinity != Affinity() else "",
        tolerations=spec.tolerations,
    )


class _Held(msgspec.Struct, frozen=True):
    node: str
    requests: tuple[tuple[str, int], ...]


class _Looked(msgspec.Struct):
    """The scan cursor of a kind: nodes before `place` do not fit, unless listed in `again` (sorted)."""

    place: int = 0
    again: list[int] = []


class Room:
    """
    Free capacity by node.

    `observe_node`, `observe_pod` and `observe_use` keep it current with the state; `first_fit` queries it.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._nodes: dict[str, Node] = {}
        self._free: dict[str, dict[str, int]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._held: dict[PodKey, _Held] = {}
        self._others: dict[str, dict[str, int]] = {}
        self._tried: dict[Ask, _Looked] = {}

    def observe_node(self, name: str, node: Node | None) -> None:
        """A node exists, has changed, or (None) is gone."""
        known = name in self._nodes
        if node is None:
            if known:
                del self._nodes[name], self._free[name]
                del self._names[bisect_left(self._names, name)]
                # Places have shifted: the cursors are invalid.
                self._tried.clear()
            return
        if not known:
            self._names.insert(bisect_left(self._names, name), name)
            self._tried.clear()
        self._nodes[name] = node
        free = {resource: amount(resource, quantity) for resource, quantity in node.allocatable.items()}
        for resource, value in self._used.get(name, {}).items():
            free[resource] = free.get(resource, 0) - value
        self._free[name] = free
        self._look_again(name)

    def observe_pod(self, key: PodKey, record: PodRecord | None) -> bool:
        """
        A pod holds capacity on the node that was chosen for it, or (None, or no node) holds none any more.

        True when capacity was freed.
        """
        node = record.placed if record is not None else ""
        held = self._held.get(key)
        asked = ask_of(record.pod.spec).requests if record is not None and node else ()
        if held is not None:
            if (held.node, held.requests) == (node, asked):
                return False
            del self._held[key]
            self._charge(held.node, held.requests, -1)
            self._look_again(held.node)
        if node:
            self._held[key] = _Held(node, asked)
            self._charge(node, asked, 1)
        return held is not None

    def observe_use(self, node: str, use: Mapping[str, int] | None) -> bool:
        """
        What pods without facts of their own use of a node (`Tables.node_usage`), in amounts, or (None) nothing.

        True when capacity was freed.
        """
        before, after = self._others.pop(node, {}), dict(use or {})
        self._charge(node, tuple(before.items()), -1)
        self._charge(node, tuple(after.items()), 1)
        if after:
            self._others[node] = after
        freed = any(after.get(resource, 0) < value for resource, value in before.items())
        if freed:
            self._look_again(node)
        return freed

    def first_fit(self, spec: PodSpec, ask: Ask) -> str | None:
        """The first node that a pod fits on; None without one. It holds no capacity there until it is observed."""
        looked = self._tried.get(ask)
        if looked is None:
            if len(self._tried) >= KINDS_MAX:
                self._tried.clear()
            looked = self._tried[ask] = _Looked()
        while looked.again:
            name = self._names[looked.again[0]]
            if self._fits(name, spec, ask):
                return name
            del looked.again[0]
        while looked.place < len(self._names):
            name = self._names[looked.place]
            if self._fits(name, spec, ask):
                return name
            looked.place += 1
        return None

    def hold(self, key: PodKey, node: str, ask: Ask) -> None:
        """Hold capacity for a pod that is being placed, ahead of the state."""
        self._held[key] = _Held(node, ask.requests)
        self._charge(node, ask.requests, 1)

    def _fits(self, name: str, spec: PodSpec, ask: Ask) -> bool:
        return self._has_room(name, ask) and self._may_go(spec, self._nodes[name])

    def _has_room(self, name: str, ask: Ask) -> bool:
        free = self._free[name]
        return all(free.get(resource, 0) >= value for resource, value in ask.requests)

    def _may_go(self, spec: PodSpec, node: Node) -> bool:
        return (
            node.ready
            and not node.unschedulable
            and untolerated_taint(node.taints, spec.tolerations) is None
            and matches_node(spec, node.labels, node.name)
        )

    def _charge(self, name: str, requests: tuple[tuple[str, int], ...], sign: int) -> None:
        used = self._used.setdefault(name, {})
        free = self._free.get(name)
        for resource, value in requests:
            used[resource] = used.get(resource, 0) + sign * value
            if free is not None:
                free[resource] = free.get(resource, 0) - sign * value

    def _look_again(self, name: str) -> None:
        """A node may have gained capacity: kinds whose cursor has passed it check it again."""
        place = bisect_left(self._names, name)
        for looked in self._tried.values():
            if looked.place > place:
                at = bisect_left(looked.again, place)
                if at == len(looked.again) or looked.again[at] != place:
                    looked.again.insert(at, place)
