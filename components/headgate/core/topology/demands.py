"""
What placement is asked, and what it answers.

The cycle describes each pod set that needs a topology assignment as a `PodSetDemand` and gets `Placements` back.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headgate.core.state.tables import DomainUsage
from headgate.core.topology.assignments import Placement
from headgate.events.objects import PodSetUpdate, PodSpec, TopologyRequest

PODS = "pods"
"""The resource that every pod needs one of, besides what it requests."""


class PodSetDemand(msgspec.Struct, frozen=True, kw_only=True):
    """
    A pod set to be placed in the topology of a flavor.

    `requests` is what one pod requests, of the template alone (`pod_requests`), without the implicit one of `pods`.
    `implied` means that the flavor requires a topology and the pod set requests none. `previous` are the domains of the
    pods of the workload slice that this one replaces. `updates` are those of its Ready admission checks.
    """

    name: str
    flavor: str
    requests: Mapping[str, int]
    count: int
    topology: TopologyRequest | None = None
    implied: bool = False
    group: str | None = None
    spec: PodSpec = PodSpec()
    updates: tuple[PodSetUpdate, ...] = ()
    previous: Placement | None = None


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """
    The node that a workload has to leave, and where its pods are.

    `keeps_pods` means that its pods cannot be replaced (SkipReassignmentForPodOwnedWorkloads, and its owner is a single
    pod): it keeps its assignment as it is.
    """

    node: str
    placements: Mapping[str, Placement]
    keeps_pods: bool = False


class Placements(msgspec.Struct, frozen=True):
    """
    The result for the pod sets of a workload, by name: domains, or Kueue's message on why there are none.

    A pod set that comes after a failed one in its flavor has neither.
    """

    placements: dict[str, Placement] = {}
    failures: dict[str, str] = {}

    @property
    def failure(self) -> tuple[str, str] | None:
        """The first pod set by name that failed, and its reason, for messages. None when all were placed."""
        return min(self.failures.items(), default=None)


def usage_of(demand: PodSetDemand, placement: Placement) -> tuple[DomainUsage, ...]:
    """What a pod set occupies in the domains that it was given."""
    requests = tuple(sorted(demand.requests.items()))
    return tuple(DomainUsage(demand.flavor, each.values, requests, each.pods) for each in placement.domains)


def usage_of_all(demands: Iterable[PodSetDemand], result: Placements) -> tuple[DomainUsage, ...]:
    """What the placed pod sets of a workload occupy."""
    return tuple(
        usage
        for demand in demands
        if (placement := result.placements.get(demand.name)) is not None
        for usage in usage_of(demand, placement)
    )


class Gates(NamedTuple):
    """The feature gates that placement depends on, with Kueue's defaults."""

    profile_mixed: bool = True
    """TASProfileMixed: unconstrained pod sets go to the domains with the least free capacity."""
    balanced: bool = False
    """TASBalancedPlacement: a preferred level is filled evenly."""
    multi_layer: bool = True
    """TASMultiLayerTopology: slices within slices."""
    preferred_affinity: bool = False
    """TASRespectNodeAffinityPreferred: nodes that a pod prefers come first."""
    overlapping_flavors: bool = True
    """TASHandleOverlappingFlavors: usage of a node counts in all flavors whose lowest level is the hostname."""
    elastic: bool = False
    """ElasticJobsViaWorkloadSlicesWithTAS: pods of a replaced workload slice stay where they are."""
