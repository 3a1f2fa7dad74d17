"""Odd objects cost themselves at most: no exception leaves an attempt or the queue, and errors name their plugin."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placement import HOSTNAME, ZONE, Json, attempted, cluster_of, framework_of, node, pod, tell

from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.placement.framework.status import Code
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.queue import Queue
from headgate.core.placement.queue_changes import node_changed, pod_changed
from headgate.core.placement.queue_entry import QueueLimits
from headgate.core.placement.queue_hints import queue_profile
from headgate.events.ids import UnixMs

QUANTITIES = st.sampled_from(["0", "-1", "1e30", "9223372036854775807", "-9223372036854775808", "1n", "3", "500m"])
RESOURCES = st.sampled_from(
    ["cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu", "", "/", "hugepages-", "x/y/z"]
)
AMOUNTS = st.dictionaries(RESOURCES, QUANTITIES, max_size=4)
TEXT = st.sampled_from(["", "a", "not valid!", "\x00", "é", "a" * 300, "10", "-"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "in", "Near"])
EXPRESSIONS = st.lists(
    st.fixed_dictionaries({"key": TEXT, "operator": OPERATORS}, optional={"values": st.lists(TEXT, max_size=2)}),
    max_size=2,
)
SELECTORS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {}, optional={"matchLabels": st.dictionaries(TEXT, TEXT, max_size=2), "matchExpressions": EXPRESSIONS}
    ),
)
KEYS = st.sampled_from([ZONE, HOSTNAME, "", "not valid!"])
TERMS = st.fixed_dictionaries(
    {"topologyKey": KEYS}, optional={"labelSelector": SELECTORS, "namespaceSelector": SELECTORS}
)
NODE_TERM = st.fixed_dictionaries({}, optional={"matchExpressions": EXPRESSIONS, "matchFields": EXPRESSIONS})
LABELS = st.dictionaries(st.one_of(TEXT, st.just(ZONE)), TEXT, max_size=3)
TAINTS = st.lists(
    st.fixed_dictionaries({"key": TEXT, "effect": st.sampled_from(["NoSchedule", "Odd", ""])}), max_size=2
)


@st.composite
def odd_nodes(draw: st.DrawFn, name: str) -> Json:
    made = node(name, labels=draw(LABELS), spec={"taints": draw(TAINTS)})
    made["status"] = {"allocatable": draw(AMOUNTS)} if draw(st.booleans()) else made["status"]
    images = draw(st.sampled_from([0, 1, 300]))
    made["status"]["images"] = [{"names": [f"app:{each}", ""], "sizeBytes": each * 10**17} for each in range(images)]
    return made


@st.composite
def odd_pods(draw: st.DrawFn, name: str) -> Json:
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    weighted = st.fixed_dictionaries({"weight": st.sampled_from([-5, 0, 100, 2**31]), "podAffinityTerm": TERMS})
    near = st.fixed_dictionaries(
        {}, optional={required: st.lists(TERMS, max_size=2), preferred: st.lists(weighted, max_size=1)}
    )
    prefers = st.fixed_dictionaries({"weight": st.sampled_from([-1, 0, 50]), "preference": NODE_TERM})
    of_nodes = st.fixed_dictionaries(
        {},
        optional={
            required: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(NODE_TERM, max_size=2)}),
            preferred: st.lists(prefers, max_size=1),
        },
    )
    spread = st.fixed_dictionaries(
        {
            "maxSkew": st.sampled_from([-1, 0, 1]),
            "topologyKey": KEYS,
            "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway", "Odd"]),
        },
        optional={
            "labelSelector": SELECTORS,
            "minDomains": st.sampled_from([-1, 0, 5]),
            "matchLabelKeys": st.lists(TEXT, max_size=2),
        },
    )
    parts: dict[str, st.SearchStrategy[Any]] = {
        "priority": st.sampled_from([-(2**31), 0, 2**31 - 1]),
        "nodeSelector": st.dictionaries(TEXT, TEXT, max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"key": TEXT, "operator": OPERATORS}), max_size=2),
        "topologySpreadConstraints": st.lists(spread, max_size=2),
        "affinity": st.fixed_dictionaries(
            {}, optional={"podAffinity": near, "podAntiAffinity": near, "nodeAffinity": of_nodes}
        ),
        "preemptionPolicy": st.sampled_from(["Never", "Odd"]),
        "volumes": st.just([{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]),
    }
    spec = draw(st.fixed_dictionaries({}, optional=parts))
    made = pod(name, labels=draw(LABELS), spec=spec, **draw(AMOUNTS))
    made["spec"]["containers"][0]["ports"] = draw(
        st.sampled_from([[], [{"hostPort": -1}], [{"hostPort": 80, "protocol": "Odd"}]])
    )
    made["spec"]["schedulerName"] = "default-scheduler"
    return made


NODES = st.integers(1, 11).flatmap(lambda count: st.tuples(*(odd_nodes(f"n{number}") for number in range(count))))
PODS = st.integers(1, 5).flatmap(lambda count: st.tuples(*(odd_pods(f"p{number}") for number in range(count))))


@given(manifests=NODES, waiting=PODS, data=st.data())
@settings(max_examples=60)
def test_odd_objects_stop_nothing(manifests: tuple[Json, ...], waiting: tuple[Json, ...], data: st.DataObject) -> None:
    """Each pod is tried and placed, or refused; an error names its plugin. An ordinary pod is treated as ever."""
    cluster = cluster_of(*manifests, node("plain"))
    framework = framework_of(cluster)
    queue = Queue(cluster, {"default-scheduler": queue_profile(framework)}, QueueLimits())
    ordinary = pod("ordinary", spec={"nodeSelector": {HOSTNAME: "plain"}, "schedulerName": "default-scheduler"})
    now_ms = UnixMs(0)
    for manifest in (*waiting, ordinary):
        tell(cluster, manifest)
        pod_changed(queue, None, cluster.pods[f"ns/{manifest['metadata']['name']}"], now_ms)
    by_key = {f"ns/{each['metadata']['name']}": each for each in (*waiting, ordinary)}
    names = [each["metadata"]["name"] for each in manifests]
    for turn in range(2 * len(by_key)):
        now_ms = UnixMs(now_ms + 700_000)
        queue.flush_backoff(now_ms)
        queue.flush_unschedulable(now_ms)
        popped = queue.pop()
        if popped is not None:
            key = popped.queued.pod.key
            made = attempted(framework, key)
            assert made.status.code != Code.ERROR or made.status.plugin, made.message
            assert key != "ns/ordinary" or (made.node in ("plain", "") and made.status.code != Code.ERROR)
            if made.node:
                old = popped.queued.pod
                queue.done(popped.queued)
                tell(cluster, {**by_key[key], "spec": {**by_key[key]["spec"], "nodeName": made.node}})
                pod_changed(queue, old, cluster.pods[key], now_ms)
            else:
                # Nominations that lead in a circle: each pod is nominated to where the next one is.
                cluster.nominate(key, names[turn % len(names)])
                queue.failed(popped.queued, made.rejectors, (), now_ms)
        changed = data.draw(odd_nodes(names[turn % len(names)]))
        before = cluster.node(changed["metadata"]["name"])
        assert before is not None
        old_node = before.node
        tell(cluster, changed)
        node_changed(queue, old_node, before.node, now_ms)
    assert not queue.plugin_failures()
    assert not cluster.index_failures


@pytest.mark.parametrize("quantity", ["abc", "", "NaN", "1Zi"])
def test_an_object_with_what_is_no_quantity_is_refused_and_changes_nothing(quantity: str) -> None:
    """One error, which names the quantity; what was known of the object remains."""
    cluster = cluster_of(node("a"), pod("p", cpu="1"))
    for wrong in (node("a", cpu=quantity), node("b", memory=quantity), pod("p", cpu=quantity), pod("q", cpu=quantity)):
        with pytest.raises(QuantityError, match="is not a quantity"):
            tell(cluster, wrong)
    assert list(cluster.columns.rows) == ["a"]
    assert list(cluster.pods) == ["ns/p"]
    assert attempted(framework_of(cluster), "ns/p").node == "a"
    assert cluster.info_of(0).node == read(node("a"), NodeObject)


def test_pods_that_request_more_than_64_bits_together_fill_their_node() -> None:
    """They came by `spec.nodeName`; nothing else fits there."""
    huge = [pod(f"h{number}", on="a", memory="9223372036854775807") for number in range(3)]
    cluster = cluster_of(node("a"), node("b"), *huge, pod("p", memory="1Gi"))
    assert attempted(framework_of(cluster), "ns/p").node == "b"


def test_nodes_with_thousands_of_images_are_scored() -> None:
    """The node that has the image is the best."""
    names = [f"registry.example.com/{number}:v1" for number in range(5_000)]
    cluster = cluster_of(node("a"), node("b"), pod("p"))
    for name, extra in (("a", []), ("b", ["app:v1"])):
        made = node(name)
        made["status"]["images"] = [{"names": [each], "sizeBytes": 900_000_000} for each in (*names, *extra)]
        tell(cluster, made)
    assert attempted(framework_of(cluster), "ns/p").node == "b"


BAD = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
NEAR = '"Near" is not a valid label selector operator'


def _affinity(kind: str, field: str) -> Json:
    term: Json = {"topologyKey": ZONE, "labelSelector": BAD}
    return {"affinity": {kind: {field: [term if field.startswith("req") else {"weight": 1, "podAffinityTerm": term}]}}}


def _spread(when: str) -> Json:
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": when, "labelSelector": BAD}
    return {"topologySpreadConstraints": [constraint]}


REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_affinity("podAffinity", REQUIRED), f"0/2 nodes are available: parsing pod: requiredAffinityTerms: {NEAR}."),
        (
            _affinity("podAntiAffinity", REQUIRED),
            f"0/2 nodes are available: parsing pod: requiredAntiAffinityTerms: {NEAR}.",
        ),
        (_affinity("podAffinity", PREFERRED), f"0/2 nodes are available: parsing pod: preferredAffinityTerms: {NEAR}."),
        (_spread("DoNotSchedule"), f'running PreFilter plugin "PodTopologySpread": get constraints from pod: {NEAR}'),
        (
            _spread("ScheduleAnyway"),
            'running PreScore plugin "PodTopologySpread": calculating preScoreState: '
            f"obtaining pod's soft topology spread constraints: {NEAR}",
        ),
        (
            {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": BAD}]}}},
            'running PreScore plugin "NodeAffinity": [0].matchExpressions[0].operator: Unsupported value: "Near": '
            'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
        ),
    ],
)
def test_a_selector_that_cannot_be_read_is_an_error_of_its_pod(spec: Json, message: str) -> None:
    """As in the kube-scheduler (NewPodInfo, getConstraints, NewPreferredSchedulingTerms); it matches nothing else."""
    cluster = cluster_of(node("a"), node("b"), pod("p", spec=spec), pod("other"))
    made = attempted(framework_of(cluster), "ns/p")
    assert made.node == ""
    assert made.message.startswith(message), made.message
    tell(cluster, pod("p", on="a", spec=spec))
    assert attempted(framework_of(cluster), "ns/other").node in ("a", "b")
