"""
The forest: all quota trees of a state, cached from cycle to cycle.

A tree is built on first use. When a ClusterQueue or a Cohort changes, only its trees are rebuilt, and their usage is
kept current: `Forest.ledger` copies it instead of summing it up. So a cycle never rebuilds all trees. The catalog keeps
one for the scheduler; the queue manager and the shares in statuses keep one each.

The owner must pass it every folded event that is structural (`headgate.core.quota.structural`); changes of usage are
read from `Index.changed`.

A ClusterQueue or Cohort in quarantine (`activeness.is_left_alone`) keeps its place in its tree, so that the others have
what they would have without the defect: with its quotas as far as they are readable, otherwise without quota. In the
latter case what it uses counts as borrowed, and the tree never grants more than it has.
"""

from collections.abc import Collection, Iterable
from typing import assert_never

from headgate.core.kubernetes.quantities import LOWEST, UNLIMITED
from headgate.core.quota.activeness import CLUSTER_QUEUE, COHORT, cluster_queue_active, is_left_alone
from headgate.core.quota.cohorts import in_cycle, root_of
from headgate.core.quota.structural import Structural
from headgate.core.quota.tree import Ledger, Quota, QuotaNode, QuotaTree, quotas_of, weight_of
from headgate.core.state.attribution import ObjectFailedError, about
from headgate.core.state.tables import FlavorResource, State
from headgate.events import facts
from headgate.events.objects import ClusterQueueSpec, CohortSpec

Columns = dict[FlavorResource, list[int]]
"""By flavor-resource: the usage of a tree's nodes, by `QuotaNode.index`."""
Quotas = dict[FlavorResource, Quota]


