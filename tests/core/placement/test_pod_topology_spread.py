"""PodTopologySpread: what it says of each node is what its definition says, however the counts came about."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support import placing_by_iteration as definition
from tests.support.placing import (
    HOSTNAME,
    SPREAD_PROBES,
    ZONE,
    Asked,
    Change,
    Json,
    added_pods,
    apply,
    changes,
    clusters,
    constraints,
    framework,
    incoming,
    incoming_pods,
    named,
)

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.attempt import attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.pods import TopologySpreadConstraint
from headgate.core.placement.scan import NodeOrder

NAME = "PodTopologySpread"

SYSTEM: Json = {"defaultingType": "System"}
ZONED: Json = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
LIST: Json = {
    "defaultingType": "List",
    "defaultConstraints": [
        ZONED,
        {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
        {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
    ],
}
OF_SYSTEM: list[Json] = [
    {"maxSkew": 3, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
]
arguments = st.sampled_from((SYSTEM, LIST))


def constraints_of(asked: Asked, given_arguments: Json, action: str) -> definition.Constraints:
    """The constraints of the pod, or the default ones."""
    if asked.pod.spec.topology_spread_constraints:
        return definition.own_constraints(asked.pod, action)
    defaults = given_arguments.get("defaultConstraints", OF_SYSTEM)
    defaults = [read({**each, "apiVersion": ""}, TopologySpreadConstraint) for each in defaults]
    return definition.default_constraints(asked.cluster, asked.pod, defaults, action)


def refused(asked: Asked) -> dict[str, str]:
    """Why each node is refused, by the plugin."""
    return {name: status.message for name, status in asked.verdicts().items() if not status.is_success}


def assert_as_defined(cluster: PlacementCluster, manifest: Json, given_arguments: Json) -> None:
    """Filter and scores are what the definition says, in both forms."""
    asked = Asked(cluster, NAME, manifest, given_arguments)
    hard = constraints_of(asked, given_arguments, "DoNotSchedule")
    assert asked.skips == (not hard)
    assert refused(asked) == definition.spread_reasons(cluster, asked.pod, hard)
    assert asked.verdicts_at_once() == asked.verdicts()
    soft = constraints_of(asked, given_arguments, "ScheduleAnyway")
    feasible = [node for node in definition.nodes_of(cluster) if node.name not in refused(asked)]
    requires_keys = bool(asked.pod.spec.topology_spread_constraints) or given_arguments is LIST
    if feasible:
        expected = definition.spread_scores(cluster, asked.pod, soft, feasible, requires_keys=requires_keys)
        assert asked.scores([node.name for node in feasible]) == expected


@given(clusters(), incoming_pods, arguments)
def test_filter_and_scores_are_as_defined(cluster: PlacementCluster, manifest: Json, given_arguments: Json) -> None:
    """On any cluster, one by one and all at once."""
    assert_as_defined(cluster, manifest, given_arguments)


@settings(max_examples=25)
@given(clusters(), incoming_pods, st.lists(changes, min_size=3, max_size=12))
def test_counts_follow_every_change(cluster: PlacementCluster, manifest: Json, events: list[Change]) -> None:
    """Counts that have followed changes of nodes, pods and other objects say what the definition says, after each."""
    for event in events:
        for each in (*SPREAD_PROBES, manifest):
            assert_as_defined(cluster, each, LIST)
        apply(cluster, event)
    for each in (*SPREAD_PROBES, manifest):
        assert_as_defined(cluster, each, LIST)


def test_nodes_without_a_zone_are_in_one_domain_with_those_whose_zone_is_empty() -> None:
    """By the defaults of the system, which require no labels."""
    cluster = PlacementCluster()
    for name, labels in (("blank", {ZONE: ""}), ("without", {}), ("east", {ZONE: "east"})):
        apply(cluster, ("node", {"metadata": {"name": name, "labels": labels}}))
    service = {"metadata": {"name": "s", "namespace": "one"}, "spec": {"selector": {"app": "a"}}}
    apply(cluster, ("object", ("Service", service)))
    pod = {"metadata": {"name": "p", "namespace": "one", "uid": "p", "labels": {"app": "a"}}, "spec": {}}
    for number in range(2):
        apply(cluster, ("pod", named(pod, f"p-{number}") | {"spec": {"nodeName": "without"}}))
    scores = Asked(cluster, NAME, pod, SYSTEM).scores(["blank", "without", "east"])
    # Two domains weigh log(4): 2 pods are 2.77, and the skew of 5 adds 4. What has no zone gets nothing.
    assert scores == ([7, 0, 4], [0, 100, 42])
    assert_as_defined(cluster, pod, SYSTEM)


def is_plain(constraint: Json) -> bool:
    """Whether a constraint is hard and selects pods by something."""
    selector = constraint.get("labelSelector", {"matchLabels": "none at all"})
    return constraint["whenUnsatisfiable"] == "DoNotSchedule" and any(selector.values())


spreading_pods = incoming(spread=st.lists(constraints.filter(is_plain), min_size=1, max_size=3))
"""
Pods for which hypothetical pods count as those that are there.

