"""The binder carries out what is decided about pods: bindings, conditions, nominations, victims, writes."""

from typing import Any

import msgspec
import pytest
from tests.machines.binder.test_decide import BINDER, BRIDGE, SCHEDULER, Bound, Json
from tests.support.backoff import backs_off, longest

from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.machine.contract import Call
from headgate.core.placement.objects.kinds import KINDS
from headgate.core.state.manifests import encoded
from headgate.events import decisions, effects, facts
from headgate.events.base import EventBase
from headgate.events.decisions import ObjectPatch, PodNominated, PodPlaced, PodPrepared, PodUnschedulable, Victim
from headgate.events.ids import PodKey, Uid
from headgate.machines.binder import events, pod_bindings, pod_conditions, pod_victims, pod_writes

P = PodKey("team-a/p")
CONFIGURATION = facts.SchedulerConfigurationObserved(document={"apiVersion": "kubescheduler.config.k8s.io/v1"})


def shown(name: str = "p", uid: str = "", status: Json | None = None, **meta: Any) -> facts.ObjectObserved:
    """A pod as the informer bridge shows it. `nodeName` is of the spec, other keywords of the metadata."""
    node = meta.pop("nodeName", "")
    spec = {"schedulerName": "headgate"} | ({"nodeName": node} if node else {})
    metadata = {"name": name, "namespace": "team-a", "uid": uid or f"uid-{name}", "generation": 3, **meta}
    return observed("pods", {"metadata": metadata, "spec": spec, "status": status or {}})


def observed(resource: str, manifest: Json) -> facts.ObjectObserved:
    metadata = manifest["metadata"]
    key = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
    return facts.ObjectObserved(resource=resource, name=key, object=encoded(KINDS[resource].reduced(manifest)))


def about(name: str = "p") -> Json:
    return {"pod": PodKey(f"team-a/{name}"), "uid": Uid(f"uid-{name}")}


def with_pods(*names: str) -> Bound:
    bound = Bound()
    bound.say(BRIDGE, CONFIGURATION, *(shown(name) for name in names or ("p",)))
    return bound


def placed(bound: Bound, name: str = "p", node: str = "n1", *writes: ObjectPatch) -> None:
    bound.say(SCHEDULER, PodPlaced(**about(name), node=node, writes=writes))


def names_another_uid(bound: Bound, call: Call) -> None:
    """Answer a call as the API server does when the pod of this name has another uid."""
    if call.method == "PATCH":
        causes = [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]
        bound.answer(call, 422, reason="Invalid", message="no", details={"causes": causes})
    else:
        why = "Precondition failed: UID in precondition: uid-p, UID in object meta: other"
        bound.answer(call, 409, reason="Conflict", message=f'Operation cannot be fulfilled on Pod "p": {why}')


# --- bindings ------------------------------------------------------------------------------------------------------


def test_a_placed_pod_is_bound_once() -> None:
    """To its node, by its uid; the effect is recorded, and nothing is left to do."""
    bound = with_pods()
    placed(bound)
    events, (call,) = bound.rest()
    assert events == []
    assert (call.method, call.path) == ("POST", "/api/v1/namespaces/team-a/pods/p/binding")
    assert call.body["target"]["name"] == "n1"
    assert call.body["metadata"] == {"name": "p", "namespace": "team-a", "uid": "uid-p"}
    bound.answer(call, 201)
    assert bound.rest() == ([effects.PodBound(**about(), node="n1")], [])
    assert Bound(bound.log).rest() == ([], [])
    bound.say(BRIDGE, shown(nodeName="n1"))
    assert bound.rest() == ([], [])
    assert bound.log.state.placements == {}


