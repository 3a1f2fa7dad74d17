"""
What quotas allow, for the audit (`headgate.core.audit`).

A second implementation, on purpose, beside the scheduler's (`headgate.core.quota`): an auditor that used the
scheduler's arithmetic would share its mistakes.
"""

import msgspec

from headgate.core.amounts import amount
from headgate.core.state import FlavorResource, State
from headgate.events.objects import ResourceGroup


class _Quota(msgspec.Struct, frozen=True, gc=False):
    """Limits of one node of a cohort tree for one flavor-resource."""

    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


class Quotas:
    """
    The quota trees of one moment, and what they allow.

    A second implementation, on purpose: written from KEP-79's definitions as sums over the tree, where the scheduler
    walks it with running balances. A node passes on to its parent what its members use beyond what they keep to
    themselves; a node's limit is all quota below it plus what it may borrow; the root cannot borrow.
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
        """The most that may be in use at a node; None for no limit of its own."""
        if node not in self.parents:
            return self.subtree(node, flavor_resource)
        borrowing = self._of(node, flavor_resource).borrowing_limit
        return None if borrowing is None else self.subtree(node, flavor_resource) + borrowing

    def in_use(
        self, node: str, flavor_resource: FlavorResource, usage: dict[str, int], seen: tuple[str, ...] = ()
    ) -> int:
        """What is in use at a node when its ClusterQueues use `usage`: its own, and what members take beyond theirs."""
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
