"""
DynamicResources: the claims of the pod have devices, or can get them on the node (structured parameters).

What is allocated with the pod is reserved as claims as they will be, and written before the pod is bound: allocation,
finalizer and reservation in one. While it is not written no other pod can use the claim, as with the kube-scheduler.
Claims with an allocation keep the pod on the nodes that it is for; if that is what keeps the pod from all nodes, and no
other pod has the claim, its devices are to be given back (`PostFiltered.writes`: runs of scenarios do it; the scheduler
process does not record them yet, and the pod waits until somebody else does it).

By the feature gates of 1.36: prioritized lists, administrators' access, device taints and tolerations, partitionable
devices and consumable capacity are on. Not covered, and refused with the reason:

- devices with binding conditions (DRADeviceBindingConditions, on in 1.36) are passed over. A claim that another
  scheduler has allocated some for is used once its conditions are met;
- extended resources that a device class provides (DRAExtendedResource, on in 1.36): a node has to have them itself.

Off in 1.36, and off here: device taint rules, lists as attributes, node allocatable resources, claims of pod groups.

Otherwise than in the kube-scheduler a search ends after a number of devices and not of seconds, a claim that 256 pods
have is refused before the pod gets a node, the first of several claims that block the pod is given back and not a
random one, and a written reservation is not withdrawn when the bind fails: the pod will use it, or give the claim back.

Source: dynamicresources.go.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import UPDATE, ActionType, EventHint, EventResource
from headgate.core.placement.framework.plugin import (
    Assumed,
    NodeStatuses,
    ObjectWrite,
    PluginFactory,
    PostFiltered,
    PreBound,
    PreFiltered,
    Reads,
    Reserved,
)
from headgate.core.placement.framework.status import (
    SKIP,
    SUCCESS,
    Code,
    PluginStatus,
    error,
    unresolvable,
    unschedulable,
)
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.devices import (
    ClaimAllocation,
    ClaimConsumer,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
)
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.dynamic_resources_allocator import DeviceAllocator
from headgate.core.placement.plugins.dynamic_resources_claims import (
    CONSUMERS_MAX,
    after_claim_change,
    after_pod_change,
    claims_of,
    is_reserved_for,
    why_not_ready,
)
from headgate.core.placement.plugins.dynamic_resources_entries import AllocationError
from headgate.core.placement.plugins.dynamic_resources_index import DeviceIndex
from headgate.core.placement.plugins.dynamic_resources_pools import selects
from headgate.core.placement.plugins.extended_resources import delegated
from headgate.core.placement.plugins.normalizing import proportional

NAME: Final = "DynamicResources"

FINALIZER: Final = "resource.kubernetes.io/delete-protection"

_ALTERNATIVES_MAX: Final = 8
"""FirstAvailableDeviceRequestMaxSize: what the first alternative of a request scores."""

_NOT_HERE: Final = unresolvable("resourceclaim not available on the node")


class ClaimState:
    """
    What is known of the claims of a pod in an attempt. `allocator` is None when all have an allocation.

    `provided` are the extended resources of the pod that device classes provide.
    """

    __slots__ = ("allocator", "claims", "provided")

    def __init__(
        self, claims: tuple[ResourceClaim, ...], allocator: DeviceAllocator | None, provided: tuple[str, ...]
    ) -> None:
        self.claims = claims
        self.allocator = allocator
        self.provided = provided

    def unavailable(self, node: NodeObject) -> Iterator[int]:
        """The places of claims that the node cannot use as they are allocated."""
        for place, claim in enumerate(self.claims):
            allocation = claim.status.allocation
            selector = allocation.node_selector if allocation is not None else None
            if (selector is not None and not selects(selector, node)) or why_not_ready(claim)[1]:
                yield place


class DynamicResources:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER
    score_reads = Reads.CLUSTER

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """Pods do not matter: a claim has its devices until it is gone."""
        return True

    def pre_enqueue(self, cycle: PlacementCycle) -> PluginStatus:
        """Hold a pod back until its claims are there."""
        problem = claims_of(cycle.cluster, cycle.pod).problem
        return unresolvable(problem) if problem else SUCCESS

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """The claims, and what allocates them. Skip without any, a rejection for those that cannot be had now."""
        cluster, pod = cycle.cluster, cycle.pod
        found = claims_of(cluster, pod)
        if found.problem:
            return PreFiltered(unresolvable(found.problem))
        requests = pod.shape.requests.requests
        provided = tuple(name for name in delegated(cluster, requests) if requests[name])
        if not found.claims and not provided:
            return PreFiltered(SKIP)
        classes = cluster.objects(DeviceClass)
        for claim in found.claims:
            status = _why_not(cycle, claim, classes)
            if not status.is_success:
                return PreFiltered(status)
        missing = tuple(claim for claim in found.claims if claim.status.allocation is None)
        allocator = DeviceAllocator(cluster.index(DeviceIndex), classes, missing, pod.uid) if missing else None
        return PreFiltered(SUCCESS, ClaimState(found.claims, allocator, provided))

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the node can use the claims that have devices, and has devices for all others."""
        state: ClaimState = cycle.filter_states[NAME]
        for resource in state.provided:
            if not node.allocatable.get(resource, 0):
                return unresolvable(
                    f"{resource} is provided by devices, which this scheduler allocates to claims alone: "
                    "ask for them by spec.resourceClaims"
                )
        is_unavailable = any(True for _ in state.unavailable(node.node))
        if state.allocator is not None:
            status = state.allocator.on(node.node).status
            if not status.is_success:
                return status
        return _NOT_HERE if is_unavailable else SUCCESS

    def post_filter(self, cycle: PlacementCycle, statuses: NodeStatuses) -> PostFiltered:
        """Give back a claim that keeps the pod from a node. An error, where this plugin was not asked about the pod."""
        state: ClaimState | None = cycle.filter_states.get(NAME)
        if state is None:
            if NAME not in cycle.skipped_filters and statuses.absent.plugin != NAME:
                return PostFiltered(error("not found"))
            return PostFiltered(unschedulable("no new claims to deallocate"))
        for claim in _blocking(cycle, state, statuses):
            consumers = claim.status.reserved_for
            if not consumers or [consumer.uid for consumer in consumers] == [cycle.pod.uid]:
                given_back = {"reservedFor": None, "allocation": None, "devices": None}
                write = ObjectWrite(
                    "ResourceClaim", claim.metadata.key, {"metadata": _identity(claim), "status": given_back}
                )
                return PostFiltered(unschedulable("deallocation of ResourceClaim completed"), writes=(write,))
        return PostFiltered(unschedulable("still not schedulable"))

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """How far in front the alternatives are that the requests get here."""
        state: ClaimState | None = cycle.filter_states.get(NAME)
        if state is None or state.allocator is None or not _has_alternatives(state):
            return 0
        chosen = iter(state.allocator.on(node.node).chosen)
        score = 0
        for claim in state.claims:
            allocation = claim.status.allocation
            if allocation is not None:
                met = [result.request for result in allocation.devices.results]
            else:
                met = [device.view.reference for device in next(chosen).devices]
            score += _score_of(claim, met)
        return score

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes; nothing for pods without alternatives, which are nearly all."""
        state: ClaimState | None = cycle.filter_states.get(NAME)
        if state is None or not _has_alternatives(state):
            return np.zeros(len(rows), dtype=np.int64)
        infos = (columns.infos[row] for row in rows.tolist())
        scores = (self.score(cycle, info) for info in infos if info is not None)
        return np.fromiter(scores, dtype=np.int64, count=len(rows))

    def normalize(self, cycle: PlacementCycle, rows: Rows, scores: Ints) -> Ints:  # noqa: ARG002 - the scores suffice
        """In proportion to the highest."""
        return proportional(scores, reverse=False)

    def reserve(self, cycle: PlacementCycle, node: NodeInfo) -> Reserved:
        """The claims that get devices with the pod, as they will be."""
        state: ClaimState | None = cycle.filter_states.get(NAME)
        if state is None or state.allocator is None:
            return Reserved()
        if not state.allocator.on(node.node).status.is_success:
            return Reserved(error("claim allocation not found for node"))
        try:
            made = iter(state.allocator.allocations(node.node))
        except AllocationError as reason:
            return Reserved(error(str(reason)))
        assumed = [
            Assumed(ResourceClaim, claim.metadata.key, _allocated(claim, next(made), cycle.pod.uid))
            for claim in state.claims
            if claim.status.allocation is None
        ]
        return Reserved(assumed=tuple(assumed))

    def pre_bind(self, cycle: PlacementCycle, node: NodeInfo) -> PreBound:  # noqa: ARG002 - the claims say where
        """The claims that have to be written as allocated to, and reserved for, the pod."""
        pod = cycle.pod
        if not pod.spec.resource_claims:
            return PreBound()
        found = claims_of(cycle.cluster, pod)
        if found.problem:
            return PreBound(error(found.problem))
        writes: list[ObjectWrite] = []
        for claim in found.claims:
            if is_reserved_for(claim, pod):
                continue
            if claim.status.allocation is None:
                return PreBound(error(f"claim {claim.metadata.key} got deallocated elsewhere in the meantime"))
            if claim.pending_for not in ("", pod.uid):
                return PreBound(error(f"claim {claim.metadata.key} got allocated elsewhere in the meantime"))
            writes.append(_reservation(claim, cycle))
        return PreBound(PluginStatus(Code.WAIT), tuple(writes)) if writes else PreBound()

    def events(self) -> tuple[EventHint, ...]:
        """Claims of the pod, devices that come free or are new, classes, nodes."""
        return (
            EventHint(
                EventResource.NODE,
                ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE,
            ),
            EventHint(EventResource.RESOURCE_CLAIM, ActionType.ADD | UPDATE, after_claim_change),
            EventHint(EventResource.POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, after_pod_change),
            EventHint(EventResource.DEVICE_CLASS, ActionType.ADD | UPDATE),
            EventHint(EventResource.RESOURCE_SLICE, ActionType.ADD | UPDATE),
        )


# --- claims before the search ----------------------------------------------------------------------------------------


def _why_not(cycle: PlacementCycle, claim: ResourceClaim, classes: Any) -> PluginStatus:
    """Why a pod cannot use a claim on any node; Success if it may."""
    key = claim.metadata.key
    if claim.pending_for:
        return unresolvable(f"resource claim {key} is in the process of being allocated")
    if claim.status.allocation is None:
        return _why_invalid(claim, classes)
    if not is_reserved_for(claim, cycle.pod) and len(claim.status.reserved_for) >= CONSUMERS_MAX:
        return unresolvable(f"resourceclaim in use: {key} is reserved for {CONSUMERS_MAX} pods, which is the most")
    why, is_final = why_not_ready(claim)
    return unresolvable(why) if why and not is_final else SUCCESS


def _why_invalid(claim: ResourceClaim, classes: Any) -> PluginStatus:
    for request in claim.spec.devices.requests:
        if request.exactly is None and not request.first_available:
            return unresolvable(f"resource claim {claim.metadata.key}, request {request.name}: unknown request type")
        for name, device_class in _classes_of(request):
            if not device_class:
                return error(f"request {name}: unsupported request type")
            if device_class not in classes:
                return unresolvable(f"request {name}: device class {device_class} does not exist")
    return SUCCESS


def _classes_of(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    """The names of a request, or of its alternatives, with their classes."""
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
        return
    for alternative in request.first_available:
        yield f"{request.name}/{alternative.name}", alternative.device_class_name


def _blocking(cycle: PlacementCycle, state: ClaimState, statuses: NodeStatuses) -> Iterator[ResourceClaim]:
    """The claims that kept the pod from a node, in the order of the pod's spec."""
    number = cycle.statuses.id_of(_NOT_HERE.of(NAME))
    places: set[int] = set()
    for row in statuses.rows[statuses.ids == number].tolist():
        places.update(state.unavailable(cycle.cluster.info_of(row).node))
    for place in sorted(places):
        yield state.claims[place]