def test_an_effect_that_follows_its_fact_leaves_no_record() -> None:
    """The watch may show the node before the effect is in the log."""
    bound = with_pods()
    placed(bound)
    _, (call,) = bound.rest()
    bound.say(BRIDGE, shown(nodeName="n1"))
    bound.answer(call, 201)
    assert bound.rest() == ([effects.PodBound(**about(), node="n1")], [])
    assert bound.log.state.placements == {}


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
def test_a_refused_binding_is_recorded_with_its_reason(code: int) -> None:
    """In the pod's condition too, as an error of the scheduler; the pod is left to it, which places it anew."""
    bound = with_pods()
    placed(bound)
    _, (call,) = bound.rest()
    bound.answer(call, code, reason="Because", message="no")
    refused = effects.PodBindRejected(**about(), node="n1", code=code, reason="Because", message="no")
    events, (patch,) = bound.rest()
    assert events == [refused]
    (condition,) = patched(patch)["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "SchedulerError", "no")
    assert Bound(bound.log).rest() == ([], [patch])
    bound.answer(patch)
    placed(bound, node="n2")
    _, (again,) = bound.rest()
    assert again.body["target"]["name"] == "n2"


@pytest.mark.parametrize(("node", "effect"), [("n1", effects.PodBound), ("n2", effects.PodBindRejected)])
def test_the_echo_of_our_own_binding_is_a_success(node: str, effect: type[EventBase]) -> None:
    """After a crash the binding is repeated, and refused because it was done: by us, or by another client."""
    bound = with_pods()
    placed(bound)
    bound.rest()
    again = Bound(bound.log)
    _, (call,) = again.rest()
    message = f'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "{node}"'
    again.answer(call, 409, reason="Conflict", message=message)
    assert [type(event) for event in again.rest()[0]] == [effect]


def test_a_pod_made_anew_under_its_name_is_bound_by_its_own_placement() -> None:
    """The refusal of the first pod's binding does not count for the second."""
    bound = with_pods()
    placed(bound)
    _, (call,) = bound.rest()
    bound.say(BRIDGE, shown(uid="other"))
    assert bound.rest() == ([], [])
    bound.say(SCHEDULER, PodPlaced(pod=P, uid=Uid("other"), node="n2"))
    assert bound.rest() == ([], [])
    bound.answer(call, 409, reason="Conflict", message="Precondition failed: UID in precondition: uid-p")
    events, (second,) = bound.rest()
    assert [type(event) for event in events] == [effects.PodBindRejected]
    assert (second.body["metadata"]["uid"], second.body["target"]["name"]) == ("other", "n2")
    bound.answer(second, 201)
    assert bound.rest()[0] == [effects.PodBound(pod=P, uid=Uid("other"), node="n2")]


def test_the_refusal_of_one_node_leaves_the_next_one() -> None:
    """A placement that was taken back and made anew while its binding was under way is bound to the new node."""
    bound = with_pods()
    placed(bound)
    _, (call,) = bound.rest()
    bound.say(SCHEDULER, decisions.PodWithdrawn(**about(), node="n1", reason="SchedulerError", message="m"))
    placed(bound, node="n2")
    bound.answer(call, 409, reason="Conflict", message="no")
    events, (second,) = bound.rest()
    assert [type(event) for event in events] == [effects.PodBindRejected]
    assert second.body["target"]["name"] == "n2"


def test_a_pod_that_is_gone_is_not_bound() -> None:
    """Neither before the call, nor after a restart."""
    bound = with_pods()
    placed(bound)
    bound.say(BRIDGE, facts.ObjectDeleted(resource="pods", name=P))
    assert bound.rest() == ([], [])
    assert Bound(bound.log).rest() == ([], [])


def test_ten_thousand_pods_are_bound_a_few_at_a_time() -> None:
    """Never more calls than the limit, each pod once, and nothing is kept of them."""
    names = [f"p{number}" for number in range(10_000)]
    bound = with_pods(*names)
    bound.say(SCHEDULER, *(PodPlaced(**about(name), node="n1") for name in names))
    seen: list[str] = []
    under_way: list[Call] = bound.rest()[1]
    while under_way:
        assert len(under_way) <= pod_bindings.BINDINGS_MAX
        seen += [call.path for call in under_way]
        for call in under_way:
            bound.answer(call, 201)
        under_way = bound.rest()[1]
    assert len(seen) == len(set(seen)) == len(names)
    bound.say(BRIDGE, *(shown(name, nodeName="n1") for name in names))
    assert bound.log.state.placements == {}
    assert bound.machine._decisions._known == {}
    for part in bound.machine._decisions._parts:
        kept = {name: value for name, value in vars(part).items() if isinstance(value, dict) and name != "_state"}
        assert {name: len(value) for name, value in kept.items() if value} == {}
        assert part._queue.in_flight == 0


def test_nothing_is_done_about_pods_any_more_when_the_configuration_goes() -> None:
    """Their records go with it, and with them what was kept of them."""
    bound = with_pods("p", "q")
    bound.say(SCHEDULER, PodPlaced(**about(), node="n1"), PodUnschedulable(**about("q"), reason="r", message="m"))
    bound.say(BRIDGE, facts.SchedulerConfigurationObserved(document={}))
    assert bound.rest() == ([], [])
    assert bound.machine._decisions._known == {}


# --- conditions and nominations ------------------------------------------------------------------------------------

UNSCHEDULABLE = PodUnschedulable(**about(), reason="Unschedulable", message="0/5 nodes are available.")


def patched(call: Call) -> Json:
    assert (call.method, call.path) == ("PATCH", "/api/v1/namespaces/team-a/pods/p/status")
    assert call.content_type == "application/strategic-merge-patch+json"
    assert call.body["metadata"] == {"uid": "uid-p"}
    status: Json = call.body["status"]
    return status


def condition(**changed: Any) -> Json:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/5 nodes are available.",
        **changed,
    }


