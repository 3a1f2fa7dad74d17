"""The ungater and topology domains: each pod of an assigned workload is sent to its domain, once."""

from typing import Any

import msgspec
import pytest
from tests.machines.ungater.test_decide import ABOUT, BRIDGE, KEY, MANAGER, SCHEDULER, UNGATER, Gate, job, workload
from tests.support.backoff import longest
from tests.support.logs import TestLog

from headgate.core.config import feature_gates
from headgate.core.machine.contract import Append, Call, Committed, Settled
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase
from headgate.events.configuration import Configuration
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.events.objects import (
    Admission,
    DomainCounts,
    LevelNames,
    LevelValues,
    Node,
    Pod,
    PodSetAssignment,
    PodSpec,
    ResourceFlavorSpec,
    SchedulingGate,
    Taint,
    TopologyAssignment,
    TopologyRequest,
    TopologySlice,
)
from headgate.machines.ungater import topology_gates

HOST = "kubernetes.io/hostname"
GATE = SchedulingGate(name="kueue.x-k8s.io/topology")
INDEX = "batch.kubernetes.io/job-completion-index"
GATES = dict.fromkeys(feature_gates.DEFAULTS, True) | {feature_gates.TAS_REPLACE_NOT_READY_FIXED_TIME: False}


def assigned(text: str, level: str = HOST) -> TopologyAssignment:
    """`a:2 b:1` as the API has it."""
    domains = [each.partition(":") for each in text.split()]
    return TopologyAssignment(
        levels=(level,),
        slices=(
            TopologySlice(
                domain_count=len(domains),
                values_per_level=(LevelValues(individual=LevelNames(roots=tuple(name for name, _, _ in domains))),),
                pod_counts=DomainCounts(individual=tuple(int(pods) for _, _, pods in domains)),
            ),
        ),
    )


def pod(name: str, *, index: int | None = None, **more: Any) -> facts.PodObserved:
    """A pod of the workload, gated unless `spec` says otherwise."""
    spec = more.pop("spec", PodSpec(node_selector={"tier": "spot"}, scheduling_gates=(GATE,)))
    known: dict[str, Any] = {"uid": f"u-{name}", "created_ms": UnixMs(6), "workload": KEY, "topology_aware": True}
    known |= {"pod_set": "main", "indexes": {INDEX: index} if index is not None else {}, **more}
    return facts.PodObserved(pod=PodKey(f"team-a/{name}"), spec=Pod(spec=spec, **known))


def sent(name: str, node: str, **more: Any) -> facts.PodObserved:
    """A pod that has lost its gate."""
    bound = more.pop("bound", False)
    selector = {"tier": "spot", HOST: node}
    return pod(name, spec=PodSpec(node_selector=selector, node_name=node if bound else ""), **more)


def node(name: str, **more: Any) -> facts.NodeObserved:
    return facts.NodeObserved(name=name, node=Node(name=name, **more))


def admission(places: str, count: int = 3, level: str = HOST) -> Admission:
    assignment = PodSetAssignment(flavors={"cpu": "default"}, count=count, topology_assignment=assigned(places, level))
    return Admission(cluster_queue="cq", pod_set_assignments=(assignment,))


def admit(made: Gate, places: str, count: int = 3, level: str = HOST) -> None:
    made.say(
        SCHEDULER,
        QuotaReserved(**ABOUT, cluster_queue="cq", admission=admission(places, count, level), message="m"),
        WorkloadAdmitted(**ABOUT, cluster_queue="cq", message="m"),
    )


def admit_again(made: Gate, places: str, level: str = HOST) -> None:
    """Other domains for the same workload."""
    made.evict()
    made.say(MANAGER, queueing.WorkloadReleased(**ABOUT, requeued=True, reason="r", message="m"))
    admit(made, places, level=level)


def reassign(made: Gate, places: str) -> None:
    """The scheduler has found other domains, and the workload stays admitted."""
    made.say(
        SCHEDULER,
        decisions.TopologyAssigned(**ABOUT, cluster_queue="cq", admission=admission(places), message="m"),
    )


