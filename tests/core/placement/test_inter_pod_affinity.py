"""InterPodAffinity: what it says of each node is what its definition says, however the counts came about."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import placing_by_iteration as definition
from tests.support.placing import (
    AFFINITY_PROBES,
    HOSTNAME,
    Asked,
    Change,
    Json,
    added_pods,
    apply,
    changes,
    clusters,
    framework,
    incoming,
    incoming_pods,
    named,
    terms,
)

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.attempt import attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.scan import NodeOrder

NAME = "InterPodAffinity"

arguments = st.fixed_dictionaries(
    {"hardPodAffinityWeight": st.sampled_from((0, 1, 50)), "ignorePreferredTermsOfExistingPods": st.booleans()}
)
DEFAULTS: Json = {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False}


def assert_as_defined(cluster: PlacementCluster, manifest: Json, given_arguments: Json) -> None:
    """Filter and scores are what the definition says, in both forms."""
    asked = Asked(cluster, NAME, manifest, given_arguments)
    nodes = definition.nodes_of(cluster)
    reasons = {node.name: definition.affinity_reason(cluster, asked.pod, node) for node in nodes}
    if asked.skips:
        assert not any(reasons.values())
    else:
        assert {name: status.message for name, status in asked.verdicts().items()} == reasons
        assert asked.verdicts_at_once() == asked.verdicts()
    feasible = [node for node in nodes if not reasons[node.name]]
    if feasible:
        expected = definition.affinity_scores(
            cluster,
            asked.pod,
            feasible,
            hard_weight=given_arguments["hardPodAffinityWeight"],
            ignores_others=given_arguments["ignorePreferredTermsOfExistingPods"],
        )
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
        for each in (*AFFINITY_PROBES, manifest):
            assert_as_defined(cluster, each, DEFAULTS)
        apply(cluster, event)
    for each in (*AFFINITY_PROBES, manifest):
        assert_as_defined(cluster, each, DEFAULTS)


def test_terms_of_other_pods_follow_the_labels_of_the_namespace() -> None:
    """A pod keeps others off by the labels that their namespace has now."""
    cluster = PlacementCluster()
    apply(cluster, ("node", {"metadata": {"name": "n", "labels": {HOSTNAME: "n"}}}))
    term = {"topologyKey": HOSTNAME, "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "red"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata = {"name": "p", "namespace": "two", "uid": "p"}
    apply(cluster, ("pod", {"metadata": metadata, "spec": {"nodeName": "n", "affinity": affinity}}))
    pod = {"metadata": {"name": "q", "namespace": "one", "uid": "q"}, "spec": {}}
    skips = []
    for team in ("red", "blue", "red"):
        apply(cluster, ("object", ("Namespace", {"metadata": {"name": "one", "labels": {"team": team}}})))
        skips.append(Asked(cluster, NAME, pod, DEFAULTS).skips)
        assert_as_defined(cluster, pod, DEFAULTS)
    assert skips == [False, True, False]


term_lists = st.fixed_dictionaries(
    {"requiredDuringSchedulingIgnoredDuringExecution": st.lists(terms, min_size=1, max_size=2)}
)
requiring_pods = incoming(
    affinity=st.one_of(
        st.fixed_dictionaries({"podAffinity": term_lists}),
        st.fixed_dictionaries({"podAntiAffinity": term_lists}),
        st.fixed_dictionaries({"podAffinity": term_lists, "podAntiAffinity": term_lists}),
    )
)


@settings(max_examples=50)
@given(clusters(nodes_min=6), requiring_pods, added_pods)
def test_a_hypothetical_pod_counts_as_one_that_is_there(
    cluster: PlacementCluster, manifest: Json, added: list[Json]
) -> None:
    """Added to the state, or put on its node in the cluster: the verdicts are the same."""
    asked = Asked(cluster, NAME, manifest, DEFAULTS)
    read_pods = [cluster.shapes.read(each) for each in added]
    hypothesis = asked.hypothetical([("+", pod, pod.node_name) for pod in read_pods])
    verdicts, at_once = hypothesis.verdicts(), hypothesis.verdicts_at_once()
    for pod in read_pods:
        cluster.set_pod(pod)
    assert verdicts == at_once == Asked(cluster, NAME, manifest, DEFAULTS).verdicts()


@settings(max_examples=50)
@given(clusters(nodes_min=6), requiring_pods, st.data())
def test_a_pod_taken_away_counts_as_one_that_is_gone(
    cluster: PlacementCluster, manifest: Json, data: st.DataObject
) -> None:
    """Removed from the state, or from the cluster: the verdicts are the same."""
    asked = Asked(cluster, NAME, manifest, DEFAULTS)
    gone = [pod for pod in cluster.pods.values() if data.draw(st.booleans())]
    verdicts = asked.hypothetical([("-", pod, pod.node_name) for pod in gone]).verdicts()
    for pod in gone:
        cluster.remove_pod(pod.key)
    assert verdicts == Asked(cluster, NAME, manifest, DEFAULTS).verdicts()


@settings(max_examples=50)
@given(clusters(nodes_min=6), requiring_pods, added_pods)
def test_adding_and_removing_a_pod_changes_nothing(
    cluster: PlacementCluster, manifest: Json, added: list[Json]
) -> None:
    """Any pods on any nodes."""
    asked = Asked(cluster, NAME, manifest, DEFAULTS)
    read_pods = [cluster.shapes.read(each) for each in added]
    there = asked.hypothetical([("+", pod, pod.node_name) for pod in read_pods])
    state = there.state
    for pod in reversed(read_pods):
        info = cluster.node(pod.node_name)
        assert info is not None
        state = there.plugin.remove_pod(there.cycle, state, pod, info)
    groups = [*state.near, *state.far.values(), *state.unwilling.values()]
    assert [each.deltas for each in groups] == [{}] * len(groups)
    before = asked.state
    assert [each.sums for each in state.near] == [each.sums for each in before.near]
    assert {key: each.sums for key, each in state.far.items()} == {key: each.sums for key, each in before.far.items()}
    known = {key: each.sums for key, each in state.unwilling.items() if each.sums}
    assert known == {key: each.sums for key, each in before.unwilling.items()}


@settings(max_examples=50)
@given(clusters(), st.lists(incoming_pods, min_size=1, max_size=6))
def test_a_chosen_node_never_breaks_a_required_term(cluster: PlacementCluster, manifests: list[Json]) -> None:
    """A placed pod is near to what it requires, and neither keeps it off nor is kept off by what is in its domains."""
    runtime = framework(cluster, NAME, DEFAULTS)
    for number, manifest in enumerate(manifests):
        new = named(manifest, f"new-{number}")
        pod = cluster.shapes.read(new)
        chosen = attempt(runtime, pod, cluster.index(NodeOrder).scan(0, 100)).node
        if not chosen:
            continue
        info = cluster.node(chosen)
        assert info is not None
        assert definition.is_near(cluster, pod, info)
        for other, existing in definition.pods_of(cluster):
            for term in definition.far(pod):
                meets = definition.is_together(info, other, term.topology_key)
                assert not meets or not definition.incoming_means(cluster, term, pod, existing)
            for term in definition.far(existing):
                meets = definition.is_together(info, other, term.topology_key)
                assert not meets or not definition.existing_means(cluster, term, existing, pod)
        apply(cluster, ("pod", new | {"spec": new["spec"] | {"nodeName": chosen}}))


@pytest.mark.parametrize("weight", [-1, 101])
def test_a_weight_out_of_range_is_refused(weight: int) -> None:
    """With the path of the field."""
    with pytest.raises(ConfigurationError) as caught:
        framework(PlacementCluster(), NAME, {"hardPodAffinityWeight": weight})
    assert caught.value.field.endswith("hardPodAffinityWeight")
