"""`headgate plan`: manifests in, admitted and waiting workloads out; scenarios in, outcomes out."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

WAY_IN = """\
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: cq}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
"""
"""The LocalQueue that the Jobs name, and a priority class."""

QUEUES = (
    """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  cohortName: all
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources: [{name: cpu, nominalQuota: 8}]
"""
    + WAY_IN
)
OLD_SPELLING = {"v1beta2\nkind: ClusterQueue": "v1beta1\nkind: ClusterQueue", "cohortName: all": "cohort: all"}


def job(name: str, pods: int, **labels: str) -> str:
    """A Job of pods of one cpu each, in queue `main`."""
    named = {"kueue.x-k8s.io/queue-name": "main", **{f"kueue.x-k8s.io/{key}": value for key, value in labels.items()}}
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": 1}}}]
    return yaml.safe_dump(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "team-a", "labels": named},
            "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": containers}}},
        }
    )


def running(name: str, cpu: int) -> str:
    """A Workload that holds quota already."""
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-15T09:30:00Z"}
        for kind in ("QuotaReserved", "Admitted")
    ]
    assignment = {"name": "main", "count": cpu, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": cpu}}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}}
    return yaml.safe_dump(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "team-a"},
            "spec": {"queueName": "main", "podSets": [{"name": "main", "count": cpu, "template": template}]},
            "status": {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
                "conditions": conditions,
            },
        }
    )


def write(folder: Path, *documents: str) -> Path:
    """One file of documents."""
    path = folder / "all.yaml"
    path.write_text("\n---\n".join(documents))
    return path


def test_everything_is_admitted_and_the_exit_code_is_0(headgate: Callable, tmp_path: Path) -> None:
    """Jobs that name a queue become Workloads, and are shown by the names of the Jobs."""
    answer = headgate("plan", "-f", write(tmp_path, QUEUES, job("a", 3), job("b", 5)))
    assert answer.code == 0
    assert "team-a/a  cq            3 main on spot (3 cpu)  1" in answer.out
    assert "2 admitted, 0 waiting; after 2 cycles" in answer.out
    assert "do not finish in a plan" in answer.out


def test_somebody_waits_and_the_exit_code_is_1(headgate: Callable, tmp_path: Path) -> None:
    """With the reason, Kueue's message, and what would have to be free."""
    answer = headgate("plan", "-f", write(tmp_path, QUEUES, job("a", 6), job("b", 4)), "-o", "json")
    assert answer.code == 1
    report = json.loads(answer.out)
    assert not report["all_admitted"]
    (waits,) = report["waiting"]
    assert (waits["job"], waits["reason"], waits["position"]) == ("team-a/b", "WaitingForQuota", 1)
    assert waits["message"].endswith("insufficient unused quota for cpu in flavor spot, 2 more needed")
    assert waits["needs"] == "4 cpu of spot (2 available)"


def test_who_is_preempted_by_whom_is_told(headgate: Callable, tmp_path: Path) -> None:
    """And what became of the victim."""
    documents = (QUEUES, running("old", 6), job("urgent", 4, **{"priority-class": "high"}))
    answer = headgate("plan", "-f", write(tmp_path, *documents), "-o", "yaml")
    report = yaml.safe_load(answer.out)
    (preempted,) = report["preempted"]
    assert preempted["workload"] == "team-a/old"
    assert preempted["reason"] == "InClusterQueue"
    assert preempted["state"] == "Pending"
    assert [each["job"] for each in report["admitted"]] == ["team-a/urgent"]
    table = headgate("plan", "-f", write(tmp_path, *documents))
    assert "PREEMPTED" in table.out
    assert table.code == 1