def test_a_pod_that_fits_nowhere_says_so_once() -> None:
    """One patch, until another reason; the object shows it, and nothing is left."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE)
    events, (call,) = bound.rest()
    assert events == []
    now = rfc3339(bound.log.now_ms)
    written = condition(lastProbeTime=None, observedGeneration=3, lastTransitionTime=now)
    assert patched(call) == {"conditions": [written]}
    bound.answer(call)
    assert bound.rest() == ([], [])
    bound.say(BRIDGE, shown(status={"conditions": [condition()]}))
    assert bound.rest() == ([], [])
    assert Bound(bound.log).rest() == ([], [])


def test_another_message_keeps_the_time_of_the_transition() -> None:
    """What is left out of the patch stays."""
    bound = with_pods()
    bound.say(BRIDGE, shown(status={"conditions": [condition(), {"type": "Other", "status": "True"}]}))
    bound.say(SCHEDULER, msgspec.structs.replace(UNSCHEDULABLE, message="0/6 nodes are available."))
    _, (call,) = bound.rest()
    written = condition(message="0/6 nodes are available.", lastProbeTime=None, observedGeneration=3)
    assert patched(call) == {"conditions": [written]}


def test_what_is_decided_during_a_write_is_one_more_write() -> None:
    """Verdicts are coalesced; the last one is written."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE)
    _, (call,) = bound.rest()
    for count in range(6, 9):
        bound.say(SCHEDULER, msgspec.structs.replace(UNSCHEDULABLE, message=f"0/{count} nodes are available."))
        assert bound.rest() == ([], [])
    bound.answer(call)
    _, (last,) = bound.rest()
    assert patched(last)["conditions"][0]["message"] == "0/8 nodes are available."
    bound.answer(last)
    # The watch shows the first write late.
    bound.say(BRIDGE, shown(status={"conditions": [condition()]}))
    assert bound.rest() == ([], [])


def test_a_nomination_and_its_reason_are_one_write_and_it_is_cleared_by_another() -> None:
    """A cleared nomination is null, which removes the field."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE, PodNominated(**about(), node="n1"))
    _, (call,) = bound.rest()
    assert patched(call)["nominatedNodeName"] == "n1"
    assert len(patched(call)["conditions"]) == 1
    bound.answer(call)
    bound.say(BRIDGE, shown(status={"conditions": [condition()], "nominatedNodeName": "n1"}))
    assert bound.rest() == ([], [])
    bound.say(SCHEDULER, PodNominated(**about(), node=""))
    _, (call,) = bound.rest()
    assert patched(call) == {"nominatedNodeName": None}
    bound.answer(call)
    bound.say(BRIDGE, shown(status={"conditions": [condition()]}))
    assert bound.rest() == ([], [])


def test_a_nomination_is_cleared_also_if_the_watch_is_late() -> None:
    """The object shows no nomination when it is cleared, because the write of one is still under way."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE, PodNominated(**about(), node="n1"))
    _, (call,) = bound.rest()
    bound.say(SCHEDULER, PodNominated(**about(), node=""))
    bound.answer(call)
    _, (call,) = bound.rest()
    assert patched(call)["nominatedNodeName"] is None
    bound.answer(call)
    bound.say(BRIDGE, shown(status={"conditions": [condition()], "nominatedNodeName": "n1"}))
    assert bound.rest() == ([], [])
    bound.say(BRIDGE, shown(status={"conditions": [condition()]}))
    assert bound.rest() == ([], [])
    assert bound.log.state.placements[P].nominated is None


def test_a_nomination_by_another_component_stays() -> None:
    """An autoscaler may nominate a pod to a node that is not there yet."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE)
    _, (call,) = bound.rest()
    bound.answer(call)
    bound.say(BRIDGE, shown(status={"conditions": [condition()], "nominatedNodeName": "to-come"}))
    assert bound.rest() == ([], [])
    bound.say(SCHEDULER, PodNominated(**about(), node=""))
    _, (call,) = bound.rest()
    assert patched(call) == {"nominatedNodeName": None}


def test_a_pod_with_a_node_or_on_its_way_out_gets_no_condition() -> None:
    """Placed, bound, or being deleted."""
    for now in (shown(nodeName="n1"), shown(deletionTimestamp="2026-01-01T00:00:00Z")):
        bound = with_pods()
        bound.say(SCHEDULER, UNSCHEDULABLE)
        bound.say(BRIDGE, now)
        assert bound.rest() == ([], [])
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE, PodPlaced(**about(), node="n1"))
    assert [call.id for call in bound.rest()[1]] == ["bind/team-a/p"]


def test_a_refused_condition_is_tried_again_later_and_later() -> None:
    """And no sooner because another reason comes up meanwhile."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE)
    for wait in (1000, 2000, 4000):
        (call,) = bound.rest()[1]
        bound.answer(call, 422, reason="Invalid", message="no")
        bound.say(SCHEDULER, msgspec.structs.replace(UNSCHEDULABLE, message=f"after {wait}"))
        assert bound.rest() == ([], [])
        assert backs_off(bound.log.now_ms, bound.wake_at, wait)
        bound.later(longest(wait))


