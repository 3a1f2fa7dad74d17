"""
An independent judge of quota: the definitions of `kueue-semantics` section 5, computed naively from the state's tables.

It shares no code with `headgate.core.quota`: usage comes from the workloads' records, and every value is recomputed
from scratch by recursion.
"""

from fractions import Fraction

from headgate.core.fold.transitions import charged_usage
from headgate.core.kubernetes.quantities import parse_quantity
from headgate.core.state.tables import HOLDS_QUOTA, State, Workload
from headgate.events.objects import ResourceGroup

Pair = tuple[str, str]


def _value(resource: str, quantity: object) -> Fraction:
    return parse_quantity(quantity) * (1000 if resource == "cpu" else 1)


def _quota(groups: tuple[ResourceGroup, ...], pair: Pair) -> tuple[Fraction, Fraction | None, Fraction | None]:
    for group in groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                if (flavor.name, quota.name) == pair:
                    name = quota.name
                    borrow = None if quota.borrowing_limit is None else _value(name, quota.borrowing_limit)
                    lend = None if quota.lending_limit is None else _value(name, quota.lending_limit)
                    return _value(name, quota.nominal_quota), borrow, lend
    return Fraction(0), None, None


def _holds(workload: Workload) -> bool:
    """Whether quota is charged to a workload. The parent of variants runs on the quota of one of them."""
    return workload.stage in HOLDS_QUOTA and not workload.followed


class Oracle:
    """Quota and usage of one flavor-resource in the whole cluster."""

    def __init__(self, state: State, pair: Pair) -> None:
        self.state = state
        self.pair = pair
        self.parents: dict[str, str] = {}
        for name, record in state.cluster_queues.items():
            self.parents[f"cq/{name}"] = f"co/{record.spec.cohort_name}" if record.spec.cohort_name else ""
        for name, cohort in state.cohorts.items():
            self.parents[f"co/{name}"] = f"co/{cohort.spec.parent_name}" if cohort.spec.parent_name else ""
        for parent in [parent for parent in self.parents.values() if parent]:
            self.parents.setdefault(parent, "")

    def _own(self, node: str) -> tuple[Fraction, Fraction | None, Fraction | None]:
        kind, _, name = node.partition("/")
        if kind == "cq":
            return _quota(self.state.cluster_queues[name].spec.resource_groups, self.pair)
        record = self.state.cohorts.get(name)
        return _quota(record.spec.resource_groups, self.pair) if record else (Fraction(0), None, None)

    def _children(self, node: str) -> list[str]:
        return [child for child, parent in self.parents.items() if parent == node]

    def subtree(self, node: str) -> Fraction:
        return self._own(node)[0] + sum(
            (self.subtree(child) - self.local(child) for child in self._children(node)), Fraction(0)
        )

    def local(self, node: str) -> Fraction:
        lend = self._own(node)[2]
        return Fraction(0) if lend is None else max(Fraction(0), self.subtree(node) - lend)

    def usage(self, node: str) -> Fraction:
        kind, _, name = node.partition("/")
        if kind == "cq":
            held = [
                charged_usage(workload, self.state.configuration).get(self.pair, 0)
                for workload in self.state.workloads.values()
                if _holds(workload) and workload.cluster_queue == name
            ]
            return Fraction(sum(held))
        return sum(
            (max(Fraction(0), self.usage(child) - self.local(child)) for child in self._children(node)), Fraction(0)
        )

    def available(self, node: str) -> Fraction:
        parent = self.parents[node]
        if not parent:
            return self.subtree(node) - self.usage(node)
        local_left = max(Fraction(0), self.local(node) - self.usage(node))
        from_parent = self.available(parent)
        borrow = self._own(node)[1]
        if borrow is not None:
            in_parent = max(Fraction(0), self.usage(node) - self.local(node))
            from_parent = min(from_parent, self.subtree(node) - self.local(node) - in_parent + borrow)
        return local_left + from_parent


def overdrawn(state: State, cluster_queue: str) -> list[str]:
    """Flavor-resources of which a ClusterQueue now holds more than it may."""
    if cluster_queue not in state.cluster_queues:
        return []
    found = []
    for pair in state.index.usage.get(cluster_queue, {}):
        left = Oracle(state, pair).available(f"cq/{cluster_queue}")
        if left < 0:
            found.append(f"{cluster_queue} is over by {-left} of {pair[1]} in {pair[0]}")
    return found
