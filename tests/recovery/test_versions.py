"""
A cell is stopped, another version of Headgate goes on with its log, broker and cluster, and the first one again.

The earlier versions are those of this repository's own history, run from their sources with today's dependencies. A
clone without that history skips these tests.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import yaml

ROOT = Path(__file__).parents[2]
SUBJECT_FOR_EACH = "3b799b3c4b4a3cea3be60723bf1f9c4a6bc0090c"
WILDCARD_SUBJECT = "d8d3fa209f83b77f386c6820f97c4e5a097c6635"
"""Its log's stream has one subject for all producers, and its events leave out what has its default."""

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]
PATIENCE_S = 120


class Version:
    """The command of one version of Headgate, on the data of one cell."""

    def __init__(self, components: Path, data: Path) -> None:
        self._env = {**os.environ, "PYTHONPATH": str(components)}
        self._data = data

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A command of it, until it ends."""
        return subprocess.run(
            self._command(*args), env=self._env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def do(self, *args: str) -> None:
        """A command of it that has to succeed."""
        done = self.run(*args)
        assert done.returncode == 0, f"{' '.join(args)}: {done.stdout}{done.stderr}"

    @asynccontextmanager
    async def up(self, *options: str) -> AsyncIterator[None]:
        """`headgate up`, once it says where its page is, and taken down at the end."""
        with self._started("up", *options) as (process, output):
            with anyio.fail_after(PATIENCE_S):
                while "the page:" not in output.read_text():
                    assert process.poll() is None, output.read_text()
                    await anyio.sleep(0.2)
            yield

    @contextmanager
    def _started(self, *args: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A command of it, ended with the block, and the file with what it prints."""
        output = self._data.with_suffix(".out")
        with output.open("w") as file:
            process = subprocess.Popen(self._command(*args), env=self._env, stdout=file, stderr=file)
        try:
            yield process, output
        finally:
            process.terminate()
            process.wait(60)

    def _command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", "from headgate.cli.main import main; main()", *args, "--data", str(self._data)]

    async def finished(self, count: int) -> None:
        """Wait until so many jobs are complete."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                listed = self.run("get", "jobs", "-A", "-o", "json").stdout
                if sum(map(is_complete, items(listed))) == count:
                    return
                await anyio.sleep(0.5)


def items(listed: str) -> list[Any]:
    found = msgspec.json.decode(listed) if listed else []
    return list(found.get("items", [])) if isinstance(found, dict) else list(found)


def is_complete(job: Any) -> bool:
    return any(each["type"] == "Complete" for each in job.get("status", {}).get("conditions", ()))


def sources(commit: str, folder: Path) -> Path:
    """The components of an earlier version."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "components"], capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"this clone has no {commit[:7]}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "components"


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[[int, int], str]:
    """Files of some of the demo's 20 jobs."""
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "demo" / "2-jobs.yaml").read_text()))
    for each in documents:
        each["metadata"]["labels"][TEAM] = "research"

    def write(first: int, end: int) -> str:
        path = tmp_path / f"jobs-{first}.yaml"
        path.write_text(yaml.safe_dump_all(documents[first:end]))
        return str(path)

    return write


TEAM = "example.com/team"
COPYING = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "featureGates": {"CustomMetricLabels": True},
    "integrations": {"labelKeysToCopy": [TEAM]},
    "metrics": {"customLabels": [{"name": "tier", "sourceKind": "Workload", "trackedValues": ["gold"]}]},
}
"""Kueue's Configuration with settings that the earlier version does not know."""

UNPLACED = ("--kube-scheduler-config", "none")
CLUSTER = str(ROOT / "deploy" / "demo" / "1-cluster.yaml")