def test_no_condition_is_written_to_another_pod_of_the_name() -> None:
    """It is refused by the uid, and not repeated."""
    bound = with_pods()
    bound.say(SCHEDULER, UNSCHEDULABLE)
    _, (call,) = bound.rest()
    names_another_uid(bound, call)
    assert bound.rest() == ([], [])
    assert bound.wake_at is None
    bound.say(BRIDGE, shown(uid="other"))
    assert bound.rest() == ([], [])


def test_conditions_of_ten_thousand_pods_are_written_at_the_rate_of_the_budget() -> None:
    """A new node changes the message of every pod that waits: no storm of writes follows."""
    names = [f"p{number}" for number in range(10_000)]
    bound = with_pods(*names)
    bound.say(
        SCHEDULER, *(PodUnschedulable(**about(name), reason="Unschedulable", message="0/5 nodes") for name in names)
    )
    written = 0
    for _ in range(5):
        while calls := bound.rest()[1]:
            assert len(calls) <= pod_conditions.WRITES_MAX
            written += len(calls)
            for call in calls:
                bound.answer(call)
        assert bound.wake_at is not None
        bound.later(1000)
    assert 300 < written <= pod_conditions.BUDGET.burst + 5 * pod_conditions.BUDGET.rate_max


# --- victims -------------------------------------------------------------------------------------------------------


def with_victim(*, budgeted: bool = False, **victim: Any) -> Bound:
    """A pod `p` is nominated to n1, from which `v` has to go."""
    bound = Bound()
    bound.say(BRIDGE, CONFIGURATION, shown(), shown("v", **{"nodeName": "n1", **victim}))
    chosen = Victim(**about("v"), budgeted=budgeted)
    bound.say(SCHEDULER, PodNominated(**about(), node="n1", victims=(chosen,)))
    return bound


def of_victim(bound: Bound) -> Call:
    (call,) = [call for call in bound.rest()[1] if call.id == "preempt/team-a/v"]
    return call


PREEMPTED = effects.PodPreempted(**about("v"), by=P)


def effects_of(bound: Bound) -> list[EventBase]:
    return bound.rest()[0]


def test_a_victim_is_marked_and_then_deleted() -> None:
    """As by the kube-scheduler; the deletion is for this pod alone, with its own grace period."""
    bound = with_victim()
    call = of_victim(bound)
    assert (call.method, call.path) == ("PATCH", "/api/v1/namespaces/team-a/pods/v/status")
    assert call.body["metadata"] == {"uid": "uid-v"}
    assert call.body["status"]["conditions"] == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "headgate: preempting to accommodate a higher priority pod",
            "lastProbeTime": None,
            "observedGeneration": 3,
            "lastTransitionTime": rfc3339(bound.log.now_ms),
        }
    ]
    bound.answer(call)
    call = of_victim(bound)
    assert (call.method, call.path) == ("DELETE", "/api/v1/namespaces/team-a/pods/v")
    assert call.body["preconditions"] == {"uid": "uid-v"}
    assert "gracePeriodSeconds" not in call.body
    bound.answer(call)
    assert effects_of(bound) == [PREEMPTED]
    assert bound.log.state.placements[PodKey("team-a/v")].preempted
    assert [call.id for call in Bound(bound.log).rest()[1]] == ["pod-status/team-a/p"]


def test_after_a_crash_the_victim_is_marked_only_if_it_does_not_show_it() -> None:
    """Each call is repeated until its result is in the log."""
    bound = with_victim()
    bound.answer(of_victim(bound))
    assert of_victim(Bound(bound.log)).method == "PATCH"
    (marked,) = of_victim(Bound(bound.log)).body["status"]["conditions"]
    bound.say(BRIDGE, shown("v", nodeName="n1", status={"conditions": [marked]}))
    again = Bound(bound.log)
    call = of_victim(again)
    assert call.method == "DELETE"
    again.answer(call, 404, reason="NotFound", message="gone")
    assert effects_of(again) == [PREEMPTED]


@pytest.mark.parametrize("step", ["PATCH", "DELETE", "POST"])
@pytest.mark.parametrize("gone", ["absent", "another"])
def test_a_victim_that_is_gone_is_a_success(step: str, gone: str) -> None:
    """At each step; the pod that has its name now is not touched."""
    bound = with_victim(budgeted=step == "POST")
    call = of_victim(bound)
    if step == "DELETE":
        bound.answer(call)
        call = of_victim(bound)
    assert call.method == step
    if gone == "absent":
        bound.answer(call, 404, reason="NotFound", message="gone")
    else:
        names_another_uid(bound, call)
    assert effects_of(bound) == [PREEMPTED]


