"""The vector form of a plugin says of every node what its definition, the method for one node, says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placement import Json, cluster_of, clusters, framework_of, pods, tell

from headgate.core.kubernetes.selectors import matches_node
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.plugin import (
    PreFilterPlugin,
    PreScorePlugin,
    VectorFilter,
    VectorScore,
)
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.selection import matching_rows

PLUGINS = read_profiles(None, REGISTRY).by_name["default-scheduler"].plugins

FILTERS = [name for name, plugin in PLUGINS.items() if isinstance(plugin, VectorFilter)]
SCORES = [name for name, plugin in PLUGINS.items() if isinstance(plugin, VectorScore)]

RATIO: Json = {
    "shape": [{"utilization": 0, "score": 1}, {"utilization": 40, "score": 10}, {"utilization": 100, "score": 0}]
}
RESOURCES: list[Json] = [{"name": "cpu", "weight": 3}, {"name": "memory"}, {"name": "example.com/gpu", "weight": 2}]
ADDED: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gen", "operator": "NotIn", "values": ["a"]}]}]
    }
}

ARGUMENTS: list[tuple[str, Json]] = [
    ("NodeResourcesFit", {}),
    ("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated", "resources": RESOURCES}}),
    (
        "NodeResourcesFit",
        {
            "ignoredResourceGroups": ["example.com"],
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": RESOURCES,
                "requestedToCapacityRatio": RATIO,
            },
        },
    ),
    ("NodeResourcesBalancedAllocation", {"resources": [{"name": each["name"]} for each in RESOURCES]}),
    ("NodeAffinity", {"addedAffinity": ADDED}),
]


def agree(manifests: list[Json], waiting: Json, name: str, **profile: Any) -> None:
    """Ask a plugin for all nodes at once, and for each; the pod is the only one that waits."""
    cluster = cluster_of(*manifests, waiting)
    framework = framework_of(cluster, **profile)
    plugin = framework.profile.plugins[name]
    cycle = framework.cycle(cluster.pods["ns/p"])
    rows = cluster.columns.all_rows()
    infos = [cluster.info_of(row) for row in rows.tolist()]
    answer = plugin.pre_filter(cycle) if isinstance(plugin, PreFilterPlugin) else None
    if isinstance(plugin, VectorFilter) and (answer is None or answer.status.is_success):
        cycle.filter_states[name] = answer.state if answer is not None else None
        ids = plugin.filter_columns(cycle, cluster.columns, rows).tolist()
        assert [cycle.statuses.status_of(each) for each in ids] == [plugin.filter(cycle, info) for info in infos]
    scored = plugin.pre_score(cycle, rows) if isinstance(plugin, PreScorePlugin) else None
    if isinstance(plugin, VectorScore) and (scored is None or scored.status.is_success):
        cycle.score_states[name] = scored.state if scored is not None else None
        scores = plugin.score_columns(cycle, cluster.columns, rows)
        assert scores.tolist() == [plugin.score(cycle, info) for info in infos]


@pytest.mark.parametrize("name", sorted({*FILTERS, *SCORES}))
@given(manifests=clusters(), waiting=pods("p"))
@settings(max_examples=60)
def test_all_nodes_at_once_are_answered_as_each_of_them(name: str, manifests: list[Json], waiting: Json) -> None:
    """Filters and scores of the default profile."""
    agree(manifests, waiting, name)


@pytest.mark.parametrize(("name", "arguments"), ARGUMENTS)
@given(manifests=clusters(), waiting=pods("p"))
@settings(max_examples=40)
def test_arguments_mean_the_same_in_both_forms(
    name: str, arguments: Json, manifests: list[Json], waiting: Json
) -> None:
    """Strategies, weights, resources and added affinity."""
    agree(manifests, waiting, name, pluginConfig=[{"name": name, "args": arguments}])


@given(manifests=clusters(), waiting=pods("p"))
@settings(max_examples=60)
def test_node_selection_over_columns_is_that_of_each_node(manifests: list[Json], waiting: Json) -> None:
    """Node selectors and required affinity as a mask are what `matches_node` says of one node."""
    cluster = cluster_of(*manifests, waiting)
    spec = cluster.pods["ns/p"].spec
    mask = matching_rows(cluster.columns, spec)
    for row in cluster.columns.all_rows().tolist():
        info = cluster.info_of(row)
        assert mask[row] == matches_node(spec, info.node.metadata.labels, info.name)


@given(manifests=clusters(), changes=st.data())
@settings(max_examples=40)
def test_columns_are_what_the_nodes_say(manifests: list[Json], changes: st.DataObject) -> None:
    """After any change, a column that was asked for before has what a new one would have."""
    cluster = cluster_of(*manifests)
    resources, keys = ("cpu", "memory", "example.com/gpu", "pods"), ("tier", "gen")
    for _ in range(3):
        for resource in resources:
            cluster.columns.allocatable(resource)
            cluster.columns.requested(resource)
        for key in keys:
            cluster.columns.label(key)
        again = changes.draw(clusters(nodes_max=4))
        cluster.remove_node("n03")
        for manifest in again:
            if "namespace" not in manifest["metadata"]:
                tell(cluster, manifest)
        for info in cluster.columns.nodes():
            for resource in resources:
                assert cluster.columns.allocatable(resource)[info.row] == info.allocatable.get(resource, 0)
                assert cluster.columns.requested(resource)[info.row] == info.requested.get(resource, 0)
            for key in keys:
                value = info.node.metadata.labels.get(key)
                expected = cluster.columns.label_ids(key)[value] if value is not None else 0
                assert cluster.columns.label(key)[info.row] == expected
            assert cluster.columns.pod_count[info.row] == len(info.pods)
    assert np.count_nonzero(cluster.columns.alive) == len(cluster.columns.rows)