def test_both_api_versions_are_read_from_directories_lists_and_standard_input(
    headgate: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be scheduled is left out and named."""
    old = QUEUES
    for new, was in OLD_SPELLING.items():
        assert new in old
        old = old.replace(new, was)
    (tmp_path / "queues.yaml").write_text(old)
    items = [yaml.safe_load(job("a", 2)), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]
    (tmp_path / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    monkeypatch.setattr(sys, "stdin", __import__("io").StringIO(job("b", 2)))
    answer = headgate("plan", "-f", tmp_path, "-f", "-")
    assert answer.code == 0
    assert "2 admitted" in answer.out
    assert "1 ConfigMap" in answer.err
    assert "namespace team-a" in answer.err


WRONG = {
    "a typo in a field": (
        QUEUES.replace("nominalQuota", "nominalQota"),
        "all.yaml, document 2: ClusterQueue cq, field spec.resourceGroups[0].flavors[0].resources[0].nominalQota: "
        "there is no such field; did you mean nominalQuota?",
    ),
    "a value that is none": (QUEUES.replace("LowerPriority", "Lowest"), "'Lowest' is not one of Never, LowerPriority"),
    "a quantity that is none": (QUEUES.replace("nominalQuota: 8", "nominalQuota: 8x"), "'8x' is no quantity"),
    "a wrong type": (QUEUES.replace("cohortName: all", "cohortName: 7"), "field spec.cohortName: 7 is not a text"),
    "a kind of Kueue's that is none": (QUEUES.replace("LocalQueue", "LocalQeue"), "document 3: LocalQeue main"),
    "a version of Kueue's that is none": (
        QUEUES.replace("v1beta2\nkind: LocalQueue", "v1\nkind: LocalQueue"),
        "LocalQueue team-a/main: apiVersion: 'kueue.x-k8s.io/v1' is not served",
    ),
    "a version that is not served": (
        f"{QUEUES}---\n{job('a', 1).replace('batch/v1', 'batch/v1beta1')}",
        "document 5: Job a, field apiVersion: batch/v1beta1 is not served: write batch/v1",
    ),
    "two of one name": (f"{QUEUES}---\n{QUEUES}", "ClusterQueue cq: it is in all.yaml, document 2 already"),
    "a priority class that is not there": (
        f"{QUEUES}---\n{job('a', 1, **{'priority-class': 'hgh'})}",
        'document 5: Job team-a/a: workloadpriorityclasses.kueue.x-k8s.io "hgh" not found',
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_bad_manifest_is_one_line_and_nothing_is_planned(headgate: Callable, tmp_path: Path, wrong: str) -> None:
    """It names file, document, object and field; the exit code is 2."""
    text, said = WRONG[wrong]
    write(tmp_path, text)
    answer = headgate("plan", "-f", "all.yaml")
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err


def test_all_mistakes_are_told_at_once(headgate: Callable, tmp_path: Path) -> None:
    """One line each."""
    spoilt = QUEUES.replace("nominalQuota: 8", "nominalQuota: 8x").replace("value: 1000", "value: high")
    answer = headgate("plan", "-f", write(tmp_path, spoilt))
    assert answer.err.count("headgate: ") == answer.err.count("\n") == 2


def test_what_only_others_queue_is_named(headgate: Callable, tmp_path: Path) -> None:
    """A JobSet that names a queue, and a Job that names none, are not in the plan, and the plan reports it."""
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    other = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "js", "labels": labels}}
    free = job("free", 1).replace("kueue.x-k8s.io/queue-name", "app")
    answer = headgate("plan", "-f", write(tmp_path, QUEUES, yaml.safe_dump(other), free))
    assert answer.code == 0
    assert "JobSet js names queue main, but only batch/v1 Jobs are queued" in answer.err
    assert "Job team-a/free names no queue" in answer.err


def test_a_kind_that_the_configuration_enables_is_planned(headgate: Callable, tmp_path: Path) -> None:
    """MPIJobs have another version than the other kinds of their group."""
    pods = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    kinds = {"MPIJob": ("v2beta1", "mpiReplicaSpecs"), "TFJob": ("v1", "tfReplicaSpecs")}
    jobs = [
        {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": kind,
            "metadata": {
                "name": kind.lower(),
                "namespace": "team-a",
                "labels": {"kueue.x-k8s.io/queue-name": "main"},
            },
            "spec": {field: {"Worker": {"replicas": 2, "template": pods}}},
        }
        for kind, (version, field) in kinds.items()
    ]
    configuration = tmp_path / "configuration.yaml"
    configuration.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "integrations: {frameworks: [kubeflow.org/mpijob, kubeflow.org/tfjob]}\n"
    )
    manifests = write(tmp_path, QUEUES, *map(yaml.safe_dump, jobs))
    answer = headgate("plan", "-f", manifests, "--config", str(configuration))
    assert answer.code == 0
    assert "team-a/mpijob" in answer.out
    assert "team-a/tfjob" in answer.out


def test_a_configuration_decides(headgate: Callable, tmp_path: Path) -> None:
    """Kueue's Configuration, here with a resource that does not count."""
    (tmp_path / "config.yaml").write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "resources: {excludeResourcePrefixes: [cpu]}\nwaitForPodsReady: {blockAdmission: true}\n"
    )
    path = write(tmp_path, QUEUES, job("a", 6), job("b", 6))
    assert headgate("plan", "-f", path).code == 1
    answer = headgate("plan", "-f", path, "--config", "config.yaml")
    assert answer.code == 0
    assert "takes those of admitted workloads for ready" in answer.err