@pytest.mark.parametrize("step", ["PATCH", "DELETE"])
@pytest.mark.parametrize("code", [403, 409, 422])
def test_a_refusal_is_recorded_and_ends_the_preemption(step: str, code: int) -> None:
    """The scheduler decides anew."""
    bound = with_victim()
    call = of_victim(bound)
    if step == "DELETE":
        bound.answer(call)
        call = of_victim(bound)
    bound.answer(call, code, reason="Because", message="no")
    assert effects_of(bound) == [
        effects.PodPreemptionRejected(**about("v"), by=P, code=code, reason="Because", message="no")
    ]
    assert PodKey("team-a/v") not in bound.log.state.placements


def test_a_budgeted_victim_is_evicted_for_its_uid() -> None:
    """The budget is charged by the API server, which marks the pod itself."""
    bound = with_victim(budgeted=True)
    call = of_victim(bound)
    assert (call.method, call.path) == ("POST", "/api/v1/namespaces/team-a/pods/v/eviction")
    assert (call.body["apiVersion"], call.body["kind"]) == ("policy/v1", "Eviction")
    assert call.body["metadata"] == {"name": "v", "namespace": "team-a"}
    assert call.body["deleteOptions"]["preconditions"] == {"uid": "uid-v"}
    bound.answer(call, 201)
    assert effects_of(bound) == [PREEMPTED]


def test_a_budget_that_was_used_up_meanwhile_is_a_refusal() -> None:
    """The pod is not deleted in spite of it."""
    bound = with_victim(budgeted=True)
    bound.answer(of_victim(bound), 429, reason="TooManyRequests", message="Cannot evict pod")
    (refused,) = effects_of(bound)
    assert isinstance(refused, effects.PodPreemptionRejected)
    assert (refused.code, refused.message) == (429, "Cannot evict pod")


def test_a_victim_that_is_being_deleted_needs_no_call() -> None:
    """Its graceful deletion has begun."""
    bound = with_victim(deletionTimestamp="2026-01-01T00:00:00Z")
    events, calls = bound.rest()
    assert events == [PREEMPTED]
    assert [call.id for call in calls] == ["pod-status/team-a/p"]


@pytest.mark.parametrize("how", ["gone", "placed", "bound"])
def test_a_victim_is_spared_when_nothing_waits_for_it_any_more(how: str) -> None:
    """Also between its mark and its deletion."""
    bound = with_victim()
    call = of_victim(bound)
    match how:
        case "gone":
            bound.say(BRIDGE, facts.ObjectDeleted(resource="pods", name=P))
        case "placed":
            bound.say(SCHEDULER, PodPlaced(**about(), node="n2"))
        case _:
            bound.say(BRIDGE, shown(nodeName="n2"))
    bound.answer(call)
    events, calls = bound.rest()
    assert [type(event) for event in events] == [effects.PodPreemptionRejected]
    assert [call for call in calls if call.id.startswith("preempt/")] == []


def test_victims_are_removed_a_few_at_a_time() -> None:
    """Never more calls than the limit."""
    names = [f"v{number}" for number in range(500)]
    bound = Bound()
    bound.say(BRIDGE, CONFIGURATION, shown(), *(shown(name, nodeName="n1") for name in names))
    victims = tuple(Victim(**about(name), budgeted=True) for name in names)
    bound.say(SCHEDULER, PodNominated(**about(), node="n1", victims=victims))
    evicted = 0
    while calls := [call for call in bound.rest()[1] if call.id.startswith("preempt/")]:
        assert len(calls) <= pod_victims.VICTIMS_MAX
        evicted += len(calls)
        for call in calls:
            bound.answer(call, 201)
    assert evicted == 500


# --- writes before bindings ----------------------------------------------------------------------------------------

CLAIM: Json = {
    "metadata": {"name": "c", "namespace": "team-a", "uid": "uid-c", "resourceVersion": "7", "annotations": {"a": "b"}},
    "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]},
}
SELECTED = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
SELECT = ObjectPatch(kind="PersistentVolumeClaim", name="team-a/c", patch=SELECTED)
VOLUME: Json = {
    "metadata": {"name": "pv", "uid": "uid-pv", "resourceVersion": "9"},
    "spec": {"storageClassName": "late"},
}
CLAIM_REF = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "team-a", "name": "c", "uid": "uid-c"}
CLAIMED = ObjectPatch(kind="PersistentVolume", name="pv", patch={"spec": {"claimRef": CLAIM_REF}})


def with_writes(*writes: ObjectPatch) -> Bound:
    bound = with_pods()
    bound.say(BRIDGE, observed("persistentvolumeclaims", CLAIM), observed("persistentvolumes", VOLUME))
    placed(bound, "p", "n1", *writes)
    return bound


def of_writes(bound: Bound) -> Call:
    (call,) = [call for call in bound.rest()[1] if call.id != "pod-status/team-a/p"]
    return call


