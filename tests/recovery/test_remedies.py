"""The commands in error messages work, on the damage that they are about."""

import re
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
import pytest
from tests.recovery.conftest import CELL, Recorded, Stored

from headgate.adapters.backup import BackupDirectory
from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.log import LogDamaged
from headgate.adapters.logfile import read_log_file
from headgate.cli import main
from headgate.core.fold import BrokenLogError
from headgate.events.commit import UnreadableCommitError
from headgate.events.remedy import REMEDY
from headgate.processes.recovery.backup import back_up
from headgate.processes.recovery.restore import restore

pytestmark = pytest.mark.anyio


def commands_in(message: str) -> list[list[str]]:
    """The `headgate ...` command lines that a message names."""
    return [found.split() for found in re.findall(r"`headgate ([^`]*)`", message)]


async def run(line: list[str], **words: object) -> int:
    """Run a command line, with what it leaves open filled in."""
    args = [str(words.get(word, word)) for word in line]
    return await anyio.to_thread.run_sync(main.run, [*args, "--nats", str(words["url"]), "--cell", CELL])


async def test_each_remedy_for_a_torn_log_mends_it(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """The error names two commands; after either the log can be opened, and nothing is lost."""
    log, store = stored(), tmp_path / "nats"
    await log.grow(120)
    await back_up(log.log, log.blobs, CELL, BackupDirectory(tmp_path / "b"), epochs={}, now_ms=7)
    async with EmbeddedServer(store) as server, connect(server.url, name="test") as connection:
        await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    block = max((store / "jetstream").rglob(f"HEADGATE_{CELL}/msgs/*.blk"))
    block.write_bytes(block.read_bytes()[:-500])
    async with EmbeddedServer(store) as server:
        async with connect(server.url, name="test") as connection:
            with pytest.raises(LogDamaged) as caught:
                await (await open_log(connection, CELL)).verify()
        lines = commands_in(str(caught.value))
        assert [line[0] for line in lines] == ["restore", "rebuild"]
        for number, line in enumerate(lines):
            aside = tmp_path / f"aside-{number}"
            assert await run(line, DIR=tmp_path / "b", FILE=aside, url=server.url) == 0
            kept = [*read_log_file(aside)]
            assert kept == recorded.entries[: len(kept)]
            assert len(kept) > 100
            async with connect(server.url, name="test") as connection:
                mended = await open_log(connection, CELL)
                await mended.verify()
                assert await mended.last_seq() == (120 if line[0] == "restore" else 0)


@pytest.mark.parametrize(
    "message",
    [
        str(BrokenLogError(seq=7, why="x")),
        str(UnreadableCommitError(seq=7, subject="s", why="x")),
        REMEDY,
    ],
    ids=["broken", "unreadable", "remedy"],
)
def test_every_message_about_a_damaged_log_names_the_ways_on(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a command that there is, with options that it has."""
    lines = commands_in(message)
    assert {"restore", "rebuild"} <= {line[0] for line in lines}
    for line in lines:
        assert main.run([*line, "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(word in shown for word in line if word.startswith("--"))


async def test_a_copy_of_a_log_is_adopted_as_the_message_says(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """Backed up where it is and restored in its place, it is a log that records its origin."""
    log = stored()
    await log.grow(60)
    await back_up(log.log, log.blobs, CELL, BackupDirectory(tmp_path / "b"), epochs={}, now_ms=7)
    async with EmbeddedServer(tmp_path / "nats") as server:
        async with connect(server.url, name="test") as connection:
            await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
        assert await run(["backup", "--out", "DIR"], DIR=tmp_path / "copy", url=server.url) == 0
        line = ["restore", "--from", "DIR", "--set-aside", "FILE"]
        assert await run(line, DIR=tmp_path / "copy", FILE=tmp_path / "aside", url=server.url) == 0
        async with connect(server.url, name="test") as connection:
            adopted = await open_log(connection, CELL)
            assert [entry async for entries in adopted.read(1) for entry in entries] == recorded.entries[:60]
