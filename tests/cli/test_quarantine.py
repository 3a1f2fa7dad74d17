"""A defect in the code of six real processes: it costs one job, and is corrected by another version of them."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.scenarios import kueue, node
from tests.support.waiting import until

from headgate.cli.supervisor import Supervisor, UpOptions

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

DEFECT = """
import headgate.core.fold as fold
import headgate.machines.binder.workload_statuses as statuses
from headgate.events.queueing import WorkloadQueued

queued, status = fold.HANDLERS[WorkloadQueued], statuses.workload_status

def broken_fold(state, event, *rest):
    queued(state, event, *rest)
    assert "job-bad-fold-" not in event.workload, "planted"

def broken_status(state, workload):
    assert "job-bad-status-" not in workload.key, "planted"
    return status(state, workload)

fold.HANDLERS[WorkloadQueued] = broken_fold
statuses.workload_status = broken_status
"""
SOMETIMES = """
from pathlib import Path

import headgate.machines.binder.workload_statuses as statuses

status = statuses.workload_status

def broken_status(state, workload):
    assert "job-bad-" not in workload.key or Path("{sound}").exists(), "planted"
    return status(state, workload)

statuses.workload_status = broken_status
"""
MENDED = """
import headgate.core.fold.quarantine as quarantine

quarantine.VERSION = "mended"
"""
GOOD = ("one", "two", "three")
BAD = ("bad-fold", "bad-status")


def manifests(*names: str) -> list[dict[str, Any]]:
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [QUOTA]}]}]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        kueue("ResourceFlavor", "f", {}),
        node("n", "f", 64, taint=False),
        kueue("ClusterQueue", "q", {"namespaceSelector": {}, "resourceGroups": groups}),
        kueue("LocalQueue", "main", {"clusterQueue": "q"}, "team"),
        *(job(name) for name in names),
    ]


QUOTA = {"name": "cpu", "nominalQuota": "16"}


def job(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    pods = {"restartPolicy": "Never", "containers": containers}
    template = {"metadata": {"annotations": {"headgate.dev/run-ms": "200"}}, "spec": pods}
    metadata = {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def test_a_defect_in_six_processes_costs_one_job_each(tmp_path: Path) -> None:
    """The others end, no process stops, a killed one comes back; then a corrected version releases the jobs."""
    data = tmp_path / "cell"

    def ask(*args: str) -> str:
        command = [sys.executable, "-m", "headgate.cli.main", *args, "--data", str(data)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return answer.stdout + answer.stderr

    def complete() -> set[str]:
        return ended(ask("get", "jobs", "-n", "team", "-o", "json"))

    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests(*GOOD, *BAD)}))
    async with Supervisor(_options(data, tmp_path / "broken", DEFECT)) as running:
        await running.wait_ready()
        ask("apply", "-f", str(file))
        await until(lambda: complete() >= set(GOOD))
        for name in running.children:
            if name != "cluster":
                await until(lambda name=name: aside(running, name) == {f"team/job-{bad}" for bad in BAD})  # type: ignore[misc]
        assert {child.restarts for child in running.children.values()} == {0}
        assert "bad-fold" not in complete()
        listed = ask("quarantine", "list")
        assert "AssertionError: planted" in listed
        # This process has no defect in its fold: it lists bad-fold only if it begins at a snapshot that has it.
        for name in ("scheduler", "snapshotter"):
            running.children[name].send_signal(signal.SIGKILL)
        await until(lambda: sum(child.restarts for child in running.children.values()) == 2)
        await running.wait_ready()
        assert aside(running, "scheduler") == {f"team/job-{bad}" for bad in BAD}
    async with Supervisor(_options(data, tmp_path / "mended", MENDED)) as running:
        await running.wait_ready()
        await until(lambda: complete() == {*GOOD, *BAD})
        await until(lambda: "no object is in quarantine" in ask("quarantine", "list"))


async def test_a_retry_by_hand_has_an_object_tried_again(tmp_path: Path) -> None:
    """It fails again, with a later position, or it is back, and its job runs; no process was restarted."""
    data, sound = tmp_path / "cell", tmp_path / "sound"

    def ask(*args: str) -> str:
        command = [sys.executable, "-m", "headgate.cli.main", *args, "--data", str(data)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def entries() -> Any:
        return json.loads(ask("quarantine", "list", "-o", "json"))

    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests("good", "bad")}))
    async with Supervisor(_options(data, tmp_path / "code", SOMETIMES.format(sound=sound))) as running:
        await running.wait_ready()
        ask("apply", "-f", str(file))
        await until(lambda: len(entries()) == 1)
        (first,) = entries()
        assert (first["kind"], first["process"], first["error"]) == ("Workload", "binder", "AssertionError: planted")
        await until(lambda: aside(running, "scheduler") == {"team/job-bad"})
        assert "\nheadgate_quarantined_objects 1" in scraped(running, "scheduler")
        ask("quarantine", "retry", "Workload", first["name"])
        await until(lambda: [each["position"] != first["position"] for each in entries()] == [True])
        sound.touch()
        ask("quarantine", "retry", "Workload", first["name"])
        await until(lambda: entries() == [])
        await until(lambda: ended(ask("get", "jobs", "-n", "team", "-o", "json")) == {"good", "bad"})
        assert {child.restarts for child in running.children.values()} == {0}


def ended(listed: str) -> set[str]:
    """The Jobs of a list that are Complete."""
    return {
        each["metadata"]["name"]
        for each in json.loads(listed)["items"]
        for condition in each.get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"]) == ("Complete", "True")
    }


def scraped(running: Supervisor, process: str) -> str:
    with urllib.request.urlopen(f"{running.children[process].address}/metrics", timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def aside(running: Supervisor, process: str) -> set[str]:
    """The Workloads that a process reports as set aside, without the ends of their names."""
    with urllib.request.urlopen(f"{running.children[process].address}/readyz", timeout=5) as answer:
        report = json.loads(answer.read())
    assert report["ready"]
    assert report["quarantined"] == len(report["quarantine"])
    return {each.removeprefix("Workload/").rpartition("-")[0] for each in report["quarantine"]}


def _options(data: Path, code: Path, text: str) -> UpOptions:
    code.mkdir()
    (code / "sitecustomize.py").write_text(text)
    return UpOptions(data=data, env={"PYTHONPATH": str(code)})