def test_writes_are_made_in_order_and_the_binding_waits_until_the_pod_is_prepared() -> None:
    """Each object is read, and patched at the version that was read."""
    bound = with_writes(CLAIMED, SELECT)
    for path, live, patch in (
        ("/api/v1/persistentvolumes/pv", VOLUME, {"metadata": {}, **CLAIMED.patch}),
        ("/api/v1/namespaces/team-a/persistentvolumeclaims/c", CLAIM, SELECTED),
    ):
        call = of_writes(bound)
        assert (call.method, call.path) == ("GET", path)
        bound.answer(call, **live)
        call = of_writes(bound)
        assert (call.method, call.path, call.content_type) == ("PATCH", path, "application/strategic-merge-patch+json")
        version = live["metadata"]["resourceVersion"]
        assert call.body == {**patch, "metadata": {**patch["metadata"], "resourceVersion": version}}
        bound.answer(call, **live)
    assert bound.rest() == ([], [])
    bound.say(SCHEDULER, PodPrepared(**about(), node="n1"))
    assert of_writes(bound).path.endswith("/pods/p/binding")


def test_a_pod_with_writes_is_nominated_to_its_node_until_it_is_bound() -> None:
    """So that autoscalers know that the node is needed."""
    bound = with_writes(SELECT)
    (status,) = [call for call in bound.rest()[1] if call.id == "pod-status/team-a/p"]
    assert patched(status) == {"nominatedNodeName": "n1"}


def test_what_the_object_has_already_is_not_written() -> None:
    """Whether the log shows it, or, after a crash, the object that is read."""
    bound = with_writes(SELECT)
    written = {**CLAIM, "metadata": {**CLAIM["metadata"], **SELECTED["metadata"]}}
    bound.answer(of_writes(bound), **written)
    assert bound.rest() == ([], [])
    again = Bound(bound.log)
    assert of_writes(again).method == "GET"
    bound.say(BRIDGE, observed("persistentvolumeclaims", written))
    again = Bound(bound.log)
    assert [call.id for call in again.rest()[1]] == ["pod-status/team-a/p"]


def test_status_is_written_to_its_subresource_after_the_rest() -> None:
    """At the version that the first patch has made."""
    bound = with_writes(msgspec.structs.replace(SELECT, patch={**SELECTED, "status": {"phase": "Bound"}}))
    bound.answer(of_writes(bound), **CLAIM)
    first = of_writes(bound)
    assert "status" not in first.body
    bound.answer(first, metadata={"resourceVersion": "8"})
    second = of_writes(bound)
    assert second.path == "/api/v1/namespaces/team-a/persistentvolumeclaims/c/status"
    assert second.body == {"status": {"phase": "Bound"}, "metadata": {"resourceVersion": "8"}}
    bound.answer(second, metadata={"resourceVersion": "9"})
    assert bound.rest() == ([], [])


@pytest.mark.parametrize("step", ["GET", "PATCH"])
@pytest.mark.parametrize("code", [403, 404, 409, 422])
def test_a_refused_write_takes_the_placement_back(step: str, code: int) -> None:
    """The message names the object; the pod is not bound, and its next placement is written from the start."""
    bound = with_writes(SELECT)
    call = of_writes(bound)
    if step == "PATCH":
        bound.answer(call, **CLAIM)
        call = of_writes(bound)
    bound.answer(call, code, reason="Because", message="no")
    (refused,) = bound.rest()[0]
    assert refused == effects.PodBindRejected(
        **about(), node="n1", code=code, reason="Because", message="PersistentVolumeClaim team-a/c: no"
    )
    placed(bound, "p", "n1", SELECT)
    assert of_writes(bound).method == "GET"


def test_an_object_that_is_not_as_it_was_decided_from_is_a_conflict() -> None:
    """A volume that got another claim meanwhile keeps it."""
    bound = with_writes(CLAIMED)
    theirs = {**VOLUME["spec"], "claimRef": {**CLAIM_REF, "name": "other", "uid": "uid-o"}}
    bound.answer(of_writes(bound), **{**VOLUME, "spec": theirs})
    events, calls = bound.rest()
    (refused,) = events
    assert isinstance(refused, effects.PodBindRejected)
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message == "PersistentVolume pv: the object has been modified"
    assert [call for call in calls if call.id.startswith("write/")] == []


def test_a_kind_that_this_version_does_not_know_is_refused() -> None:
    """Its pod is placed anew rather than held for ever."""
    bound = with_writes(ObjectPatch(kind="Unknown", name="x", patch={"spec": {}}))
    (refused,) = bound.rest()[0]
    assert isinstance(refused, effects.PodBindRejected)
    assert refused.message == "Unknown x: this version of Headgate writes no object of this kind"


