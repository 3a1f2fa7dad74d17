"""
Requests: what the pods of a workload ask for, as quota and nodes have to count it.

`adjusted` completes a pod spec as the API server would (RuntimeClass overhead, LimitRange defaults, limits in place of
missing requests), `pod_requests` gives Kubernetes' effective request of one such pod, `pod_set_requests` those of all
pod sets of a workload with the number of pods that still count. The scheduler assigns flavors to them, the queue
manager digests them into a workload's shape, the binder fits pods onto nodes with them.

`why_invalid` says in Kueue's words what of a workload no ClusterQueue could ever take: requests above limits,
containers outside their namespace's LimitRanges.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from headgate.core.amounts import multiply, parse_quantity, to_amount
from headgate.core.state import State, Workload
from headgate.events.ids import split_key
from headgate.events.objects import Container, LimitRangeItem, PodSpec, Resources

Quantities = Mapping[str, str | int | float]

_POD_LEVEL = ("cpu", "memory")
_HUGE_PAGES = "hugepages-"


class PodSetRequests(msgspec.Struct, frozen=True):
    """
    What one pod set asks for: `per_pod` amounts of `count` pods.

    `spec` is the adjusted spec of its pods. `count` is less than the spec's when pods are reclaimable.
    """

    name: str
    count: int
    spec: PodSpec
    per_pod: dict[str, int]

    def total(self, count: int | None = None) -> dict[str, int]:
        """The amounts of all its pods, or of `count` of them; saturated."""
        pods = self.count if count is None else count
        return {resource: multiply(value, pods) for resource, value in self.per_pod.items()}


# --- LimitRanges ---------------------------------------------------------------------------------------------------


def _keep(into: dict[str, str | int | float], more: Quantities, *, prefer: int) -> None:
    """Merge quantities: the first stays (0), or the smaller (-1), or the larger (1)."""
    for resource, quantity in more.items():
        old = into.get(resource)
        if old is None or (prefer and (parse_quantity(quantity) - parse_quantity(old)) * prefer > 0):
            into[resource] = quantity


def summarize(items: Iterable[LimitRangeItem]) -> dict[str, LimitRangeItem]:
    """LimitRange items by type as one each: the lowest max, the highest min, the first defaults."""
    by_type: dict[str, list[LimitRangeItem]] = {}
    for item in items:
        by_type.setdefault(item.type, []).append(item)
    return {kind: _merge(kind, same) for kind, same in by_type.items()}


def _merge(kind: str, items: list[LimitRangeItem]) -> LimitRangeItem:
    if len(items) == 1:
        return items[0]
    maximum: dict[str, str | int | float] = {}
    minimum: dict[str, str | int | float] = {}
    default: dict[str, str | int | float] = {}
    default_request: dict[str, str | int | float] = {}
    for item in items:
        _keep(maximum, item.max, prefer=-1)
        _keep(minimum, item.min, prefer=1)
        _keep(default, item.default, prefer=0)
        _keep(default_request, item.default_request, prefer=0)
    return LimitRangeItem(type=kind, max=maximum, min=minimum, default=default, default_request=default_request)


Limits = Mapping[str, LimitRangeItem]
"""The LimitRanges of one namespace, summarized: by type, "Container" or "Pod"."""


def limits_of(state: State, namespace: str) -> Limits:
    """The LimitRanges of a namespace, summarized. Costs a pass over all of them: keep it while they do not change."""
    return summarize(
        item for key in sorted(state.limit_ranges) if split_key(key)[0] == namespace for item in state.limit_ranges[key]
    )


# --- adjusting a pod -----------------------------------------------------------------------------------------------


def adjusted(spec: PodSpec, limits: Limits, runtime_classes: Mapping[str, Quantities]) -> PodSpec:
    """
    A pod spec as it will be once the API server has defaulted it.

    Overhead comes from the RuntimeClass when the spec has none; container defaults from LimitRanges; then each limit
    without a request is taken as the request, in containers and at pod level.
    """
    overhead = spec.overhead
    if spec.runtime_class_name is not None and not overhead:
        overhead = dict(runtime_classes.get(spec.runtime_class_name, {}))
    default = limits.get("Container")
    containers = tuple(_with_defaults(container, default) for container in spec.containers)
    init_containers = tuple(_with_defaults(container, default) for container in spec.init_containers)
    resources = spec.resources and _limits_as_requests(spec.resources)
    if (
        containers == spec.containers
        and init_containers == spec.init_containers
        and overhead == spec.overhead
        and resources == spec.resources
    ):
        return spec
    return msgspec.structs.replace(
        spec, containers=containers, init_containers=init_containers, overhead=overhead, resources=resources
    )


def _with_defaults(container: Container, default: LimitRangeItem | None) -> Container:
    resources = container.resources
    if default is not None and (default.default or default.default_request):
        resources = Resources(
            requests={**default.default_request, **resources.requests},
            limits={**default.default, **resources.limits},
        )
    resources = _limits_as_requests(resources)
    return container if resources is container.resources else msgspec.structs.replace(container, resources=resources)


def _limits_as_requests(resources: Resources) -> Resources:
    if all(resource in resources.requests for resource in resources.limits):
        return resources
    return Resources(requests={**resources.limits, **resources.requests}, limits=resources.limits)


# --- the effective request of a pod --------------------------------------------------------------------------------


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """
    Kubernetes' effective request of one pod, per resource in `amounts` units.

    Containers and sidecars together, or the largest moment of the init phase (an init container with the sidecars
    started before it) if that is more; pod-level requests replace both; overhead is added. See KEP-753 and KEP-2837.
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
    total = _sum((spec.overhead,), running) if spec.overhead else running
    return {resource: max(0, to_amount(resource, value)) for resource, value in total.items()}


