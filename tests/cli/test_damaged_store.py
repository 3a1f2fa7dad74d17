"""What the commands and the processes say of a cell whose store was damaged while it was down."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.waiting import until

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.log import Appended, LogEntry
from headgate.cli import cell as cells
from headgate.cli.output import BROKEN, CliError
from headgate.cli.supervisor import PROCESSES, Supervisor, UpOptions

PATIENCE_S = 20
READERS = (
    ("audit",),
    ("replay",),
    ("replay", "--verify"),
    ("state",),
    ("events",),
    ("queue", "status"),
    ("explain", "vision-001"),
)


async def stored(data: Path, entries: list[LogEntry]) -> None:
    """The data directory of a cell that has stopped, with this log in it."""
    async with EmbeddedServer(data / cells.NATS_STORE) as server:
        async with connect(server.url, name="writer") as connection:
            log = await open_log(connection, "demo")
            last: dict[str, int] = {}
            for entry in entries:
                producer = entry.subject.rpartition(".")[2]
                outcome = await log.append(
                    producer, entry.payload, expected_last=last.get(producer, 0), commit_id=str(entry.seq)
                )
                assert isinstance(outcome, Appended)
                last[producer] = outcome.seq
        cells.write(data, cells.CellInfo(cell="demo", nats_url=server.url))


@pytest.fixture
def torn(demo_entries: list[LogEntry], tmp_path: Path) -> Path:
    """A cell whose last block was cut; the index still claims what was in it."""
    data = tmp_path / "cell"
    anyio.run(stored, data, demo_entries)
    block = next(data.glob(f"{cells.NATS_STORE}/jetstream/*/streams/HEADGATE_demo/msgs/*.blk"))
    os.truncate(block, block.stat().st_size - 500)
    return data


def says_where_the_log_ends(text: str, demo_entries: list[LogEntry]) -> bool:
    return f"the stream claims {demo_entries[-1].seq}" in text and "the log ends at" in text and "restore" in text


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_no_reading_command_waits_for_a_torn_tail(
    headgate: Callable, torn: Path, demo_entries: list[LogEntry], command: tuple[str, ...]
) -> None:
    """Each reports where the log ends, what the stream reports and the remedy, with exit code 3."""
    answer = headgate(*command, "--data", torn)
    assert answer.code == BROKEN, answer.err
    assert says_where_the_log_ends(answer.err, demo_entries), answer.err
    assert answer.err.count("\n") == 1


def test_what_precedes_a_torn_tail_can_still_be_read(
    headgate: Callable, torn: Path, demo_entries: list[LogEntry]
) -> None:
    """An earlier state, and an export for inspection."""
    assert headgate("state", "--data", torn, "--at", "50").code == 0
    assert headgate("events", "--data", torn, "--at", "50").code == 0


@pytest.mark.anyio
async def test_all_six_stop_at_a_torn_tail_and_up_says_why(torn: Path, demo_entries: list[LogEntry]) -> None:
    """No process starts again on a log that it cannot read; the command's exit code is that of damage."""
    news: list[str] = []
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(UpOptions(data=torn, cell="demo"), news.append) as running:
            with pytest.raises(CliError) as error:
                await running.wait_ready()
            await until(lambda: len(news) >= len(PROCESSES))
            assert {child.restarts for child in running.children.values()} == {0}
    assert error.value.code == BROKEN
    assert says_where_the_log_ends(str(error.value), demo_entries)
    for name in PROCESSES:
        (line,) = [line for line in news if line.startswith(name)]
        assert says_where_the_log_ends(line, demo_entries), line
