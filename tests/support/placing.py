"""Clusters and pods that topology spread and pod affinity tell apart, drawn at random, and changes of them."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.profile import Profile
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import PluginStatus
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.owners import Namespace, ReplicaSet, Service
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.pods import PodInfo

Json = dict[str, Any]

NODES = tuple(f"n{number}" for number in range(6))
PODS = tuple(f"p{number}" for number in range(8))
NAMESPACES = ("one", "one", "one", "two", "three")
"""Most pods are in the first, so that they meet."""

HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
KINDS: Mapping[str, type] = {"Namespace": Namespace, "Service": Service, "ReplicaSet": ReplicaSet}


def leaves_out(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Objects with these fields; those drawn as None are absent."""
    return st.fixed_dictionaries(fields).map(
        lambda drawn: {name: value for name, value in drawn.items() if value is not None}
    )


def sometimes(strategy: st.SearchStrategy[Any], part: int, whole: int) -> st.SearchStrategy[Any]:
    """Drawn so many times out of so many, and None otherwise."""
    return st.integers(1, whole).flatmap(lambda number: strategy if number <= part else st.none())


def labels_of(keys: Mapping[str, tuple[str, ...]]) -> st.SearchStrategy[dict[str, str]]:
    """Labels: each key absent, or with one of its values."""
    return leaves_out(**{key: st.sampled_from((None, *values)) for key, values in keys.items()})


pod_labels = st.builds(
    lambda app, others: {"app": app} | others, st.sampled_from(("a", "a", "b")), labels_of({"tier": ("x", "")})
)
namespace_labels = labels_of({"team": ("red", "blue")})


def selectors_of(keys: Mapping[str, tuple[str, ...]]) -> st.SearchStrategy[Json]:
    """Label selectors over the keys, the empty one included."""
    requirement = st.one_of(
        st.builds(
            lambda key, operator, value: {"key": key, "operator": operator, "values": [value, "a"]},
            st.sampled_from(list(keys)),
            st.sampled_from(("In", "NotIn")),
            st.sampled_from(("x", "blue", "")),
        ),
        st.builds(
            lambda key, operator: {"key": key, "operator": operator},
            st.sampled_from(list(keys)),
            st.sampled_from(("Exists", "DoesNotExist")),
        ),
    )
    return leaves_out(
        matchLabels=st.none() | labels_of(keys), matchExpressions=st.none() | st.lists(requirement, max_size=1)
    )


APP_A: Json = {"matchLabels": {"app": "a"}}
pod_selectors = st.one_of(
    st.sampled_from((APP_A, APP_A, {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]})),
    selectors_of({"app": ("a", "b"), "tier": ("x", "")}),
)
namespace_selectors = st.one_of(
    st.sampled_from(({}, {"matchLabels": {"team": "red"}})), selectors_of({"team": ("red", "blue")})
)
topology_keys = st.sampled_from((HOSTNAME, ZONE, RACK))

constraints = leaves_out(
    maxSkew=st.integers(1, 3),
    topologyKey=topology_keys,
    whenUnsatisfiable=st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
    labelSelector=sometimes(pod_selectors, 4, 5),
    minDomains=st.sampled_from((None, None, 1, 2, 4)),
    nodeAffinityPolicy=st.sampled_from((None, "Honor", "Ignore")),
    nodeTaintsPolicy=st.sampled_from((None, "Honor", "Ignore")),
    matchLabelKeys=st.sampled_from((None, None, ["tier"], ["app", "absent"])),
)

terms = leaves_out(
    topologyKey=topology_keys,
    labelSelector=sometimes(pod_selectors, 4, 5),
    namespaces=st.sampled_from((None, None, None, [], ["two"], ["one", "three"])),
    namespaceSelector=sometimes(namespace_selectors, 1, 2),
)
preferences = st.fixed_dictionaries({"weight": st.integers(1, 100), "podAffinityTerm": terms})
affinities = leaves_out(
    requiredDuringSchedulingIgnoredDuringExecution=sometimes(st.lists(terms, min_size=1, max_size=2), 1, 2),
    preferredDuringSchedulingIgnoredDuringExecution=sometimes(st.lists(preferences, min_size=1, max_size=2), 1, 2),
)

taints = st.sampled_from(
    ([], [], [{"key": "k", "value": "v", "effect": "NoSchedule"}], [{"key": "k", "effect": "PreferNoSchedule"}])
)
tolerations = st.sampled_from(([], [{"key": "k", "operator": "Exists"}]))

nodes = st.builds(
    lambda name, labels, hostname, taint: {
        "metadata": {"name": name, "labels": labels | ({HOSTNAME: hostname or name} if hostname != "absent" else {})},
        "spec": {"taints": taint},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
    },
    st.sampled_from(NODES),
    labels_of({ZONE: ("east", "east", "west", "west", ""), RACK: ("1", "2"), "disk": ("ssd",)}),
    st.sampled_from(("", "", "", "shared", "absent")),
    taints,
)