# --- scores ----------------------------------------------------------------------------------------------------------


def _has_alternatives(state: ClaimState) -> bool:
    return any(request.first_available for claim in state.claims for request in claim.spec.devices.requests)


def _score_of(claim: ResourceClaim, met: Collection[str]) -> int:
    """How far in front the alternatives are that were met."""
    return sum(
        _ALTERNATIVES_MAX - place
        for request in claim.spec.devices.requests
        if request.exactly is None
        for place, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in met
    )


# --- what is written -------------------------------------------------------------------------------------------------


def _allocated(claim: ResourceClaim, allocation: ClaimAllocation, pod: str) -> ResourceClaim:
    """A claim with the devices that were chosen for a pod."""
    finalizers = claim.metadata.finalizers
    if FINALIZER not in finalizers:
        finalizers = (*finalizers, FINALIZER)
    return msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(claim.metadata, finalizers=finalizers),
        status=msgspec.structs.replace(claim.status, allocation=allocation),
        pending_for=pod,
    )


def _identity(claim: ResourceClaim) -> dict[str, Any]:
    """What a patch names so that it is refused for another claim of the same name."""
    return {"uid": claim.metadata.uid} if claim.metadata.uid else {}


def _plain(value: Any) -> Any:
    """A value as it will be read again: with lists, not tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _reservation(claim: ResourceClaim, cycle: PlacementCycle) -> ObjectWrite:
    """A claim is reserved for the pod and, if it was allocated with it, allocated."""
    consumer = ClaimConsumer(resource="pods", name=cycle.pod.name, uid=cycle.pod.uid)
    status: dict[str, Any] = {"reservedFor": _plain((*claim.status.reserved_for, consumer))}
    metadata = _identity(claim)
    if claim.pending_for:
        metadata["finalizers"] = list(claim.metadata.finalizers)
        status["allocation"] = _plain(claim.status.allocation)
    return ObjectWrite("ResourceClaim", claim.metadata.key, {"metadata": metadata, "status": status})


FACTORY: Final = PluginFactory(NAME, lambda _: DynamicResources())
