"""Which workloads have one shape, and which must not."""

import msgspec
import pytest

from headgate.core import fold
from headgate.core.queueing.scheduling_hash import hash_of, shape_of
from headgate.core.state.tables import State, Workload
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
    TemplateMeta,
    Toleration,
    TopologyRequest,
    WorkloadSpec,
)


def pods(cpu: str = "1", **more: object) -> PodSpec:
    return PodSpec(containers=(Container(name="main", resources=Resources(requests={"cpu": cpu})),), **more)  # type: ignore[arg-type]


def workload(name: str = "a", namespace: str = "team", spec: PodSpec | None = None, **more: object) -> Workload:
    return Workload(
        key=WorkloadKey(f"{namespace}/{name}"),
        uid=Uid(name),
        created_ms=UnixMs(1),
        spec=WorkloadSpec(
            queue_name="main",
            pod_sets=(PodSet(count=2, template=PodTemplate(spec=spec or pods())),),
            **more,  # type: ignore[arg-type]
        ),
    )


def with_pod_set(**changes: object) -> Workload:
    it = workload()
    pod_set = msgspec.structs.replace(it.spec.pod_sets[0], **changes)
    it.spec = msgspec.structs.replace(it.spec, pod_sets=(pod_set,))
    return it


@pytest.fixture
def state() -> State:
    return fold.new_state("main")


def test_names_do_not_make_a_shape(state: State) -> None:
    """Neither the workload's name, namespace and queue nor its containers' names and pod labels count."""
    renamed = msgspec.structs.replace(pods(), containers=(msgspec.structs.replace(pods().containers[0], name="x"),))
    labelled = PodTemplate(metadata=TemplateMeta(labels={"a": "b"}), spec=renamed)
    other = workload("b", "elsewhere", renamed)
    other.spec = msgspec.structs.replace(
        other.spec, queue_name="q", pod_sets=(msgspec.structs.replace(other.spec.pod_sets[0], template=labelled),)
    )
    assert shape_of(other, state) == shape_of(workload(), state)


def test_quantities_are_compared_by_value(state: State) -> None:
    """`1`, `1000m` and 1 are one request."""
    assert shape_of(workload(spec=pods("1")), state) == shape_of(workload(spec=pods("1000m")), state)


def test_a_missing_priority_is_zero(state: State) -> None:
    """Effective priority counts, not how it is written."""
    assert shape_of(workload(priority=0), state) == shape_of(workload(), state)


@pytest.mark.parametrize(
    "other",
    [
        workload(priority=1),
        workload(spec=pods("2")),
        workload(spec=pods(node_selector={"zone": "a"})),
        workload(spec=pods(tolerations=(Toleration(key="spot", operator="Exists"),))),
        workload(spec=pods(overhead={"cpu": "1"})),
        with_pod_set(name="other"),
        with_pod_set(count=3),
        with_pod_set(min_count=1),
        with_pod_set(topology_request=TopologyRequest(required="rack")),
    ],
    ids=["priority", "requests", "selector", "tolerations", "overhead", "name", "count", "minCount", "topology"],
)
def test_what_quota_depends_on_makes_a_shape(other: Workload, state: State) -> None:
    """Each part of Kueue's scheduling hash distinguishes workloads."""
    assert shape_of(other, state) != shape_of(workload(), state)


def test_reclaimable_pods_count_no_more(state: State) -> None:
    """Two pods of which one is done have the shape of one pod."""
    half = workload()
    half.reclaimable_pods = (ReclaimablePod(name="main", count=1),)
    assert shape_of(half, state) == shape_of(with_pod_set(count=1), state)


