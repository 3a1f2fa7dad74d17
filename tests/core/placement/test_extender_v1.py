"""Requests to extenders and answers of extenders, compared with what Go's own types make of them (extender_v1)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.placement import Json, cluster_of

from headgate.core.placement.configuration.types import Extender
from headgate.core.placement.extenders.answers import read_answer
from headgate.core.placement.extenders.requests import (
    ExtenderAsk,
    NodeVictims,
    bind_ask,
    extender_args,
    preemption_args,
)
from headgate.events.extenders import (
    ANSWER_BYTES_MAX,
    ExtenderBound,
    ExtenderFailed,
    ExtenderFiltered,
    ExtenderPreempted,
    ExtenderPrioritized,
)
from headgate.events.ids import PodKey, Uid

FOLDER = Path(__file__).parent / "extender_v1"
GIVEN: Json = json.loads((FOLDER / "input.json").read_text())
GO: Json = json.loads((FOLDER / "output.json").read_text())
WHOLE = Extender(url_prefix="http://x", filter_verb="filter", bind_verb="bind")
BY_NAME = Extender(url_prefix="http://x", filter_verb="filter", bind_verb="bind", node_cache_capable=True)

NOT_READ = {("ports", "containerPort"), ("tolerations", "tolerationSeconds"), ("status", "daemonEndpoints")}
"""What no plugin of the scheduler reads, and so is not sent."""


def without_empty(value: Any, path: tuple[str, ...] = ()) -> Any:
    """A value without what is empty, and without what is not read."""
    match value:
        case dict():
            parts = {key: without_empty(each, (*path, key)) for key, each in value.items()}
            return {
                key: each
                for key, each in parts.items()
                if each not in (None, {}, [], "") and not any((*path, key)[-len(left) :] == left for left in NOT_READ)
            }
        case list():
            return [without_empty(each, path) for each in value]
        case _:
            return value


def given():
    cluster = cluster_of(*GIVEN["nodes"], GIVEN["victim"])
    nodes = [cluster.node(each["metadata"]["name"]).node for each in GIVEN["nodes"]]  # type: ignore[union-attr]
    return cluster, cluster.shapes.read(GIVEN["pod"]), nodes


@pytest.mark.parametrize(("extender", "name"), [(WHOLE, "args"), (BY_NAME, "argsByName")])
def test_what_is_sent_to_filter_and_to_prioritize(extender, name):
    """Names to an extender with a cache, else Node objects; the other of the two is null, as Go writes it."""
    _, pod, nodes = given()
    body = extender_args(extender, pod, nodes)
    assert without_empty(body) == without_empty(GO[name])
    assert {key for key, value in body.items() if value is None} == {
        k for k, value in GO[name].items() if value is None
    }


@pytest.mark.parametrize(("extender", "name"), [(WHOLE, "preemption"), (BY_NAME, "preemptionByName")])
def test_what_is_sent_to_preempt(extender, name):
    """Whole pods, or their uids to an extender with a cache."""
    cluster, pod, _ = given()
    victims = {"n1": NodeVictims((cluster.pods["ns/v"],), 1)}
    body = preemption_args(extender, pod, victims)
    assert without_empty(body) == without_empty(GO[name])
    assert body.keys() == GO[name].keys()


def test_what_is_sent_to_bind():
    """Pod and node by name."""
    assert bind_ask(WHOLE, PodKey("ns/p"), Uid("u-p"), "n1").body == GO["binding"]


def asked(verb: Any, *, by_name: bool) -> ExtenderAsk:
    return ExtenderAsk("http://x", verb, "path", "digest", {"NodeNames": [] if by_name else None})


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("case", GO["read"], ids=lambda case: f"{case['verb']} {case['body'][:50]}")
def test_an_answer_is_read_as_go_reads_it(case, by_name):
    """What is an error for Go is one here; of all else the same is read."""
    answer = read_answer(asked(case["verb"], by_name=by_name), 200, case["body"].encode())
    if "error" in case:
        assert isinstance(answer, ExtenderFailed)
        assert answer.error.startswith('extender "http://x/path": cannot read the answer: ')
        return
    value = case["value"]
    match answer:
        case ExtenderFiltered():
            names, nodes = value["nodeNames"], value["nodes"]
            assert answer.nodes == tuple((names if by_name and names is not None else nodes) or ())
            assert flat(answer.failed) == (value["failed"] or {})
            assert flat(answer.unresolvable) == (value["unresolvable"] or {})
        case ExtenderPrioritized():
            scores: dict[str, int] = {}
            for each in value or ():
                scores[each["Host"]] = scores.get(each["Host"], 0) + each["Score"]
            assert answer.scores == scores
        case ExtenderPreempted():
            read = {
                node: {"Pods": [{"UID": uid} for uid in each.pods] or None, "NumPDBViolations": each.violations}
                for node, each in answer.victims.items()
            }
            assert read == (value["NodeNameToMetaVictims"] or {})
        case ExtenderBound():
            assert value["Error"] == ""
        case ExtenderFailed():
            assert answer.error == f'extender "http://x/path": {value.get("Error") or value.get("error")}'


def flat(by_message):
    return {node: message for message, nodes in by_message.items() for node in nodes}


@pytest.mark.parametrize(
    "body",
    [
        '{"NodeNameToMetaVictims":{"n1":null}}',  # Go panics
        '{"NodeNameToMetaVictims":{"n1":{"Pods":[null]}}}',  # Go panics
        '{"NodeNameToMetaVictims":{"n1":{"Pods":[NaN]}}}',
    ],
)
def test_victims_that_are_null_are_an_error(body):
    """The kube-scheduler ends over them; here they are an answer that cannot be read."""
    assert isinstance(read_answer(asked("preempt", by_name=True), 200, body.encode()), ExtenderFailed)


@pytest.mark.parametrize("body", [b"\xff\xfe{", b"[" * 100_000, b'[{"Host":"n","Score":' + b"9" * 5_000 + b"}]"])
def test_garbage_is_an_error(body):
    """Bytes that are no text, arrays without end and numbers of thousands of digits."""
    answer = read_answer(asked("prioritize", by_name=True), 200, body)
    assert isinstance(answer, ExtenderFailed)
    assert len(answer.error) < 5_000


def test_the_status_of_an_answer_that_is_not_ok():
    """Word for word that of the kube-scheduler; without an answer the reason, with the extender's name."""
    ask = asked("filter", by_name=True)
    refused = read_answer(ask, 503, b"busy")
    assert refused == ExtenderFailed(error="failed path with extender at URL http://x/path, code 503")
    assert read_answer(ask, 0, b"refused") == ExtenderFailed(error='extender "http://x/path": refused')
    named = 'Post "http://x/path": refused'
    assert read_answer(ask, 0, named.encode()) == ExtenderFailed(error=named)


def test_an_answer_that_is_too_large_for_the_log_is_an_error():
    """Equal messages are kept once, so that it takes many different ones."""
    ask = asked("filter", by_name=True)

    def answer(messages):
        failed = {f"node-{number}": messages[number % len(messages)] for number in range(5_000)}
        return read_answer(ask, 200, json.dumps({"FailedNodes": failed}).encode())

    assert isinstance(answer(["x" * 1_000]), ExtenderFiltered)
    refused = answer([f"{number} {'x' * 1_000}" for number in range(5_000)])
    assert isinstance(refused, ExtenderFailed)
    assert f"more than {ANSWER_BYTES_MAX}" in refused.error


def test_a_long_error_is_cut_and_says_so():
    """An extender's error cannot fill the log."""
    answer = read_answer(asked("bind", by_name=True), 200, json.dumps({"Error": "x" * 10_000}).encode())
    assert isinstance(answer, ExtenderFailed)
    assert answer.error.endswith("... (10000 characters)")
