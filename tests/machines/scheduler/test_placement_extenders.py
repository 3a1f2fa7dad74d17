"""The scheduler's machine asks extenders: what they answer decides, and is in the log."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.placements import CONFIGURATION, PlacementCell, node, pod

from headgate.core import fold
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.verification.placements import PlacementCheck
from headgate.core.verification.replay import Plan, Replay
from headgate.core.views.placement_answer import NOT_CONSULTED, answer
from headgate.events import decisions
from headgate.events.base import Producer
from headgate.events.extenders import ANSWER_BYTES_MAX, ExtenderAnswered
from headgate.events.facts import SchedulerConfigurationObserved

Json = dict[str, Any]

URL = "http://extender.example"
OTHER = "http://other.example"
PLACEMENT = (
    decisions.PodPlaced,
    decisions.PodPrepared,
    decisions.PodWithdrawn,
    decisions.PodUnschedulable,
    decisions.PodNominated,
)


class Webhook:
    """An extender that lets the nodes of `allowed` pass and scores by `scores`; `calls` are the paths it was sent."""

    def __init__(self, *allowed: str, status: int = 200, **scores: int) -> None:
        self.allowed = allowed
        self.scores = scores
        self.status = status
        self.calls: list[tuple[str, list[str]]] = []

    def __call__(self, path: str, body: Json) -> tuple[int, bytes]:
        names = body["NodeNames"]
        self.calls.append((path, names))
        if self.status != 200:
            return self.status, b""
        if path == "prioritize":
            return 200, json.dumps([{"Host": name, "Score": self.scores.get(name, 0)} for name in names]).encode()
        failed = {name: "not allowed" for name in names if name not in self.allowed}
        left = [name for name in names if name in self.allowed]
        return 200, json.dumps({"NodeNames": left, "FailedNodes": failed}).encode()


def extender(url: str = URL, **fields: Any) -> Json:
    return {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, **fields}


def cell_of(*manifests: Json, extenders: list[Json], **answering: Webhook) -> PlacementCell:
    cell = PlacementCell(*manifests, configuration=CONFIGURATION | {"extenders": extenders})
    cell.extenders = {URL: answering["first"]}
    if "second" in answering:
        cell.extenders[OTHER] = answering["second"]
    return cell


def answers(cell: PlacementCell) -> list[str]:
    return [event.verb for event in cell.says if isinstance(event, ExtenderAnswered)]


def verified(cell: PlacementCell) -> int:
    """How many decisions a replay has repeated; it must find no difference."""
    plan = Plan((PlacementCheck(),))
    for logged in cell.log.commits:
        plan.feed(logged)
    replay = Replay(fold.new_state(cell.state.cell), plan, None)
    for logged in cell.log.commits:
        replay.feed(logged)
    result = replay.result()
    assert result.differences == ()
    assert result.compared["placements"] == sum(isinstance(each, PLACEMENT) for each in cell.says)
    return result.compared["placements"]


NODES = (node("n1"), node("n2"), node("n3"))


def test_extenders_decide_which_node_a_pod_gets() -> None:
    """One drops a node, then both score those that are left, at once; each answer is a commit."""
    first, second = Webhook("n2", "n3", n2=3), Webhook(n1=10, n3=10)
    extenders = [
        extender(prioritizeVerb="prioritize", weight=1),
        {"urlPrefix": OTHER, "prioritizeVerb": "prioritize", "weight": 5, "nodeCacheCapable": True},
    ]
    cell = cell_of(*NODES, pod("a"), extenders=extenders, first=first, second=second)
    assert cell.decide() == []
    assert [ask.path for ask in cell.asks] == ["filter"]
    assert cell.answer()
    assert [type(event) for event in cell.decide()] == [ExtenderAnswered]
    assert cell.decide() == []
    assert [(ask.extender, ask.path) for ask in cell.asks] == [(URL, "prioritize"), (OTHER, "prioritize")]
    assert cell.answer()
    assert cell.answer()
    assert [len(cell.decide()), len(cell.decide())] == [1, 1]
    cell.run()
    assert cell.nodes() == {"team/a": "n3"}
    assert first.calls == [("filter", ["n1", "n2", "n3"]), ("prioritize", ["n2", "n3"])]
    assert second.calls == [("prioritize", ["n2", "n3"])]
    assert not cell.state.extender_answers
    assert verified(cell) == 1


def test_no_other_pod_is_tried_while_one_waits_for_an_answer() -> None:
    """One after the other, also the pods that no extender has a say in; what is decided is in the log before a call."""
    managed = [{"name": "example.com/gpu"}]
    cell = cell_of(
        *NODES,
        pod("a"),
        pod("b"),
        pod("c"),
        extenders=[extender(), extender(OTHER, managedResources=managed)],
        first=Webhook("n1"),
        second=Webhook(),
    )
    assert cell.decide() == []
    assert [ask.pod for ask in cell.asks] == ["team/a"]
    assert cell.decide() == []
    assert cell.answer()
    assert len(cell.decide()) == 1
    placed = cell.decide()
    assert [type(event) for event in placed] == [decisions.PodPlaced]
    assert cell.asks == []
    assert cell.decide() == []
    assert [ask.pod for ask in cell.asks] == ["team/b"]
    cell.run()
    assert cell.nodes() == dict.fromkeys(("team/a", "team/b", "team/c"), "n1")
    assert verified(cell) == 3


@pytest.mark.parametrize("ignorable", [True, False])
def test_an_extender_that_fails(ignorable: bool) -> None:
    """The pod is placed without it if it is ignorable; else the verdict names it, and the next attempt asks anew."""
    webhook = Webhook("n2", status=503)
    cell = cell_of(*NODES, pod("a"), extenders=[extender(ignorable=ignorable)], first=webhook)
    cell.run()
    assert answers(cell) == ["filter"]
    if ignorable:
        assert cell.nodes() == {"team/a": "n1"}
        assert verified(cell) == 1
        return
    assert cell.nodes() == {"team/a": ""}
    assert f"{URL}/filter, code 503" in cell.verdict("team/a")
    cell.sleep()
    assert answers(cell) == ["filter", "filter"]
    webhook.status = 200
    cell.sleep()
    assert cell.nodes() == {"team/a": "n2"}
    assert verified(cell) == 3


def test_the_same_verdict_is_recorded_again_when_it_ends_the_use_of_answers() -> None:
    """Else the pod would be judged by old answers for ever: here the extender changes its mind."""
    webhook = Webhook()
    cell = cell_of(*NODES, pod("a"), extenders=[extender()], first=webhook)
    cell.run()
    assert cell.verdict("team/a").startswith("0/3 nodes are available: 3 not allowed.")
    cell.crash()
    cell.run()
    assert [type(event) for event in cell.says] == [ExtenderAnswered, decisions.PodUnschedulable] * 2
    assert not cell.state.extender_answers
    webhook.allowed = ("n3",)
    cell.crash()
    cell.run()
    assert cell.nodes() == {"team/a": "n3"}
    assert verified(cell) == 3


@pytest.mark.parametrize("answered", [False, True])
def test_a_restart_between_call_and_answer(answered: bool) -> None:
    """What the log lacks is asked for again; what it has is not."""
    webhook = Webhook("n2", "n3", n3=10)
    cell = cell_of(*NODES, pod("a"), extenders=[extender(prioritizeVerb="prioritize", weight=1)], first=webhook)
    cell.decide()
    if answered:
        cell.answer()
        cell.decide()
        cell.decide()
    cell.crash()
    assert cell.decide() == []
    assert [ask.path for ask in cell.asks] == ["prioritize" if answered else "filter"]
    cell.run()
    assert cell.nodes() == {"team/a": "n3"}
    assert [path for path, _ in webhook.calls] == ["filter", "prioritize"]
    assert verified(cell) == 1


def test_a_pod_that_is_gone_before_the_answer() -> None:
    """Its answer is not recorded, and the next pod is tried."""
    cell = cell_of(*NODES, pod("a"), pod("b"), extenders=[extender()], first=Webhook("n1"))
    cell.decide()
    cell.delete("pods", "team/a")
    cell.decide()
    assert [ask.pod for ask in cell.asks] == ["team/a", "team/b"]
    cell.run()
    assert cell.nodes() == {"team/b": "n1"}
    assert answers(cell) == ["filter"]
    assert verified(cell) == 1


def test_a_configuration_that_changes_before_the_answer() -> None:
    """A call of the former one still ends, without effect on what is decided by the new one."""
    first, second = Webhook("n1"), Webhook("n2")
    cell = cell_of(*NODES, pod("a"), extenders=[extender()], first=first, second=second)
    cell.decide()
    document = CONFIGURATION | {"extenders": [extender(OTHER)]}
    cell.log.append(Producer.INFORMER_BRIDGE, SchedulerConfigurationObserved(document=document))
    cell.run()
    assert cell.nodes() == {"team/a": "n2"}
    assert len(first.calls) == len(second.calls) == 1
    assert verified(cell) == 1


def test_where_a_pod_could_go_is_not_told_without_its_extenders() -> None:
    """Nobody is asked for a view: it says whose answers are missing, and names no node."""
    cell = cell_of(*NODES, pod("a"), extenders=[extender()], first=Webhook("n1"))
    decider = PlacementDecider(cell.state)
    waiting = decider.pod_to_place("team/a")
    assert waiting is not None
    told = answer(decider, waiting)
    assert (told.node, told.reason) == ("", NOT_CONSULTED)
    assert told.message.endswith(f"the log does not have here: {URL} (asked to filter)")


# --- preempt ---------------------------------------------------------------------------------------------------------

Answer = Callable[[Json], tuple[int, bytes]]


class Preempting:
    """An extender that answers calls to preempt; `calls` are the victims that it was sent, by node and uid."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[dict[str, list[str]]] = []

    def __call__(self, path: str, body: Json) -> tuple[int, bytes]:
        assert path == "preempt"
        assert body["Pod"]["metadata"]["name"] == "high"
        sent = body["NodeNameToMetaVictims"]
        self.calls.append({name: [pod["UID"] for pod in found["Pods"]] for name, found in sent.items()})
        return self.answer(body)


