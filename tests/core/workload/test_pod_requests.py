"""Requests: what pods ask for, as Kubernetes counts it and Kueue refuses it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import UNLIMITED
from headgate.core.state.tables import State, Workload
from headgate.core.workload.pod_requests import (
    Limits,
    adjusted,
    limits_of,
    pod_set_requests,
    summarize,
    why_invalid,
    why_written_invalid,
)
from headgate.events.configuration import Configuration, ResourcesConfiguration, ResourceTransformation
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Container,
    LimitRangeItem,
    PodSet,
    PodSpec,
    PodTemplate,
    ReclaimablePod,
    Resources,
    WorkloadSpec,
)


def container(restart: str | None = None, limits: dict[str, Any] | None = None, **requests: Any) -> Container:
    return Container(restart_policy=restart, resources=Resources(requests=requests, limits=limits or {}))


def workload(*pod_sets: PodSet, **more: Any) -> Workload:
    spec = WorkloadSpec(pod_sets=pod_sets)
    return Workload(key=WorkloadKey("team-a/w"), uid=Uid("u"), created_ms=UnixMs(0), spec=spec, **more)


def pod_set(spec: PodSpec, count: int = 1, name: str = "main") -> PodSet:
    return PodSet(name=name, count=count, template=PodTemplate(spec=spec))


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        (
            PodSpec(containers=(container(cpu="1", memory="1Gi"), container(cpu="500m"))),
            {"cpu": 1500, "memory": 1 << 30},
        ),
        (PodSpec(containers=(container(cpu="1"),), init_containers=(container(cpu="3"),)), {"cpu": 3000}),
        (
            PodSpec(containers=(container(cpu="2"),), init_containers=(container(cpu="1"), container(cpu="1"))),
            {"cpu": 2000},
        ),
        (PodSpec(containers=(container(cpu="1"),), init_containers=(container("Always", cpu="1"),)), {"cpu": 2000}),
        (
            PodSpec(
                containers=(container(cpu="1"),),
                init_containers=(container(cpu="4"), container("Always", cpu="1"), container(cpu="5")),
            ),
            {"cpu": 6000},
        ),
        (
            PodSpec(containers=(container(cpu="1"),), overhead={"cpu": "250m", "memory": 10}),
            {"cpu": 1250, "memory": 10},
        ),
        (
            PodSpec(
                containers=(container(cpu="1", gpu="2"),),
                resources=Resources(requests={"cpu": "3", "gpu": "9"}),
                overhead={"cpu": "1"},
            ),
            {"cpu": 4000, "gpu": 2},
        ),
        (PodSpec(containers=(container(cpu="0.5m"), container(cpu="0.5m"))), {"cpu": 1}),
        (PodSpec(), {}),
    ],
)
def test_the_effective_request_is_kubernetes(spec: PodSpec, requests: dict[str, int]) -> None:
    """Containers and sidecars, or the peak of the init phase; pod level before containers; overhead on top."""
    assert pod_requests(spec) == requests


_milli = st.integers(0, 3000)
_asked = st.fixed_dictionaries({}, optional={"cpu": _milli, "memory": _milli, "gpu": _milli})
_phases = st.lists(st.tuples(st.booleans(), _asked), max_size=4)


@given(st.lists(_asked, max_size=3), _phases, _asked, _asked)
def test_the_effective_request_is_the_most_that_a_pod_needs_at_any_moment(
    containers: list[dict[str, int]], phases: list[tuple[bool, dict[str, int]]], at_pod: Any, overhead: Any
) -> None:
    """Against a pod that is started step by step: each init container in turn, then all that stays."""
    moments: list[list[dict[str, int]]] = []
    running: list[dict[str, int]] = []
    for is_sidecar, asked in phases:
        moments.append([*running, asked])
        if is_sidecar:
            running.append(asked)
    moments.append(running + containers)
    names = {name for moment in moments for asked in moment for name in asked}
    most = {name: max(sum(asked.get(name, 0) for asked in moment) for moment in moments) for name in names}
    most.update({name: value for name, value in at_pod.items() if name != "gpu"})
    for name, value in overhead.items():
        most[name] = most.get(name, 0) + value
    spec = PodSpec(
        containers=tuple(Container(resources=_resources(asked)) for asked in containers),
        init_containers=tuple(
            Container(resources=_resources(asked), restart_policy="Always" if sidecar else None)
            for sidecar, asked in phases
        ),
        resources=_resources(at_pod) if at_pod else None,
        overhead=_resources(overhead).requests,
    )
    assert pod_requests(spec) == {name: value if name == "cpu" else -(-value // 1000) for name, value in most.items()}


def _resources(milli: dict[str, int]) -> Resources:
    return Resources(requests={name: f"{value}m" for name, value in milli.items()})


def test_missing_requests_are_filled_in_kueues_order() -> None:
    """RuntimeClass overhead, then LimitRange defaults, then limits in place of requests."""
    limits: Limits = summarize(
        [LimitRangeItem(type="Container", default={"memory": "2Gi"}, default_request={"cpu": "100m"})]
    )
    spec = PodSpec(containers=(container(limits={"gpu": 1}),), runtime_class_name="kata")
    full = adjusted(spec, limits, {"kata": {"cpu": "50m"}})
    assert pod_requests(full) == {"cpu": 150, "memory": 2 << 30, "gpu": 1}


def test_what_a_pod_says_itself_is_not_overruled() -> None:
    """Own overhead, requests and limits stay; a complete spec is not copied."""
    spec = PodSpec(containers=(container(cpu="1"),), overhead={"cpu": "1"}, runtime_class_name="kata")
    assert adjusted(spec, {}, {"kata": {"cpu": "50m"}}) is spec


def test_pod_level_resources_get_the_defaults_for_pods() -> None:
    """Where a pod has any: defaults of LimitRanges for pods first, then its own limits."""
    limits = summarize([LimitRangeItem(type="Pod", default_request={"cpu": "3"}, default={"cpu": "4", "memory": 9})])
    bare = PodSpec(containers=(container(cpu="1"),))
    full = adjusted(PodSpec(containers=bare.containers, resources=Resources(limits={"memory": 5})), limits, {})
    assert full.resources == Resources(requests={"cpu": "3", "memory": 5}, limits={"cpu": "4", "memory": 5})
    assert adjusted(bare, limits, {}) is bare


def test_the_configuration_decides_what_quota_counts() -> None:
    """Excluded prefixes first, then transformations; nodes still have to have what the pods ask for."""
    resources = ResourcesConfiguration(
        exclude_resource_prefixes=("networking.",),
        transformations=(
            ResourceTransformation(input="mig", strategy="Replace", outputs={"credits": "1500m", "debt": -3}),
            ResourceTransformation(input="networking.example.com/vpc", outputs={"credits": 100}),
        ),
    )
    asked = Resources(requests={"cpu": "100m", "mig": 3, "networking.example.com/vpc": 1})
    spec = PodSpec(containers=(Container(resources=asked),))
    (counted,) = pod_set_requests(workload(pod_set(spec, 4)), {}, {}, Configuration(resources=resources))
    assert counted.per_pod == {"cpu": 100, "credits": 5, "debt": 0}
    assert counted.total() == {"cpu": 400, "credits": 20, "debt": 0}
    assert pod_requests(counted.spec) == {"cpu": 100, "mig": 3, "networking.example.com/vpc": 1}


@given(st.integers(1, UNLIMITED), st.integers(0, 10**6), st.integers(0, 10**6))
def test_amounts_of_many_pods_saturate(each: int, count: int, fewer: int) -> None:
    """However many pods there are, their amounts stay within 64 bits and grow with their number."""
    spec = PodSpec(containers=(container(gpu=each),))
    (asked,) = pod_set_requests(workload(pod_set(spec, count)), {}, {}, Configuration())
    assert asked.total() == {"gpu": min(each * count, UNLIMITED)}
    assert asked.total(min(count, fewer))["gpu"] <= asked.total()["gpu"]


def test_pods_that_are_reclaimable_do_not_count() -> None:
    """The count shrinks, never below nothing; the amounts of one pod stay."""
    spec = PodSpec(containers=(container(cpu="1"),))
    some = workload(
        pod_set(spec, 5, "a"),
        pod_set(spec, 2, "b"),
        reclaimable_pods=(ReclaimablePod(name="a", count=2), ReclaimablePod(name="b", count=9)),
    )
    requests = pod_set_requests(some, {}, {}, Configuration())
    assert [(each.count, each.total()) for each in requests] == [(3, {"cpu": 3000}), (0, {"cpu": 0})]
    assert requests[0].total(1) == {"cpu": 1000}
    gated = Configuration(feature_gates={"ReclaimablePods": False})
    assert [each.count for each in pod_set_requests(some, {}, {}, gated)] == [5, 2]


def test_what_is_remembered_of_a_pod_set_is_what_it_follows_from() -> None:
    """The same pod set has other requests in another namespace, cell or moment."""
    spec = PodSpec(containers=(container(cpu="1"),), runtime_class_name="kata")
    it = workload(pod_set(spec, 2))
    limits = summarize([LimitRangeItem(type="Container", default_request={"memory": 7})])
    some = ResourcesConfiguration(exclude_resource_prefixes=("cpu",))
    before = pod_set_requests(it, {}, {}, Configuration())[0].per_pod
    assert pod_set_requests(it, limits, {}, Configuration())[0].per_pod == {"cpu": 1000, "memory": 7}
    assert pod_set_requests(it, {}, {"kata": {"cpu": "1"}}, Configuration())[0].per_pod == {"cpu": 2000}
    assert pod_set_requests(it, {}, {}, Configuration(resources=some))[0].per_pod == {}
    it.reclaimable_pods = (ReclaimablePod(name="main", count=1),)
    assert pod_set_requests(it, {}, {}, Configuration())[0].count == 1
    assert pod_set_requests(it, {}, {}, Configuration())[0].per_pod == before == {"cpu": 1000}


def test_limit_ranges_of_a_namespace_are_one() -> None:
    """The lowest max, the highest min, the first default by name; other namespaces do not count."""
    state = State(
        limit_ranges={
            "team-a/z": (
                LimitRangeItem(type="Container", max={"cpu": "2"}, min={"cpu": "200m"}, default={"cpu": "2"}),
            ),
            "team-a/a": (LimitRangeItem(type="Container", max={"cpu": "4"}, min={"cpu": "1m"}, default={"cpu": "1"}),),
            "team-b/a": (LimitRangeItem(type="Container", max={"cpu": "1m"}),),
        }
    )
    item = limits_of(state, "team-a")["Container"]
    assert (item.max, item.min, item.default) == ({"cpu": "2"}, {"cpu": "200m"}, {"cpu": "1"})
    assert limits_of(state, "team-c") == {}


def test_requests_above_limits_are_refused_with_their_paths() -> None:
    """Several mistakes are listed in brackets, as apimachinery does."""
    spec = PodSpec(
        init_containers=(container(cpu="2", limits={"cpu": "1"}),),
        containers=(container(cpu="1"), container(cpu="2", gpu=3, limits={"cpu": "1", "gpu": 1, "memory": "1Gi"})),
    )
    requests = pod_set_requests(workload(pod_set(spec)), {}, {}, Configuration())
    path, why = "spec.podSets[0].template.spec", "requests must not exceed its limits"
    assert why_invalid(requests) == (
        f'resources validation failed: [{path}.initContainers[0]: Invalid value: ["cpu"]: {why}, '
        f'{path}.containers[1]: Invalid value: ["cpu","gpu"]: {why}]'
    )


def test_pod_level_requests_stay_below_pod_level_limits() -> None:
    """As containers', with a path of their own; amounts are compared, not texts."""
    spec = PodSpec(resources=Resources(requests={"cpu": "2", "memory": "1Ki"}, limits={"cpu": "1", "memory": 1024}))
    assert why_invalid(pod_set_requests(workload(pod_set(spec)), {}, {}, Configuration())) == (
        'resources validation failed: spec.podSets[0].template.spec.resources: Invalid value: ["cpu"]: '
        "requests must not exceed its limits"
    )


