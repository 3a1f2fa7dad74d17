"""`headgate place` on a log written by hand: three nodes of two zones, one of them full, one tainted."""

import importlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.history import History
from tests.support.placement import ZONE, node, pod

from headgate.adapters.logfile import LogFileWriter
from headgate.core.state.manifests import encoded
from headgate.events import facts
from headgate.events.base import Producer

Json = dict[str, Any]

CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "headgate"}],
}
EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler_extender" / "extender.py"
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def written(path: Path, *, configured: bool = True, **more: Any) -> Path:
    """The log: `a` has room for 3 CPUs, `b` for none, `c` for 4 but is tainted."""
    nodes = [
        node("a", labels={ZONE: "z1"}),
        node("b", labels={ZONE: "z1"}),
        node("c", labels={ZONE: "z2"}, spec={"taints": [TAINT]}),
    ]
    there = [pod("small", on="a", cpu="1"), pod("big", on="b", spec={"priority": -5}, cpu="4")]
    history = History()
    for resource, manifests in (("nodes", nodes), ("pods", there)):
        for each in manifests:
            metadata = each["metadata"]
            name = "/".join(metadata[part] for part in ("namespace", "name") if part in metadata)
            history.put(
                Producer.INFORMER_BRIDGE, facts.ObjectObserved(resource=resource, name=name, object=encoded(each))
            )
    if configured:
        history.put(Producer.INFORMER_BRIDGE, facts.SchedulerConfigurationObserved(document=CONFIGURATION | more))
    with LogFileWriter(path) as writer:
        writer.write(history.entries)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "log.jsonl.gz")


def manifest(tmp_path: Path, *bodies: Json) -> Path:
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(bodies))
    return path


def asked(name: str, cpu: str, **spec: Any) -> Json:
    """The manifest of a pod as a user writes it."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def test_a_pod_that_fits_is_told_its_node_its_scores_and_who_refused_it(
    headgate: Callable, log: Path, tmp_path: Path
) -> None:
    """Requests follow the limits: of 4 CPUs one is taken on `a`, all are on `b`. The only node is not scored."""
    answer = headgate("place", "-f", manifest(tmp_path, asked("p", "2")), "--log", log, "-o", "json")
    assert answer.code == 0, answer.err
    (told,) = json.loads(answer.out)
    assert (told["node"], told["feasible"], told["looked"], told["nodes"]) == ("a", 1, 3, 3)
    assert told["refused"] == [
        {"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": 1},
        {"plugin": "TaintToleration", "reason": "node(s) had untolerated taint(s)", "nodes": 1},
    ]
    assert told["best"] == [{"node": "a", "total": 0, "scores": []}]


def test_the_best_nodes_are_told_with_each_plugins_scores(headgate: Callable, log: Path, tmp_path: Path) -> None:
    """The weighted ones add up to the total; of memory-less pods LeastAllocated prefers the emptier node."""
    tolerant = asked("p", "1", tolerations=[{"key": "dedicated", "operator": "Exists"}])
    answer = headgate("place", "-f", manifest(tmp_path, tolerant), "--log", log, "-o", "json")
    (told,) = json.loads(answer.out)
    assert [each["node"] for each in told["best"]] == ["c", "a"]
    for each in told["best"]:
        assert sum(score["weighted"] for score in each["scores"]) == each["total"]
    scores = {(each["node"], score["plugin"]): score for each in told["best"] for score in each["scores"]}
    # (4 - 1) / 4 of cpu; 200Mi of 8Gi of memory on an empty node.
    assert scores["c", "NodeResourcesFit"]["raw"] == (75 + 97) // 2
    table = headgate("place", "-f", manifest(tmp_path, tolerant), "--log", log).out
    assert table.startswith("Pod default/p would get node c (at position")
    assert "NodeResourcesFit refuses 1 node: Insufficient cpu" in table


def test_a_pod_that_fits_nowhere_is_told_who_would_have_to_go(headgate: Callable, log: Path, tmp_path: Path) -> None:
    """The one pod of lower priority; the exit code says that it gets no node."""
    answer = headgate("place", "-f", manifest(tmp_path, asked("p", "4")), "--log", log, "-o", "json")
    (told,) = json.loads(answer.out)
    assert answer.code == 1
    assert "node" not in told
    assert (told["nominated"], told["victims"]) == ("b", [{"pod": "ns/big", "priority": -5}])
    assert told["message"].startswith(
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
    )


def test_pods_are_placed_one_after_another_and_templates_give_one(
    headgate: Callable, log: Path, tmp_path: Path
) -> None:
    """The pod of the Job takes what the Deployment's needs."""
    of_job = {"template": {"spec": asked("", "2")["spec"]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"}, "spec": of_job}
    deployment = {**job, "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"}}
    answer = headgate("place", "-f", manifest(tmp_path, job, deployment), "--log", log, "-o", "json")
    first, second = json.loads(answer.out)
    assert (first["pod"], first["node"]) == ("ns/j", "a")
    assert (second["pod"], second["reason"]) == ("ns/d", "Unschedulable")
    assert answer.code == 1


def test_other_objects_of_the_manifests_are_there(headgate: Callable, log: Path, tmp_path: Path) -> None:
    """With one more node there is room."""
    more = {"apiVersion": "v1", "kind": "Node", **node("d")}
    answer = headgate("place", "-f", manifest(tmp_path, more, asked("p", "4")), "--log", log, "-o", "json")
    assert (answer.code, json.loads(answer.out)[0]["node"]) == (0, "d")


def test_keys_of_labels_are_part_of_the_selectors(headgate: Callable, log: Path, tmp_path: Path) -> None:
    """A pod keeps away from pods of its own version only: the first two share no version."""
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE, "matchLabelKeys": ["version"]}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def versioned(name: str, version: str) -> Json:
        made = asked(name, "1", affinity=apart)
        made["metadata"]["labels"] = {"app": "x", "version": version}
        return made

    pods = manifest(tmp_path, versioned("p", "1"), versioned("q", "2"), versioned("r", "1"))
    told = json.loads(headgate("place", "-f", pods, "--log", log, "-o", "json").out)
    assert [each.get("node", "") for each in told] == ["a", "a", ""]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"schedulerName": "other"},
            "field spec.schedulerName: there is no profile 'other': name one of default-sched",
        ),
        ({"nodeName": "a"}, "Pod default/p, field spec.nodeName: the pod has node a already: remove the field"),
        ({"priorityClassName": "x"}, "field spec.priorityClassName: there is no class 'x': name one that is there"),
        ({"runtimeClassName": "x"}, "field spec.runtimeClassName: there is no class 'x'"),
        ({"containers": []}, "field spec.containers: a pod needs at least one container: add one"),
        ({"containers": {}}, "field spec.containers: a list is expected, not dict: correct it"),
        ({"tolerations": 5}, "Pod p, field spec.tolerations: Expected `array`, got `int`: correct it"),
        ({"overhead": {"cpu": "many"}}, "many"),
    ],
)
def test_a_mistake_is_one_line_with_object_field_and_remedy(
    headgate: Callable, log: Path, tmp_path: Path, spec: Json, words: str
) -> None:
    answer = headgate(
        "place",
        "-f",
        manifest(tmp_path, {**asked("p", "1"), "spec": {**asked("p", "1")["spec"], **spec}}),
        "--log",
        log,
    )
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_log_without_a_configuration_places_nothing(headgate: Callable, tmp_path: Path) -> None:
    """The remedy is named."""
    log = written(tmp_path / "off.jsonl.gz", configured=False)
    answer = headgate("place", "-f", manifest(tmp_path, asked("p", "1")), "--log", log)
    assert answer.code == 2
    assert "no pods are placed at position" in answer.err