class Forest:
    """
    The quota trees of a state, each built on first use, with their usage kept current.

    The owner must call `change` for the events that the state has folded; the trees concerned are dropped then.
    """

    __slots__ = ("_cluster_queues", "_cohorts", "_kept", "_seen", "_state", "_tree_of", "_trees")

    def __init__(self, state: State) -> None:
        self._state = state
        self._trees: dict[str, QuotaTree] = {}
        self._cluster_queues: dict[str, list[str]] = {}
        self._cohorts: dict[str, list[str]] = {}
        self._tree_of: dict[str, str] = {}
        """The tree of a ClusterQueue."""
        self._kept: dict[str, Columns] = {}
        """By tree: the usage of its nodes, for the flavor-resources that were requested so far."""
        self._seen = state.index.changes
        """The last change of usage (`Index.changes`) that is included."""
        self._put(state.cluster_queues, sorted(_named_by(state, state.cohorts, state.cluster_queues)))

    def tree_of(self, cluster_queue: str) -> QuotaTree:
        """The tree of a ClusterQueue. Raises KeyError when there is no such ClusterQueue."""
        return self.tree(self._state.index.trees[cluster_queue])

    def tree(self, name: str) -> QuotaTree:
        """The tree of this name. Its cohorts must not form a cycle: ClusterQueues below one are not active."""
        tree = self._trees.get(name)
        if tree is None:
            tree = self._trees[name] = self._build(name)
        return tree

    def ledger(self, name: str) -> Ledger:
        """The current usage of a tree, free to be charged: the cached usage is copied, not summed up again."""
        tree = self.tree(name)
        self._catch_up()
        return Ledger(tree, self._state.index.usage, self._kept.setdefault(name, {}))

    def change(self, event: Structural) -> list[str]:
        """
        Apply an event that the state has folded. Returns the ClusterQueues whose trees have to be rebuilt.

        An event that may make ClusterQueues active or inactive can change the heights of trees.
        """
        match event:
            case facts.ClusterQueueObserved() | facts.ClusterQueueDeleted():
                return self._regroup(cluster_queues=(event.name,))
            case facts.CohortObserved() | facts.CohortDeleted():
                return self._regroup(cohorts=(event.name,))
            case (
                facts.ResourceFlavorObserved()
                | facts.ResourceFlavorDeleted()
                | facts.TopologyObserved()
                | facts.TopologyDeleted()
                | facts.AdmissionCheckObserved()
                | facts.AdmissionCheckDeleted()
            ):
                return self._recheck()
            case facts.ConfigurationObserved() | facts.LimitRangeObserved() | facts.LimitRangeDeleted():
                return []
            case _:
                assert_never(event)

    def _regroup(self, cluster_queues: Collection[str] = (), cohorts: Collection[str] = ()) -> list[str]:
        """
        Apply that these were changed, created or deleted.

        Tree membership is recomputed for the members of the trees concerned alone.
        """
        state = self._state
        left = {self._tree_of[name] for name in cluster_queues if name in self._tree_of}
        left.update(state.index.trees[name] for name in cluster_queues if name in state.index.trees)
        for name in cohorts:
            left.update((name, root_of(name, state.cohorts)))
            left.update(tree for tree, members in self._cohorts.items() if name in members)
        members, cohort_names = set(cluster_queues), set(cohorts)
        while left:
            for tree in sorted(left):
                self._trees.pop(tree, None)
                self._kept.pop(tree, None)
                members.update(self._cluster_queues.pop(tree, ()))
                cohort_names.update(self._cohorts.pop(tree, ()))
            # They may belong to a tree now that is not dropped yet.
            now = {state.index.trees[name] for name in members if name in state.index.trees}
            now |= {root_of(name, state.cohorts) for name in cohort_names}
            left = {tree for tree in now if tree in self._cluster_queues or tree in self._cohorts}
        for name in sorted(members):
            self._tree_of.pop(name, None)
        recorded = [name for name in sorted(cohort_names) if name in state.cohorts]
        staying = [name for name in sorted(members) if name in state.cluster_queues]
        self._put(staying, sorted(_named_by(state, recorded, staying)))
        return sorted(members)

    def _recheck(self) -> list[str]:
        """Drop the trees in which a ClusterQueue became active or inactive."""
        concerned: list[str] = []
        for name, tree in tuple(self._trees.items()):
            if any(node.active != _is_active(self._state, node.name) for node in tree.cluster_queues.values()):
                concerned.extend(tree.cluster_queues)
                del self._trees[name]
                self._kept.pop(name, None)
        return concerned

    def _put(self, cluster_queues: Iterable[str], cohorts: Iterable[str]) -> None:
        """Store the tree of each of these."""
        for name in sorted(cluster_queues):
            tree = self._tree_of[name] = self._state.index.trees[name]
            self._cluster_queues.setdefault(tree, []).append(name)
        for name in sorted(cohorts):
            self._cohorts.setdefault(root_of(name, self._state.cohorts), []).append(name)

    def _catch_up(self) -> None:
        """Bring the cached usage up to date: the newest changes are the last."""
        index = self._state.index
        for name in reversed(index.changed):
            if index.changed[name] <= self._seen:
                break
            tree = self._tree_of.get(name, "")
            kept = self._kept.get(tree)
            if kept and is_left_alone(self._state, CLUSTER_QUEUE, name):
                # It is summed up again.
                self._kept[tree] = {}
            elif kept:
                with about(CLUSTER_QUEUE, name):
                    self._kept[tree] = self._moved(self._trees[tree], kept, name)
        self._seen = index.changes

    def _moved(self, tree: QuotaTree, kept: Columns, cluster_queue: str) -> Columns:
        """The cached usage of a tree, updated to what a ClusterQueue holds now."""
        held = self._state.index.usage.get(cluster_queue, {})
        node = tree.cluster_queues[cluster_queue]
        return {fr: column for fr, column in kept.items() if _set(tree, fr, column, node, held.get(fr, 0))}

    def has_cycle(self, name: str) -> bool:
        """Whether the cohorts of this tree form a cycle, so that it has no root and no quota."""
        return any(in_cycle(cohort, self._state.cohorts) for cohort in self._cohorts.get(name, ()))

    def _build(self, name: str) -> QuotaTree:
        state = self._state
        nodes: list[QuotaNode] = []
        cohorts: dict[str, QuotaNode] = {}
        for cohort in self._cohorts.get(name, ()):
            assert not in_cycle(cohort, state.cohorts), f"cohort {cohort} is in a cycle and has no quota tree"
            record = state.cohorts.get(cohort)
            quotas, weight = self._read(COHORT, cohort, record.spec) if record is not None else ({}, 1.0)
            cohorts[cohort] = QuotaNode(cohort, quotas, is_cohort=True, weight=weight)
        for cohort, node in cohorts.items():
            record = state.cohorts.get(cohort)
            if record is not None and record.spec.parent_name:
                _adopt(cohorts[record.spec.parent_name], node)
        for cluster_queue in self._cluster_queues.get(name, ()):
            spec = state.cluster_queues[cluster_queue].spec
            quotas, weight = self._read(CLUSTER_QUEUE, cluster_queue, spec)
            node = QuotaNode(cluster_queue, quotas, is_cohort=False, weight=weight)
            node.active = _is_active(state, cluster_queue)
            if spec.cohort_name:
                _adopt(cohorts[spec.cohort_name], node)
            else:
                nodes.append(node)
        for cohort, node in cohorts.items():
            if node.parent is None:
                assert cohort == name, f"cohort {cohort} has no parent, but is not the root of tree {name}"
                _collect(node, nodes)
        for index, node in enumerate(nodes):
            node.index = index
        return QuotaTree(name, nodes)

    def _read(self, kind: str, name: str, spec: ClusterQueueSpec | CohortSpec) -> tuple[Quotas, float]:
        """The quotas and the weight of a ClusterQueue or a Cohort."""
        try:
            with about(kind, name):
                return quotas_of(spec.resource_groups), weight_of(spec.fair_sharing)
        except ObjectFailedError:
            if is_left_alone(self._state, kind, name):
                return {}, 1.0
            raise