def gate(*events: EventBase, places: str = "a:2 b:1", off: tuple[str, ...] = ()) -> Gate:
    """An ungater with an admitted workload whose pods have been observed."""
    made = Gate()
    shown = workload()
    (pod_set,) = shown.spec.pod_sets
    asked = msgspec.structs.replace(pod_set, count=3, topology_request=TopologyRequest(pod_index_label=INDEX))
    spec = msgspec.structs.replace(shown.spec, pod_sets=(asked,))
    configuration = Configuration(feature_gates=GATES | dict.fromkeys(off, False))
    made.say(
        BRIDGE,
        facts.ConfigurationObserved(configuration=configuration),
        facts.ResourceFlavorObserved(name="default", spec=ResourceFlavorSpec()),
        job(suspended=False),
        msgspec.structs.replace(shown, spec=spec),
        *(node(name) for name in "abc"),
        facts.InformersSynced(),
    )
    admit(made, places)
    made.say(BRIDGE, *events)
    return made


def nodes_of(calls: list[Call]) -> dict[str, str]:
    """Where the pods of these patches are sent."""
    return {call.path.rpartition("/")[2]: call.body[-1]["value"][HOST] for call in calls if "/pods/" in call.path}


# --- sending pods --------------------------------------------------------------------------------------------------


def test_the_domain_is_in_the_log_before_the_gate_is_removed() -> None:
    """One event for all pods that are due, then one patch for each."""
    made = gate(pod("p0", index=0), pod("p1", index=1), pod("p2", index=2))
    (append,) = made.machine.decide(Settled(made.log.now_ms))
    assert isinstance(append, Append)
    (event,) = append.events
    assert isinstance(event, decisions.PodsAssigned)
    assert {each.values: sorted(each.pods) for each in event.domains} == {
        ("a",): ["team-a/p0", "team-a/p1"],
        ("b",): ["team-a/p2"],
    }
    made.say(UNGATER, event)
    events, calls = made.rest()
    assert (events, nodes_of(calls)) == ([], {"p0": "a", "p1": "a", "p2": "b"})


def test_a_patch_holds_only_for_the_pod_as_the_log_has_it() -> None:
    """It names the pod's uid, the place of the gate and the node selectors, and sets those of the domain with them."""
    gates = (SchedulingGate(name="example.com/other"), GATE)
    made = gate(pod("p0", index=0, spec=PodSpec(scheduling_gates=gates)))
    call = made.call()
    assert (call.method, call.path) == ("PATCH", "/api/v1/namespaces/team-a/pods/p0")
    assert call.content_type == "application/json-patch+json"
    assert call.body == [
        {"op": "test", "path": "/metadata/uid", "value": "u-p0"},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": "kueue.x-k8s.io/topology"},
        {"op": "test", "path": "/spec/nodeSelector", "value": None},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
        {"op": "add", "path": "/spec/nodeSelector", "value": {HOST: "a"}},
    ]


def test_nothing_is_sent_twice() -> None:
    """Neither while the patch is unanswered, nor until the watch shows it, nor after that."""
    made = gate(pod("p0", index=0))
    call = made.call()
    made.say(BRIDGE, node("c", labels={"x": "y"}))
    assert made.rest() == ([], [])
    made.answer(call)
    assert made.rest() == ([], [])
    made.say(BRIDGE, sent("p0", "a", index=0))
    assert made.rest() == ([], [])
    assert Gate(made.log).rest() == ([], [])


def test_a_crash_between_the_event_and_the_answer_repeats_the_same_patch() -> None:
    """Also without ranks: the domain is not chosen again, so that none gets a pod too many."""
    made = gate(pod("x"), pod("y"), pod("z"))
    first = nodes_of(made.rest()[1])
    made.say(BRIDGE, facts.PodDeleted(pod=PodKey("team-a/x"), uid=Uid("u-x")), pod("a"))
    again = Gate(made.log)
    _, calls = again.rest()
    assert nodes_of(calls) == {"y": first["y"], "z": first["z"], "a": first["x"]}


