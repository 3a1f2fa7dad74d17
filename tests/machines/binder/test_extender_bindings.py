"""Extenders that bind pods: who is asked in the API server's place, what an answer amounts to, and restarts."""

import json
from typing import Any

import pytest
from tests.machines.binder.test_decide import BINDER, BRIDGE, SCHEDULER, Bound, Json
from tests.machines.binder.test_placements import P, about, observed, placed, shown

from headgate.core.kubernetes.pod_manifests import shown_pod
from headgate.core.state.attribution import ObjectFailedError
from headgate.events import effects, facts
from headgate.events.decisions import PodUnschedulable
from headgate.events.extenders import ANSWER_BYTES_MAX, ExtenderAnswered, ExtenderBound, ExtenderFailed
from headgate.events.ids import PodKey

URL = "http://extender.example/v1"
GPU = "example.com/gpu"
ECHO = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'


def configuration(**fields: Any) -> facts.SchedulerConfigurationObserved:
    extender = {"urlPrefix": URL, "bindVerb": "bind", **fields}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "extenders": [extender]}
    return facts.SchedulerConfigurationObserved(document=document)


def with_extender(**fields: Any) -> Bound:
    bound = Bound()
    bound.say(BRIDGE, configuration(**fields), shown("p"))
    placed(bound)
    assert bound.rest() == ([], [])
    return bound


def answers(bound: Bound) -> list[Any]:
    """What the log has of extenders, and what followed from it."""
    kinds = (ExtenderAnswered, effects.PodBound, effects.PodBindRejected)
    events = [event for logged in bound.log.commits for event in logged.commit.events if isinstance(event, kinds)]
    return [event.answer if isinstance(event, ExtenderAnswered) else event for event in events]


def refused(error: str, node: str = "n1") -> effects.PodBindRejected:
    return effects.PodBindRejected(**about(), node=node, code=0, reason="SchedulerError", message=error, extender=URL)


def test_an_extender_binds_in_the_place_of_the_api_server() -> None:
    """It is sent `ExtenderBindingArgs`; its answer and the binding are one commit, and nothing is left to do."""
    bound = with_extender()
    ask = bound.extender_answers()
    assert (ask.extender, ask.path, ask.pod) == (URL, "bind", P)
    assert ask.body == {"PodName": "p", "PodNamespace": "team-a", "PodUID": "uid-p", "Node": "n1"}
    events, calls = bound.rest()
    assert calls == []
    assert [type(event) for event in events] == [ExtenderAnswered, effects.PodBound]
    assert answers(bound) == [ExtenderBound(), effects.PodBound(**about(), node="n1")]
    assert bound.log.commits[-1].commit.producer is BINDER
    assert len(bound.log.commits[-1].commit.events) == 2
    again = Bound(bound.log)
    assert (again.rest(), again.asks) == (([], []), [])
    bound.say(BRIDGE, shown(nodeName="n1"))
    assert bound.log.state.placements == {}
    assert bound.log.state.extender_answers == {}


@pytest.mark.parametrize(("requested", "asked"), [({GPU: "1"}, True), ({"cpu": "1"}, False)])
def test_an_extender_binds_the_pods_that_name_its_resources(requested: Json, asked: bool) -> None:
    """All others are bound through the API server, as by the DefaultBinder."""
    bound = Bound()
    spec = {"schedulerName": "headgate", "containers": [{"name": "c", "resources": {"limits": requested}}]}
    manifest = {"metadata": {"name": "p", "namespace": "team-a", "uid": "uid-p"}, "spec": spec, "status": {}}
    bound.say(BRIDGE, configuration(managedResources=[{"name": GPU}]), observed("pods", manifest))
    placed(bound)
    _, calls = bound.rest()
    assert (len(bound.asks), len(calls)) == ((1, 0) if asked else (0, 1))


def test_the_error_of_an_extender_is_that_of_the_binding() -> None:
    """The pod loses its node, its condition says why in the extender's words, and it is placed anew."""
    bound = with_extender()
    bound.extender_answers(body=b'{"Error": "no free port"}')
    events, (patch,) = bound.rest()
    error = f'extender "{URL}/bind": no free port'
    assert answers(bound) == [ExtenderFailed(error=error), refused(error)]
    assert len(events) == 2
    (condition,) = patch.body["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("SchedulerError", error)
    record = bound.log.state.placements[P]
    assert (record.node, record.refusals) == ("", 1)
    bound.answer(patch)
    placed(bound, node="n2")
    assert bound.rest() == ([], [])
    assert bound.asks[0].body["Node"] == "n2"
    bound.extender_answers()
    assert bound.rest()[0][1] == effects.PodBound(**about(), node="n2")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (0, b'Post "http://extender.example/v1/bind": no answer within 5000 ms (httpTimeout)', "no answer within"),
        (0, b'Post "http://extender.example/v1/bind": the answer has more than 67108864 bytes', "more than 67108864"),
        (500, b"", "failed bind with extender at URL http://extender.example/v1/bind, code 500"),
        (200, b"", "cannot read the answer: it is empty"),
        (200, b"<html>", "cannot read the answer: it is no JSON"),
        (200, b"[1]", "cannot read the answer: the answer is an array, not an object"),
        (200, b'{"error": 7}', "cannot read the answer: Error is the number 7, not a string"),
        (200, b"\xff\xfe{", "cannot read the answer: it is no JSON"),
        (200, b"[" * 100_000, "cannot read the answer: it is no JSON"),
    ],
)
def test_what_is_no_answer_refuses_the_binding(status: int, body: bytes, error: str) -> None:
    """Time-outs, other statuses and bodies that Go cannot read either: the error says what it was."""
    bound = with_extender()
    bound.extender_answers(status, body)
    bound.rest()
    failed, rejected = answers(bound)
    assert error in failed.error
    assert rejected == refused(failed.error)