def chosen(**victims: list[str]) -> Answer:
    meta = {name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in victims.items()}
    return lambda body: (200, json.dumps({"NodeNameToMetaVictims": meta}).encode())


def full_cell(answer: Answer, **fields: Any) -> tuple[PlacementCell, Preempting]:
    """Two nodes, each filled by a pod of a lower priority. Without the extender n1 is taken: the first by name."""
    webhook = Preempting(answer)
    running = [pod(f"low{each}", cpu="4", priority=0, nodeName=f"n{each}") for each in (1, 2)]
    preempting = {"urlPrefix": URL, "preemptVerb": "preempt", "nodeCacheCapable": True, **fields}
    configuration = CONFIGURATION | {"extenders": [preempting]}
    waiting = pod("high", cpu="4", priority=10)
    cell = PlacementCell(node("n1"), node("n2"), *running, waiting, configuration=configuration)
    cell.extenders = {URL: webhook}
    return cell, webhook


def test_an_extender_chooses_who_has_to_go() -> None:
    """Of the nodes to preempt on it leaves one: that one's pod is evicted, and the pod gets its place."""
    cell, webhook = full_cell(chosen(n2=["uid-low2"]))
    cell.run()
    assert webhook.calls == [{"n1": ["uid-low1"], "n2": ["uid-low2"]}]
    nominations = [event for event in cell.says if isinstance(event, decisions.PodNominated)]
    assert [(event.node, [victim.pod for victim in event.victims]) for event in nominations] == [("n2", ["team/low2"])]
    assert cell.nodes() == {"team/high": "n2", "team/low1": "n1"}
    assert answers(cell) == ["preempt"]
    assert not cell.state.extender_answers
    assert verified(cell) == 3