def test_extenders_are_not_asked_unless_that_is_wanted(headgate: Callable, tmp_path: Path) -> None:
    """One line says which, the answer is that of the plugins, and what an extender manages is not asked of nodes."""
    managed = [{"name": "example.com/gpu", "ignoredByScheduler": True}]
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "f", "bindVerb": "b", "managedResources": managed}
    log = written(tmp_path / "extenders.jsonl.gz", extenders=[extender])
    body = asked("p", "1")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "example.com/gpu": "1"}}
    answer = headgate("place", "-f", manifest(tmp_path, body), "--log", log, "-o", "json")
    assert answer.code == 0, answer.err
    (told,) = json.loads(answer.out)
    assert (told["node"], told["binder"]) == ("a", "http://127.0.0.1:1")
    assert answer.err.splitlines() == [
        "not asked, and they may decide otherwise: extenders http://127.0.0.1:1; --ask-extenders asks them"
    ]
    other = headgate("place", "-f", manifest(tmp_path, asked("q", "1")), "--log", log)
    assert "not asked" not in other.err, "no extender has a say in a pod without the resource"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The extender of the documentation, at this address."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    handler = importlib.import_module(EXAMPLE.stem).Extender
    monkeypatch.setattr(handler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_example_of_the_documentation_is_asked(headgate: Callable, tmp_path: Path, example: str) -> None:
    """Live, about the nodes of the log and those of manifests; its answers and scores are told."""
    extender = {"urlPrefix": example, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1}
    log = written(tmp_path / "extenders.jsonl.gz", extenders=[extender])
    disk = node("d", labels={"example.com/local-disk": "yes"})
    off = node("e")
    off["metadata"]["annotations"] = {"example.com/maintenance": "on Monday"}
    nodes = [{"apiVersion": "v1", "kind": "Node", **each} for each in (disk, off)]
    pods = manifest(tmp_path, asked("p", "1"), *nodes)
    (told,) = json.loads(headgate("place", "-f", pods, "--log", log, "--ask-extenders", "-o", "json").out)
    assert told["node"] == "d"
    assert {"plugin": "Extender", "reason": "maintenance on Monday", "nodes": 1} in told["refused"]
    best = {score["plugin"]: score for score in told["best"][0]["scores"]}[example]
    assert (best["raw"], best["normalized"], best["weighted"]) == (10, 100, 100)
    assert told["extenders"] == [
        {"extender": example, "verb": "filter", "answer": "it leaves 2 nodes and refuses 1 node"},
        {"extender": example, "verb": "prioritize", "answer": "it scores 2 nodes"},
    ]
    table = headgate("place", "-f", pods, "--log", log, "--ask-extenders").out
    assert f"extender {example}, asked to filter: it leaves 2 nodes and refuses 1 node" in table


def test_an_extender_that_cannot_be_asked_fails_the_attempt(headgate: Callable, tmp_path: Path) -> None:
    """As it does in the scheduler; the exit code says that the pod gets no node."""
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "f"}
    log = written(tmp_path / "extenders.jsonl.gz", extenders=[extender])
    answer = headgate("place", "-f", manifest(tmp_path, asked("p", "1")), "--log", log, "--ask-extenders")
    assert answer.code == 1
    assert 'SchedulerError: Post "http://127.0.0.1:1/f": ' in answer.out


def test_the_documentation_shows_the_example_as_it_is() -> None:
    """Line by line."""
    assert EXAMPLE.read_text() in (EXAMPLE.parents[2] / "docs" / "guides" / "placing-pods.md").read_text()
