"""
What must hold of drawn clusters whose pods the engine places one after another, whatever the pods want.

An attempt is carried out at once: the pod is on its node, or its victims are gone and it is nominated.
"""

import copy
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placement import (
    HOSTNAME,
    ZONE,
    Json,
    attempted,
    cluster_of,
    clusters,
    framework_of,
    node,
    nodes,
    pod,
    pods,
    shown,
    tell,
)

from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.pods import PodInfo

KEYS = st.sampled_from([ZONE, HOSTNAME, "rack"])
APPS = st.sampled_from(["x", "y"])


@st.composite
def _nodes(draw: st.DrawFn) -> list[Json]:
    """Up to six nodes, most of them in a zone."""
    made = []
    for number in range(draw(st.integers(2, 6))):
        zone = draw(st.sampled_from(["", "za", "zb", "zc"]))
        rack = draw(st.sampled_from(["", "r1", "r2"]))
        labels = {key: value for key, value in ((ZONE, zone), ("rack", rack)) if value}
        cpu, pods_max = draw(st.sampled_from(["1", "2", "4"])), draw(st.sampled_from(["1", "3", "10"]))
        made.append(node(f"n{number}", labels=labels, cpu=cpu, pods=pods_max))
    return made


@st.composite
def _pods(draw: st.DrawFn, name: str) -> Json:
    """A pod with any of: host ports, hard spread, required anti-affinity, a priority."""
    spec: Json = {"priority": draw(st.sampled_from([0, 5, 10]))}
    if draw(st.booleans()):
        selector = {"matchLabels": {"app": draw(APPS)}}
        skew = draw(st.integers(1, 2))
        constraint = {"maxSkew": skew, "topologyKey": draw(KEYS), "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
    if draw(st.booleans()):
        term = {"topologyKey": draw(KEYS), "labelSelector": {"matchLabels": {"app": draw(APPS)}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    requests = {"cpu": draw(st.sampled_from(["0", "500m", "1", "2"]))}
    made = pod(name, labels={"app": draw(APPS)}, spec=spec, **requests)
    port = draw(st.sampled_from([0, 80, 443]))
    if port:
        made["spec"]["containers"][0]["ports"] = [{"hostPort": port, "containerPort": port}]
    return made


WORLDS = st.tuples(
    _nodes(), st.integers(1, 9).flatmap(lambda count: st.tuples(*(_pods(f"p{number}") for number in range(count))))
)


def bound(manifest: Json, name: str) -> Json:
    return {**manifest, "spec": {**manifest["spec"], "nodeName": name}}


def carry_out(cluster: PlacementCluster, made: PlacementAttempt, manifest: Json) -> None:
    """What an attempt decided happens."""
    if made.node:
        tell(cluster, bound(manifest, made.node))
        return
    for victim in made.post_filtered.victims if made.post_filtered is not None else ():
        cluster.remove_pod(victim)
    if made.nominated is not None:
        cluster.nominate(made.cycle.pod.key, made.nominated)


def on_nodes(cluster: PlacementCluster) -> list[tuple[PodInfo, str]]:
    return [(each, each.node_name) for each in cluster.pods.values() if each.node_name]


def domain(cluster: PlacementCluster, name: str, key: str) -> str | None:
    info = cluster.node(name)
    assert info is not None
    return info.node.metadata.labels.get(key)


def selected(selector: object, each: PodInfo) -> bool:
    return all(each.labels.get(key) == value for key, value in selector.match_labels.items())  # type: ignore[attr-defined]


def check_nodes(cluster: PlacementCluster) -> None:
    """No node has more than it can, and no port of it is taken twice."""
    for info in cluster.columns.nodes():
        here = [each for each, name in on_nodes(cluster) if name == info.name]
        assert len(here) <= info.allocatable["pods"]
        assert sum(each.requests.requests.get("cpu", 0) for each in here) <= info.allocatable["cpu"]
        ports = Counter(port[1:] for each in here for port in each.shape.host_ports)
        assert not ports or max(ports.values()) == 1


def check_anti_affinity(cluster: PlacementCluster) -> None:
    """No pod shares a domain with one that its required anti-affinity means."""
    placed = on_nodes(cluster)
    for each, name in placed:
        anti = each.spec.affinity.pod_anti_affinity if each.spec.affinity is not None else None
        for term in anti.required_during_scheduling_ignored_during_execution if anti is not None else ():
            here = domain(cluster, name, term.topology_key)
            others = [
                other for other, at in placed if other is not each and domain(cluster, at, term.topology_key) == here
            ]
            assert here is None or not any(selected(term.label_selector, other) for other in others)


def check_spread(cluster: PlacementCluster, each: PodInfo, name: str) -> None:
    """A pod that has just been placed skews none of its hard constraints."""
    for constraint in each.spec.topology_spread_constraints:
        counts = dict.fromkeys(
            (domain(cluster, info.name, constraint.topology_key) for info in cluster.columns.nodes()), 0
        )
        counts.pop(None, None)
        for other, at in on_nodes(cluster):
            where = domain(cluster, at, constraint.topology_key)
            if where is not None and selected(constraint.label_selector, other):
                counts[where] += 1
        mine = domain(cluster, name, constraint.topology_key)
        assert mine is not None
        if selected(constraint.label_selector, each):
            assert counts[mine] - min(counts.values()) <= constraint.max_skew


@given(world=WORLDS)
@settings(max_examples=60)
def test_pods_are_placed_where_they_may_be(world: tuple[list[Json], tuple[Json, ...]]) -> None:
    """Room, ports, spread and anti-affinity hold after each placement; victims have a lower priority."""
    cluster = cluster_of(*world[0])
    framework = framework_of(cluster)
    for manifest in world[1] * 2:
        key = f"ns/{manifest['metadata']['name']}"
        known = cluster.pods.get(key)
        if known is not None and known.node_name:
            continue
        tell(cluster, manifest)
        incoming = cluster.pods[key]
        made = attempted(framework, key)
        if made.post_filtered is not None:
            for victim in made.post_filtered.victims:
                assert cluster.pods[victim].priority < incoming.priority
                assert cluster.pods[victim].node_name == made.nominated
        carry_out(cluster, made, manifest)
        check_nodes(cluster)
        check_anti_affinity(cluster)
        if made.node:
            check_spread(cluster, cluster.pods[key], made.node)


def renamed(manifest: Json, names: dict[str, str]) -> Json:
    other = copy.deepcopy(manifest)
    name = names[manifest["metadata"]["name"]]
    other["metadata"]["name"] = other["metadata"]["labels"][HOSTNAME] = name
    return other


def refused(framework: Framework, made: PlacementAttempt, names: dict[str, str]) -> dict[str, str]:
    rejections = made.verdicts.rejections()
    return {names.get(name, name): f"{status.code.label} {status.message}" for name, status in rejections.items()}


@given(world=WORLDS, data=st.data())
@settings(max_examples=60)
def test_names_of_nodes_decide_ties_alone(world: tuple[list[Json], tuple[Json, ...]], data: st.DataObject) -> None:
    """With other names the same nodes are feasible and the best, and the others are refused for the same reasons."""
    old_names = [each["metadata"]["name"] for each in world[0]]
    names = dict(
        zip(old_names, data.draw(st.permutations([f"m{number}" for number in range(len(old_names))])), strict=True)
    )
    cluster, other = cluster_of(*world[0]), cluster_of(*(renamed(each, names) for each in world[0]))
    frameworks = framework_of(cluster), framework_of(other)
    for manifest in world[1]:
        key = f"ns/{manifest['metadata']['name']}"
        for each in (cluster, other):
            tell(each, manifest)
        made, mapped = attempted(frameworks[0], key), attempted(frameworks[1], key)
        assert sorted(names[cluster.name_of(row)] for row in made.best) == sorted(map(other.name_of, mapped.best))
        assert sorted(names[cluster.name_of(row)] for row in made.feasible) == sorted(
            map(other.name_of, mapped.feasible)
        )
        assert refused(frameworks[0], made, names) == refused(frameworks[1], mapped, {})
        if made.node:
            tell(cluster, bound(manifest, made.node))
            tell(other, bound(manifest, names[made.node]))


_NAMES = st.sampled_from([f"n{number:02}" for number in range(8)])
_KEYS = st.sampled_from(["e0", "e1", "x0", "x1", "p0", "p1"])
_CHANGES = st.one_of(
    _NAMES.flatmap(lambda name: st.tuples(st.just("node"), nodes(name))),
    st.tuples(st.just("no node"), _NAMES),
    st.tuples(_KEYS, _NAMES).flatmap(lambda pair: st.tuples(st.just("pod"), pods(pair[0], on=pair[1]))),
    _KEYS.flatmap(lambda key: st.tuples(st.just("pod"), _pods(key))),
    st.tuples(st.just("no pod"), _KEYS),
    st.tuples(st.just("nominate"), st.tuples(_KEYS, _NAMES)),
)


@given(manifests=clusters(nodes_max=6), changes=st.lists(_CHANGES, max_size=12), waiting=_pods("p"))
@settings(max_examples=80)
def test_a_cluster_that_has_changed_is_one_that_was_made_so(
    manifests: list[Json], changes: list[tuple[str, object]], waiting: Json
) -> None:
    """After each change attempts, preemption included, are those on a cluster of the same objects in another order."""
    cluster = cluster_of(*manifests, waiting)
    framework = framework_of(cluster)
    for kind, what in changes:
        match kind, what:
            case "node" | "pod", dict():
                tell(cluster, what)
            case "no node", str():
                cluster.remove_node(what)
            case "no pod", str():
                cluster.remove_pod(f"ns/{what}")
            case "nominate", (str() as key, str() as name):
                waits = cluster.pods.get(f"ns/{key}")
                if waits is not None and not waits.node_name:
                    cluster.nominate(waits.key, name)
        attempted(framework, "ns/p")
    fresh = PlacementCluster()
    for each in reversed(list(cluster.pods.values())):
        fresh.set_pod(fresh.shapes.pod_of(each.object))
        fresh.nominate(each.key, cluster.nomination_of(each.key))
    for info in reversed(list(cluster.columns.nodes())):
        fresh.set_node(info.node)
    for key in [key for key, each in cluster.pods.items() if not each.node_name]:
        old, new = attempted(framework, key), attempted(framework_of(fresh), key)
        assert shown(old) == shown(new)
        assert (old.post_filtered is None) == (new.post_filtered is None)
        if old.post_filtered is not None and new.post_filtered is not None:
            assert old.post_filtered.victims == new.post_filtered.victims
            assert (old.nominated, old.post_filtered.unnominated) == (new.nominated, new.post_filtered.unnominated)