def test_cycles_bound_a_plan(headgate: Callable, tmp_path: Path) -> None:
    """And the plan reports that it was cut off."""
    answer = headgate("plan", "-f", write(tmp_path, QUEUES, job("a", 1), job("b", 1)), "--cycles", 1)
    assert answer.code == 1
    assert "after 1 cycle stopped there: --cycles takes more" in answer.out


# --- scenarios -----------------------------------------------------------------------------------------------------


def scenario(name: str, **more: Any) -> dict[str, Any]:
    objects = list(yaml.safe_load_all(QUEUES))
    objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    return {"name": name, "now": "2026-01-15T10:00:00Z", "cycles": 9, "config": {}, "objects": objects, **more}


def test_each_scenario_is_one_outcome_a_line(headgate: Callable, tmp_path: Path) -> None:
    """In order, of bare scenarios and of recordings, zipped or not."""
    lines = "\n".join(json.dumps(each) for each in ({"scenario": scenario("one"), "outcome": {}}, scenario("two")))
    (tmp_path / "s.jsonl").write_text(lines)
    (tmp_path / "s.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    plain, zipped = (headgate("plan", "--scenarios", name) for name in ("s.jsonl", "s.jsonl.gz"))
    assert plain == zipped
    assert plain.code == 0
    outcomes = [json.loads(line) for line in plain.out.splitlines()]
    assert [each["name"] for each in outcomes] == ["one", "two"]
    assert outcomes[0].keys() == {"name", "final", "trace", "initialEvents", "cyclesRun", "stop"}
    assert plain.err == ""


def test_a_bad_line_is_named_and_the_others_run(headgate: Callable, tmp_path: Path) -> None:
    """Exit code 2 at the end; a scenario with an object that a plan has no use for is among them."""
    useless = scenario("useless")
    useless["objects"][0] = {**useless["objects"][0], "kind": "Secret"}
    lines = [json.dumps(scenario("one")), "{", "", json.dumps(useless), json.dumps({"name": "x"})]
    (tmp_path / "s.jsonl").write_text("\n".join([*lines, json.dumps(scenario("last"))]))
    answer = headgate("plan", "--scenarios", "s.jsonl")
    assert answer.code == 2
    assert [json.loads(line)["name"] for line in answer.out.splitlines()] == ["one", "last"]
    errors = answer.err.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in errors] == ["line 2", "line 4", "line 5"]
    assert "scenario useless: Secret" in errors[1]


def placement(name: str, **more: Any) -> dict[str, Any]:
    """A scenario of the kube-scheduler: two nodes, and a pod that fits on one."""
    nodes = [
        {"kind": "Node", "metadata": {"name": node}, "status": {"allocatable": {"cpu": cpu, "pods": "9"}}}
        for node, cpu in (("a", "1"), ("b", "4"))
    ]
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    spec = {"schedulerName": "default-scheduler", "containers": [container]}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    times = {"start": "2026-01-15T10:00:00Z", "schedulingStartsAt": 3, "victimGraceSeconds": 0}
    return {
        "name": name,
        **times,
        "config": config,
        "objects": nodes,
        "script": [{"at": 0, "op": "create", "object": pod}],
        **more,
    }