def _named_by(state: State, cohorts: Iterable[str], cluster_queues: Iterable[str]) -> set[str]:
    """These cohorts, both those with objects and those that are only named by them or by ClusterQueues."""
    names = set(cohorts)
    names.update(parent for name in cohorts if (parent := state.cohorts[name].spec.parent_name))
    names.update(cohort for name in cluster_queues if (cohort := state.cluster_queues[name].spec.cohort_name))
    return names


def _is_active(state: State, cluster_queue: str) -> bool:
    with about(CLUSTER_QUEUE, cluster_queue):
        return cluster_queue_active(state, cluster_queue).active


def _adopt(parent: QuotaNode, child: QuotaNode) -> None:
    child.parent = parent
    parent.children.append(child)
    (parent.cohorts if child.is_cohort else parent.cluster_queues).append(child)


def _collect(node: QuotaNode, into: list[QuotaNode]) -> None:
    """Append a subtree to the list, children first, and measure its height."""
    for child in node.children:
        _collect(child, into)
    node.height = max((child.height + 1 for child in node.children if child.active), default=0)
    into.append(node)


def _set(tree: QuotaTree, fr: FlavorResource, column: list[int], node: QuotaNode, held: int) -> bool:
    """
    Set a column to what a ClusterQueue holds now. False when it has to be summed up again instead.

    That is the case when an amount saturates: what was added to it cannot be subtracted.
    """
    local = tree.limits(fr).local
    before, after = column[node.index], held
    at: QuotaNode | None = node
    while at is not None and before != after:
        i = at.index
        new = column[i] + after - before
        if not (LOWEST < new < UNLIMITED and LOWEST < column[i] < UNLIMITED and local[i] < UNLIMITED):
            return False
        before, after = max(0, column[i] - local[i]), max(0, new - local[i])
        column[i] = new
        at = at.parent
    return True