any_affinity = leaves_out(podAffinity=sometimes(affinities, 1, 2), podAntiAffinity=sometimes(affinities, 1, 2))
any_constraints = st.lists(constraints, max_size=3)


def pods(
    *,
    node_names: tuple[str, ...] = (*NODES, ""),
    spread: st.SearchStrategy[list[Json]] = any_constraints,
    affinity: st.SearchStrategy[Json] = any_affinity,
) -> st.SearchStrategy[Json]:
    """Pods on one of these nodes, or ("") on none, with such spread constraints and such pod affinity."""
    spec = leaves_out(
        nodeName=st.sampled_from(node_names).map(lambda name: name or None),
        topologySpreadConstraints=spread,
        affinity=affinity,
        nodeSelector=st.sampled_from((None, None, {"disk": "ssd"})),
        tolerations=tolerations,
    )
    return st.builds(
        lambda name, namespace, labels, is_terminating, is_owned, drawn: {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": labels}
            | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_terminating else {})
            | ({"ownerReferences": [OWNER]} if is_owned else {}),
            "spec": drawn,
        },
        st.sampled_from(PODS),
        st.sampled_from(NAMESPACES),
        pod_labels,
        st.sampled_from((False, False, True)),
        st.booleans(),
        spec,
    )


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "u", "controller": True}

objects = st.one_of(
    st.builds(
        lambda name, labels: ("Namespace", {"metadata": {"name": name, "labels": labels}}),
        st.sampled_from(NAMESPACES),
        namespace_labels,
    ),
    st.builds(
        lambda namespace, name, labels: (
            "Service",
            {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": labels}},
        ),
        st.sampled_from(NAMESPACES),
        st.sampled_from(("s1", "s2")),
        pod_labels,
    ),
    st.builds(
        lambda namespace, selector: (
            "ReplicaSet",
            {"metadata": {"name": "set", "namespace": namespace}, "spec": {"selector": selector}},
        ),
        st.sampled_from(NAMESPACES),
        pod_selectors,
    ),
)

Change = tuple[str, Any]

changes: st.SearchStrategy[Change] = st.one_of(
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("pod"), pods()),
    st.tuples(st.just("pod"), pods()),
    st.tuples(st.just("object"), objects),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(st.just("no pod"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(PODS)).map("/".join)),
    st.tuples(
        st.just("no object"),
        st.sampled_from((("Namespace", "one"), ("Service", "one/s1"), ("ReplicaSet", "two/set"))),
    ),
)


def apply(cluster: PlacementCluster, change: Change) -> None:
    """Tell the cluster of a change."""
    match change:
        case ("node", manifest):
            cluster.set_node(read(manifest, NodeObject))
        case ("pod", manifest):
            cluster.set_pod(cluster.shapes.read(manifest))
        case ("object", (kind, manifest)):
            metadata = manifest["metadata"]
            key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            cluster.put(KINDS[kind], key, read(manifest, KINDS[kind]))
        case ("no node", name):
            cluster.remove_node(name)
        case ("no pod", key):
            cluster.remove_pod(key)
        case ("no object", (kind, key)):
            cluster.put(KINDS[kind], key, None)


@st.composite
def clusters(draw: st.DrawFn, nodes_min: int = 3) -> PlacementCluster:
    """A cluster with some nodes and pods on them, and other objects."""
    cluster = PlacementCluster()
    for name in NODES[: draw(st.integers(nodes_min, len(NODES)))]:
        manifest = draw(nodes)
        apply(cluster, ("node", manifest | {"metadata": manifest["metadata"] | {"name": name}}))
    for manifest in draw(st.lists(pods(node_names=NODES), min_size=4, max_size=10)):
        apply(cluster, ("pod", manifest))
    for each in draw(st.lists(objects, max_size=5)):
        apply(cluster, ("object", each))
    return cluster


def named(manifest: Json, name: str) -> Json:
    """The same pod under a name that no drawn one has."""
    return manifest | {"metadata": manifest["metadata"] | {"name": name, "uid": name}}


