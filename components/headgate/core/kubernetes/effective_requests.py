"""
Kubernetes' effective request of one pod: what a node has to have for it.

Used for quota (`headgate.core.workload.pod_requests`), for the choice of nodes, and for what pods use of them.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from headgate.core.kubernetes.quantities import parse_quantity, to_amount
from headgate.events.objects import PodSpec

Quantities = Mapping[str, str | int | float]

_POD_LEVEL: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Kubernetes' effective request of one pod, per resource in `amounts` units: what a node has to have for it."""
    return {resource: max(0, to_amount(resource, value)) for resource, value in effective(spec).items()}


def effective(spec: PodSpec) -> dict[str, Fraction]:
    """
    Kubernetes' effective request of one pod, exactly.

    Containers and sidecars together, or the peak of the init phase (an init container with the sidecars started before
    it) if that is more; pod-level requests replace both; overhead is added. See KEP-753 and KEP-2837.
    """
    running = _sum(container.resources.requests for container in spec.containers)
    peak: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    for container in spec.init_containers:
        moment = _sum((container.resources.requests,), sidecars)
        if container.restart_policy == "Always":
            sidecars = moment
        for resource, value in moment.items():
            peak[resource] = max(peak.get(resource, value), value)
    for resource, value in sidecars.items():
        running[resource] = running.get(resource, Fraction(0)) + value
    for resource, value in peak.items():
        running[resource] = max(running.get(resource, value), value)
    if spec.resources is not None:
        for resource, quantity in spec.resources.requests.items():
            if resource in _POD_LEVEL or resource.startswith(_HUGE_PAGES):
                running[resource] = parse_quantity(quantity)
    return _sum((spec.overhead,), running) if spec.overhead else running


def _sum(parts: Iterable[Quantities], start: Mapping[str, Fraction] | None = None) -> dict[str, Fraction]:
    total = dict(start or {})
    for part in parts:
        for resource, quantity in part.items():
            value = parse_quantity(quantity)
            total[resource] = total[resource] + value if resource in total else value
    return total
