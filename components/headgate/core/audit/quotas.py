"""
What quotas allow, and whether reservations respect it, for the audit (`headgate.core.audit`).

A second implementation, on purpose, beside the scheduler's (`headgate.core.quota`): an auditor that used the
scheduler's arithmetic would share its mistakes.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import FlavorResource, Stage, State
from headgate.core.views.descriptions import describe_tree, format_amount
from headgate.events import decisions, facts
from headgate.events.commit import Commit, LoggedCommit, Position
from headgate.events.ids import Seq, Uid, WorkloadKey
from headgate.events.objects import ResourceGroup

QUOTAS_KEPT = 64
"""A cycle is judged by the quotas it saw: this many changes of quotas are kept."""

Stages = dict[WorkloadKey, tuple[Uid, Stage]]
"""The stages, before a commit, of the workloads in it."""


class _Quota(msgspec.Struct, frozen=True, gc=False):
    """Limits of one node of a cohort tree for one flavor-resource."""

    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


class Quotas:
    """
    The quota trees of one moment, and what they allow.

    A second implementation, on purpose: written from KEP-79's definitions as sums over the tree, where the scheduler
    walks it with running balances. What a node's members use beyond what the node keeps for itself is charged to its
    parent; a node's limit is all quota below it plus what it may borrow; the root cannot borrow.
    """

    def __init__(self, state: State) -> None:
        self.parents: dict[str, str] = {}
        self.quotas: dict[str, dict[FlavorResource, _Quota]] = {}
        self.members: dict[str, list[str]] = {}
        for name, queue in state.cluster_queues.items():
            cohort = queue.spec.cohort_name
            self._add(queue_node(name), cohort_node(cohort) if cohort else "", queue.spec.resource_groups)
        for name, record in state.cohorts.items():
            parent = record.spec.parent_name
            self._add(cohort_node(name), cohort_node(parent) if parent else "", record.spec.resource_groups)

    def _add(self, node: str, parent: str, groups: tuple[ResourceGroup, ...]) -> None:
        self.quotas[node] = {
            (flavor.name, quota.name): _Quota(
                amount(quota.name, quota.nominal_quota),
                None if quota.borrowing_limit is None else amount(quota.name, quota.borrowing_limit),
                None if quota.lending_limit is None else amount(quota.name, quota.lending_limit),
            )
            for group in groups
            for flavor in group.flavors
            for quota in flavor.resources
        }
        if parent:
            self.parents[node] = parent
            self.members.setdefault(parent, []).append(node)

    def path(self, cluster_queue: str) -> list[str]:
        """A ClusterQueue's node and those above it, up to the root (or once around a cycle)."""
        nodes = [queue_node(cluster_queue)]
        while (parent := self.parents.get(nodes[-1])) and parent not in nodes:
            nodes.append(parent)
        return nodes

    def subtree(self, node: str, flavor_resource: FlavorResource, seen: tuple[str, ...] = ()) -> int:
        """All quota of a node: its own, and what its members lend it."""
        own = self._of(node, flavor_resource).nominal
        below = (each for each in self.members.get(node, ()) if each not in seen)
        return own + sum(
            self.subtree(each, flavor_resource, (*seen, node)) - self.kept(each, flavor_resource, (*seen, node))
            for each in below
        )

    def kept(self, node: str, flavor_resource: FlavorResource, seen: tuple[str, ...] = ()) -> int:
        """What a node does not lend: with a lending limit, its quota beyond it."""
        limit = self._of(node, flavor_resource).lending_limit
        return 0 if limit is None else max(0, self.subtree(node, flavor_resource, seen) - limit)

    def limit(self, node: str, flavor_resource: FlavorResource) -> int | None:
        """The maximum usage at a node; None for no limit of its own."""
        if node not in self.parents:
            return self.subtree(node, flavor_resource)
        borrowing = self._of(node, flavor_resource).borrowing_limit
        return None if borrowing is None else self.subtree(node, flavor_resource) + borrowing

    def in_use(
        self, node: str, flavor_resource: FlavorResource, usage: dict[str, int], seen: tuple[str, ...] = ()
    ) -> int:
        """The usage at a node when its ClusterQueues use `usage`: its own, and what members use beyond theirs."""
        below = (each for each in self.members.get(node, ()) if each not in seen)
        return usage.get(node, 0) + sum(
            max(0, self.in_use(each, flavor_resource, usage, (*seen, node)) - self.kept(each, flavor_resource))
            for each in below
        )

    def _of(self, node: str, flavor_resource: FlavorResource) -> _Quota:
        return self.quotas.get(node, {}).get(flavor_resource, _NO_QUOTA)


_NO_QUOTA = _Quota(0, None, None)


def queue_node(name: str) -> str:
    """The name of a ClusterQueue's node."""
    return f"ClusterQueue/{name}"