def test_limit_ranges_count_by_the_requests_they_make(state: State) -> None:
    """A LimitRange's defaults change the requests; its bounds make no difference to those within."""
    before = shape_of(workload(spec=pods()), state)
    state.limit_ranges["team/limits"] = (LimitRangeItem(type="Container", max={"cpu": "2"}),)
    assert shape_of(workload(), state) == before
    state.limit_ranges["team/limits"] = (LimitRangeItem(type="Container", default={"memory": "1Gi"}),)
    assert shape_of(workload(), state) != before
    assert shape_of(workload(namespace="elsewhere"), state) == before


def test_who_is_not_valid_stands_for_nobody_who_is(state: State) -> None:
    """And has another shape once it is valid. Kueue's hash does not distinguish them."""
    before = shape_of(workload(), state), hash_of(workload(), state)
    state.limit_ranges["team/limits"] = (LimitRangeItem(type="Container", max={"cpu": "100m"}),)
    assert shape_of(workload(), state) != before[0] == shape_of(workload(namespace="elsewhere"), state)
    assert hash_of(workload(), state) == before[1]
    above = Container(name="main", resources=Resources(requests={"cpu": "1"}, limits={"cpu": "100m"}))
    assert shape_of(workload(namespace="elsewhere", spec=PodSpec(containers=(above,))), state) != before[0]


def test_limits_that_give_no_request_do_not_make_a_shape(state: State) -> None:
    """Quota counts requests."""
    container = Container(name="main", resources=Resources(requests={"cpu": "1"}, limits={"cpu": "4"}))
    assert shape_of(workload(spec=PodSpec(containers=(container,))), state) == shape_of(workload(), state)


def test_a_change_of_the_configuration_changes_shapes(state: State) -> None:
    """Quota is evaluated on the request after transformations and excluded prefixes."""
    before = shape_of(workload(), state)
    priced = ResourceTransformation(input="cpu", outputs={"credits": 2})
    for resources in (
        ResourcesConfiguration(exclude_resource_prefixes=("cpu",)),
        ResourcesConfiguration(transformations=(priced,)),
    ):
        state.configuration = Configuration(resources=resources)
        assert shape_of(workload(), state) != before


def test_allowed_flavors_count_under_concurrent_admission(state: State) -> None:
    """Variants of one workload differ in nothing but the annotation of the flavors that they may get."""
    spot = workload()
    spot.annotations = {"kueue.x-k8s.io/workload-allowed-resource-flavors": "spot"}
    assert shape_of(spot, state) == shape_of(workload(), state)
    state.configuration = Configuration(feature_gates={"ConcurrentAdmission": True})
    assert shape_of(spot, state) != shape_of(workload(), state)


def test_without_equivalence_hashing_every_workload_has_its_own_shape(state: State) -> None:
    """And keeps it: its shape is independent of other workloads and of its requests."""
    state.configuration = Configuration(feature_gates={"SchedulingEquivalenceHashing": False})
    assert shape_of(workload("a"), state) != shape_of(workload("b"), state)
    assert shape_of(workload("a"), state) == shape_of(workload("a", spec=pods("2")), state)


def test_reclaimable_pods_count_with_their_gate_off(state: State) -> None:
    """Without the gate ReclaimablePods every pod counts to the end."""
    half = workload()
    half.reclaimable_pods = (ReclaimablePod(name="main", count=1),)
    state.configuration = Configuration(feature_gates={"ReclaimablePods": False})
    assert shape_of(half, state) == shape_of(workload(), state)


def test_a_runtime_class_counts_only_for_those_who_name_it(state: State) -> None:
    """Overhead of a RuntimeClass is a request of the pods that run in it."""
    plain, heavy = workload(), workload(spec=pods(runtime_class_name="kata"))
    before = shape_of(plain, state), shape_of(heavy, state)
    state.runtime_classes["kata"] = {"cpu": "250m"}
    assert shape_of(plain, state) == before[0]
    assert shape_of(heavy, state) != before[1]


def test_a_bad_quantity_has_a_shape_too(state: State) -> None:
    """One manifest without validation does not stop the queue."""
    assert shape_of(workload(spec=pods("lots")), state) != shape_of(workload(), state)
