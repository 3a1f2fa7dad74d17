"""
Which leaves the pods of a pod set may go to: taints, node selector and node affinity.

They apply only where leaves are nodes, in topologies whose lowest level is the hostname. The result for a tree is
cached, and evaluated anew for nodes that have changed.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from headgate.core.kubernetes.selectors import matches_node, matches_term, untolerated_taint
from headgate.core.topology.slots import IntArray
from headgate.core.topology.tree import FlavorTopology
from headgate.events.objects import Node, PodSpec, Taint

SELECTOR: Final = "nodeSelector"
AFFINITY: Final = "affinity"


class Fitness(NamedTuple):
    """
    What a pod set requires of a node: the parts of a pod spec that count, and whether its preferences do.

    `key` is equal for equal requirements; "" for none, so that every node without taints will do.
    """

    key: str = ""
    spec: PodSpec = PodSpec()
    by_preference: bool = False


_encoder = msgspec.json.Encoder(order="deterministic")


def fitness_of(spec: PodSpec, *, by_preference: bool) -> Fitness:
    """The requirements of a pod spec that has nothing but tolerations, a node selector and affinity."""
    if spec == PodSpec():
        return Fitness()
    return Fitness(f"{by_preference} {_encoder.encode(spec).decode()}", spec, by_preference)


class NodeFilter:
    """The leaves of a tree that a kind of pod may go to."""

    __slots__ = ("_seen", "fitness", "ok", "scores", "tree", "why")

    def __init__(self, tree: FlavorTopology, fitness: Fitness) -> None:
        self.tree = tree
        self.fitness = fitness
        self.ok: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        """By leaf slot, whether pods may go there. False for leaves that do not exist."""
        self.scores: IntArray | None = None
        """By leaf slot, the weights of the preferences that it meets; None when preferences do not count."""
        self.why: dict[int, str] = {}
        """By leaf slot, why pods may not go to a leaf that exists, as in Kueue's messages."""
        self._seen = -1
        self.refresh()

    def refresh(self) -> None:
        """Evaluate the nodes that have changed since the last call."""
        tree, slots = self.tree, self.tree.slots
        now = tree.node_changes.count
        if now == self._seen:
            return
        missed = now - self._seen
        leaves: Iterable[int]
        if not tree.node_changes.remembers(self._seen) or missed > slots // 4:
            self.why.clear()
            self.ok = np.zeros(slots, np.bool_)
            self.scores = np.zeros(slots, np.int64) if self.fitness.by_preference else None
            leaves = range(slots)
        else:
            if len(self.ok) < slots:
                self.ok = np.concatenate((self.ok, np.zeros(slots - len(self.ok), np.bool_)))
                if self.scores is not None:
                    self.scores = np.concatenate((self.scores, np.zeros(slots - len(self.scores), np.int64)))
            leaves = tree.node_changes.since(self._seen)
        self._seen = now
        self._evaluate(leaves)

    def _evaluate(self, leaves: Iterable[int]) -> None:
        nodes, ok = self.tree.first_node, self.ok
        plain = not self.tree.by_host or not self.fitness.key
        for leaf in leaves:
            node = nodes[leaf]
            self.why.pop(leaf, None)
            if node is None or (plain and not (node.taints and self.tree.by_host)):
                ok[leaf] = node is not None
                continue
            why = self._why_not(node)
            ok[leaf] = not why
            if why:
                self.why[leaf] = why
            if self.scores is not None:
                self.scores[leaf] = 0 if why else _score(self.fitness.spec, node)

    def _why_not(self, node: Node) -> str:
        spec = self.fitness.spec
        taint = untolerated_taint(node.taints, spec.tolerations) if node.taints else None
        if taint is not None:
            return f'taint "{_text(taint)}"'
        if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
            return SELECTOR
        return "" if matches_node(spec, node.labels, node.name) else AFFINITY


def _text(taint: Taint) -> str:
    """A taint as Kubernetes writes it."""
    name = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{name}:{taint.effect}" if taint.effect else name


def _score(spec: PodSpec, node: Node) -> int:
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return 0
    preferred = spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
    return sum(each.weight for each in preferred if matches_term(each.preference, node.labels, node.name))