def test_scenarios_of_the_kube_scheduler_place_pods(headgate: Callable, tmp_path: Path) -> None:
    """Told by their fields, beside those of Kueue; what is wrong with one is named."""
    wrong = placement("wrong", config={**placement("")["config"], "profile": []})
    unreadable = placement("unreadable", objects=[{"kind": "Node", "metadata": {"name": 3}}])
    given = (placement("one"), scenario("two"), wrong, unreadable)
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, given)))
    answer = headgate("plan", "--scenarios", "s.jsonl")
    assert answer.code == 2
    placed, kueue = map(json.loads, answer.out.splitlines())
    assert (placed["bound"], placed["pending"], placed["stop"]) == ({"ns/p": "b"}, {}, "idle")
    assert [step["t"] for step in placed["steps"]] == [0, 3, 3]
    assert kueue["name"] == "two"
    first, second = answer.err.splitlines()
    assert (
        first == "headgate: line 3: scenario wrong: config: profile: there is no such field: did you mean 'profiles'?"
    )
    assert second.startswith("headgate: line 4: scenario unreadable: Node 3: Expected `str`, got `int`")


@pytest.mark.parametrize("seed", ["0", "7"])
def test_outcomes_do_not_depend_on_the_hash_seed(tmp_path: Path, seed: str) -> None:
    """From standard input, into a process of its own."""
    workloads = [yaml.safe_load(running(f"w{i}", 1)) for i in range(5)]
    given = scenario("one")
    given["objects"] += workloads
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "headgate.cli.main", "plan", "--scenarios", "-"],
            input=json.dumps(given).encode(),
            env={**os.environ, "PYTHONHASHSEED": each},
            capture_output=True,
            check=True,
        ).stdout
        for each in ("1", seed)
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["name"] == "one"


MISTAKES = {
    (): "name what to plan",
    ("-f", "x.yaml", "--scenarios", "y"): "name what to plan",
    ("-f", "nowhere.yaml"): "the path 'nowhere.yaml' does not exist",
    ("--scenarios", "nowhere"): "--scenarios nowhere: cannot be read",
    ("--scenarios", "x", "--config", "c"): "each scenario brings its own configuration",
    ("-f", ".", "--cycles", "0"): "--cycles",
}


@pytest.mark.parametrize("args", MISTAKES, ids=" ".join)
def test_a_mistake_on_the_command_line_is_one_line(headgate: Callable, args: tuple[str, ...]) -> None:
    """Exit code 2, and what to do instead."""
    answer = headgate("plan", *args)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert MISTAKES[args] in answer.err


# --- Jobs that have several Workloads ------------------------------------------------------------------------------

