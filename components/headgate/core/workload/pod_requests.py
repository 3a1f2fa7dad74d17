"""
Requests: what the pods of a workload request of quota.

`adjusted` completes a pod spec as the API server would (RuntimeClass overhead, LimitRange defaults, limits in place of
missing requests). `pod_set_requests` is what quota is charged: of all pod sets of a workload, after the configuration's
excluded prefixes and transformations (`headgate.core.workload.resource_transformations`), with the number of pods that
still count. The scheduler assigns flavors to them, the queue manager digests them into a workload's shape.

`why_invalid` gives in Kueue's wording what no ClusterQueue could ever accept: requests above limits, containers outside
their namespace's LimitRanges.

Workloads come from few templates: what follows from one pod set is computed once for each distinct input.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from headgate.core.config import feature_gates
from headgate.core.kubernetes.effective_requests import Quantities, effective, pod_requests
from headgate.core.kubernetes.quantities import amount, multiply, parse_quantity, to_amount
from headgate.core.state.tables import State, Workload
from headgate.core.workload.resource_transformations import transformed, without_excluded
from headgate.events.commit import digest
from headgate.events.configuration import Configuration, ResourcesConfiguration
from headgate.events.ids import split_key
from headgate.events.objects import Container, LimitRangeItem, PodSet, PodSpec, Resources

POD_SETS_CACHED_MAX = 4096
"""How many distinct pod sets are cached with their requests."""


class PodSetRequests(msgspec.Struct, frozen=True):
    """
    What one pod set requests of quota: `per_pod` amounts of `count` pods.

    `spec` is the adjusted spec of its pods. `count` is less than the spec's when pods are reclaimable. `above_limits`
    and `outside_ranges` are the problems for `why_invalid`, without their location. `kind` is the digest of all that
    flavor assignment can depend on, "" when it was not created by `pod_set_requests`.
    """

    name: str
    count: int
    spec: PodSpec
    per_pod: dict[str, int]
    above_limits: tuple[str, ...] = ()
    outside_ranges: tuple[str, ...] = ()
    kind: str = ""

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
    """The LimitRanges of a namespace, summarized. Costs a pass over all of them: cache it while they do not change."""
    return summarize(
        item
        for key in sorted(key for key in state.limit_ranges if split_key(key)[0] == namespace)
        for item in state.limit_ranges[key]
    )


# --- adjusting a pod -----------------------------------------------------------------------------------------------


def adjusted(spec: PodSpec, limits: Limits, runtime_classes: Mapping[str, Quantities]) -> PodSpec:
    """
    A pod spec after the API server's defaulting.

    Overhead comes from the RuntimeClass when the spec has none; container defaults from LimitRanges; then each limit
    without a request is used as the request, in containers and at pod level. Pod-level resources, where a pod has them,
    get the defaults of LimitRanges for pods.
    """
    overhead = spec.overhead
    if spec.runtime_class_name is not None and not overhead:
        overhead = dict(runtime_classes.get(spec.runtime_class_name, {}))
    default = limits.get("Container")
    containers = tuple(_with_defaults(container, default) for container in spec.containers)
    init_containers = tuple(_with_defaults(container, default) for container in spec.init_containers)
    resources = spec.resources and _defaulted(spec.resources, limits.get("Pod"))
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
    resources = _defaulted(container.resources, default)
    return container if resources is container.resources else msgspec.structs.replace(container, resources=resources)


def _defaulted(resources: Resources, default: LimitRangeItem | None) -> Resources:
    if default is not None and (default.default or default.default_request):
        resources = Resources(
            requests={**default.default_request, **resources.requests},
            limits={**default.default, **resources.limits},
        )
    return _limits_as_requests(resources)


def _limits_as_requests(resources: Resources) -> Resources:
    if all(resource in resources.requests for resource in resources.limits):
        return resources
    return Resources(requests={**resources.limits, **resources.requests}, limits=resources.limits)


# --- the requests of a pod set -------------------------------------------------------------------------------------


class _Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All inputs of the requests of a pod set."""

    pod_set: PodSet
    done: int = 0
    limits: dict[str, LimitRangeItem] = {}
    overhead: dict[str, str | int | float] = {}
    configuration: ResourcesConfiguration = ResourcesConfiguration()


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[_Source] = msgspec.json.Decoder(_Source)


def pod_set_requests(
    workload: Workload, limits: Limits, runtime_classes: Mapping[str, Quantities], configuration: Configuration
) -> tuple[PodSetRequests, ...]:
    """
    What each pod set of a workload requests of quota, in spec order. Reclaimable pods no longer count.

    Raises QuantityError for an invalid quantity.
    """
    done = reclaimable(workload, configuration)
    return tuple(
        [
            _requests(
                _encoder.encode(
                    _Source(
                        pod_set=pod_set,
                        done=done.get(pod_set.name, 0),
                        limits=dict(limits),
                        overhead=_overhead(pod_set.template.spec, runtime_classes),
                        configuration=configuration.resources,
                    )
                )
            )
            for pod_set in workload.spec.pod_sets
        ]
    )


def reclaimable(workload: Workload, configuration: Configuration) -> dict[str, int]:
    """By pod set, how many pods have finished for good and need no quota any more."""
    if not workload.reclaimable_pods or not feature_gates.enabled(configuration, feature_gates.RECLAIMABLE_PODS):
        return {}
    return {pods.name: pods.count for pods in workload.reclaimable_pods}


def _overhead(spec: PodSpec, runtime_classes: Mapping[str, Quantities]) -> dict[str, str | int | float]:
    """The overhead of a pod's RuntimeClass, if the pod names one and sets no overhead itself."""
    if spec.runtime_class_name is None or spec.overhead:
        return {}
    return dict(runtime_classes.get(spec.runtime_class_name, {}))