def test_an_error_without_end_is_cut() -> None:
    """The log gets the beginning, and how long it was."""
    bound = with_extender()
    bound.extender_answers(body=json.dumps({"Error": "x" * ANSWER_BYTES_MAX}).encode())
    bound.rest()
    failed, _ = answers(bound)
    assert len(failed.error) < 5_000
    assert f"({ANSWER_BYTES_MAX} characters)" in failed.error


def test_fields_of_other_answers_are_passed_over() -> None:
    """As Go does: an extender that answers with a filter's result has reported no error."""
    bound = with_extender()
    bound.extender_answers(body=b'{"NodeNames": ["n9"], "FailedNodes": {"n1": "no"}, "Error": null}')
    assert bound.rest()[0][1] == effects.PodBound(**about(), node="n1")


def test_one_that_is_ignorable_leaves_the_pod_to_the_api_server() -> None:
    """Its failure is in the log before; a restarted binder does not ask it again."""
    bound = with_extender(ignorable=True)
    bound.extender_answers(500)
    events, (call,) = bound.rest()
    assert [type(event) for event in events] == [ExtenderAnswered]
    assert call.path.endswith("/pods/p/binding")
    again = Bound(bound.log)
    _, (repeated,) = again.rest()
    assert (repeated, again.asks) == (call, [])
    again.answer(repeated, 201)
    assert again.rest()[0] == [effects.PodBound(**about(), node="n1")]
    assert bound.log.state.extender_answers == {}


@pytest.mark.parametrize("answer", [b"{}", json.dumps({"Error": f"cannot bind: {ECHO}"}).encode()])
def test_a_restart_between_call_and_answer(answer: bytes) -> None:
    """The call is made again. An extender that had bound the pod passes on that it has the node: a success."""
    bound = with_extender()
    first = bound.asks[0]
    again = Bound(bound.log)
    assert again.rest() == ([], [])
    assert again.extender_answers(body=answer) == first
    assert again.rest()[0][1] == effects.PodBound(**about(), node="n1")


def test_a_pod_that_shows_its_node_is_not_bound_again_after_a_restart() -> None:
    """What its object shows settles what an extender has done."""
    bound = with_extender()
    bound.say(BRIDGE, shown(nodeName="n1"))
    again = Bound(bound.log)
    assert (again.rest(), again.asks) == (([], []), [])
    assert bound.log.state.placements == {}


def test_an_extender_that_has_bound_the_pod_and_says_that_it_failed() -> None:
    """The object shows the node: the refusal that comes after it takes nothing away."""
    bound = with_extender()
    bound.say(BRIDGE, shown(nodeName="n1"))
    bound.extender_answers(0, b"no answer within 5000 ms")
    bound.rest()
    assert [type(event) for event in answers(bound)] == [ExtenderFailed, effects.PodBindRejected]
    assert bound.log.state.placements == {}


def test_an_extender_that_binds_to_another_node() -> None:
    """The pod is where its object says, whatever was asked and answered."""
    bound = with_extender()
    bound.say(BRIDGE, shown(nodeName="n9"))
    bound.extender_answers()
    bound.rest()
    assert bound.log.state.placements == {}
    assert shown_pod(bound.log.state.objects["pods"][P]).node == "n9"


def test_an_answer_whose_effect_the_log_lacks_is_not_asked_for_again() -> None:
    """The effect follows from it after a restart."""
    bound = with_extender()
    bound.extender_answers(body=b'{"Error": "no"}')
    said = [event for event in bound.rest()[0] if isinstance(event, ExtenderAnswered)]
    other = with_extender()
    other.say(BINDER, *said)
    again = Bound(other.log)
    events, _ = again.rest()
    assert (events, again.asks) == ([refused(f'extender "{URL}/bind": no')], [])


def test_a_pod_whose_status_is_being_written_is_bound_after_that() -> None:
    """A late condition of a pod that fitted nowhere must not follow its binding."""
    bound = Bound()
    bound.say(BRIDGE, configuration(), shown("p"))
    bound.say(SCHEDULER, PodUnschedulable(**about(), reason="Unschedulable", message="0/5"))
    _, (patch,) = bound.rest()
    placed(bound)
    assert (bound.rest(), bound.asks) == (([], []), [])
    bound.answer(patch)
    assert bound.rest() == ([], [])
    assert len(bound.asks) == 1


def test_no_pod_is_bound_behind_the_back_of_extenders_that_cannot_be_read() -> None:
    """The configuration is set aside, not the pod; until another one comes nothing is bound."""
    bound = Bound()
    bound.say(BRIDGE, configuration(bindVerb=7), shown("p"))
    placed(bound)
    with pytest.raises(ObjectFailedError, match=r"extenders\[0\].bindVerb") as raised:
        bound.settle()
    assert raised.value.kind == "KubeSchedulerConfiguration"


def test_many_pods_are_asked_about_at_once() -> None:
    """As many as bindings are made at a time; nothing is kept of them."""
    bound = Bound()
    names = [f"p{number}" for number in range(600)]
    bound.say(BRIDGE, configuration(), *(shown(name) for name in names))
    for name in names:
        placed(bound, name)
    bound.rest()
    seen: list[PodKey] = []
    while bound.asks:
        assert len(bound.asks) <= 256
        while bound.asks:
            seen.append(bound.extender_answers().pod)
        bound.rest()
    assert len(seen) == len(set(seen)) == len(names)
    bindings = bound.machine._decisions._bindings
    assert (bindings._calls, bindings._answered, bindings._passed_over) == ({}, {}, {})
