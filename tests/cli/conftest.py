"""Logs to read and a command line to read them with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import LogFileWriter
from headgate.cli import main
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.testing.world.world import World

JOBS = 40


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run where no cell is, and with nothing in the environment that names one."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("HEADGATE_") or name in ("NATS_URL", "KUBECONFIG"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`headgate ARGS...` in this process."""

    def call(*args: object) -> Ran:
        code = main.run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture(scope="session")
def demo_entries() -> list[LogEntry]:
    """The log of a simulated demo, from its first commit to the last job's end."""
    entries: list[LogEntry] = []
    world = World(cell="demo", sink=lambda *entry: entries.append(LogEntry(*entry)))
    world.apply(*cluster_objects())
    world.run(until_ms=world.clock.now_ms + 1000)
    world.apply(*job_objects(JOBS, seed=1))
    assert world.run(until_ms=world.clock.now_ms + 600_000)
    return entries


@pytest.fixture(scope="session")
def demo_log(demo_entries: list[LogEntry], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a file."""
    path = tmp_path_factory.mktemp("logs") / "demo.jsonl.gz"
    with LogFileWriter(path) as writer:
        writer.write(demo_entries)
    return path