@lru_cache(maxsize=POD_SETS_CACHED_MAX)
def _requests(source: bytes) -> PodSetRequests:
    given = _decoder.decode(source)
    pod_set = given.pod_set
    name = pod_set.template.spec.runtime_class_name
    spec = adjusted(pod_set.template.spec, given.limits, {} if name is None else {name: given.overhead})
    charged = transformed(
        without_excluded(effective(spec), given.configuration.exclude_resource_prefixes),
        given.configuration.transformations,
    )
    requests = PodSetRequests(
        pod_set.name,
        max(0, pod_set.count - given.done),
        spec,
        {resource: max(0, to_amount(resource, value)) for resource, value in charged.items()},
        tuple(_above_own_limits(spec)),
        tuple(_outside_ranges(spec, given.limits)),
    )
    return msgspec.structs.replace(requests, kind=_kind(pod_set, requests))


def _kind(pod_set: PodSet, requests: PodSetRequests) -> str:
    """What Kueue's scheduling hash includes of a pod set; quantities by amount, so that `1` and `1000m` are one."""
    spec = requests.spec
    shape = {
        "name": pod_set.name,
        "count": requests.count,
        "minCount": pod_set.min_count,
        "topologyRequest": pod_set.topology_request,
        "requests": requests.total(),
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "tolerations": spec.tolerations,
        "runtimeClassName": spec.runtime_class_name,
        "priority": spec.priority,
        "overhead": _amounts(spec.overhead),
        "resources": spec.resources and _amounts(spec.resources.requests),
        "containers": [_amounts(container.resources.requests) for container in spec.containers],
        "initContainers": [_amounts(container.resources.requests) for container in spec.init_containers],
    }
    return digest(_encoder.encode(shape))


def _amounts(quantities: Quantities) -> dict[str, int]:
    return {resource: amount(resource, quantity) for resource, quantity in quantities.items()}


# --- validation ----------------------------------------------------------------------------------------------------


def namespace_missing(namespace: str) -> str:
    """Why no ClusterQueue accepts a workload without existing namespace, as in Kueue (ValidateAdmissibility)."""
    return f'workload namespace "{namespace}" does not exist: Namespace "{namespace}" not found'


def why_invalid(requests: Iterable[PodSetRequests]) -> str:
    """Why no ClusterQueue can accept these pod sets, in Kueue's wording; "" when nothing is wrong with them."""
    return _why_invalid((each.above_limits, each.outside_ranges) for each in requests)


def why_written_invalid(specs: Iterable[PodSpec], limits: Limits) -> str:
    """As `why_invalid`, of pods as they are written, before any default is filled in."""
    return _why_invalid((_above_own_limits(spec), _outside_ranges(spec, limits)) for spec in specs)


def _why_invalid(errors: Iterable[tuple[Iterable[str], Iterable[str]]]) -> str:
    above: list[str] = []
    outside: list[str] = []
    for index, (above_limits, outside_ranges) in enumerate(errors):
        above.extend(f"spec.podSets[{index}].template.spec{each}" for each in above_limits)
        outside.extend(f"spec.podSets[{index}].template.spec{each}" for each in outside_ranges)
    if above:
        return f"resources validation failed: {_aggregate(above)}"
    if outside:
        return f"resources didn't satisfy LimitRange constraints: {_aggregate(outside)}"
    return ""


def _aggregate(errors: list[str]) -> str:
    """Several errors as apimachinery's Aggregate writes them: bracketed, each once."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _invalid(path: str, resources: list[str], why: str) -> str:
    names = ",".join(f'"{resource}"' for resource in resources)
    return f"{path}: Invalid value: [{names}]: {why}"


def _containers(spec: PodSpec) -> Iterable[tuple[str, Resources]]:
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for place, container in enumerate(containers):
            yield f".{kind}[{place}]", container.resources


def _greater(left: Quantities, right: Quantities) -> list[str]:
    """The resources whose left amount is greater, among those on both sides; sorted."""
    return sorted(
        resource
        for resource, quantity in left.items()
        if resource in right and amount(resource, quantity) > amount(resource, right[resource])
    )


_ABOVE_LIMITS = "requests must not exceed its limits"
_ABOVE_MAX = "requests must not be above the limitRange max"
_BELOW_MIN = "requests must not be below the limitRange min"


def _above_own_limits(spec: PodSpec) -> Iterable[str]:
    for path, resources in _containers(spec):
        if above := _greater(resources.requests, resources.limits):
            yield _invalid(path, above, _ABOVE_LIMITS)
    if spec.resources is not None and (above := _greater(spec.resources.requests, spec.resources.limits)):
        yield _invalid(".resources", above, _ABOVE_LIMITS)


def _outside_ranges(spec: PodSpec, limits: Limits) -> Iterable[str]:
    container_limits, pod_limits = limits.get("Container"), limits.get("Pod")
    if container_limits is not None:
        for path, resources in _containers(spec):
            low, high = dict(resources.requests), dict(resources.requests)
            _keep(low, resources.limits, prefer=-1)
            _keep(high, resources.limits, prefer=1)
            yield from _against(container_limits, path, low, high)
    if pod_limits is not None:
        total = {
            resource: f"{value}m" if resource == "cpu" else value for resource, value in pod_requests(spec).items()
        }
        yield from _against(pod_limits, "", total, total)


def _against(item: LimitRangeItem, path: str, low: Quantities, high: Quantities) -> Iterable[str]:
    if above := _greater(high, item.max):
        yield _invalid(path, above, _ABOVE_MAX)
    if below := _greater(item.min, low):
        yield _invalid(path, below, _BELOW_MIN)