def test_a_refused_patch_is_repeated_with_backoff_and_a_missing_pod_forgotten() -> None:
    """The watch may show in the meantime why it was refused."""
    made = gate(pod("p0", index=0), pod("p1", index=1))
    first, second = made.rest()[1]
    made.answer(first, 422, reason="Invalid")
    made.answer(second, 404, reason="NotFound")
    assert made.rest() == ([], [])
    made.log.now_ms = UnixMs(made.log.now_ms + longest(1000))
    (again,) = made.rest()[1]
    assert again.body == first.body


def test_a_pod_that_is_created_again_gets_the_place_of_the_one_that_ended() -> None:
    """The pod of the same rank, on the same node."""
    made = gate(sent("p0", "a", index=0, bound=True), sent("p1", "a", index=1), sent("p2", "b", index=2))
    assert made.rest() == ([], [])
    made.say(BRIDGE, facts.PodDeleted(pod=PodKey("team-a/p2"), uid=Uid("u-p2")), pod("p2x", index=2))
    assert nodes_of(made.rest()[1]) == {"p2x": "b"}


def test_pods_wait_until_their_workload_is_admitted_again() -> None:
    """An evicted one sends no pod; what was chosen for its pods before is chosen anew."""
    made = gate()
    made.evict()
    made.say(BRIDGE, pod("p0", index=0))
    assert not nodes_of(made.rest()[1])


@pytest.mark.parametrize("gone", ["failed", "replaced", "placed anew"])
def test_no_pod_is_sent_to_a_node_that_is_given_up_meanwhile(gone: str) -> None:
    """The domain was chosen; before the patch the node fails, or is replaced."""
    made = gate(pod("p0", index=0), pod("p2", index=2))
    (append,) = made.machine.decide(Settled(made.log.now_ms))
    assert isinstance(append, Append)
    made.say(UNGATER, *append.events)
    if gone == "failed":
        made.say(MANAGER, queueing.WorkloadNodeFailed(**ABOUT, node="b"))
        assert nodes_of(made.rest()[1]) == {"p0": "a"}
        made.say(MANAGER, queueing.WorkloadNodeRecovered(**ABOUT, node="b"))
        assert nodes_of(made.rest()[1]) == {"p2": "b"}
    else:
        if gone == "replaced":
            reassign(made, "a:2 c:1")
        else:
            admit_again(made, "a:2 c:1")
        assert nodes_of(made.rest()[1]) == {"p0": "a", "p2": "c"}


def test_a_domain_above_the_node_is_written_with_its_level() -> None:
    """A pod may go to any node of its rack."""
    made = gate(pod("p0", index=0))
    admit_again(made, "r1:3", level="example.com/rack")
    (call,) = [call for call in made.rest()[1] if "/pods/" in call.path]
    assert call.body[-1]["value"] == {"tier": "spot", "example.com/rack": "r1"}


def test_without_the_gate_of_the_feature_no_pod_is_touched() -> None:
    """Nor is any pod of a workload without an assignment."""
    made = gate(pod("p0", index=0), off=(feature_gates.TOPOLOGY_AWARE_SCHEDULING,))
    assert made.rest() == ([], [])


