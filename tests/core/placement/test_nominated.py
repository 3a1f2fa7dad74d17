"""Nodes that pods are nominated to: arrays say what running the filters for each of them says, and cost no more."""

import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placement import ZONE, Json, attempted, cluster_of, clusters, framework_of, node, pod, pods, tell

from headgate.core.placement.claims import NominatedClaims
from headgate.core.placement.framework.runtime import Framework

NAMES = [f"n{number:02}" for number in range(14)]

_nominated = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 5, 10]), pods("q"), st.sampled_from(["500m", "2", "9"])),
    max_size=5,
)


def agree(framework: Framework, key: str) -> None:
    """All nodes at once, and each by itself."""
    cluster = framework.cluster
    cycle = framework.cycle(cluster.pods[key])
    if not framework.pre_filter(cycle).status.is_success:
        return
    rows = cluster.columns.all_rows()
    ids = framework.filter_rows_with_nominated(cycle, rows).tolist()
    each = [framework.filter_with_nominated(cycle, cluster.info_of(row)) for row in rows.tolist()]
    assert [cycle.statuses.status_of(number) for number in ids] == each


@given(manifests=clusters(), waiting=pods("p"), nominated=_nominated)
@settings(max_examples=60)
def test_arrays_say_what_the_filters_say_with_nominated_pods_on_their_nodes(
    manifests: list[Json], waiting: Json, nominated: list[tuple[str, int, Json, str]]
) -> None:
    """Also for the nominated pods themselves, and after a nomination and a node have gone."""
    cluster = cluster_of(*manifests, waiting)
    for number, (name, priority, manifest, cpu) in enumerate(nominated):
        manifest["metadata"]["name"] = f"q{number}"
        manifest["spec"]["priority"] = priority
        manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        tell(cluster, manifest)
        cluster.nominate(f"ns/q{number}", name)
    framework = framework_of(cluster)
    keys = ["ns/p", *(f"ns/q{number}" for number in range(len(nominated)))]
    for key in keys:
        agree(framework, key)
    for change in (lambda: cluster.nominate("ns/q0", ""), lambda: cluster.remove_node("n01")):
        change()
        for key in keys:
            agree(framework, key)


def calls(framework: Framework, key: str) -> int:
    """How many functions an attempt calls."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        attempted(framework, key)
    finally:
        sys.setprofile(None)
    return count


def crowd(nominated: int) -> Framework:
    """A cluster of many nodes, so many of which have a nominated pod of a higher priority."""
    nodes = [node(f"n{number:03}", labels={ZONE: f"z{number % 3}"}) for number in range(400)]
    cluster = cluster_of(*nodes, pod("p", cpu="1"), pod("other", cpu="2"))
    for number in range(nominated):
        tell(cluster, pod(f"q{number}", cpu="1", spec={"priority": 9}))
        cluster.nominate(f"ns/q{number}", f"n{number:03}")
    framework = framework_of(cluster)
    for _ in range(3):
        attempted(framework, "ns/p")
    return framework


def test_an_attempt_costs_the_same_however_many_nodes_have_nominated_pods() -> None:
    """As long as the nominations stay as they are; also for pods of another shape."""
    few, many = crowd(2), crowd(300)
    assert calls(many, "ns/p") == calls(few, "ns/p")
    assert calls(many, "ns/other") == calls(few, "ns/other")
    claims = many.cluster.index(NominatedClaims)
    assert claims.of(many.cluster.pods["ns/p"]) is claims.of(many.cluster.pods["ns/other"])
