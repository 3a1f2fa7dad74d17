"""
What a pod requests of a node, as the kube-scheduler counts it.

Three sums over the same containers (component-helpers `resource.PodRequests`, with the options that each place uses):

- `requests`: what the pod takes up, pod-level requests included;
- `nonzero`: the same, except that cpu or memory that nothing requests counts as 100m and 200Mi per container;
- `scored`: what NodeResourcesFit scores a pod by that is to be placed: as `nonzero`, without pod-level requests.

All are integers: cpu in milli-units, everything else in whole units. Only resources that nodes account for count: cpu,
memory, ephemeral-storage, and scalar resources (extended, prefixed native, huge pages, attachable volumes).
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from headgate.core.kubernetes.effective_requests import (
    Quantities,
    RequestingContainer,
    RequestingSpec,
    as_in_spec,
    effective,
    pod_level,
)
from headgate.core.kubernetes.label_syntax import why_no_label_key
from headgate.core.kubernetes.quantities import QuantityError, parse_quantity, to_amount
from headgate.core.placement.objects.pods import RESIZE_PENDING, ContainerStatus, PodSpecObject, PodStatusObject

Amounts = Mapping[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_BASIC: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_DEFAULTS: Final[Quantities] = {CPU: "100m", MEMORY: 200 * 1024 * 1024}


def is_extended(resource: str) -> bool:
    """Whether a resource is an extended one: of a domain that is not Kubernetes' (IsExtendedResourceName)."""
    if "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    return not why_no_label_key(f"requests.{resource}")


def is_scalar(resource: str) -> bool:
    """Whether nodes account for a resource by its name alone (IsScalarResourceName)."""
    return (
        resource.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in resource
        or is_extended(resource)
    )


class PodRequests(msgspec.Struct, frozen=True):
    """What a pod takes up on a node."""

    requests: Amounts
    nonzero_cpu_milli: int
    nonzero_memory_bytes: int


def amounts(exact: Mapping[str, Fraction]) -> dict[str, int]:
    """Exact requests as integers, of resources that nodes account for."""
    return {
        resource: to_amount(resource, value)
        for resource, value in exact.items()
        if resource in _BASIC or is_scalar(resource)
    }


def requests_of(spec: PodSpecObject, status: PodStatusObject) -> PodRequests:
    """What a pod takes up, with what its node has allocated to it during a resize (KEP-1287)."""
    of: Callable[[RequestingContainer], Quantities] = as_in_spec
    of_pod: Callable[[RequestingSpec], Quantities] = pod_level
    if status.container_statuses or status.init_container_statuses or status.resources is not None:
        resize = _Resize(spec, status)
        of, of_pod = resize.of_container, resize.of_pod
    exact = effective(spec, of, of_pod)
    missing = _missing(exact, has_pod_level=bool(pod_level(spec)))
    padded = effective(spec, lambda container: {**missing, **of(container)}, of_pod) if missing else exact
    return PodRequests(
        requests=amounts(exact),
        nonzero_cpu_milli=to_amount(CPU, padded.get(CPU, Fraction(0))),
        nonzero_memory_bytes=to_amount(MEMORY, padded.get(MEMORY, Fraction(0))),
    )


def problem_of(spec: PodSpecObject) -> str:
    """
    The first quantity that the API does not allow in what a pod requests, and what to write instead; "" for none.

    The API server refuses such pods. One that got past it must not be placed: less than nothing would make room.
    """
    containers = (("containers", spec.containers), ("initContainers", spec.init_containers))
    requested = [
        (f"spec.{kind}[{index}].resources.requests", container.resources.requests)
        for kind, found in containers
        for index, container in enumerate(found)
    ]
    if spec.resources is not None:
        requested.append(("spec.resources.requests", spec.resources.requests))
    requested.append(("spec.overhead", spec.overhead))
    for field, quantities in requested:
        for name, quantity in quantities.items():
            try:
                is_negative = parse_quantity(quantity) < 0
            except QuantityError as error:
                return f"{field}[{name}]: {error}"
            if is_negative:
                return f"{field}[{name}]: {quantity!r} is negative: write 0 or more"
    return ""


def scored_requests(spec: PodSpecObject) -> dict[str, int]:
    """What NodeResourcesFit scores a pod by."""
    return amounts(effective(spec, lambda container: {**_DEFAULTS, **as_in_spec(container)}, _nothing))


def _nothing(_: RequestingSpec) -> Quantities:
    return {}


def _missing(exact: Mapping[str, Fraction], *, has_pod_level: bool) -> Quantities:
    """What containers are taken to request that request none of it (getNonMissingContainerRequests)."""
    if not has_pod_level:
        return _DEFAULTS
    return {resource: value for resource, value in _DEFAULTS.items() if resource not in exact}


class _Resize:
    """Requests while spec, allocation and what runs differ: the most of them, without the spec if it is infeasible."""

    def __init__(self, spec: PodSpecObject, status: PodStatusObject) -> None:
        self._status = status
        self._of_containers = {
            each.name: each for each in (*status.container_statuses, *status.init_container_statuses)
        }
        self._once = {each.name for each in spec.init_containers if each.restart_policy != "Always"}
        pending = next((each for each in status.conditions if each.type == RESIZE_PENDING), None)
        self._is_infeasible = pending is not None and pending.reason == "Infeasible"

    def of_container(self, container: RequestingContainer) -> Quantities:
        """The requests of a container."""
        requests = container.resources.requests
        shown: ContainerStatus | None = self._of_containers.get(container.name)
        if shown is None or shown.resources is None or container.name in self._once:
            return requests
        return self._most(requests, shown.resources.requests, shown.allocated_resources)

    def of_pod(self, spec: RequestingSpec) -> Quantities:
        """The requests of the pod as a whole."""
        asked = pod_level(spec)
        if self._status.resources is None or not asked:
            return asked
        requests = spec.resources.requests if spec.resources is not None else {}
        most = self._most(requests, self._status.resources.requests, self._status.allocated_resources)
        return {resource: most.get(resource, 0) for resource in asked}

    def _most(self, spec: Quantities, actuated: Quantities, allocated: Quantities) -> Quantities:
        most: dict[str, str | int | float] = {}
        for part in (actuated, allocated) if self._is_infeasible else (spec, actuated, allocated):
            for resource, value in part.items():
                if resource not in most or parse_quantity(value) > parse_quantity(most[resource]):
                    most[resource] = value
        return most