TWO_FLAVORS = (
    """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: reserved}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  concurrentAdmissionPolicy: {migration: {mode: TryPreferredFlavors}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: reserved
      resources: [{name: cpu, nominalQuota: 2}]
    - name: spot
      resources: [{name: cpu, nominalQuota: 4}]
"""
    + WAY_IN
)
CONCURRENTLY = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {ConcurrentAdmission: true}
"""


def planned(headgate: Callable, tmp_path: Path, *documents: str, config: str = "") -> dict[str, Any]:
    """The plan of these manifests."""
    options: list[str | Path] = []
    if config:
        (tmp_path / "config.yaml").write_text(config)
        options = ["--config", tmp_path / "config.yaml"]
    (tmp_path / "manifests").mkdir()
    answer = headgate("plan", "-f", write(tmp_path / "manifests", *documents), *options, "-o", "json")
    assert answer.code in (0, 1), answer.err
    report: dict[str, Any] = json.loads(answer.out)
    return report


def on(report: dict[str, Any]) -> dict[str, str]:
    """The flavor of each Job that is admitted."""
    return {each["job"].partition("/")[2]: each["pod_sets"][0]["flavors"]["cpu"] for each in report["admitted"]}


def test_a_job_is_tried_in_every_flavor_at_once(headgate: Callable, tmp_path: Path) -> None:
    """One line a Job, with its flavor; a waiting one has the reason for each flavor."""
    jobs = [job("small", 2), job("large", 4), job("late", 3)]
    report = planned(headgate, tmp_path, TWO_FLAVORS, *jobs, config=CONCURRENTLY)
    assert on(report) == {"small": "reserved", "large": "spot"}
    (late,) = report["waiting"]
    assert late["job"] == "team-a/late"
    assert late["message"].startswith("reserved: ")
    assert "; spot: " in late["message"]


def test_a_family_preempts_in_its_best_flavor(headgate: Callable, tmp_path: Path) -> None:
    """Its gate is opened first, and a preempted one is shown with the Job that preempts it."""
    held = [running("small", 2).replace("cpu: spot", "cpu: reserved"), running("large", 4)]
    urgent = job("urgent", 2, **{"priority-class": "high"})
    report = planned(headgate, tmp_path, TWO_FLAVORS, *held, urgent, config=CONCURRENTLY)
    assert on(report)["urgent"] == "reserved"
    ((gone, by),) = [(each["workload"], each["by"]) for each in report["preempted"]]
    (urgent_one,) = [each for each in report["admitted"] if each["job"] == "team-a/urgent"]
    assert (gone, by) == ("team-a/small", urgent_one["workload"])
    assert [each["workload"] for each in report["waiting"]] == ["team-a/small"]


def test_the_gate_of_the_next_flavor_is_opened_when_nothing_else_is_left(headgate: Callable, tmp_path: Path) -> None:
    """The best flavor is too small for it: after five minutes it preempts in the next one."""
    held = [running("small", 2).replace("cpu: spot", "cpu: reserved"), running("large", 4)]
    urgent = job("urgent", 3, **{"priority-class": "high"})
    report = planned(headgate, tmp_path, TWO_FLAVORS, *held, urgent, config=CONCURRENTLY)
    assert on(report)["urgent"] == "spot"
    assert [each["workload"] for each in report["preempted"]] == ["team-a/large"]
    (large,) = report["waiting"]
    assert large["workload"] == "team-a/large"
    assert "; spot: " in large["message"], "it was admitted without a family, and has one now that it waits"


def elastic(name: str, pods: int) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(job(name, pods))
    made["metadata"] |= {"uid": "u-1", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    made["spec"] |= {"suspend": False}
    return made


def slice_of(name: str, cpu: int) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(running(f"job-{name}-00001", cpu))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u-1", "controller": True}
    annotations = {"kueue.x-k8s.io/elastic-job": "true"}
    made["metadata"] |= {"ownerReferences": [owner], "annotations": annotations, "uid": "w-1"}
    return made


@pytest.mark.parametrize(
    ("pods", "admitted", "waiting"),
    [
        (6, {"train": 6}, {"next"}),
        (4, {"train": 4}, {"next"}),
        (2, {"train": 2, "next": 5}, set()),
        (9, {"train": 4}, {"next", "train"}),
    ],
    ids=["grown", "as it is", "shrunk", "grown beyond the quota"],
)
def test_a_scaled_job_is_planned_with_its_slices(
    headgate: Callable, tmp_path: Path, pods: int, admitted: dict[str, int], waiting: set[str]
) -> None:
    """A slice that fits takes the place of the Workload; one that does not waits, and the Job runs on in its size."""
    documents = [yaml.safe_dump(each) for each in (elastic("train", pods), slice_of("train", 4))]
    report = planned(headgate, tmp_path, QUEUES, *documents, job("next", 5))
    holds = {each["job"]: each["pod_sets"][0] for each in report["admitted"]}
    assert {name: pod_set["count"] for name, pod_set in holds.items()} == {
        f"team-a/{name}": count for name, count in admitted.items()
    }
    assert all(int(pod_set["usage"]["cpu"]) == pod_set["count"] for pod_set in holds.values())
    assert {each["job"] for each in report["waiting"]} == {f"team-a/{name}" for name in waiting}