def test_writes_of_many_pods_are_made_a_few_at_a_time() -> None:
    """Never more than the limit."""
    names = [f"p{number}" for number in range(300)]
    bound = with_pods(*names)
    bound.say(BRIDGE, observed("persistentvolumeclaims", CLAIM))
    bound.say(SCHEDULER, *(PodPlaced(**about(name), node="n1", writes=(SELECT,)) for name in names))
    read = 0
    while calls := [call for call in bound.rest()[1] if call.id.startswith("write/")]:
        assert len(calls) <= pod_writes.WRITES_MAX
        read += len(calls)
        for call in calls:
            bound.answer(call, **{**CLAIM, "metadata": {**CLAIM["metadata"], **SELECTED["metadata"]}})
    assert read == 300


# --- writes that help ----------------------------------------------------------------------------------------------

HELD: Json = {
    "metadata": {"name": "r", "namespace": "team-a", "uid": "uid-r", "resourceVersion": "4"},
    "spec": {},
    "status": {"allocation": {"devices": {"results": []}}},
}
GIVEN_BACK = ObjectPatch(
    kind="ResourceClaim", name="team-a/r", patch={"metadata": {"uid": "uid-r"}, "status": {"allocation": None}}
)
CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/r"


def with_help(*names: str) -> Bound:
    """Pods that fit nowhere, and for which a claim is to be given back."""
    bound = with_pods(*names)
    bound.say(BRIDGE, observed("resourceclaims", HELD))
    for name in names or ("p",):
        bound.say(SCHEDULER, PodUnschedulable(**about(name), reason="Unschedulable", message="m", writes=(GIVEN_BACK,)))
    return bound


def of_help(bound: Bound) -> list[Call]:
    return [call for call in bound.rest()[1] if call.id.startswith("help/")]


def test_a_claim_is_given_back_at_the_version_that_was_read() -> None:
    """Its status alone is written, once; after a crash the object shows that it is done."""
    bound = with_help("p", "q")
    (read,) = of_help(bound)
    assert (read.method, read.path) == ("GET", CLAIM_PATH)
    bound.answer(read, **HELD)
    (write,) = of_help(bound)
    assert (write.method, write.path) == ("PATCH", f"{CLAIM_PATH}/status")
    assert write.body == {"metadata": {"uid": "uid-r", "resourceVersion": "4"}, "status": {"allocation": None}}
    free = {**HELD, "status": {}}
    bound.answer(write, **free)
    assert of_help(bound) == []
    again = Bound(bound.log)
    (read,) = of_help(again)
    again.answer(read, **free)
    assert of_help(again) == []
    bound.say(BRIDGE, observed("resourceclaims", free))
    assert bound.log.state.post_filter_writes == {}
    assert of_help(Bound(bound.log)) == []


def test_a_claim_that_has_changed_is_not_given_back() -> None:
    """The refusal is recorded, and nothing is left to do until the scheduler asks again."""
    bound = with_help()
    (read,) = of_help(bound)
    bound.answer(read, **{**HELD, "status": {**HELD["status"], "reservedFor": [{"resource": "pods", "name": "q"}]}})
    events, _ = bound.rest()
    message = "ResourceClaim team-a/r: the object has been modified"
    refused = effects.PodWriteRejected(
        **about(), kind="ResourceClaim", name="team-a/r", code=409, reason="Conflict", message=message
    )
    assert events == [refused]
    assert bound.rest() == ([], [])
    bound.say(SCHEDULER, PodUnschedulable(**about(), reason="Unschedulable", message="m", writes=(GIVEN_BACK,)))
    assert [call.method for call in of_help(bound)] == ["GET"]


def test_a_claim_is_given_back_as_often_as_it_is_decided() -> None:
    """Also if it was allocated again as before."""
    bound = with_help()
    for call in (*of_help(bound),):
        bound.answer(call, **HELD)
    for call in (*of_help(bound),):
        bound.answer(call, **{**HELD, "status": {}})
    bound.say(BRIDGE, observed("resourceclaims", {**HELD, "status": {}}))
    bound.say(BRIDGE, observed("resourceclaims", HELD))
    assert of_help(bound) == []
    bound.say(SCHEDULER, PodUnschedulable(**about(), reason="Unschedulable", message="m", writes=(GIVEN_BACK,)))
    assert [call.method for call in of_help(bound)] == ["GET"]


def test_nothing_is_written_once_the_pod_has_a_node() -> None:
    """A write that is under way ends without effect on the log."""
    bound = with_help()
    (read,) = of_help(bound)
    placed(bound)
    bound.answer(read, 404, reason="NotFound", message="no")
    events, _ = bound.rest()
    assert events == []
    assert of_help(bound) == []


# --- Events --------------------------------------------------------------------------------------------------------


def events_of(bound: Bound) -> list[Json]:
    """The bodies of the Events that are created, or counted, now."""
    return [call.body for call in bound.rest()[1] if "/events.k8s.io/" in call.path]