def incoming(**such: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Pods that are to be placed (`pods`)."""
    return pods(node_names=("",), **such).map(lambda manifest: named(manifest, "incoming"))


incoming_pods = incoming()
added_pods = st.lists(pods(node_names=NODES), min_size=1, max_size=4).map(
    lambda drawn: [named(manifest, f"added-{number}") for number, manifest in enumerate(drawn)]
)
"""Pods that run on nodes, beside those of the cluster."""

_ZONED: Json = {"topologyKey": ZONE, "labelSelector": APP_A}
_HARD: Json = {**_ZONED, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
_SOFT: Json = {**_ZONED, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


def _probe(number: int, spec: Json) -> Json:
    metadata = {"namespace": "one", "labels": {"app": "a", "tier": "x"}, "ownerReferences": [OWNER]}
    return named({"metadata": metadata, "spec": spec}, f"probe-{number}")


SPREAD_PROBES: tuple[Json, ...] = tuple(
    _probe(number, spec)
    for number, spec in enumerate[Json](
        (
            {},
            {"topologySpreadConstraints": [_HARD, _SOFT, {**_SOFT, "topologyKey": HOSTNAME}]},
            {"topologySpreadConstraints": [{**_HARD, "nodeTaintsPolicy": "Honor"}], "nodeSelector": {"disk": "ssd"}},
            {"topologySpreadConstraints": [_HARD, {**_HARD, "topologyKey": HOSTNAME, "minDomains": 5}]},
            {"topologySpreadConstraints": [{**_HARD, "labelSelector": {}, "matchLabelKeys": ["tier"]}, _SOFT]},
        )
    )
)
"""Pods of common kinds, whose counts most changes concern."""

AFFINITY_PROBES: tuple[Json, ...] = tuple(
    _probe(number, {"affinity": affinity})
    for number, affinity in enumerate[Json](
        (
            {},
            {
                "podAffinity": {_REQUIRED: [_ZONED]},
                "podAntiAffinity": {_REQUIRED: [{**_ZONED, "topologyKey": HOSTNAME}]},
            },
            {"podAffinity": {_REQUIRED: [_ZONED, {**_ZONED, "topologyKey": RACK, "namespaceSelector": {}}]}},
            {"podAntiAffinity": {_REQUIRED: [{**_ZONED, "namespaceSelector": {"matchLabels": {"team": "red"}}}]}},
            {"podAffinity": {_PREFERRED: [{"weight": 3, "podAffinityTerm": _ZONED}]}},
        )
    )
)
"""The same for pod affinity."""


def framework(cluster: PlacementCluster, plugin: str, arguments: Json) -> Framework:
    """The runtime of the default profile, with these arguments of a plugin."""
    return Framework(_profile(plugin, json.dumps(arguments)), cluster)


@cache
def _profile(plugin: str, arguments: str) -> Profile:
    profile = {
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": plugin, "args": json.loads(arguments)}],
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return read_profiles(configuration, REGISTRY).by_name["default-scheduler"]


class Asked:
    """One plugin, asked about one pod that is not in the cluster."""

    def __init__(self, cluster: PlacementCluster, name: str, manifest: Json, arguments: Json) -> None:
        runtime = framework(cluster, name, arguments)
        self.name = name
        plugin: Any = runtime.profile.plugins[name]
        self.plugin = plugin
        self.cluster = cluster
        self.pod = cluster.shapes.read(manifest)
        self.cycle = runtime.cycle(self.pod)
        before = plugin.pre_filter(self.cycle)
        self.skips = before.status.is_skip
        if not self.skips:
            self.cycle.filter_states[name] = before.state

    @property
    def state(self) -> Any:
        """What the pre-filter has prepared."""
        return self.cycle.filter_states[self.name]

    def verdicts(self) -> dict[str, PluginStatus]:
        """What the filter says of each node, asked one by one; nothing if the pre-filter skips."""
        if self.skips:
            return {}
        return {info.name: self.plugin.filter(self.cycle, info) for info in self.cluster.columns.nodes()}

    def verdicts_at_once(self) -> dict[str, PluginStatus]:
        """What the vector form says of all nodes."""
        if self.skips:
            return {}
        columns = self.cluster.columns
        rows = columns.all_rows()[::-1]
        ids = self.plugin.filter_columns(self.cycle, columns, rows)
        statuses = map(self.cycle.statuses.status_of, ids.tolist())
        return dict(zip(map(self.cluster.name_of, rows.tolist()), statuses, strict=True))

    def hypothetical(self, changes: list[tuple[str, PodInfo, str]]) -> "Asked":
        """The same with pods added to, or removed from (`+`, `-`) nodes."""
        copy = object.__new__(Asked)
        copy.__dict__.update(self.__dict__)
        copy.cycle = self.cycle.clone()
        state = self.state
        for sign, pod, name in changes:
            info = self.cluster.node(name)
            assert info is not None, f"node {name} does not exist"
            node = info.clone()
            if sign == "+":
                node.add(pod)
                state = self.plugin.add_pod(copy.cycle, state, pod, node)
            else:
                node.remove(pod)
                state = self.plugin.remove_pod(copy.cycle, state, pod, node)
        copy.cycle.filter_states[self.name] = state
        return copy

    def scores(self, names: list[str]) -> tuple[list[int], list[int]] | None:
        """The raw and the normalised scores of feasible nodes; None if the pre-score skips."""
        rows = self.cluster.columns.rows_of(names)
        before = self.plugin.pre_score(self.cycle, rows)
        if before.status.is_skip:
            return None
        self.cycle.score_states[self.name] = before.state
        raw = self.plugin.score_columns(self.cycle, self.cluster.columns, rows)
        one_by_one = [self.plugin.score(self.cycle, self.cluster.info_of(row)) for row in rows.tolist()]
        assert raw.tolist() == one_by_one, "the vector form of the score differs from the score"
        return one_by_one, self.plugin.normalize(self.cycle, rows, raw).tolist()