async def test_the_next_version_goes_on_and_the_one_before_does_again(
    tmp_path: Path, jobs: Callable[[int, int], str]
) -> None:
    """
    In the midst of jobs each time: all finish, and both find the log as it must be.

    Without placement, whose events the earlier version does not know.
    """
    earlier = Version(sources(SUBJECT_FOR_EACH, tmp_path / "earlier"), tmp_path / "cell")
    present = Version(ROOT / "components", tmp_path / "cell")
    async with earlier.up():
        earlier.do("apply", "-f", CLUSTER)
        earlier.do("apply", "-f", jobs(0, 8))
    async with present.up(*UNPLACED):
        present.do("apply", "-f", jobs(8, 14))
        await present.finished(14)
        present.do("audit")
        present.do("replay", "--verify")
    async with earlier.up():
        earlier.do("apply", "-f", jobs(14, 20))
        await earlier.finished(20)
        earlier.do("audit")
    async with present.up(*UNPLACED):
        await present.finished(20)
        present.do("audit")


async def test_a_version_that_cannot_go_back_says_so_and_harms_nothing(
    tmp_path: Path, jobs: Callable[[int, int], str]
) -> None:
    """An old one whose stream is another by now ends with one line; the present version goes on as if nothing was."""
    earlier = Version(sources(WILDCARD_SUBJECT, tmp_path / "earlier"), tmp_path / "cell")
    present = Version(ROOT / "components", tmp_path / "cell")
    async with earlier.up():
        earlier.do("apply", "-f", CLUSTER)
        earlier.do("apply", "-f", jobs(0, 8))
    async with present.up():
        await present.finished(8)
        present.do("audit")
    refused = earlier.run("up")
    said = refused.stdout + refused.stderr
    assert "gave up" in said
    assert "stream HEADGATE_main exists and is not usable" in said
    async with present.up():
        present.do("apply", "-f", jobs(8, 12))
        await present.finished(12)
        present.do("audit")


def copied(version: Version) -> dict[str, bool]:
    """The Workloads by their jobs, and whether each has the label of its job's team."""
    listed = items(version.run("get", "workloads", "-A", "-o", "json").stdout)
    return {each["metadata"]["ownerReferences"][0]["name"]: TEAM in each["metadata"]["labels"] for each in listed}


async def test_a_version_that_does_not_know_a_setting_goes_on_without_it(
    tmp_path: Path, jobs: Callable[[int, int], str]
) -> None:
    """
    By the configuration in the log, as far as it knows that; the file itself it refuses, by the name of the field.

    Its audit finds one message of the feed that it cannot make itself: that with the settings. Back in the present
    version the file in the log counts as before, and no state of the earlier one, which lacks the settings, is used.
    """
    file = tmp_path / "kueue-config.yaml"
    file.write_text(yaml.safe_dump(COPYING))
    earlier = Version(sources(SUBJECT_FOR_EACH, tmp_path / "earlier"), tmp_path / "cell")
    present = Version(ROOT / "components", tmp_path / "cell")
    files = [jobs(*each) for each in ((0, 4), (4, 8), (8, 12))]
    async with present.up(*UNPLACED, "--config", str(file)):
        present.do("apply", "-f", CLUSTER, "-f", files[0])
        await present.finished(4)
        before = copied(present)
        assert list(before.values()) == [True] * 4
    refused = earlier.run("up", "--config", str(file))
    assert refused.returncode != 0
    assert "featureGates.CustomMetricLabels" in refused.stderr
    async with earlier.up():
        earlier.do("apply", "-f", files[1])
        await earlier.finished(8)
        amid = copied(earlier)
        assert amid == {job: job in before for job in amid}
        assert len(amid) == 8
        found = earlier.run("audit")
        assert "says of event" in found.stdout
        assert ": 1 findings" in found.stdout
    async with present.up(*UNPLACED):
        present.do("apply", "-f", files[2])
        await present.finished(12)
        after = copied(present)
        assert after == {job: amid.get(job, True) for job in after}
        assert len(after) == 12
        present.do("audit")
        present.do("replay", "--verify")