def test_whole_pods_are_sent_to_an_extender_without_a_cache() -> None:
    """Under `NodeNameToVictims`; it answers with uids all the same."""
    sent: list[Json] = []

    def answer(path: str, body: Json) -> tuple[int, bytes]:
        sent.append(body)
        return chosen(n2=["uid-low2"])(body)

    cell, _ = full_cell(chosen(), nodeCacheCapable=False)
    cell.extenders = {URL: answer}
    cell.run()
    assert sent[0]["NodeNameToMetaVictims"] is None
    (victim,) = sent[0]["NodeNameToVictims"]["n1"]["Pods"]
    assert victim["metadata"]["name"] == "low1"
    assert cell.nodes()["team/high"] == "n2"


@pytest.mark.parametrize("answered", [False, True])
def test_a_restart_between_the_call_to_preempt_and_its_answer(answered: bool) -> None:
    """It is asked again if the log lacks the answer, and nobody goes twice."""
    cell, webhook = full_cell(chosen(n2=["uid-low2"]))
    assert cell.decide() == []
    assert [ask.path for ask in cell.asks] == ["preempt"]
    if answered:
        assert cell.answer()
        assert [type(event) for event in cell.decide()] == [ExtenderAnswered]
    cell.crash()
    cell.run()
    assert len(webhook.calls) == 1
    assert cell.nodes() == {"team/high": "n2", "team/low1": "n1"}
    assert verified(cell) == 3