def cohort_node(name: str) -> str:
    """The name of a Cohort's node."""
    return f"Cohort/{name}"


# --- whether reservations respect it ----------------------------------------------------------------------------------


class Excess(NamedTuple):
    """A reservation that uses more than is allowed: the node, the resource and the workload."""

    at: Position
    text: str
    workload: WorkloadKey


class QuotaAudit:
    """Judges the reservations of a log by the quotas that their cycles saw. `state` is folded by its owner."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._quotas: Quotas | None = None
        self._older_quotas: deque[tuple[Seq, Quotas]] = deque(maxlen=QUOTAS_KEPT)
        self._raised: dict[str, Seq] = {}

    def usage_before(self, commit: Commit) -> dict[str, dict[FlavorResource, int]]:
        """The usage of every ClusterQueue in the trees that a commit's reservations charge."""
        trees = {
            self._tree(event.cluster_queue): None for event in commit.events if type(event) is decisions.QuotaReserved
        }
        if not trees:
            return {}
        usage = self._state.index.usage
        return {name: dict(usage.get(name, {})) for name, tree in self._state.index.trees.items() if tree in trees}

    def judge(
        self,
        logged: LoggedCommit,
        before: dict[str, dict[FlavorResource, int]],
        stages: Stages,
    ) -> Iterator[Excess]:
        """The nodes whose usage a cycle has raised above their limit, each once a commit."""
        decided_at = logged.commit.decided_at
        judged: set[tuple[str, FlavorResource]] = set()
        for index, event in enumerate(logged.commit.events):
            if type(event) is not decisions.QuotaReserved or not took_effect(event, stages):
                continue
            tree = self._tree(event.cluster_queue)
            if self._raised.get(tree, 0) > decided_at:
                continue  # Facts raised usage after the state that the cycle decided on.
            quotas = self._quotas_at(decided_at)
            for flavor_resource in self._state.index.usage_of.get(event.workload, {}):
                now = {
                    queue_node(name): self._state.index.usage.get(name, {}).get(flavor_resource, 0) for name in before
                }
                was = {queue_node(name): used.get(flavor_resource, 0) for name, used in before.items()}
                for node in quotas.path(event.cluster_queue):
                    if (node, flavor_resource) not in judged:
                        judged.add((node, flavor_resource))
                        said = _excess(event, quotas, node, flavor_resource, was, now)
                        if said:
                            yield Excess(Position(logged.seq, index), said, event.workload)

    def raised(self, cluster_queue: str, seq: Seq) -> None:
        """Facts may have raised the usage of a ClusterQueue: earlier cycles did not see them."""
        self._raised[self._tree(cluster_queue)] = seq

    def _quotas_at(self, decided_at: Seq) -> Quotas:
        """The quotas as a cycle decided at a position saw them."""
        for changed_at, older in self._older_quotas:
            if changed_at > decided_at:
                return older
        if self._quotas is None:
            self._quotas = Quotas(self._state)
        return self._quotas

    def keep(self, logged: LoggedCommit) -> None:
        """Before quotas change: keep them for cycles under way. There are none before the first sync."""
        if any(type(event) in _QUOTA_FACTS for event in logged.commit.events):
            if self._state.synced:
                self._older_quotas.append((logged.seq, self._quotas or Quotas(self._state)))
            self._quotas = None

    def _tree(self, cluster_queue: str) -> str:
        return self._state.index.trees.get(cluster_queue, queue_node(cluster_queue))


def _excess(
    event: decisions.QuotaReserved,
    quotas: Quotas,
    node: str,
    flavor_resource: FlavorResource,
    was: dict[str, int],
    now: dict[str, int],
) -> str:
    """The violation at a node after a reservation; empty where there is none, or no more than before."""
    limit = quotas.limit(node, flavor_resource)
    used = quotas.in_use(node, flavor_resource, now)
    if limit is None or used <= limit or used <= quotas.in_use(node, flavor_resource, was):
        return ""
    flavor, resource = flavor_resource
    where = f"cohort {node.removeprefix('Cohort/')}" if node.startswith("Cohort/") else describe_tree(node)
    return (
        f"with {event.workload}, {format_amount(resource, used)} {resource} of {flavor} are in use in {where}; "
        f"{format_amount(resource, limit)} are allowed"
    )


def took_effect(event: decisions.QuotaReserved, stages: Stages) -> bool:
    """
    Whether a reservation had an effect, by the stages before.

    Not for what was evicted, finished or recreated meanwhile.
    """
    uid, stage = stages.get(event.workload, (Uid(""), Stage.FINISHED))
    return uid == event.uid and stage not in (Stage.EVICTED, Stage.FINISHED)


_QUOTA_FACTS = (facts.ClusterQueueObserved, facts.ClusterQueueDeleted, facts.CohortObserved, facts.CohortDeleted)
