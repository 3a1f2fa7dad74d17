"""A whole cell: broker, cluster and processes of the operating system, kept alive and taken down."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import yaml

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.resources import JOBS, PODS, RESOURCES
from headgate.cli import cell, children
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.cli.output import CliError
from headgate.cli.supervisor import CLUSTER, PROCESSES, Supervisor, UpOptions

BY_KIND = {resource.kind: resource for resource in RESOURCES.values()}


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def until(holds: Callable[[], bool], what: str) -> None:
    with anyio.move_on_after(30):
        while True:
            if holds():
                return
            await anyio.sleep(0.02)
    pytest.fail(f"never came true: {what}")


async def create(running: Supervisor, *objects: dict) -> None:
    async with open_transport(resolve(kubeconfig=running.kubeconfig)) as transport:
        for each in objects:
            await KubeClient(transport).create(BY_KIND[each["kind"]], each, each["metadata"].get("namespace"))


async def finished_jobs(running: Supervisor) -> int:
    async with open_transport(resolve(kubeconfig=running.kubeconfig)) as transport:
        page = await KubeClient(transport).list(JOBS)
        return sum(b'"type":"Complete"' in bytes(item) for item in page.items)


async def all_finished(running: Supervisor, jobs: int) -> None:
    with anyio.fail_after(60):
        while True:
            if await finished_jobs(running) == jobs:
                return
            await anyio.sleep(0.1)


@pytest.mark.anyio
async def test_jobs_run_to_their_end_while_every_process_is_killed(tmp_path: Path, headgate: Callable) -> None:
    """Each of the six and the broker dies once under load; all are started again, and the log is as it must be."""
    news: list[str] = []
    async with Supervisor(UpOptions(data=tmp_path / "cell", cell="t"), news.append) as running:
        await running.wait_ready()
        jobs = job_objects(12, seed=3)
        await create(running, *cluster_objects(), *jobs)
        for name in (*PROCESSES, "nats"):
            old = running.pid(name)
            running.kill(name)
            await until(lambda name=name, old=old: running.pid(name) not in (None, old), f"{name} starts again")  # type: ignore[misc]
        await all_finished(running, len(jobs))
        await running.wait_ready()
        assert {name for name in PROCESSES if any(line.startswith(f"{name} was killed") for line in news)} == {
            *PROCESSES
        }
        pids = [running.pid(name) for name in (*PROCESSES, CLUSTER, "nats")]
    assert not [pid for pid in pids if pid is not None and is_alive(pid)]
    assert not cell.is_running(tmp_path / "cell")
    for command in (("audit",), ("replay", "--verify")):
        done = await anyio.run_process(
            [sys.executable, "-m", "headgate.cli.main", *command, "--data", str(tmp_path / "cell")], check=False
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def queued_pod(name: str, queue: str) -> dict[str, Any]:
    requests = {"requests": {"cpu": "1"}}
    metadata = {"name": name, "namespace": "vision", "labels": {"kueue.x-k8s.io/queue-name": queue}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": requests}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.anyio
async def test_a_pod_that_names_a_queue_runs_when_it_is_admitted(tmp_path: Path) -> None:
    """Where the Configuration enables pods: it has a gate from its creation on, which the ungater removes."""
    file = tmp_path / "kueue.yaml"
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    file.write_text(yaml.safe_dump({**head, "integrations": {"frameworks": ["batch/job", "pod"]}}))
    options = UpOptions(data=tmp_path / "cell", configuration=str(file))
    async with Supervisor(options) as running:
        await running.wait_ready()
        await create(running, *cluster_objects(), queued_pod("runs", "main"), queued_pod("waits", "absent"))
        async with open_transport(resolve(kubeconfig=running.kubeconfig)) as transport:
            client = KubeClient(transport)
            with anyio.fail_after(60):
                while True:
                    found = msgspec.json.decode(await client.get(PODS, "runs", "vision"))
                    if found["status"]["phase"] in ("Running", "Succeeded"):
                        break
                    await anyio.sleep(0.1)
            waiting = msgspec.json.decode(await client.get(PODS, "waits", "vision"))
            assert {"name": "kueue.x-k8s.io/admission"} in waiting["spec"]["schedulingGates"]
            owners = [
                each["name"]
                for item in (await client.list(RESOURCES["workloads"], "vision")).items
                for each in msgspec.json.decode(item)["metadata"]["ownerReferences"]
            ]
            assert "runs" in owners


@pytest.mark.anyio
async def test_a_second_one_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """And leaves the first alone, which other commands find."""
    options = UpOptions(data=tmp_path / "cell", processes=())
    async with Supervisor(options) as first:
        with pytest.raises(CliError, match="runs already"):
            await Supervisor(options).start()
        found = cell.find(tmp_path)
        assert found.running
        assert found.info.nats_url == first.nats_url


@pytest.mark.anyio
async def test_a_process_with_wrong_settings_is_not_started_for_ever(tmp_path: Path) -> None:
    """Exit code 2 will not go away by itself: the line it printed is the answer."""
    options = UpOptions(data=tmp_path / "cell", processes=("scheduler",), env={"HEADGATE_LEASE_TERM_MS": "soon"})
    async with Supervisor(options) as running:
        with pytest.raises(CliError, match=r"scheduler gave up: .*HEADGATE_LEASE_TERM_MS"):
            await running.wait_ready()
        assert running.children["scheduler"].restarts == 0


@pytest.mark.anyio
async def test_started_again_a_cell_is_where_it_was(tmp_path: Path) -> None:
    """The broker and the cluster keep their addresses, the log its entries."""
    options = UpOptions(data=tmp_path / "cell", processes=("informer-bridge", "scheduler"))
    async with Supervisor(options) as running:
        await running.wait_ready()
        before = running.info()
    async with Supervisor(options) as running:
        await running.wait_ready()
        _, report = await running.reports()
        assert (running.nats_url, running.info().server) == (before.nats_url, before.server)
        assert report.position >= 2  # the first scheduler's term, and now the second's


def started(data: Path, **streams: Any) -> "subprocess.Popen[bytes]":
    """`headgate up`, once all its children run and say where."""
    parent = subprocess.Popen([sys.executable, "-m", "headgate.cli.main", "up", "--data", str(data)], **streams)
    while not all_up(data):
        assert parent.poll() is None
        time.sleep(0.02)
    return parent


def all_up(data: Path) -> bool:
    found = cell.read(data)
    return (
        found is not None and len(found.info.processes) == 7 and all(p.address for p in found.info.processes.values())
    )


def children_of(data: Path) -> list[int]:
    found = cell.read(data)
    assert found is not None
    return [process.pid for process in found.info.processes.values()]


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of `headgate up` leaves no process behind, and the directory is free again."""
    data = tmp_path / "cell"
    with started(data, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        pids = children_of(data)
        parent.kill()
    while any(map(is_alive, pids)):  # the test's own time-out ends this
        time.sleep(0.02)
    assert not cell.is_running(data)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_being_told_to_stop_takes_everything_down(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM: exit code 0, and a word on how to continue."""
    data = tmp_path / "cell"
    with started(data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as parent:
        pids = children_of(data)
        parent.send_signal(number)
        _, said = parent.communicate(timeout=60)
        assert parent.returncode == 0
    assert "goes on from" in said.decode()
    assert not any(map(is_alive, pids))


def test_the_demo_ends_by_itself_with_proofs_and_a_story(headgate: Callable, tmp_path: Path) -> None:
    """A short one: progress, the table, no findings, no differences, and the story of one that waited."""
    answer = headgate("demo", "--jobs", "30", "--data", tmp_path / "demo")
    assert answer.code == 0, answer.err
    for words in ("WAIT P90", "no findings", "no differences", "The job that waited longest", "Now Finished"):
        assert words in answer.out
    assert (
        sum(int(line.split()[1]) for line in answer.out.splitlines() if line.startswith(("vision", "speech", "genom")))
        == 30
    )


@pytest.mark.anyio
async def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: it is reported, no other is stopped, and it starts once it can."""
    monkeypatch.setattr(children, "BACKOFF_S_MAX", 0.01)
    (tmp_path / "logs").write_text("a file where the folder should be")
    news: list[str] = []

    def changed(text: str) -> None:
        news.append(text)
        if len(news) == 2:
            (tmp_path / "logs").unlink()

    files = {"log_file": tmp_path / "logs" / "x.log", "address_file": tmp_path / "x.address"}
    child = children.Child("x", [sys.executable, "-c", "pass"], env={}, changed=changed, **files)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child.keep)
        await until(lambda: child.restarts > 0, "it has run")
        await child.stop()
        tasks.cancel_scope.cancel()
    assert news[0].startswith("x cannot be started (")
    assert "File exists" in news[0]


@pytest.mark.anyio
async def test_whoever_ends_again_and_again_over_the_same_says_over_what(tmp_path: Path) -> None:
    """From the third end with the same last words on the terminal shows them; their time does not count."""
    news: list[str] = []
    files = {"log_file": tmp_path / "x.log", "address_file": tmp_path / "x.address"}
    script = "import time; print(f'2026-01-01T00:00:{time.time() % 60:06.3f}Z ERROR position 7 cannot be'); exit(1)"
    child = children.Child("x", [sys.executable, "-c", script], env={}, changed=news.append, **files)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child.keep)
        await until(lambda: child.restarts >= 3, "it has run")
        await child.stop()
        tasks.cancel_scope.cancel()
    assert news[0] == "x ended with exit code 1; it starts again in 0.1 s"
    assert "with the same words" not in news[1]
    assert "3 times in a row with the same words:  ERROR position 7 cannot be" in news[2]


@pytest.mark.anyio
@pytest.mark.parametrize("profile", ["", "headgate"])
async def test_the_simulated_cluster_places_the_pods_that_headgate_is_not_to_place(
    profile: str, tmp_path: Path
) -> None:
    """Without a configuration, or without the profile of the default scheduler; no process of Headgate runs here."""
    placement = "none"
    if profile:
        file = tmp_path / "profiles.yaml"
        kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        file.write_text(yaml.safe_dump({**kind, "profiles": [{"schedulerName": profile}]}))
        placement = str(file)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    async with Supervisor(UpOptions(data=tmp_path / "cell", placement=placement, processes=())) as running:
        await create(running, pod)
        async with open_transport(resolve(kubeconfig=running.kubeconfig)) as transport:
            with anyio.fail_after(30):
                while True:
                    shown = msgspec.json.decode(await KubeClient(transport).get(PODS, "p", "default"))
                    if shown["spec"].get("nodeName"):
                        break
                    await anyio.sleep(0.05)