Upstream counts neither terminating pods nor any by a selector that requires nothing, but takes them for hypothetical
ones.
"""


@settings(max_examples=50)
@given(clusters(nodes_min=6), spreading_pods, added_pods)
def test_a_hypothetical_pod_counts_as_one_that_is_there(
    cluster: PlacementCluster, manifest: Json, added: list[Json]
) -> None:
    """Added to the state, or put on its node in the cluster: the verdicts are the same."""
    asked = Asked(cluster, NAME, manifest, SYSTEM)
    running = [cluster.shapes.read(each) for each in added if "deletionTimestamp" not in each["metadata"]]
    hypothesis = asked.hypothetical([("+", pod, pod.node_name) for pod in running])
    verdicts, at_once = hypothesis.verdicts(), hypothesis.verdicts_at_once()
    for pod in running:
        cluster.set_pod(pod)
    assert verdicts == at_once == Asked(cluster, NAME, manifest, SYSTEM).verdicts()


@settings(max_examples=50)
@given(clusters(nodes_min=6), spreading_pods, st.data())
def test_a_pod_taken_away_counts_as_one_that_is_gone(
    cluster: PlacementCluster, manifest: Json, data: st.DataObject
) -> None:
    """Removed from the state, or from the cluster: the verdicts are the same."""
    asked = Asked(cluster, NAME, manifest, SYSTEM)
    running = [pod for pod in cluster.pods.values() if not pod.is_terminating]
    gone = [pod for pod in running if data.draw(st.booleans())]
    verdicts = asked.hypothetical([("-", pod, pod.node_name) for pod in gone]).verdicts()
    for pod in gone:
        cluster.remove_pod(pod.key)
    assert verdicts == Asked(cluster, NAME, manifest, SYSTEM).verdicts()


@settings(max_examples=50)
@given(clusters(nodes_min=6), incoming(spread=st.lists(constraints, min_size=1)), added_pods)
def test_adding_and_removing_a_pod_changes_nothing(
    cluster: PlacementCluster, manifest: Json, added: list[Json]
) -> None:
    """Any pods, terminating ones too, on any nodes."""
    asked = Asked(cluster, NAME, manifest, SYSTEM)
    assume(not asked.skips)
    read_pods = [cluster.shapes.read(each) for each in added]
    there = asked.hypothetical([("+", pod, pod.node_name) for pod in read_pods])
    state = there.state
    for pod in reversed(read_pods):
        info = cluster.node(pod.node_name)
        assert info is not None
        state = there.plugin.remove_pod(there.cycle, state, pod, info)
    assert [spread.deltas for spread in state] == [{}] * len(state)
    assert [spread.sums for spread in state] == [spread.sums for spread in asked.state]


@settings(max_examples=50)
@given(clusters(), st.lists(incoming_pods, min_size=1, max_size=6))
def test_a_chosen_node_never_breaks_a_hard_constraint(cluster: PlacementCluster, manifests: list[Json]) -> None:
    """After each placement no domain is ahead of the emptiest one by more than the constraint allows."""
    runtime = framework(cluster, NAME, SYSTEM)
    for number, manifest in enumerate(manifests):
        new = named(manifest, f"new-{number}")
        pod = cluster.shapes.read(new)
        hard = definition.own_constraints(pod, "DoNotSchedule")
        before = definition.spread_counts(cluster, pod, hard)
        chosen = attempt(runtime, pod, cluster.index(NodeOrder).scan(0, 100)).node
        if not chosen:
            continue
        apply(cluster, ("pod", new | {"spec": new["spec"] | {"nodeName": chosen}}))
        info = cluster.node(chosen)
        assert info is not None
        after = definition.spread_counts(cluster, pod, hard)
        for each, was, counts in zip(hard, before, after, strict=True):
            value = definition.labels_of(info)[each.topology_key]
            lowest = 0 if len(was) < (each.min_domains or 1) else min(was.values())
            assert counts.get(value, 0) - lowest <= each.max_skew


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"defaultingType": "Other"}, "defaultingType"),
        (LIST | SYSTEM, "defaultingType"),
        (
            {"defaultingType": "List", "defaultConstraints": [ZONED] * 2},
            "defaultConstraints[1]",
        ),
        ({"defaultingType": "List", "defaultConstraints": [ZONED | {"maxSkew": 0}]}, "[0].maxSkew"),
        ({"defaultingType": "List", "defaultConstraints": [ZONED | {"topologyKey": ""}]}, "[0].topologyKey"),
        ({"defaultingType": "List", "defaultConstraints": [ZONED | {"topologyKey": "no label"}]}, "[0].topologyKey"),
        (
            {"defaultingType": "List", "defaultConstraints": [ZONED | {"whenUnsatisfiable": "Sometimes"}]},
            "[0].whenUnsatisfiable",
        ),
        ({"defaultingType": "List", "defaultConstraints": [ZONED | {"labelSelector": {}}]}, "[0].labelSelector"),
    ],
)
def test_arguments_that_upstream_refuses_are_refused(wrong: Json, path: str) -> None:
    """With the path of the field."""
    with pytest.raises(ConfigurationError) as caught:
        framework(PlacementCluster(), NAME, wrong)
    assert caught.value.field.endswith(path)
