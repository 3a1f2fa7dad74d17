"""`headgate import` against a simulated cluster behind HTTP: pods and a Job that run before there is a queue."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster_process import running_cluster
from tests.support.cutting_off import cut_off_after

KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
MAPPING = ("-n", "team", "--queuelabel", "app", "--queuemapping", "train=main,web=main")
Json = dict[str, Any]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A cluster without rules for pods and Jobs: an import comes before them."""
    rules = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    file = tmp_path / "configuration.yaml"
    file.write_text(yaml.safe_dump({**rules, "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]}}))
    with running_cluster(tmp_path, "--config", str(file)) as kubeconfig:
        yield kubeconfig


def container(cpu: str) -> Json:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


def pod(name: str, cpu: str = "1", app: str = "web") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": {"app": app}},
        "spec": {"containers": [container(cpu)], "schedulerName": "elsewhere"},
    }


def job(name: str) -> Json:
    template = {"spec": {"containers": [container("1")], "restartPolicy": "Never", "schedulerName": "elsewhere"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": {"app": "train"}},
        "spec": {"parallelism": 2, "completions": 2, "template": template},
    }


def queues() -> list[Json]:
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "2"}]}],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec},
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "team"},
            "spec": {"clusterQueue": "cq"},
        },
    ]


class Imported:
    """The command line against the cluster."""

    def __init__(self, headgate: Callable, kubeconfig: Path, folder: Path) -> None:
        self._headgate = headgate
        self._kubeconfig = kubeconfig
        self._folder = folder

    def apply(self, *objects: Json) -> None:
        file = self._folder / "objects.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        assert self._headgate("apply", "-f", file, "--kubeconfig", self._kubeconfig).code == 0

    def run(self, *args: object) -> Any:
        return self._headgate("import", *args, "--kubeconfig", self._kubeconfig)

    def results(self, *args: object) -> dict[str, tuple[str, str]]:
        """By object, the result and the reason."""
        answer = self.run(*args, "-o", "json")
        return {each["object"]: (each["result"], each["why"]) for each in json.loads(answer.out)}

    def all(self, kind: str) -> dict[str, Json]:
        shown = self._headgate("get", kind, "-n", "team", "-o", "json", "--kubeconfig", self._kubeconfig)
        items = json.loads(shown.out)
        found = items["items"] if isinstance(items, dict) and "items" in items else items
        return {each["metadata"]["name"]: each for each in found}


@pytest.fixture
def cluster(headgate: Callable, kubeconfig: Path, tmp_path: Path) -> Imported:
    """Two pods, and a Job, that nobody has queued."""
    made = Imported(headgate, kubeconfig, tmp_path)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    made.apply(namespace, *queues(), pod("web-1"), pod("web-2"), job("train"))
    return made


def test_without_more_it_only_tells_what_would_become_of_what(cluster: Imported) -> None:
    """As with Kueue's importer, a dry run is the default. It tells which quota would be exceeded."""
    answer = cluster.run(*MAPPING)
    assert answer.code == 0
    lines = [line for line in answer.out.splitlines() if "would be imported" in line]
    assert [line.split()[:2] for line in lines] == [["Job", "team/train"], ["Pod", "team/web-1"], ["Pod", "team/web-2"]]
    assert all("main" in line and "cpu:any" in line for line in lines)
    assert "ClusterQueue cq: 4 of cpu in flavor any exceed its nominal quota 2" in answer.err
    assert "use --dry-run=false to import" in answer.err
    assert cluster.all("workloads") == {}