def _sum(parts: Iterable[Quantities], start: Mapping[str, Fraction] | None = None) -> dict[str, Fraction]:
    total = dict(start or {})
    for part in parts:
        for resource, quantity in part.items():
            value = parse_quantity(quantity)
            total[resource] = total[resource] + value if resource in total else value
    return total


def pod_set_requests(
    workload: Workload, limits: Limits, runtime_classes: Mapping[str, Quantities]
) -> tuple[PodSetRequests, ...]:
    """What each pod set of a workload asks for, in spec order. Pods that are reclaimable do not count any more."""
    reclaimable = {pods.name: pods.count for pods in workload.reclaimable_pods}
    requests = []
    for pod_set in workload.spec.pod_sets:
        spec = adjusted(pod_set.template.spec, limits, runtime_classes)
        count = max(0, pod_set.count - reclaimable.get(pod_set.name, 0)) if reclaimable else pod_set.count
        requests.append(PodSetRequests(pod_set.name, count, spec, pod_requests(spec)))
    return tuple(requests)


# --- validation ----------------------------------------------------------------------------------------------------


def why_invalid(requests: Iterable[PodSetRequests], limits: Limits) -> str:
    """Why no ClusterQueue can take these pod sets, in Kueue's words; "" when nothing is wrong with them."""
    requests = tuple(requests)
    if errors := _above_own_limits(requests):
        return f"resources validation failed: {_aggregate(errors)}"
    if limits and (errors := _outside_limit_ranges(requests, limits)):
        return f"resources didn't satisfy LimitRange constraints: {_aggregate(errors)}"
    return ""


def _aggregate(errors: list[str]) -> str:
    """Several errors as apimachinery's Aggregate writes them: bracketed, each once."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _invalid(path: str, resources: list[str], why: str) -> str:
    names = ",".join(f'"{resource}"' for resource in resources)
    return f"{path}: Invalid value: [{names}]: {why}"


def _containers(index: int, spec: PodSpec) -> Iterable[tuple[str, Resources]]:
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for place, container in enumerate(containers):
            yield f"spec.podSets[{index}].template.spec.{kind}[{place}]", container.resources


def _greater(left: Quantities, right: Quantities) -> list[str]:
    """The resources of which there is more on the left, of those that both name; sorted."""
    return sorted(
        resource
        for resource, quantity in left.items()
        if resource in right and parse_quantity(quantity) > parse_quantity(right[resource])
    )


def _above_own_limits(requests: tuple[PodSetRequests, ...]) -> list[str]:
    return [
        _invalid(path, above, "requests must not exceed its limits")
        for index, pod_set in enumerate(requests)
        for path, resources in _containers(index, pod_set.spec)
        if (above := _greater(resources.requests, resources.limits))
    ]


_ABOVE_MAX = "requests must not be above the limitRange max"
_BELOW_MIN = "requests must not be below the limitRange min"


def _outside_limit_ranges(requests: tuple[PodSetRequests, ...], limits: Limits) -> list[str]:
    errors = []
    container_limits, pod_limits = limits.get("Container"), limits.get("Pod")
    for index, pod_set in enumerate(requests):
        if container_limits is not None:
            for path, resources in _containers(index, pod_set.spec):
                low, high = dict(resources.requests), dict(resources.requests)
                _keep(low, resources.limits, prefer=-1)
                _keep(high, resources.limits, prefer=1)
                errors.extend(_against(container_limits, path, low, high))
        if pod_limits is not None:
            total = {
                resource: f"{value}m" if resource == "cpu" else value for resource, value in pod_set.per_pod.items()
            }
            errors.extend(_against(pod_limits, f"spec.podSets[{index}].template.spec", total, total))
    return errors


def _against(item: LimitRangeItem, path: str, low: Quantities, high: Quantities) -> list[str]:
    errors = []
    if above := _greater(high, item.max):
        errors.append(_invalid(path, above, _ABOVE_MAX))
    if below := _greater(item.min, low):
        errors.append(_invalid(path, below, _BELOW_MIN))
    return errors
