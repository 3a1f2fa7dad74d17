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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        """A command of it."""
        return subprocess.run(
            self._command(*args), env=self._env, capture_output=True, text=True, timeout=60, check=False
        )

    @contextmanager
    def up(self) -> Iterator[Callable[[], str]]:
        """`headgate up`, taken down at the end; what it has printed."""
        output = self._data.with_suffix(".out")
        with output.open("w") as file:
            process = subprocess.Popen(self._command("up"), env=self._env, stdout=file, stderr=file)
        try:
            yield lambda: output.read_text() + ("" if process.poll() is None else f"\nended with {process.returncode}")
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


async def told(output: Callable[[], str], words: str) -> None:
    """Wait until `headgate up` has printed something."""
    with anyio.fail_after(PATIENCE_S):
        while words not in output():
            assert words == "ended with" or "ended with" not in output(), output()
            await anyio.sleep(0.2)


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

    def write(first: int, end: int) -> str:
        path = tmp_path / f"jobs-{first}.yaml"
        path.write_text(yaml.safe_dump_all(documents[first:end]))
        return str(path)

    return write


CLUSTER = str(ROOT / "deploy" / "demo" / "1-cluster.yaml")


async def test_the_next_version_goes_on_and_the_one_before_does_again(
    tmp_path: Path, jobs: Callable[[int, int], str]
) -> None:
    """In the midst of jobs each time: all finish, and both find the log as it must be."""
    earlier = Version(sources(SUBJECT_FOR_EACH, tmp_path / "earlier"), tmp_path / "cell")
    present = Version(ROOT / "components", tmp_path / "cell")
    with earlier.up() as output:
        await told(output, "the page:")
        assert earlier.run("apply", "-f", CLUSTER).returncode == 0
        assert earlier.run("apply", "-f", jobs(0, 8)).returncode == 0
    with present.up() as output:
        await told(output, "the page:")
        assert present.run("apply", "-f", jobs(8, 14)).returncode == 0
        await present.finished(14)
        audit = present.run("audit")
        assert audit.returncode == 0, audit.stdout
        replay = present.run("replay", "--verify")
        assert replay.returncode == 0, replay.stdout
    with earlier.up() as output:
        await told(output, "the page:")
        assert earlier.run("apply", "-f", jobs(14, 20)).returncode == 0
        await earlier.finished(20)
        assert earlier.run("audit").returncode == 0
    with present.up() as output:
        await told(output, "the page:")
        await present.finished(20)
        audit = present.run("audit")
        assert audit.returncode == 0, audit.stdout


async def test_a_version_that_cannot_go_back_says_so_and_harms_nothing(
    tmp_path: Path, jobs: Callable[[int, int], str]
) -> None:
    """An old one whose stream is another by now ends with one line; the present version goes on as if nothing was."""
    earlier = Version(sources(WILDCARD_SUBJECT, tmp_path / "earlier"), tmp_path / "cell")
    present = Version(ROOT / "components", tmp_path / "cell")
    with earlier.up() as output:
        await told(output, "the page:")
        assert earlier.run("apply", "-f", CLUSTER).returncode == 0
        assert earlier.run("apply", "-f", jobs(0, 8)).returncode == 0
    with present.up() as output:
        await told(output, "the page:")
        await present.finished(8)
        audit = present.run("audit")
        assert audit.returncode == 0, audit.stdout
    with earlier.up() as output:
        await told(output, "ended with")
        assert "gave up" in output()
        assert "stream HEADGATE_main exists and is not usable" in output()
    with present.up() as output:
        await told(output, "the page:")
        assert present.run("apply", "-f", jobs(8, 12)).returncode == 0
        await present.finished(12)
        audit = present.run("audit")
        assert audit.returncode == 0, audit.stdout
