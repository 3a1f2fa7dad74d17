"""Requests: what pods ask for, as Kubernetes counts it and Kueue refuses it."""

from typing import Any

import pytest

from headgate.core.requests import Limits, adjusted, limits_of, pod_requests, pod_set_requests, summarize, why_invalid
from headgate.core.state import State, Workload
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


def test_pods_that_are_reclaimable_do_not_count() -> None:
    """The count shrinks, never below nothing; the amounts of one pod stay."""
    spec = PodSpec(containers=(container(cpu="1"),))
    some = workload(
        pod_set(spec, 5, "a"),
        pod_set(spec, 2, "b"),
        reclaimable_pods=(ReclaimablePod(name="a", count=2), ReclaimablePod(name="b", count=9)),
    )
    requests = pod_set_requests(some, {}, {})
    assert [(each.count, each.total()) for each in requests] == [(3, {"cpu": 3000}), (0, {"cpu": 0})]
    assert requests[0].total(1) == {"cpu": 1000}


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
    requests = pod_set_requests(workload(pod_set(spec)), {}, {})
    path, why = "spec.podSets[0].template.spec", "requests must not exceed its limits"
    assert why_invalid(requests, {}) == (
        f'resources validation failed: [{path}.initContainers[0]: Invalid value: ["cpu"]: {why}, '
        f'{path}.containers[1]: Invalid value: ["cpu","gpu"]: {why}]'
    )


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
    requests = pod_set_requests(workload(pod_set(PodSpec(containers=(container(cpu=cpu),)))), limits, {})
    assert why_invalid(requests, limits) == (
        f'resources didn\'t satisfy LimitRange constraints: spec.podSets[0].{path}: Invalid value: ["cpu"]: {why}'
    )


def test_what_is_in_order_is_not_refused() -> None:
    """Within limits and LimitRanges there is nothing to say."""
    limits = summarize(
        [LimitRangeItem(type="Container", max={"cpu": "2"}), LimitRangeItem(type="Pod", max={"cpu": "4"})]
    )
    spec = PodSpec(containers=(container(cpu="2", limits={"cpu": "2"}), container(cpu="2")))
    assert why_invalid(pod_set_requests(workload(pod_set(spec)), limits, {}), limits) == ""
