"""
A ClusterQueue as flavor assignment sees it: its resource groups, their flavors, and which pod sets match them.

These are the records that the catalog makes (`headgate.core.flavors.catalog`), that matching fills in
(`headgate.core.flavors.matching`), and that the scan, preemption and the cycle read. They follow from specs alone.
"""

from typing import NamedTuple

from headgate.core.quota.activeness import Activeness
from headgate.core.quota.tree import QuotaNode
from headgate.core.topology.demands import Gates
from headgate.events.objects import ClusterQueueSpec, ResourceFlavorSpec


class Flavor:
    """
    One flavor of a resource group. `spec` is None while the ResourceFlavor does not exist.

    `levels` are the node labels of its Topology, widest first. `is_topology_aware`: its pods are placed within one.
    """

    __slots__ = ("is_topology_aware", "levels", "name", "spec")

    def __init__(
        self, name: str, spec: ResourceFlavorSpec | None, levels: tuple[str, ...], *, is_topology_aware: bool
    ) -> None:
        self.name = name
        self.spec = spec
        self.levels = levels
        self.is_topology_aware = is_topology_aware


class Group:
    """A resource group: the resources that get one flavor together, and the flavors in the order to try."""

    __slots__ = ("covered", "flavors", "index")

    def __init__(self, index: int, covered: frozenset[str], flavors: tuple[Flavor, ...]) -> None:
        self.index = index
        self.covered = covered
        self.flavors = flavors


class Part(NamedTuple):
    """
    One scan: the requested resources of a resource group, and the one that the scan begins with.

    `mismatches` gives for each flavor of the group why the pods cannot use it, whatever its quota; "" when they can. No
    group: none covers the resource.
    """

    resource: str
    group: Group | None
    names: tuple[str, ...]
    mismatches: tuple[str, ...] = ()


class Together(NamedTuple):
    """Pod sets that get their flavors together: those of one podSetGroupName, or one alone. Indexes, in spec order."""

    members: tuple[int, ...]
    parts: tuple[Part, ...]


class Matching(NamedTuple):
    """
    How the pod sets of a workload match a ClusterQueue.

    `names` are the resources that each pod set requests, in visiting order, with `pods` where the ClusterQueue covers
    them. `placed` are the pod sets whose pods are placed within a Topology, requested or not.
    """

    groups: tuple[Together, ...]
    names: tuple[tuple[str, ...], ...]
    placed: tuple[int, ...]


class ClusterQueueFlavors:
    """A ClusterQueue as flavor assignment sees it. `node` is its place in the quota tree."""

    __slots__ = (
        "active",
        "gates",
        "group_of",
        "groups",
        "is_multi_cluster",
        "is_topology_aware",
        "matchings",
        "name",
        "node",
        "provisioned_flavors",
        "spec",
        "topology_flavors",
    )

    def __init__(
        self,
        name: str,
        spec: ClusterQueueSpec,
        groups: tuple[Group, ...],
        node: QuotaNode | None,
        active: Activeness,
        *,
        gates: Gates | None = None,
        provisioned_flavors: frozenset[str] = frozenset(),
        is_multi_cluster: bool = False,
    ) -> None:
        self.name = name
        self.spec = spec
        self.groups = groups
        self.group_of = {resource: group for group in reversed(groups) for resource in sorted(group.covered)}
        self.node = node
        """None when its cohorts form a cycle: it is not active then."""
        self.active = active
        flavors = [flavor for group in groups for flavor in group.flavors]
        self.is_topology_aware = bool(flavors) and all(flavor.is_topology_aware for flavor in flavors)
        """Whether all its flavors are: then every pod set is placed within a Topology, requested or not."""
        self.topology_flavors = frozenset(flavor.name for flavor in flavors if flavor.levels)
        """Those of its flavors whose pods are placed within a Topology that exists."""
        self.gates = gates
        """The gates of placement within a Topology; None when pods are not placed (gate TopologyAwareScheduling)."""
        self.provisioned_flavors = provisioned_flavors
        """The flavors with an admission check that provisions nodes: their domains are found afterwards."""
        self.is_multi_cluster = is_multi_cluster
        """Whether an admission check moves its workloads to other clusters, which place their pods."""
        self.matchings: dict[tuple[str, ...], Matching] = {}
        """Cached results of `headgate.core.flavors.matching` by kind of workload."""
