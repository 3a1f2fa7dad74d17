"""
The domains that a PodGroup with a topology constraint can be placed in, and which of those it fits in is best.

A domain are the nodes with one value of the constraint's label. Pods of the group that have a node bind the others to
theirs. The score of a domain is that of two plugins of the kube-scheduler: PodGroupPodsCount, for how many pods of the
group it takes, and NodeResourcesFit, for how full its nodes then are as a whole. Equal domains are taken by name, where
the kube-scheduler draws lots.

Sources: plugins/topologyaware, plugins/podgrouppodscount, plugins/noderesources (`scorePlacement`).
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np

from headgate.core.placement.arrays import Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.plugin import SCORE_MAX
from headgate.core.placement.framework.profile import Profile
from headgate.core.placement.plugins.node_resources_fit import NAME as FIT
from headgate.core.placement.plugins.node_resources_fit import NodeResourcesFitArgs
from headgate.core.placement.plugins.resource_shares import ResourceShare, shares_of_rows, wanted_of, weighted
from headgate.core.placement.plugins.scoring_strategies import MostAllocated
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.scan import NodeOrder

OutcomeT = TypeVar("OutcomeT")

_STRATEGY: Final = MostAllocated()


class DomainsError(Exception):
    """The pods of a group that have a node are in no domain, or in several."""


class GroupDomain(msgspec.Struct, frozen=True):
    """The nodes with one value of a label, in the order of the scan."""

    value: str
    rows: Rows


class FittingDomain(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """A domain that a group fits in: the pods that would get a node there, and what was decided."""

    domain: GroupDomain
    pods: tuple[PodInfo, ...]
    outcome: OutcomeT


def domains_of(cluster: PlacementCluster, group: str, key: str) -> list[GroupDomain]:
    """The domains that a group may be tried in, by value. Raises DomainsError."""
    required = _domain_of_placed(cluster, group, key)
    rows: dict[str, list[int]] = {}
    for row in cluster.index(NodeOrder).scan(0, 0).order.tolist():
        value = cluster.info_of(row).node.metadata.labels.get(key)
        if value is not None and required in (None, value):
            rows.setdefault(value, []).append(row)
    return [GroupDomain(value, np.array(found, dtype=np.intp)) for value, found in sorted(rows.items())]


def _domain_of_placed(cluster: PlacementCluster, group: str, key: str) -> str | None:
    """The domain of the pods that have a node; None if there are none."""
    found: str | None = None
    text = "cannot determine domain for already scheduled pods"
    for name, pod in sorted(cluster.groups.members(group).items()):
        if not pod.node_name:
            continue
        node = cluster.node(pod.node_name)
        if node is None:
            raise DomainsError(
                f'{text}: getting node for pod {name}: nodeinfo not found for node name "{pod.node_name}"'
            )
        value = node.node.metadata.labels.get(key)
        if value is None:
            raise DomainsError(f"{text}: no topology domain found for pod {name}")
        if found not in (None, value):
            raise DomainsError(f"{text}: more than 1 domain found for pod group: {found}, {value}")
        found = value
    return found


def best_domain(
    cluster: PlacementCluster, profile: Profile, group: str, fitting: Sequence[FittingDomain[OutcomeT]]
) -> FittingDomain[OutcomeT]:
    """The one with the highest score, the first of equal ones. It is called between the attempts of a group."""
    if len(fitting) == 1:
        return fitting[0]
    placed = cluster.groups.count_placed(group)
    counts = [placed + len(each.pods) for each in fitting]
    scores = [count * SCORE_MAX // max(counts) for count in counts]
    arguments = profile.arguments.get(FIT)
    if isinstance(arguments, NodeResourcesFitArgs):
        weight = profile.weights.get(FIT, 1)
        scores = [
            score + weight * _fullness(cluster, arguments, each) for score, each in zip(scores, fitting, strict=True)
        ]
    return fitting[scores.index(max(scores))]


def _fullness(cluster: PlacementCluster, arguments: NodeResourcesFitArgs, fitting: FittingDomain[OutcomeT]) -> int:
    """How full the nodes of a domain are as a whole once they have the pods, from 0 to SCORE_MAX."""
    resources = weighted(arguments.scoring_strategy.resources)
    wanted = [0] * len(resources)
    for pod in fitting.pods:
        wanted = [
            total + value for total, value in zip(wanted, wanted_of(resources, pod.shape.scored_requests), strict=True)
        ]
    shares = shares_of_rows(cluster.columns, fitting.domain.rows, resources, wanted, nonzero=True)
    whole = []
    for share in shares:
        has = share.allocatable != 0
        allocatable, allocated = int(share.allocatable.sum()), int(share.allocated[has].sum())
        if allocatable:
            added = int((share.requested - share.allocated)[:1].sum())
            whole.append(ResourceShare(share.weight, allocatable, allocated, allocated + added))
    return _STRATEGY.score(whole)