def test_pods_as_they_are_written_may_be_valid_where_their_defaults_are_not() -> None:
    """A default that is out of the range counts once it is filled in."""
    limits = summarize([LimitRangeItem(type="Container", min={"cpu": "1"}, default_request={"cpu": "2"})])
    spec = PodSpec(containers=(container(),))
    assert why_written_invalid([spec], limits) == ""
    high = summarize([LimitRangeItem(type="Container", max={"cpu": "1"}, default_request={"cpu": "2"})])
    assert "limitRange max" in why_invalid(pod_set_requests(workload(pod_set(spec)), high, {}, Configuration()))
    assert why_written_invalid([spec], high) == ""
    assert "limitRange max" in why_written_invalid([PodSpec(containers=(container(cpu="2"),))], high)


@pytest.mark.parametrize(
    ("kind", "cpu", "path", "why"),
    [
        ("Container", "3", "template.spec.containers[0]", "requests must not be above the limitRange max"),
        ("Container", "50m", "template.spec.containers[0]", "requests must not be below the limitRange min"),
        ("Pod", "3", "template.spec", "requests must not be above the limitRange max"),
        ("Pod", "50m", "template.spec", "requests must not be below the limitRange min"),
    ],
)
def test_limit_ranges_bound_containers_and_pods(kind: str, cpu: str, path: str, why: str) -> None:
    """A container range holds for each container, a pod range for the pod's effective request."""
    limits = summarize([LimitRangeItem(type=kind, max={"cpu": "2"}, min={"cpu": "100m"})])
    requests = pod_set_requests(
        workload(pod_set(PodSpec(containers=(container(cpu=cpu),)))), limits, {}, Configuration()
    )
    assert why_invalid(requests) == (
        f'resources didn\'t satisfy LimitRange constraints: spec.podSets[0].{path}: Invalid value: ["cpu"]: {why}'
    )


def test_what_is_in_order_is_not_refused() -> None:
    """Within limits and LimitRanges there is nothing to say."""
    limits = summarize(
        [LimitRangeItem(type="Container", max={"cpu": "2"}), LimitRangeItem(type="Pod", max={"cpu": "4"})]
    )
    spec = PodSpec(containers=(container(cpu="2", limits={"cpu": "2"}), container(cpu="2")))
    assert why_invalid(pod_set_requests(workload(pod_set(spec)), limits, {}, Configuration())) == ""
