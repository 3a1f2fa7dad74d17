"""`headgate apply`, `get` and `delete` against a simulated cluster behind HTTP."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster_process import running_cluster

from headgate.cli import cell as cells
from headgate.cli.cell import DataLock
from headgate.cli.demo_objects import cluster_objects, job_objects


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster to talk to."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as file:
        yield file


@pytest.fixture
def cluster(headgate: Callable, kubeconfig: Path) -> Callable:
    return lambda *args: headgate(*args, "--kubeconfig", kubeconfig)


def written(path: Path, *objects: object) -> Path:
    path.write_text(objects[0] if isinstance(objects[0], str) else yaml.safe_dump_all(objects))
    return path


def test_manifests_are_created_then_unchanged_then_configured_then_deleted(cluster: Callable, tmp_path: Path) -> None:
    """Many documents in one file, in kubectl's words; the second time changes nothing."""
    file = written(tmp_path / "all.yaml", *cluster_objects())
    first = cluster("apply", "-f", file)
    assert first.code == 0, first.err
    assert "clusterqueue.kueue.x-k8s.io/vision created" in first.out
    assert {line.split()[1] for line in cluster("apply", "-f", file).out.splitlines()} <= {"unchanged", "configured"}
    assert "clusterqueue.kueue.x-k8s.io/vision unchanged" in cluster("apply", "-f", file).out
    queue = next(each for each in cluster_objects() if each["kind"] == "ClusterQueue")
    queue["spec"]["queueingStrategy"] = "StrictFIFO"
    assert "configured" in cluster("apply", "-f", written(tmp_path / "one.yaml", queue)).out
    gone = cluster("delete", "-f", file)
    assert gone.code == 0
    assert "clusterqueue.kueue.x-k8s.io/vision deleted" in gone.out


def test_objects_of_v1beta1_are_said_in_v1beta2(cluster: Callable, tmp_path: Path) -> None:
    """What v1beta1 spells otherwise arrives; what contradicts itself is named with its file."""
    old: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "old"},
        "spec": {"cohort": "team", "admissionChecks": ["a"], "flavorFungibility": {"whenCanBorrow": "Borrow"}},
    }
    answer = cluster("apply", "-f", written(tmp_path / "old.yaml", old))
    assert answer.code == 0, answer.err
    spec = json.loads(cluster("get", "clusterqueue", "old", "-o", "json").out)["spec"]
    assert spec["cohortName"] == "team"
    assert spec["admissionChecksStrategy"] == {"admissionChecks": [{"name": "a"}]}
    assert spec["flavorFungibility"]["whenCanBorrow"] == "MayStopSearch"
    old["spec"] |= {"cohortName": "other"}
    answer = cluster("apply", "-f", written(tmp_path / "twice.yaml", old))
    assert answer.code == 2
    assert "twice.yaml: ClusterQueue old: spec.cohort: spec.cohortName says another: keep that one only" in answer.err


