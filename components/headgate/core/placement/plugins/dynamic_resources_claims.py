"""
The claims of a pod: named ones, and those that were made for it of templates; whether they can be used, and since when.

Source: k8s.io/dynamic-resource-allocation/resourceclaim and dynamicresources.go (`foreachPodResourceClaim`).
"""

from typing import Final

import msgspec

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.events import Hint
from headgate.core.placement.objects.devices import AllocatedDevice, AllocatedDeviceStatus, ResourceClaim
from headgate.core.placement.objects.pods import PodResourceClaim
from headgate.core.placement.pods import PodInfo

CONSUMERS_MAX: Final = 256
"""Pods that one claim can be reserved for (ResourceClaimReservedForMaxSize)."""


class PodClaims(msgspec.Struct, frozen=True):
    """The claims of a pod in the order of its spec, or why it cannot have them."""

    claims: tuple[ResourceClaim, ...] = ()
    problem: str = ""


def claims_of(cluster: PlacementCluster, pod: PodInfo) -> PodClaims:
    """The claims of a pod."""
    known = cluster.objects(ResourceClaim)
    claims: list[ResourceClaim] = []
    for each in pod.spec.resource_claims:
        name, is_made, problem = _name_of(pod, each)
        if problem:
            return PodClaims(problem=problem)
        if name is None:
            continue
        claim = known.get(f"{pod.namespace}/{name}")
        problem = _why_unusable(pod, claim, name, is_made=is_made)
        if problem or claim is None:
            return PodClaims(problem=problem)
        claims.append(claim)
    return PodClaims(tuple(claims))


def _name_of(pod: PodInfo, reference: PodResourceClaim) -> tuple[str | None, bool, str]:
    """The name of a claim, None if none is needed; whether it was made for the pod; or why there is no name."""
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name, False, ""
    if reference.resource_claim_template_name is None:
        why = f'pod "{pod.key}", spec.resourceClaim "{reference.name}": none of the supported fields are set'
        return None, False, why
    for made in pod.object.status.resource_claim_statuses:
        if made.name == reference.name:
            return made.resource_claim_name, True, ""
    return None, False, f'pod "{pod.key}": ResourceClaim not created yet'


def _why_unusable(pod: PodInfo, claim: ResourceClaim | None, name: str, *, is_made: bool) -> str:
    if claim is None:
        return f'could not find ResourceClaim "{pod.namespace}/{name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'resourceclaim "{name}" is being deleted'
    if is_made and not any(owner.controller and owner.uid == pod.uid for owner in claim.metadata.owner_references):
        return f"ResourceClaim {claim.metadata.key} was not created for Pod {pod.key} (Pod is not owner)"
    return ""


def is_reserved_for(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Whether a pod may use a claim already."""
    return any(consumer.uid == pod.uid for consumer in claim.status.reserved_for)


def why_not_ready(claim: ResourceClaim) -> tuple[str, bool]:
    """Why an allocated claim is not ready for its pods, and whether it never will be; "" if it is."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if not result.binding_conditions:
            continue
        status = _status_of(claim, result)
        true = {each.type: each for each in status.conditions if each.status == "True"} if status is not None else {}
        failed = next((true[name] for name in result.binding_failure_conditions if name in true), None)
        if failed is not None:
            why = f'claim={claim.metadata.name}, reason={failed.reason}, message="{failed.message}"'
            return f"device binding failed: {why}", True
        missing = next((name for name in result.binding_conditions if name not in true), "")
        if missing:
            return f"resourceclaim {claim.metadata.key} waits for condition {missing} of device {result.device}", False
    return "", False


def _status_of(claim: ResourceClaim, result: AllocatedDevice) -> AllocatedDeviceStatus | None:
    place = (result.driver, result.pool, result.device)
    return next((each for each in claim.status.devices if (each.driver, each.pool, each.device) == place), None)


# --- hints -----------------------------------------------------------------------------------------------------------


def after_claim_change(pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim, cluster: PlacementCluster) -> Hint:
    """A claim that is given back helps all that wait for devices, any other change the pods of the claim."""
    found = claims_of(cluster, pod)
    if found.problem:
        return Hint.SKIP
    if old is not None and old.status.allocation is not None and new.status.allocation is None:
        return Hint.QUEUE
    if all(claim.metadata.uid != new.metadata.uid for claim in found.claims):
        return Hint.SKIP
    return Hint.QUEUE if old is None or _written(old) != _written(new) else Hint.SKIP


def _written(claim: ResourceClaim) -> object:
    """What a claim says. One that is decided and one that is written are not the same."""
    return claim.status, claim.pending_for


def after_pod_change(pod: PodInfo, old: object, new: PodInfo, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    """The claims of the pod itself have been made."""
    return Hint.QUEUE if new.uid == pod.uid and not claims_of(cluster, new).problem else Hint.SKIP
