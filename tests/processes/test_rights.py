"""The rights of the six on the broker are what they use: nothing was refused, and no right is unused."""

import re
from pathlib import Path
from typing import Final

import pytest
from tests.processes.cells import cell_of
from tests.processes.test_end_to_end import CONFIGURATION, finished, job
from tests.support.brokers import Broker

from headgate.adapters.jetstream.permissions import PROCESSES, users_of
from headgate.processes.runtime.settings import SnapshotSettings

pytestmark = pytest.mark.anyio

PUBLISHED: Final = re.compile(r'python3:headgate \S+ (?P<process>\S+) test" .* <<- \[H?PUB (?P<subject>\S+) ')
"""A line of the server's trace: which client has published on what. Clients bear their process's name."""


def covers(pattern: str, subject: str) -> bool:
    """Whether a subject of a permission covers one that was published on."""
    wanted, given = pattern.split("."), subject.split(".")
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


async def test_every_right_of_a_process_was_used_and_no_other_was_asked_for(tmp_path: Path) -> None:
    """A cell runs jobs, takes snapshots and starts again from them; `cell_of` sees that nothing was refused."""
    snapshots = SnapshotSettings(commits=5, idle_ms=100, keep=2)
    cluster = None
    async with Broker(tmp_path, more="debug: true\ntrace: true") as broker:
        for run in range(2):
            async with cell_of(broker, "e2e", cluster=cluster, snapshots=snapshots) as cell:
                cell.apply(*CONFIGURATION, *(job(f"j{run}-{number}", run_ms=100) for number in range(6)))
                await finished(cell, 6 * (run + 1))
                cluster = cell.cluster
        used: dict[str, set[str]] = {name: set() for name in PROCESSES}
        for line in broker.log_lines(1_000_000):
            if (found := PUBLISHED.search(line)) is not None:
                used[found["process"]].add(found["subject"])
    unused = {
        user.name: [right for right in user.publish if not any(covers(right, each) for each in used[user.name])]
        for user in users_of("e2e")
        if user.name in PROCESSES
    }
    assert unused == {name: [] for name in PROCESSES}