def test_a_directory_and_standard_input_are_read_too(
    cluster: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YAML and JSON side by side; a List is split; -n sets the namespace."""
    directory = tmp_path / "manifests"
    directory.mkdir()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dir"}}
    written(directory / "a.yaml", {"apiVersion": "v1", "kind": "List", "items": [namespace]})
    (directory / "b.json").write_text(json.dumps(_job("from-json")))
    (directory / "notes.txt").write_text("not: {a manifest")
    assert cluster("apply", "-f", directory, "-n", "dir").code == 0
    monkeypatch.setattr("sys.stdin", _Input(yaml.safe_dump(_job("from-stdin"))))
    assert cluster("apply", "-f", "-", "-n", "dir").code == 0
    jobs = json.loads(cluster("get", "jobs", "-n", "dir", "-o", "json").out)["items"]
    assert [job["metadata"]["name"] for job in jobs] == ["from-json", "from-stdin"]


class _Input:
    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> str:
        return self._text


def _job(name: str) -> dict:
    job = job_objects(1, 1)[0]
    return job | {"metadata": {"name": name}}


def test_an_invalid_object_is_refused_in_the_servers_words(cluster: Callable, tmp_path: Path) -> None:
    """One line each, naming file, document, object and field; what is valid is applied all the same."""
    bad, good = _job("bad"), _job("good")
    bad["spec"] = bad["spec"] | {"parallelism": -1}
    file = written(tmp_path / "jobs.yaml", bad, {"apiVersion": "v9", "kind": "Nope", "metadata": {"name": "x"}}, good)
    answer = cluster("apply", "-f", file, "-n", "default")
    assert answer.code == 1
    assert answer.out == "job.batch/good created\n"
    first, second = answer.err.splitlines()
    assert first.startswith(f"headgate: {file}, document 1: job.batch/bad: ")
    assert "spec.parallelism: Invalid value: -1" in first
    assert second.endswith('document 2: nope/x: no matches for kind "Nope" in version "v9"')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b: c", "is not YAML"),
        ("- 1\n", "an object is expected, not list"),
        ("kind: Job\nmetadata: {name: x}\n", "apiVersion not set"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "metadata.name: Required value"),
        ("", "no objects in"),
        ("[" * 100_000, "this is not YAML: line 1: it is nested more than 200 levels deep"),
        ("- " * 100_000, "this is not YAML: line 1: it is nested more than 200 levels deep"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: ../../etc}\n", "metadata.name: Invalid value: '../../etc'"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ..}\n", "metadata.namespace: Invalid value: '..'"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 1}\n", "metadata.namespace: a string is expected"),
    ],
)
def test_what_is_no_manifest_is_refused_before_anything_is_sent(
    headgate: Callable, tmp_path: Path, text, words
) -> None:
    """One line with the file; exit code 2; no cluster is needed to say so."""
    answer = headgate("apply", "-f", written(tmp_path / "bad.yaml", text))
    assert answer.code == 2
    assert words in answer.err
    assert "bad.yaml" in answer.err


def test_brackets_in_strings_are_no_levels(headgate: Callable, tmp_path: Path) -> None:
    """A manifest may be full of them; what is wrong with it is something else."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\ndata: {a: '" + "[" * 1000 + "'}\n"
    assert "metadata.name: Required value" in headgate("apply", "-f", written(tmp_path / "a.yaml", text)).err


def changed_by(kubeconfig: Path, manager: str, change: object) -> None:
    """Let another client change the Job `default/j`."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    request = urllib.request.Request(
        f"{server}/apis/batch/v1/namespaces/default/jobs/j?fieldManager={manager}",
        data=json.dumps(change).encode(),
        headers={"Content-Type": "application/merge-patch+json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


@pytest.fixture
def suspended(cluster: Callable, tmp_path: Path) -> Iterator[Path]:
    """The manifest of a suspended Job, applied once."""
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    labels = {"a": "b", "example.com/team": "x"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "labels": labels},
        "spec": {"suspend": True, "template": template},
    }
    file = written(tmp_path / "job.yaml", job)
    assert cluster("apply", "-f", file).code == 0
    yield file
    cluster("delete", "-f", file)


def test_applying_a_job_again_does_not_touch_what_headgate_set(
    cluster: Callable, kubeconfig: Path, suspended: Path
) -> None:
    """A Job that runs goes on running, although its manifest says `suspend: true`; what else has changed is applied."""
    changed_by(kubeconfig, "headgate", {"spec": {"suspend": False}, "metadata": {"labels": {"example.com/team": "h"}}})
    again = cluster("apply", "-f", suspended)
    assert (again.code, again.out) == (0, "job.batch/j unchanged\n")
    assert ".spec.suspend stays as it is" in again.err.replace(".metadata.labels.example.com/team, ", "")
    manifest = yaml.safe_load(suspended.read_text())
    manifest["metadata"]["labels"]["b"] = "c"
    assert cluster("apply", "-f", written(suspended, manifest)).out == "job.batch/j configured\n"
    job = json.loads(cluster("get", "job", "j", "-o", "json").out)
    assert (job["spec"]["suspend"], job["metadata"]["labels"]["b"]) == (False, "c")


def test_a_field_that_somebody_else_has_set_since_is_answered_with_what_helps(
    cluster: Callable, kubeconfig: Path, suspended: Path
) -> None:
    """A conflict with another client is refused, also where Headgate has set a field too."""
    changed_by(kubeconfig, "headgate", {"spec": {"suspend": False}})
    changed_by(kubeconfig, "somebody", {"metadata": {"labels": {"a": "c"}}})
    refused = cluster("apply", "-f", suspended)
    assert refused.code == 1
    assert "or take them with --force-conflicts" in refused.err
    assert cluster("apply", "-f", suspended, "--force-conflicts").out == "job.batch/j configured\n"


def test_kubeconfig_of_the_environment_is_used_as_by_kubectl(
    headgate: Callable, kubeconfig: Path, suspended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside a cell that runs here, unless that one is named."""
    lock = DataLock(tmp_path / ".headgate" / "main")
    lock.take()
    cells.write(tmp_path / ".headgate" / "main", cells.CellInfo(cell="main", nats_url="", kubeconfig="gone"))
    assert "gone" in headgate("get", "jobs").err
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert "j " in headgate("get", "jobs").out
    assert "gone" in headgate("get", "jobs", "--cell", "main").err
    monkeypatch.setenv("HEADGATE_CELL", "main")
    assert headgate("delete", "-f", suspended).code == 0
    lock.release()


@pytest.mark.parametrize("name", ["clusterqueues", "clusterqueue", "cq", "ClusterQueue"])
def test_a_kind_may_be_called_by_any_of_its_names(cluster: Callable, name: str) -> None:
    """As kubectl does, from the server's discovery."""
    assert cluster("get", name).code == 0


def test_a_kind_or_an_object_that_is_not_there_is_said_in_one_line(cluster: Callable) -> None:
    """Exit code 2 for an unknown kind, 1 for an object that does not exist."""
    assert cluster("get", "nopes").code == 2
    missing = cluster("get", "job", "nope")
    assert (missing.code, missing.err) == (1, 'headgate: jobs.batch "nope" not found\n')
    assert cluster("delete", "job", "nope").code == 1
    assert cluster("delete", "job", "nope", "--ignore-not-found").code == 0


def test_namespaces_of_manifest_and_flag_must_agree(cluster: Callable, tmp_path: Path) -> None:
    """Nothing is created where it was not meant."""
    job = _job("x")
    job["metadata"]["namespace"] = "default"
    answer = cluster("apply", "-f", written(tmp_path / "job.yaml", job), "-n", "other")
    assert answer.code == 2
    assert 'does not match the namespace "other"' in answer.err


def test_no_server_is_said_in_one_line(headgate: Callable, tmp_path: Path) -> None:
    """The address that was tried is in it."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    }
    answer = headgate("get", "jobs", "--kubeconfig", written(tmp_path / "config", config))
    assert answer.code == 1
    assert "http://127.0.0.1:1" in answer.err
    assert answer.err.count("\n") == 1


def test_the_manifests_in_deploy_are_those_of_the_demo() -> None:
    """Written out once for kubectl; `headgate demo --print` writes them again."""
    deploy = Path(__file__).parents[2] / "deploy" / "demo"
    written_out = [each for file in sorted(deploy.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    assert written_out == [*cluster_objects(), *job_objects(20, 1)]
