"""The simulated cluster of a cell continues from its objects: killed under load, stopped and started again, damaged."""

import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.cli.test_up import all_finished, create, until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.resources import JOBS, PODS, WORKLOADS, Resource
from headgate.cli.children import ChildState
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.cli.output import CliError
from headgate.cli.supervisor import CLUSTER, Supervisor, UpOptions

pytestmark = pytest.mark.anyio


async def items(running: Supervisor, resource: Resource) -> list[dict[str, Any]]:
    async with open_transport(resolve(kubeconfig=running.kubeconfig)) as transport:
        page = await KubeClient(transport).list(resource)
        return [msgspec.json.decode(bytes(item)) for item in page.items]


def uids(objects: list[dict[str, Any]]) -> dict[str, str]:
    return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["metadata"]["uid"] for each in objects}


async def judge(running: Supervisor, jobs: list[dict[str, Any]]) -> None:
    """Every Job has finished, with one Workload and one pod for each completion; the log agrees with itself."""
    assert len(await items(running, WORKLOADS)) == len(jobs)
    wanted = {f"{j['metadata']['namespace']}/{j['metadata']['name']}": j["spec"]["completions"] for j in jobs}
    ran = dict.fromkeys(wanted, 0)
    for pod in await items(running, PODS):
        assert pod["status"]["phase"] == "Succeeded"
        ran[f"{pod['metadata']['namespace']}/{pod['metadata']['labels']['job-name']}"] += 1
    assert ran == wanted
    await running.wait_ready()


async def clean(data: Path) -> None:
    for command in (("audit",), ("replay", "--verify")):
        done = await anyio.run_process(
            [sys.executable, "-m", "headgate.cli.main", *command, "--data", str(data)], check=False
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


async def test_jobs_run_to_their_end_though_the_cluster_is_killed_under_load(tmp_path: Path) -> None:
    """Three times; all Jobs finish, nothing is created twice, audit and replay find nothing."""
    data = tmp_path / "cell"
    async with Supervisor(UpOptions(data=data, cell="t")) as running:
        await running.wait_ready()
        jobs = [job for job in job_objects(12, seed=3) if job["kind"] == "Job"]
        await create(running, *cluster_objects(), *jobs)
        known = uids(await items(running, JOBS))
        for _ in range(3):
            old = running.pid(CLUSTER)
            running.kill(CLUSTER)
            await until(lambda old=old: running.pid(CLUSTER) not in (None, old), "the cluster starts again")  # type: ignore[misc]
            child = running.children[CLUSTER]
            await until(lambda child=child: bool(child.address), "the cluster serves again")  # type: ignore[misc]
            assert uids(await items(running, JOBS)) == known
        await all_finished(running, len(jobs))
        await judge(running, jobs)
    await clean(data)


async def test_a_stopped_cell_has_its_objects_again_and_its_jobs_finish(tmp_path: Path) -> None:
    """Also those that were running, with the pods that they had."""
    options = UpOptions(data=tmp_path / "cell", cell="t")
    jobs = [job for job in job_objects(6, seed=3) if job["kind"] == "Job"]
    async with Supervisor(options) as running:
        await running.wait_ready()
        await create(running, *cluster_objects(), *jobs)
        with anyio.fail_after(60):
            while True:
                if any(pod["status"]["phase"] == "Running" for pod in await items(running, PODS)):
                    break
                await anyio.sleep(0.05)
        before = {resource: uids(await items(running, resource)) for resource in (JOBS, WORKLOADS, PODS)}
    async with Supervisor(options) as running:
        await running.wait_ready()
        for resource, known in before.items():
            assert known.items() <= uids(await items(running, resource)).items()
        await all_finished(running, len(jobs))
        await judge(running, jobs)
    await clean(options.data)


async def test_a_damaged_journal_is_said_at_once_with_the_way_out(tmp_path: Path) -> None:
    """Not tried again and again; with the file out of the way the cell starts, its cluster empty."""
    options = UpOptions(data=tmp_path / "cell", processes=())
    async with Supervisor(options) as running:
        await create(running, *cluster_objects())
    file = options.data / "cluster" / "objects.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], b"{}\n", *lines[3:]]))
    with pytest.raises(CliError, match=r"objects\.jsonl:3: .*delete it, and the cluster starts empty"):
        await Supervisor(options).start()
    file.unlink()
    async with Supervisor(options) as running:
        assert running.children[CLUSTER].state is ChildState.RUNNING
        assert await items(running, JOBS) == []
