"""
Kubernetes' effective request of one pod: what a node has to have for it.

Used for quota (`headgate.core.workload.pod_requests`), for the choice of nodes, and for what pods use of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Protocol

from headgate.core.kubernetes.quantities import parse_quantity, to_amount
from headgate.events.objects import Resources

Quantities = Mapping[str, str | int | float]


class RequestingContainer(Protocol):
    """What of a container is read here."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def resources(self) -> Resources: ...  # noqa: D102
    @property
    def restart_policy(self) -> str | None: ...  # noqa: D102


class RequestingSpec(Protocol):
    """What of a pod's spec is read here: `PodSpec` of facts, and that of placement, which has more."""

    @property
    def containers(self) -> Sequence[RequestingContainer]: ...  # noqa: D102
    @property
    def init_containers(self) -> Sequence[RequestingContainer]: ...  # noqa: D102
    @property
    def resources(self) -> Resources | None: ...  # noqa: D102
    @property
    def overhead(self) -> Quantities: ...  # noqa: D102


def as_in_spec(container: RequestingContainer) -> Quantities:
    """What a container requests by its spec."""
    return container.resources.requests


_POD_LEVEL: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"


def pod_requests(spec: RequestingSpec) -> dict[str, int]:
    """Kubernetes' effective request of one pod, per resource in `amounts` units: what a node has to have for it."""
    return {resource: max(0, to_amount(resource, value)) for resource, value in effective(spec).items()}


def pod_level(spec: RequestingSpec) -> dict[str, str | int | float]:
    """The requests of the pod as a whole that replace those of its containers."""
    requests = spec.resources.requests if spec.resources is not None else {}
    return {name: value for name, value in requests.items() if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}


def effective(
    spec: RequestingSpec,
    of: Callable[[RequestingContainer], Quantities] = as_in_spec,
    of_pod: Callable[[RequestingSpec], Quantities] = pod_level,
) -> dict[str, Fraction]:
    """
    Kubernetes' effective request of one pod, exactly.

    Containers and sidecars together, or the peak of the init phase (an init container with the sidecars started before
    it) if that is more; pod-level requests replace both; overhead is added. See KEP-753 and KEP-2837. `of` and `of_pod`
    say what a container and the pod as a whole request, if it is not what the spec says.
    """
    running = _sum(of(container) for container in spec.containers)
    peak: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    for container in spec.init_containers:
        moment = _sum((of(container),), sidecars)
        if container.restart_policy == "Always":
            sidecars = moment
        for resource, value in moment.items():
            peak[resource] = max(peak.get(resource, value), value)
    for resource, value in sidecars.items():
        running[resource] = running.get(resource, Fraction(0)) + value
    for resource, value in peak.items():
        running[resource] = max(running.get(resource, value), value)
    for resource, quantity in of_pod(spec).items():
        running[resource] = parse_quantity(quantity)
    return _sum((spec.overhead,), running) if spec.overhead else running


def _sum(parts: Iterable[Quantities], start: Mapping[str, Fraction] | None = None) -> dict[str, Fraction]:
    total = dict(start or {})
    for part in parts:
        for resource, quantity in part.items():
            value = parse_quantity(quantity)
            total[resource] = total[resource] + value if resource in total else value
    return total
