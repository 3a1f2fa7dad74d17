"""`headgate explain` of a pod, on a log written by hand: two nodes, one of them full when the pod is placed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import placements
from tests.support.history import History
from tests.support.placement import node, pod

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import LogFileWriter, read_log_file
from headgate.cli.source import decoded
from headgate.core.state.manifests import encoded
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.commit import encode_commit
from headgate.events.ids import JobKey, PodKey, Uid, UnixMs
from headgate.events.objects import Job
from headgate.events.subjects import log_subject

CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}],
}
DEFAULTED = {"schedulerName": "default-scheduler"}
RECORDED = Path(__file__).parents[1] / "histories" / "v0.2.0-pre-placement.jsonl.gz"
P, UID = PodKey("ns/p"), Uid("uid-p")


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, int]:
    """The log, and the position that the placement was decided at; the pod `train` shares its name with a Job."""
    history = History()
    bridge = Producer.INFORMER_BRIDGE
    for name in ("a", "b"):
        history.put(bridge, facts.ObjectObserved(resource="nodes", name=name, object=encoded(node(name))))
    for name, on, cpu in (("big", "a", "4"), ("p", "", "2"), ("train", "b", "1")):
        made = pod(name, on=on, spec=DEFAULTED, cpu=cpu)
        history.put(bridge, facts.ObjectObserved(resource="pods", name=f"ns/{name}", object=encoded(made)))
    history.put(bridge, facts.JobObserved(job=JobKey("ns/train"), spec=Job(uid="j", created_ms=UnixMs(1))))
    history.put(bridge, facts.SchedulerConfigurationObserved(document=CONFIGURATION))
    decided_at = history.position
    history.put(Producer.SCHEDULER, decisions.PodPlaced(pod=P, uid=UID, node="b"), decided_at=decided_at)
    history.put(Producer.BINDER, effects.PodBound(pod=P, uid=UID, node="b"))
    bound = pod("p", on="b", spec=DEFAULTED, cpu="2")
    history.put(bridge, facts.ObjectObserved(resource="pods", name="ns/p", object=encoded(bound)))
    history.put(bridge, facts.ObjectDeleted(resource="pods", name="ns/big"))
    path = tmp_path / "log.jsonl.gz"
    with LogFileWriter(path) as writer:
        writer.write(history.entries)
    return path, decided_at


def test_a_pod_is_told_with_the_answer_of_its_decision(headgate: Callable, written: tuple[Path, int]) -> None:
    """By any of its names; `a` was full then."""
    log, decided_at = written
    for name in ("p", "ns/p", "pod/p", "pod/ns/p"):
        answer = headgate("explain", name, "--log", log, "-o", "json")
        assert answer.code == 0, answer.err
        story = json.loads(answer.out)
        assert [line["event"] for line in story["lines"]] == [
            "object.observed",
            "pod.placed",
            "pod.bound",
            "object.observed",
        ]
        assert (story["answer"]["position"], story["answer"]["node"]) == (decided_at, "b")
        assert story["answer"]["refused"] == [{"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": 1}]


def test_it_is_printed_for_people(headgate: Callable, written: tuple[Path, int]) -> None:
    """The lines, what is the case now, and where it could go."""
    log, decided_at = written
    brief = headgate("explain", "ns/p", "--log", log).out
    assert brief.startswith("Pod ns/p, up to position")
    assert "pod was given node b" in brief
    assert "pod was bound to node b" in brief
    assert "Now bound: it is on node b" in brief
    assert "Asked again as of its decision at" in brief
    assert f"Pod ns/p would get node b (at position {decided_at}, profile default-scheduler: 1 of 2 nodes fit)" in brief
    assert "NodeResourcesFit refuses 1 node: Insufficient cpu" in brief


def test_a_recorded_run_is_answered_as_it_was_decided(headgate: Callable) -> None:
    """Of every pod that the processes decided about: the node that it got last, or the message of its verdict."""
    decided: dict[PodKey, decisions.PodPlaced | decisions.PodUnschedulable] = {}
    for logged in decoded([*read_log_file(RECORDED)]):
        for event in logged.commit.events:
            if isinstance(event, decisions.PodPlaced | decisions.PodUnschedulable):
                decided[event.pod] = event
    assert {type(event) for event in decided.values()} == {decisions.PodPlaced, decisions.PodUnschedulable}
    for pod_key, event in decided.items():
        told = json.loads(headgate("explain", f"pod/{pod_key}", "--log", RECORDED, "-o", "json").out)["answer"]
        if isinstance(event, decisions.PodPlaced):
            assert told["node"] == event.node, pod_key
        else:
            assert (told["reason"], told["message"]) == (event.reason, event.message), pod_key


def test_before_its_decision_it_is_pending(headgate: Callable, written: tuple[Path, int]) -> None:
    """`--at` ends the story and the answer there."""
    log, decided_at = written
    story = json.loads(headgate("explain", "ns/p", "--log", log, "--at", decided_at, "-o", "json").out)
    assert (story["position"], story["answer"]["position"]) == (decided_at, decided_at)
    assert (story["standing"]["stage"], story["answer"]["node"]) == ("pending", "b")
    assert "decided" not in story


def test_a_job_wins_and_says_how_to_ask_for_the_pod(headgate: Callable, written: tuple[Path, int]) -> None:
    """With `pod/` it is the pod."""
    log, _ = written
    out = headgate("explain", "ns/train", "--log", log).out
    assert out.startswith("Job ns/train")
    assert "`headgate explain pod/ns/train`" in out
    assert headgate("explain", "pod/ns/train", "--log", log).out.startswith("Pod ns/train")


def test_a_name_that_nothing_has_suggests_pods(headgate: Callable, written: tuple[Path, int]) -> None:
    """The error is one line."""
    answer = headgate("explain", "ns/trains", "--log", written[0])
    assert answer.code == 2
    assert "no workload, job or pod 'ns/trains' in this log; did you mean ns/train" in answer.err


# --- extenders -------------------------------------------------------------------------------------------------------

URL = "http://127.0.0.1:1/extender"
"""Nobody is there: what is told comes from the log."""


def extended(path: Path, *allowed: str) -> Path:
    """The log of a pod on three nodes, of which an extender has let some pass; `n3` has the best score."""

    def answers(verb: str, body: Any) -> tuple[int, bytes]:
        names = body["NodeNames"]
        if verb == "prioritize":
            return 200, json.dumps([{"Host": name, "Score": int(name[1])} for name in names]).encode()
        failed = {name: "no licence" for name in names if name not in allowed}
        left = [name for name in names if name in allowed]
        return 200, json.dumps({"NodeNames": left, "FailedNodes": failed}).encode()

    extender = {
        "urlPrefix": URL,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 2,
        "nodeCacheCapable": True,
    }
    configuration = placements.CONFIGURATION | {"extenders": [extender]}
    nodes = [placements.node(f"n{each}") for each in (1, 2, 3)]
    cell = placements.PlacementCell(*nodes, placements.pod("p"), configuration=configuration)
    cell.extenders = {URL: answers}
    cell.run()
    with LogFileWriter(path) as writer:
        writer.write(
            LogEntry(
                seq=each.seq,
                subject=log_subject(cell.state.cell, each.commit.producer),
                time_ms=each.commit.time_ms,
                payload=encode_commit(each.commit),
            )
            for each in cell.log.commits
        )
    return path


def test_a_pod_is_told_with_what_extenders_answered(headgate: Callable, tmp_path: Path) -> None:
    """The answers in the log, their scores and refusals; nobody is asked again."""
    log = extended(tmp_path / "log.jsonl.gz", "n2", "n3")
    answer = headgate("explain", "p", "--log", log, "-o", "json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert [line["text"] for line in told["lines"] if line["event"] == "pod.extender_answered"] == [
        f"extender {URL}, asked to filter: it leaves 2 nodes and refuses 1 node",
        f"extender {URL}, asked to prioritize: it scores 2 nodes",
    ]
    assert told["answer"]["node"] == "n3"
    assert told["answer"]["refused"] == [{"plugin": "Extender", "reason": "no licence", "nodes": 1}]
    scores = {each["node"]: each["scores"][-1] for each in told["answer"]["best"]}
    assert scores["n3"] == {"plugin": URL, "raw": 3, "normalized": 30, "weighted": 60}
    assert [each["verb"] for each in told["answer"]["extenders"]] == ["filter", "prioritize"]


def test_a_pod_that_waits_is_told_with_what_extenders_answered_last(headgate: Callable, tmp_path: Path) -> None:
    """As of its last attempt: of now, the log does not have what they would say."""
    log = extended(tmp_path / "log.jsonl.gz")
    answer = headgate("explain", "p", "--log", log)
    assert answer.code == 0, answer.err
    assert "Asked again as of its decision at" in answer.out
    assert f"extender {URL}, asked to filter: it leaves no node and refuses 3 nodes" in answer.out
    assert "Extender refuses 3 nodes: no licence" in answer.out
