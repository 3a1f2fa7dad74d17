"""What a pod requests of a node: init containers, sidecars, overhead, pod-level requests, defaults, resizes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.placement import Json, cluster_of, clusters, node, pod

from headgate.core.placement.pods import PodInfo, Shapes
from headgate.core.placement.requests import is_extended, is_scalar

MIB = 1024 * 1024


def container(name: str = "c", *, sidecar: bool = False, **requests: str) -> Json:
    made: Json = {"name": name, "image": "app", "resources": {"requests": requests}}
    return made | ({"restartPolicy": "Always"} if sidecar else {})


def read(*containers: Json, init: tuple[Json, ...] = (), status: Json | None = None, **spec: Any) -> PodInfo:
    manifest = pod("p", spec={"containers": list(containers), "initContainers": list(init), **spec})
    manifest["status"] = status or {}
    return Shapes().read(manifest)


def test_containers_run_together_and_init_containers_one_after_the_other() -> None:
    """With sidecars beside all that start after them (KEP-753)."""
    made = read(
        container(cpu="1", memory="1Gi"),
        container(cpu="500m"),
        init=(container(cpu="2"), container(sidecar=True, cpu="300m"), container(cpu="1900m", memory="3Gi")),
        overhead={"cpu": "50m"},
    )
    assert dict(made.requests.requests) == {"cpu": 2250, "memory": 3 * 1024 * MIB}


def test_requests_of_the_pod_replace_those_of_its_containers() -> None:
    """In what a pod takes up (KEP-2837); NodeResourcesFit scores a pod by its containers all the same."""
    made = read(container(cpu="1"), resources={"requests": {"cpu": "3", "example.com/gpu": "1"}})
    assert dict(made.requests.requests) == {"cpu": 3000}
    assert made.shape.scored_requests["cpu"] == 1000


def test_what_nothing_requests_counts_by_default_in_scores_alone() -> None:
    """100m and 200Mi of each container without; an explicit 0 is a request."""
    made = read(container(cpu="1"), container(memory="0"))
    assert dict(made.requests.requests) == {"cpu": 1000, "memory": 0}
    assert (made.requests.nonzero_cpu_milli, made.requests.nonzero_memory_bytes) == (1100, 200 * MIB)
    assert made.shape.scored_requests == {"cpu": 1100, "memory": 200 * MIB}


def test_requests_of_the_pod_leave_nothing_to_defaults_that_they_name() -> None:
    """Of the other resource the containers' default counts."""
    made = read(container(), container(), resources={"requests": {"cpu": "1"}})
    assert (made.requests.nonzero_cpu_milli, made.requests.nonzero_memory_bytes) == (1000, 400 * MIB)


def _resizing(reason: str) -> Json:
    shown = {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "1"}}}
    return {
        "containerStatuses": [shown],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
    }


@pytest.mark.parametrize(("reason", "expected"), [("Deferred", 3000), ("Infeasible", 2000)])
def test_during_a_resize_the_most_of_all_counts(reason: str, expected: int) -> None:
    """Of spec, allocation and what runs (KEP-1287); without the spec when the node can never grant it."""
    assert read(container(cpu="3"), status=_resizing(reason)).requests.requests["cpu"] == expected


def test_nodes_account_for_some_resources_alone() -> None:
    """Extended ones, huge pages, attachable volumes and prefixed native ones, beside the three basic ones."""
    assert is_extended("example.com/gpu")
    assert not is_extended("gpu")
    assert not is_extended("kubernetes.io/gpu")
    assert not is_extended("requests.example.com/gpu")
    assert is_scalar("hugepages-2Mi")
    assert is_scalar("attachable-volumes-csi-x")
    assert is_scalar("kubernetes.io/gpu")
    assert not is_scalar("cpu")
    assert dict(read(container(foo="1", cpu="1")).requests.requests) == {"cpu": 1000}


def test_pods_of_one_template_share_their_shape() -> None:
    """Wherever they are; other labels, requests or namespaces make another shape."""
    cluster = cluster_of(node("a"), pod("p", cpu="1"), pod("q", cpu="1", on="a"), pod("r", cpu="2"))
    shapes = [cluster.pods[f"ns/{name}"].shape for name in "pqr"]
    assert shapes[0] is shapes[1]
    assert shapes[0] is not shapes[2]


@given(manifests=clusters(), gone=st.sets(st.integers(0, 5)))
def test_a_node_holds_what_its_pods_request(manifests: list[Json], gone: set[int]) -> None:
    """After pods have come and gone: the sums, the ports and the number of pods."""
    cluster = cluster_of(*manifests)
    for number in sorted(gone):
        cluster.remove_pod(f"ns/e{number}")
    for info in cluster.columns.nodes():
        on_node = [each for each in cluster.pods.values() if each.node_name == info.name]
        assert list(info.pods.values()) == on_node
        total: dict[str, int] = {}
        for each in on_node:
            for resource, value in each.requests.requests.items():
                total[resource] = total.get(resource, 0) + value
        assert {name: value for name, value in info.requested.items() if value} == {
            name: value for name, value in total.items() if value
        }
        assert info.nonzero_cpu_milli == sum(each.requests.nonzero_cpu_milli for each in on_node)
