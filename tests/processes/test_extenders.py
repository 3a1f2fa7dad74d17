"""
A cell of processes and an HTTPS extender that is a process too: it fails, is cut off, and outlives who called it.

The pods' nodes at the API server are what counts; at the end the log is decided again without the extender.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.benchmarks.driving import Driver, eventually, running_cell
from tests.benchmarks.manifests import Manifest, node
from tests.support.pki import make_server_and_client

from headgate.core.state.manifests import pod_of
from headgate.events.decisions import PodPlaced
from headgate.events.effects import PodBound
from headgate.events.extenders import ExtenderAnswered, ExtenderFailed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]

PATIENCE_S = 60.0
SERVER = Path(__file__).parents[1] / "support" / "extender_server.py"


def pod(name: str) -> Manifest:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"name": name, "namespace": "default", "annotations": {"headgate.dev/run-ms": "600000"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


class Extended:
    """The cell, and its extender's `folder`."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder
        self.events: list[Any] = []
        driver.listeners.append(lambda logged, at: self.events.extend(logged.commit.events))

    def set_mode(self, mode: str) -> None:
        """What becomes of calls. The file is replaced: it is read at any time."""
        (self.folder / "new").write_text(mode)
        (self.folder / "new").replace(self.folder / "mode")

    def calls(self, call: str) -> int:
        """How often the extender was called so."""
        return (self.folder / "calls").read_text().splitlines().count(call)

    def node(self, name: str) -> str:
        """The node that a pod's object shows."""
        found = pod_of(self.driver.state, f"default/{name}")
        return found.node if found is not None else ""

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        await eventually(condition, lambda: f"{what}; calls: {(self.folder / 'calls').read_text()}", PATIENCE_S)

    async def until_bound(self, name: str) -> None:
        """Until the pod is on the node that the extender prefers, and nothing about it is left to do."""
        state = self.driver.state
        key = f"default/{name}"
        await self.until(lambda: bool(self.node(name)) and key not in state.placements, f"{name} is bound")
        assert self.node(name) == "n2"

    def is_asked(self, verb: str, name: str) -> bool:
        """Whether the extender was called once."""
        return self.calls(f"{verb} {name}") == 1

    def has_failed(self, verb: str, error: str) -> bool:
        """Whether the log has a call of a verb that failed so."""
        answered = (each for each in self.events if isinstance(each, ExtenderAnswered) and each.verb == verb)
        return any(isinstance(each.answer, ExtenderFailed) and error in each.answer.error for each in answered)

    async def killed(self, process: str) -> None:
        """A process is killed, and runs again."""
        cell = self.driver.cell
        pid = cell.pid(process)
        cell.kill(process)
        await self.until(lambda: cell.pid(process) not in (None, pid), f"{process} runs again")
        await cell.wait_ready()


@asynccontextmanager
async def extended(home: Path) -> AsyncIterator[Extended]:
    """A cell with three nodes, and its extender."""
    folder = home / "extender"
    folder.mkdir()
    make_server_and_client(folder, "extender.test", "scheduler")
    for name in ("mode", "calls"):
        (folder / name).write_text("")
    placement = home / "scheduler.yaml"
    placement.write_text(yaml.safe_dump(configuration("https://127.0.0.1:1", folder)))
    async with running_cell(home / "data", placement=str(placement)) as driver:
        command = [sys.executable, str(SERVER), str(folder), driver.url]
        with subprocess.Popen(command) as server:  # noqa: ASYNC220 - it begins at once, and is not waited for
            try:
                await eventually((folder / "port").exists, lambda: "the extender listens", PATIENCE_S)
                url = f"https://127.0.0.1:{(folder / 'port').read_text()}"
                placement.write_text(yaml.safe_dump(configuration(url, folder)))
                await driver.create_all(node(name, 4) for name in ("n1", "n2", "n3"))
                configured = driver.state.scheduler_configuration
                await eventually(
                    lambda: url in str(driver.state.scheduler_configuration), lambda: f"of {configured}", PATIENCE_S
                )
                yield Extended(driver, folder)
            finally:
                server.kill()


def configuration(url: str, folder: Path) -> dict[str, Any]:
    extender = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 10,
        "nodeCacheCapable": True,
        "httpTimeout": "20s",
        "tlsConfig": {"caFile": str(folder / "ca.crt"), "serverName": "extender.test"},
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"}],
        "extenders": [extender],
    }


def headgate(data: Path, *args: str) -> str:
    """Run a command on the cell's log, as a user would: it must succeed."""
    command = [sys.executable, "-m", "headgate.cli.main", *args, "--data", str(data)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("HEADGATE_", "NATS_"))}
    done = subprocess.run(command, capture_output=True, timeout=120, env=environ, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_pods_get_their_nodes_whatever_the_extender_does_and_whoever_is_killed(tmp_path: Path) -> None:
    """It answers 500, closes connections, and is slow while the scheduler and then the binder are killed."""
    async with extended(tmp_path) as cell:
        create = cell.driver.create
        await create(pod("plain"))
        await cell.until_bound("plain")
        assert [cell.calls(f"{verb} plain") for verb in ("filter", "prioritize", "bind")] == [1, 1, 1]

        for verb, mode, error in (
            ("filter", "500", "failed filter with extender at URL"),
            ("bind", "500", "failed bind with extender at URL"),
            ("filter", "cut", "/filter"),
        ):
            cell.set_mode(f"{verb} {mode}")
            name = f"{verb}-{mode}"
            await create(pod(name))
            await cell.until(partial(cell.has_failed, verb, error), name)
            cell.set_mode("")
            await cell.until_bound(name)

        for process, verb in (("scheduler", "filter"), ("binder", "bind")):
            cell.set_mode(f"{verb} late")
            name = f"late-{verb}"
            await create(pod(name))
            await cell.until(partial(cell.is_asked, verb, name), f"{name} is asked about")
            await cell.killed(process)
            cell.set_mode("")
            await cell.until_bound(name)
            placed = [each for each in cell.events if isinstance(each, PodPlaced) and each.pod == f"default/{name}"]
            assert len(placed) == 1
        assert cell.calls("filter late-filter") == 2
        # The binder calls again, unless the pod's object has shown the node before it was back.
        assert cell.calls("bind late-bind") <= 2
        bound = {each.pod for each in cell.events if isinstance(each, PodBound)}
        assert "default/plain" in bound

        data = cell.driver.cell.data
    # The extender is gone, and so are the processes.
    verified = headgate(data, "replay", "--verify")
    placements = re.search(r"(\d+) placements", verified)
    assert placements is not None
    assert int(placements[1]) >= 6
    assert "no differences" in verified
    headgate(data, "audit")
    story = headgate(data, "explain", "pod/default/plain")
    assert "asked to filter: it leaves 2 nodes and refuses 1 node" in story
    assert "Extender refuses 1 node: no licence" in story