_TOO_LARGE = {f"n{number:05}": {"Pods": [{"UID": "u" * 20}]} for number in range(20_000)}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (chosen(n9=["uid-low1"]), 'nodeinfo not found for node name "n9"'),
        (chosen(n1=["uid-low2"]), "claims to preempt pod (UID: uid-low2) on node: n1, but the pod is not found on"),
        (chosen(n1=["uid-nobody"]), "claims to preempt pod (UID: uid-nobody) on node: n1, but the pod is not found on"),
        (chosen(n1=[]), 'expected at least one victim pod on node "n1"'),
        (lambda body: (0, f'Post "{URL}/preempt": no answer within 5000 ms (httpTimeout)'.encode()), "within 5000 ms"),
        (lambda body: (500, b""), f"failed preempt with extender at URL {URL}/preempt, code 500"),
        (lambda body: (200, b"<html>"), "cannot read the answer: it is no JSON"),
        (lambda body: (200, b'{"NodeNameToMetaVictims": {"n1": {"Pods": "all"}}}'), "Pods is a string, not an array"),
        (
            lambda body: (200, json.dumps({"NodeNameToMetaVictims": _TOO_LARGE}).encode()),
            f"bytes without what is not needed of it, more than {ANSWER_BYTES_MAX}",
        ),
    ],
    ids=["unknown node", "other node's pod", "no pod", "no victims", "late", "500", "html", "wrong type", "too large"],
)
@pytest.mark.parametrize("ignorable", [True, False])
def test_an_answer_that_cannot_be_used_evicts_nobody(answer: Answer, error: str, ignorable: bool) -> None:
    """The verdict says why; without an extender that is ignorable, preemption is as if it were not there."""
    cell, _ = full_cell(answer, ignorable=ignorable)
    cell.run()
    if ignorable and "victim" not in error:
        assert cell.nodes() == {"team/high": "n1", "team/low2": "n2"}
    else:
        assert cell.nodes() == {"team/high": "", "team/low1": "n1", "team/low2": "n2"}
        expected = "no candidate node for preemption" if ignorable else error
        assert expected in cell.verdict("team/high")
    assert verified(cell) > 0
