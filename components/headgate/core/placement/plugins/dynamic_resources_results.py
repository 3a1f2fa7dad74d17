"""
What is written of the devices chosen for a claim: results, configuration for drivers, and the nodes that can use it.

Source: structured/internal/incubating/allocator_incubating.go (`Allocate`, `createNodeSelector`).
"""

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Final

from headgate.core.placement.objects.devices import (
    AllocatedConfiguration,
    AllocatedDevice,
    AllocatedDevices,
    ClaimAllocation,
    DeviceConfiguration,
)
from headgate.core.placement.plugins.dynamic_resources_entries import AllocationError
from headgate.core.placement.plugins.dynamic_resources_requests import ChosenClaim, ChosenDevice, RequestView
from headgate.events.objects import NodeSelector, NodeSelectorTerm, Requirement

_CLASS: Final = "FromClass"
_CLAIM: Final = "FromClaim"


def allocation_of(chosen: ChosenClaim, node: str, pod: str) -> ClaimAllocation:
    """The allocation of a claim for a pod (its uid) on a node. Raises AllocationError."""
    claim = chosen.claim
    results = tuple(
        _result_of(device, _share_id(claim.metadata.uid, pod, number)) for number, device in enumerate(chosen.devices)
    )
    config = (*_of_classes(chosen.views), *_of_claim(chosen.views, claim.spec.devices.config))
    return ClaimAllocation(
        devices=AllocatedDevices(results=results, config=config), node_selector=_nodes_of(chosen.devices, node)
    )


def _result_of(device: ChosenDevice, share_id: str) -> AllocatedDevice:
    view, (driver, pool, name) = device.view, device.id
    is_shared = device.consumed is not None
    return AllocatedDevice(
        request=view.reference,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if view.is_admin else None,
        tolerations=view.tolerations,
        share_id=share_id if is_shared else None,
        consumed_capacity=dict(device.consumed) if device.consumed else None,
    )


def _share_id(claim: str, pod: str, number: int) -> str:
    """
    The id of a share, in the form of a UUID.

    It follows from what it is of, so that an attempt that is made again writes the same one.
    """
    digits = sha256(f"{claim}/{pod}/{number}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


# --- configuration -------------------------------------------------------------------------------------------------


def _of_classes(views: Iterable[RequestView]) -> list[AllocatedConfiguration]:
    """That of each class once, for all requests of the class."""
    requests: dict[str, list[str]] = {}
    classes = {}
    for view in views:
        name = view.device_class.metadata.name
        classes[name] = view.device_class
        requests.setdefault(name, []).append(view.reference)
    return [
        AllocatedConfiguration(source=_CLASS, requests=tuple(requests[name]), opaque=config.opaque)
        for name, each in classes.items()
        for config in each.spec.config
    ]


def _of_claim(
    views: Collection[RequestView], configurations: Iterable[DeviceConfiguration]
) -> list[AllocatedConfiguration]:
    """That of the claim, once for each request that it names, by itself or by the alternative that was met."""
    found: list[AllocatedConfiguration] = []
    for config in configurations:
        passed_on = AllocatedConfiguration(source=_CLAIM, requests=config.requests, opaque=config.opaque)
        if not config.requests:
            found.append(passed_on)
        found.extend(passed_on for view in views if view.base in config.requests or view.reference in config.requests)
    return found


# --- nodes ---------------------------------------------------------------------------------------------------------


def _nodes_of(devices: Iterable[ChosenDevice], node: str) -> NodeSelector | None:
    """The nodes on which all devices can be used; None for all nodes."""
    fields: list[Requirement] = []
    expressions: list[Requirement] = []
    for each in devices:
        device, spec = each.entry.device, each.entry.slice.spec
        of = device if spec.per_device_node_selection else spec
        if of.node_name is not None or device.binds_to_node:
            only = Requirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
        terms = of.node_selector.node_selector_terms if of.node_selector is not None else ()
        if len(terms) > 1:
            raise AllocationError(
                f"slice {each.entry.slice.metadata.name}: its node selector has {len(terms)} terms, one is allowed"
            )
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add_new(known: list[Requirement], more: Iterable[Requirement]) -> None:
    for requirement in more:
        if not any(
            (each.key, each.operator, set(each.values))
            == (requirement.key, requirement.operator, set(requirement.values))
            for each in known
        ):
            known.append(requirement)