def test_patches_are_bounded_at_a_time_and_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods get their domains in few commits; patches wait for answers and for the budget."""
    monkeypatch.setattr(topology_gates, "CALLS_MAX", 40)
    many = [pod(f"p{i:03}", index=i) for i in range(200)]
    made = Gate(TestLog())
    shown = workload()
    (pod_set,) = shown.spec.pod_sets
    asked = msgspec.structs.replace(pod_set, count=200, topology_request=TopologyRequest(pod_index_label=INDEX))
    made.say(
        BRIDGE,
        facts.ConfigurationObserved(configuration=Configuration(feature_gates=GATES)),
        job(suspended=False),
        msgspec.structs.replace(shown, spec=msgspec.structs.replace(shown.spec, pod_sets=(asked,))),
        facts.InformersSynced(),
    )
    admit(made, " ".join(f"n{i}:2" for i in range(100)), 200)
    made.say(BRIDGE, *many)
    events, calls = made.rest()
    assert len(events) == 1
    found: dict[str, str] = {}
    while calls:
        assert len(calls) <= 40
        found |= nodes_of(calls)
        for call in calls:
            made.answer(call)
        calls = made.rest()[1]
    assert found == {f"p{i:03}": f"n{i // 2}" for i in range(200)}


# --- pods that wait for a failed node ------------------------------------------------------------------------------


def failed(calls: list[Call]) -> list[str]:
    """The pods that are failed by these calls."""
    return sorted(call.path.split("/")[-2] for call in calls if call.path.endswith("/status"))


TAINTED = {"taints": (Taint(key="down", effect="NoExecute"),)}
NOT_READY = {"ready": False, "not_ready_since_ms": UnixMs(1)}


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (node("a", **TAINTED), True),
        (node("a", **NOT_READY), True),
        (node("a", taints=(Taint(key="full", effect="PreferNoSchedule"),)), False),
        (node("a"), False),
        (node("b", **NOT_READY), False),
    ],
)
def test_a_pod_that_waits_for_a_node_that_will_not_take_it_is_failed(change: facts.NodeObserved, fails: bool) -> None:
    """So that its job creates it again; one that is bound there is the node's business."""
    made = gate(sent("p0", "a", index=0), sent("p1", "a", index=1, bound=True), change)
    assert failed(made.rest()[1]) == (["p0"] if fails else [])


def test_the_patch_that_fails_a_pod_is_kueues() -> None:
    """With its condition, and refused once the pod is bound or has failed."""
    made = gate(sent("p0", "a", index=0), node("a", **NOT_READY))
    call = made.call()
    tests = {each["path"]: each["value"] for each in call.body if each["op"] == "test"}
    assert tests == {"/metadata/uid": "u-p0", "/spec/nodeName": None, "/status/phase": "Pending"}
    condition = call.body[-1]["value"]
    assert (condition["type"], condition["reason"]) == ("TerminatedByKueue", "UnschedulableOnAssignedNode")
    made.answer(call)
    told = effects.PodFailed(pod=PodKey("team-a/p0"), uid=Uid("u-p0"), message=condition["message"])
    assert made.rest() == ([told], [])


def test_a_pod_of_a_node_that_was_replaced_is_failed() -> None:
    """Also when the node exists no longer."""
    made = gate(sent("p2", "b", index=2), facts.NodeDeleted(name="b"))
    assert failed(made.rest()[1]) == []
    reassign(made, "a:2 c:1")
    assert failed(made.rest()[1]) == ["p2"]


@pytest.mark.parametrize(
    "off", [feature_gates.TAS_FAILED_NODE_REPLACEMENT, feature_gates.TAS_REPLACE_ON_POD_TERMINATION]
)
def test_pods_are_failed_only_under_their_gates(off: str) -> None:
    """Without the first no node is replaced; without the second pods are not looked at."""
    made = gate(sent("p0", "a", index=0), node("a", **NOT_READY), off=(off,))
    assert failed(made.rest()[1]) == []


def test_a_pod_may_go_in_the_commit_that_shows_its_node() -> None:
    """The state is that after the whole commit."""
    made = gate(sent("p0", "a", index=0))
    made.say(BRIDGE, node("a", **NOT_READY), facts.PodDeleted(pod=PodKey("team-a/p0"), uid=Uid("u-p0")))
    assert failed(made.rest()[1]) == []


def test_pods_of_an_evicted_workload_are_left_to_their_job() -> None:
    """It is suspended, and with it its pods are deleted."""
    made = gate(sent("p0", "a", index=0))
    made.evict()
    made.say(BRIDGE, node("a", **NOT_READY))
    assert failed(made.rest()[1]) == []


def test_every_commit_of_pods_is_folded_as_it_was_decided() -> None:
    """The state names the domain of each pod; a pod of that name created anew has none."""
    made = gate(pod("p0", index=0))
    made.rest()
    assert made.log.state.pods[PodKey("team-a/p0")].domain == ("a",)
    logged = made.log.append(BRIDGE, pod("p0", index=0, uid="new"))
    made.machine.decide(Committed(logged))
    assert made.log.state.pods[PodKey("team-a/p0")].domain == ()