def telling(*pods: facts.ObjectObserved) -> Bound:
    bound = Bound(told="summary")
    bound.say(BRIDGE, CONFIGURATION, *(pods or (shown(),)))
    return bound


def test_a_bound_pod_says_where_it_was_assigned() -> None:
    """In the words, and under the name, of the scheduler whose profile it is."""
    bound = telling()
    bound.say(BINDER, effects.PodBound(**about(), node="n1"))
    (event,) = events_of(bound)
    assert {name: event[name] for name in ("type", "reason", "action", "note", "reportingController")} == {
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "Successfully assigned team-a/p to n1",
        "reportingController": "headgate",
    }
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "team-a",
        "name": "p",
        "uid": "uid-p",
    }


@pytest.mark.parametrize(
    "event",
    [
        UNSCHEDULABLE,
        decisions.PodWithdrawn(**about(), node="n1", reason="SchedulerError", message="0/5 nodes are available."),
        effects.PodBindRejected(**about(), node="n1", code=422, reason="Invalid", message="0/5 nodes are available."),
    ],
)
def test_a_pod_that_is_not_placed_warns_with_the_reason(event: EventBase) -> None:
    """Repetitions are counted in one Event."""
    bound = telling()
    producer = BINDER if isinstance(event, effects.PodBindRejected) else SCHEDULER
    bound.say(producer, event)
    (told,) = events_of(bound)
    assert (told["type"], told["reason"], told["action"]) == ("Warning", "FailedScheduling", "Scheduling")
    assert told["note"] == "0/5 nodes are available."
    bound.say(producer, event)
    assert events_of(bound) == []
    (counted,) = events_of(bound)
    assert counted["series"]["count"] == 2


def test_a_victim_says_for_whom_and_on_which_node() -> None:
    """The Event is about the victim; the pod that it went for is the related object."""
    bound = telling(shown(), shown("v", nodeName="n1"))
    bound.say(SCHEDULER, PodNominated(**about(), node="n1", victims=(Victim(**about("v")),)))
    bound.say(BINDER, PREEMPTED)
    (event,) = events_of(bound)
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Preempted", "Preempting")
    assert event["note"] == "Preempted by pod uid-p on node n1"
    assert event["regarding"]["name"] == "v"
    assert (event["related"]["name"], event["related"]["uid"]) == ("p", "uid-p")


def test_nothing_is_told_of_a_pod_that_is_gone_or_another() -> None:
    """Its Events would be about an object that does not exist."""
    bound = telling(shown(uid="other"))
    bound.say(BINDER, effects.PodBound(**about(), node="n1"), effects.PodBound(**about("absent"), node="n1"))
    assert events_of(bound) == []


def told_in(bound: Bound, seconds: int) -> list[Json]:
    """The Events that are created while so much time passes."""
    told: list[Json] = []
    for _ in range(seconds):
        while calls := [call for call in bound.rest()[1] if "/events.k8s.io/" in call.path]:
            told += [call.body for call in calls if call.method == "POST"]
            for call in calls:
                bound.answer(call, 201)
        if bound.wake_at is None:
            break
        bound.later(1000)
    return told


def test_the_assignment_of_each_of_thousands_of_pods_is_told() -> None:
    """None is dropped: they wait for their turn, at the rate of the budget."""
    names = [f"p{number}" for number in range(3000)]
    bound = telling(*(shown(name) for name in names))
    bound.say(BINDER, *(effects.PodBound(**about(name), node="n1") for name in names))
    told = told_in(bound, 10)
    assert len(told) <= events.POD_BUDGET.burst + 10 * events.POD_BUDGET.rate_max
    told += told_in(bound, 60)
    assert [event["regarding"]["name"] for event in told] == names
    assert bound.machine.events.dropped == 0


def test_what_is_told_of_one_pod_again_and_again_takes_nothing_from_others() -> None:
    """A pod that is refused a thousand times is one Event with a count."""
    bound = telling(shown("p"), shown("q"))
    for number in range(1000):
        bound.say(SCHEDULER, PodUnschedulable(**about("p"), reason="Unschedulable", message=f"try {number}"))
    bound.say(BINDER, effects.PodBound(**about("q"), node="n1"))
    told = told_in(bound, 5)
    assert [(event["regarding"]["name"], event["reason"]) for event in told] == [
        ("p", "FailedScheduling"),
        ("q", "Scheduled"),
    ]


def test_events_about_pods_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a burst that is too large the newest are kept, and those that are not are counted."""
    monkeypatch.setattr(events, "POD_EVENTS_MAX", 50)
    names = [f"p{number}" for number in range(300)]
    bound = telling(*(shown(name) for name in names))
    bound.say(BINDER, *(effects.PodBound(**about(name), node="n1") for name in names))
    assert [event["regarding"]["name"] for event in told_in(bound, 60)] == names[-50:]
    assert bound.machine.events.dropped == 250