def test_what_is_imported_is_admitted_and_labelled_and_again_needs_nothing(cluster: Imported) -> None:
    """One Workload each, admitted; the objects themselves have the queue's label and nothing else that is new."""
    before = cluster.all("pods")
    answer = cluster.run(*MAPPING, "--add-labels", "from=before", "--dry-run=false")
    assert answer.code == 0, answer.err
    found = cluster.all("workloads")
    assert len(found) == 3
    for each in found.values():
        assert {one["type"]: one["reason"] for one in each["status"]["conditions"]} == {
            "QuotaReserved": "Imported",
            "Admitted": "Imported",
        }
        assert each["status"]["admission"]["clusterQueue"] == "cq"
        assert each["metadata"]["labels"]["from"] == "before"
    assert cluster.all("jobs")["train"]["metadata"]["labels"] == {"app": "train", QUEUE: "main", "from": "before"}
    after = cluster.all("pods")
    assert {name: each["metadata"]["uid"] for name, each in after.items()} == {
        name: each["metadata"]["uid"] for name, each in before.items()
    }
    assert after["web-1"]["spec"] == before["web-1"]["spec"]
    assert after["web-1"]["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    again = cluster.results(*MAPPING, "--add-labels", "from=before", "--dry-run=false")
    assert {result for result, _ in again.values()} == {"skipped"}
    assert all(why.startswith(("it is imported", "it counts with Job team/train")) for _, why in again.values())
    assert cluster.all("workloads") == found


def test_while_anything_is_refused_nothing_is_written(cluster: Imported) -> None:
    """All reasons at once; a rule can leave objects out."""
    cluster.apply(pod("lost", app="unknown"))
    answer = cluster.run(*MAPPING, "--dry-run=false")
    assert answer.code == 1
    assert "1 objects are refused" in answer.err
    assert "no rule matches" in answer.out
    assert cluster.all("workloads") == {}


def test_the_table_names_the_label_that_is_wrong(cluster: Imported) -> None:
    """As it is, brackets and all."""
    wrong = pod("other")
    wrong["metadata"]["labels"][QUEUE] = "another"
    cluster.apply(wrong)
    answer = cluster.run(*MAPPING)
    assert answer.code == 1
    assert f"field metadata.labels[{QUEUE}]: it names the LocalQueue another, and its rule main" in answer.out


def test_an_interrupted_import_is_continued(cluster: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object stands where the former run has left it, and the next one does the rest."""
    # Nine writes in all; each run begins with what the one before has left.
    for writes in (1, 1, 2, 2, 1):
        with monkeypatch.context() as patched:
            cut_off_after(patched, writes)
            answer = cluster.run(*MAPPING, "-c", 1, "--dry-run=false")
        assert (answer.code, answer.out) == (1, "")
        assert "connection refused" in answer.err
        # Whatever is labelled is admitted: nothing would be suspended by a cell that starts now.
        admitted = {
            each["metadata"]["ownerReferences"][0]["name"]
            for each in cluster.all("workloads").values()
            if each.get("status", {}).get("admission")
        }
        objects = {**cluster.all("pods"), **cluster.all("jobs")}
        labelled = {name for name, each in objects.items() if QUEUE in each["metadata"]["labels"]}
        assert labelled <= admitted
    assert cluster.run(*MAPPING, "--dry-run=false").code == 0
    assert len(cluster.all("workloads")) == 3
    assert {result for result, _ in cluster.results(*MAPPING).values()} == {"skipped"}


def test_what_the_rules_of_admission_refuse_is_known_before_anything_is_written(
    headgate: Callable, tmp_path: Path
) -> None:
    """A Job that runs may not change its queue: the API server says so in the dry run."""
    with running_cluster(tmp_path) as kubeconfig:
        cluster = Imported(headgate, kubeconfig, tmp_path)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        cluster.apply(namespace, *queues(), job("train"), pod("web-1"))
        result, why = cluster.results(*MAPPING, "--dry-run=false")["Job team/train"]
        assert result == "refused"
        assert why.startswith("the API server refuses it: ")
        assert QUEUE in why
        assert cluster.all("workloads") == {}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "tell where objects belong"),
        (("--queuelabel", "a"), "go together"),
        (("--queuelabel", "a", "--queuemapping", "b"), "--queuemapping b: write KEY=VALUE"),
        (("--queuemapping-file", "missing.yaml"), "missing.yaml: No such file"),
        (("--queuelabel", "a", "--queuemapping", "b=c", "--integration", "batch/jobs"), "there is no such integration"),
        (("--queuelabel", "a", "--queuemapping", "b=c", "--add-labels", "a b=c"), "--add-labels a b=c"),
        (("--queuelabel", "a", "--queuemapping", "b=c", "--dry-run=no"), "write true or false"),
    ],
)
def test_wrong_usage_is_one_line_with_the_option(headgate: Callable, args: tuple[str, ...], why: str) -> None:
    """Before a cluster is asked."""
    answer = headgate("import", "-n", "team", *args)
    assert answer.code == 2
    assert why in answer.err
