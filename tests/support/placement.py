"""Nodes, pods and clusters for tests of placement: short builders, and strategies that meet all that plugins read."""

from functools import partial
from typing import Any

from hypothesis import strategies as st

from headgate.core.placement.attempt import PlacementAttempt, attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.plugin import Plugin, PluginFactory
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.scan import NodeOrder

Json = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def node(name: str, *, labels: Json | None = None, spec: Json | None = None, **allocatable: str) -> Json:
    """The manifest of a node; allocatable defaults to 4 cpu, 8Gi and 10 pods."""
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": spec or {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", **allocatable}},
    }


def pod(name: str, *, labels: Json | None = None, on: str = "", spec: Json | None = None, **requests: str) -> Json:
    """The manifest of a pod with one container; `on` is its node."""
    container = {"name": "c", "image": "app:v1", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"containers": [container], "nodeName": on, **(spec or {})},
    }


def cluster_of(*manifests: Json) -> PlacementCluster:
    """A cluster of manifests: pods have a namespace, nodes none."""
    cluster = PlacementCluster()
    for manifest in manifests:
        tell(cluster, manifest)
    return cluster


def tell(cluster: PlacementCluster, manifest: Json) -> None:
    """A node or pod exists or has changed."""
    if "namespace" in manifest["metadata"]:
        cluster.set_pod(cluster.shapes.read(manifest))
    else:
        cluster.set_node(read(manifest, NodeObject))


def framework_of(cluster: PlacementCluster, *others: Plugin, **profile: Any) -> Framework:
    """The default profile, or one with other fields, on a cluster; `others` take part behind the default plugins."""
    document: Json = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", **profile}],
    }
    if others:
        document["profiles"][0].setdefault("plugins", {"multiPoint": {"enabled": [{"name": e.name} for e in others]}})
    made = {each.name: each for each in others}
    registry = {**REGISTRY, **{name: PluginFactory(name, partial(_given, plugin)) for name, plugin in made.items()}}
    return Framework(read_profiles(document, registry).by_name["default-scheduler"], cluster)


def _given(plugin: Plugin, arguments: Any) -> Plugin:
    return plugin


def attempted(framework: Framework, key: str, *, start: int = 0, percentage: int = 100) -> PlacementAttempt:
    """An attempt to place a pod of the framework's cluster."""
    cluster = framework.cluster
    return attempt(framework, cluster.pods[key], cluster.index(NodeOrder).scan(start, percentage))


def shown(attempt: PlacementAttempt) -> object:
    """All that an attempt decided, independent of ids and rows."""
    name_of = attempt.cycle.cluster.name_of
    names = [name_of(row) for row in attempt.feasible.tolist()]
    scored = attempt.scored
    totals = scored.total.tolist() if scored is not None else []
    raw = {name: each.raw.tolist() for name, each in scored.by_plugin.items()} if scored is not None else {}
    best = [name_of(row) for row in attempt.best.tolist()]
    return attempt.path, attempt.verdicts.rejections(), names, raw, totals, best, attempt.node, attempt.message


# --- strategies ----------------------------------------------------------------------------------------------------

_VALUES = st.sampled_from(["1", "2", "10", "a", "b"])
_LABEL_KEYS = st.sampled_from(["tier", "gen", "disk"])
_TAINT_KEYS = st.sampled_from(["gpu", "spot"])
_EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
_IMAGES = st.sampled_from(["app:v1", "reg/app", "reg/app:latest", "db:v2"])
_RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "100m", "500m", "1", "3", "5"]),
        "memory": st.sampled_from(["0", "64Mi", "1Gi", "6Gi", "20Gi"]),
        "ephemeral-storage": st.sampled_from(["1Gi", "10Gi"]),
        "example.com/gpu": st.sampled_from(["0", "1", "4"]),
        "hugepages-2Mi": st.sampled_from(["2Mi", "8Mi"]),
    },
)

_taints = st.lists(
    st.fixed_dictionaries({"key": _TAINT_KEYS, "effect": _EFFECTS}, optional={"value": _VALUES}), max_size=2
)

_images = st.lists(
    st.fixed_dictionaries(
        {"names": st.lists(_IMAGES, min_size=1, max_size=2), "sizeBytes": st.integers(0, 1_500_000_000)}
    ),
    max_size=3,
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Json:
    """A node of a name."""
    zone = draw(st.sampled_from([{}, {ZONE: "za"}, {ZONE: "zb"}]))
    labels = {**draw(st.dictionaries(_LABEL_KEYS, _VALUES)), **zone}
    made = node(name, labels=labels)
    made["spec"] = {"unschedulable": draw(st.booleans()), "taints": draw(_taints)}
    pods = draw(st.sampled_from(["0", "1", "3", "110"]))
    made["status"] = {"allocatable": {**draw(_RESOURCES), "pods": pods}, "images": draw(_images)}
    return made


_requirements = st.one_of(
    st.fixed_dictionaries(
        {
            "key": _LABEL_KEYS,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(_VALUES, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"key": _LABEL_KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries(
        {
            "key": _LABEL_KEYS,
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": st.lists(_VALUES, min_size=1, max_size=1),
        }
    ),
)

_fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(["n00", "n01", "n02", "n99"]), min_size=1, max_size=2),
    }
)

_terms = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(_requirements, max_size=2), "matchFields": st.lists(_fields, max_size=1)}
)

_node_affinity = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(_terms, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.integers(0, 100), "preference": _terms}), max_size=2
        ),
    },
)

_tolerations = st.lists(
    st.fixed_dictionaries(
        {"operator": st.sampled_from(["Exists", "Equal"])},
        optional={
            "key": st.sampled_from(["gpu", "spot", "node.kubernetes.io/unschedulable"]),
            "value": _VALUES,
            "effect": _EFFECTS,
        },
    ),
    max_size=2,
)

_ports = st.lists(
    st.fixed_dictionaries(
        {"hostPort": st.sampled_from([0, 80, 443])},
        optional={"hostIP": st.sampled_from(["127.0.0.1", "0.0.0.0"]), "protocol": st.sampled_from(["TCP", "UDP"])},
    ),
    max_size=2,
)

_containers = st.fixed_dictionaries(
    {
        "name": st.just("c"),
        "image": _IMAGES,
        "resources": st.fixed_dictionaries({"requests": _RESOURCES}),
        "ports": _ports,
    }
)


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "") -> Json:
    """A pod of a name, on a node or waiting."""
    made = pod(name, on=on, labels=draw(st.dictionaries(st.just("app"), st.sampled_from(["x", "y"]))))
    made["spec"] |= {
        "containers": draw(st.lists(_containers, min_size=1, max_size=2)),
        "priority": draw(st.sampled_from([0, 10])),
        "tolerations": draw(_tolerations),
        "nodeSelector": draw(st.dictionaries(_LABEL_KEYS, _VALUES, max_size=1)),
        "affinity": {"nodeAffinity": draw(_node_affinity)},
    }
    return made


@st.composite
def clusters(draw: st.DrawFn, nodes_max: int = 14) -> list[Json]:
    """The manifests of nodes with some pods on them."""
    names = [f"n{number:02}" for number in range(draw(st.integers(1, nodes_max)))]
    made = [draw(nodes(name)) for name in names]
    count = draw(st.integers(0, 6))
    return made + [draw(pods(f"e{number}", on=draw(st.sampled_from(names)))) for number in range(count)]
