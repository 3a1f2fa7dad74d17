"""Recorded cases of placement as a state with its topologies, and the pod sets that they ask for."""

from typing import Any

import msgspec
from tests.support.conformance import Case, fact_of

from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import DomainUsage, FlavorRecord, State
from headgate.core.topology.assignments import Placement, expand
from headgate.core.topology.cache import TopologyCache
from headgate.core.topology.demands import Gates, PodSetDemand, Replacement
from headgate.core.topology.what_if import WhatIf
from headgate.events import facts
from headgate.events.objects import PodTemplate, TopologyAssignment, TopologyRequest

FLAVOR = "tas"
OTHER = "other"

GATES = {
    "profile_mixed": "TASProfileMixed",
    "balanced": "TASBalancedPlacement",
    "multi_layer": "TASMultiLayerTopology",
    "preferred_affinity": "TASRespectNodeAffinityPreferred",
    "overlapping_flavors": "TASHandleOverlappingFlavors",
    "elastic": "ElasticJobsViaWorkloadSlicesWithTAS",
}


def gates_of_case(case: Case) -> Gates:
    """The gates that a case sets."""
    given = case.get("features") or {}
    return Gates(**{field: given[gate] for field, gate in GATES.items() if gate in given})


def amounts(quantities: dict[str, Any]) -> dict[str, int]:
    """Quantities as amounts."""
    return {resource: amount(resource, quantity) for resource, quantity in quantities.items()}


def state_of_case(case: Case) -> State:
    """The nodes, flavors and topologies of a case, and what its pods take."""
    state = State()
    for manifest in case["objects"]:
        if manifest["kind"] == "Pod":
            _take(state, manifest)
            continue
        match fact_of(manifest):
            case facts.NodeObserved() as fact:
                state.nodes[fact.name] = fact.node
            case facts.ResourceFlavorObserved() as fact:
                state.flavors[fact.name] = FlavorRecord(spec=fact.spec)
            case facts.TopologyObserved() as fact:
                state.topologies[fact.name] = fact.spec
    return state


def _take(state: State, pod: dict[str, Any]) -> None:
    node = pod["spec"].get("nodeName")
    if not node or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return
    taken = state.index.taken.setdefault(node, {})
    for container in pod["spec"]["containers"]:
        for resource, value in amounts(container.get("resources", {}).get("requests", {})).items():
            taken[resource] = taken.get(resource, 0) + value
    taken["pods"] = taken.get("pods", 0) + 1


def what_if_of_case(case: Case) -> WhatIf:
    """The topologies of a case, with the usage that it says."""
    what_if = TopologyCache(state_of_case(case)).what_if()
    request = case["request"]
    if request.get("aggregatedDomainUsage"):
        for each in request["aggregatedDomainUsage"]:
            tree = what_if.flavor(FLAVOR)
            assert tree is not None
            leaf = tree.leaf(tuple(each["domain"].split(",")))
            assert leaf is not None
            tree.reserve(leaf, amounts(each["usage"]).items(), 1)
    for each in request.get("usageOfThisFlavor", ()):
        requests = tuple(amounts(each["singlePodRequests"]).items())
        what_if.add([DomainUsage(FLAVOR, tuple(each["values"]), requests, each["count"])])
    return what_if


def demand_of(given: dict[str, Any]) -> PodSetDemand:
    """A pod set as a case asks for it."""
    pod_set = given["podSet"]
    topology = pod_set.get("topologyRequest")
    previous = given.get("previousAssignment")
    return PodSetDemand(
        name=pod_set.get("name", ""),
        flavor=FLAVOR,
        requests=amounts(given["singlePodRequests"]),
        count=given["count"],
        topology=None if topology is None else msgspec.convert(topology, TopologyRequest),
        implied=given["implied"],
        group=given.get("podSetGroupName"),
        spec=msgspec.convert(pod_set["template"], PodTemplate).spec,
        previous=None if previous is None else placement_of(previous),
    )


def placement_of(assignment: dict[str, Any]) -> Placement:
    """A topology assignment as recorded."""
    return expand(msgspec.convert(assignment, TopologyAssignment))


def replacement_of(case: Case) -> Replacement | None:
    """The node that the workload of a case has to leave."""
    workload = case["request"].get("workload")
    if workload is None or not workload.get("status", {}).get("unhealthyNodes"):
        return None
    skips = (case.get("features") or {}).get("SkipReassignmentForPodOwnedWorkloads", True)
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return Replacement(
        node=workload["status"]["unhealthyNodes"][0]["name"],
        placements={
            each["name"]: placement_of(each["topologyAssignment"])
            for each in assignments
            if "topologyAssignment" in each
        },
        keeps_pods=skips and _is_owned_by_single_pod(workload),
    )


def _is_owned_by_single_pod(workload: dict[str, Any]) -> bool:
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences", [])
    is_group = "kueue.x-k8s.io/is-group-workload" in metadata.get("annotations", {})
    return len(owners) == 1 and owners[0]["kind"] == "Pod" and not is_group
