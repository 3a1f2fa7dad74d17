"""Stores of a cell on a real broker, and a summary of many random damages."""

import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.corruption.cells import CELL, Cell, recorded_on
from tests.corruption.test_random import COUNTS, SEED

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.feed import FeedMessage, open_feed
from headgate.adapters.jetstream.lease import open_leases
from headgate.adapters.jetstream.stored_time import HEADER
from headgate.adapters.lease import LeaseRecord
from headgate.cli import cell as cells
from headgate.cli import main
from headgate.processes.snapshots import store

MANY = 200


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a kind, where there were many."""
    if sum(COUNTS.values()) < MANY:
        return
    terminalreporter.section("random damage")
    for kind in dict.fromkeys(kind for kind, _ in COUNTS):
        counts = ", ".join(f"{count} {outcome}" for (each, outcome), count in sorted(COUNTS.items()) if each == kind)
        terminalreporter.write_line(f"{kind:>10}: {counts}")


# --- on a broker ---------------------------------------------------------------------------------------------------


async def _store(data: Path) -> None:
    async with EmbeddedServer(data / cells.NATS_STORE) as server, connect(server.url, name="writer") as connection:
        log = await open_log(connection, CELL)
        cell: Cell = recorded_on(SEED, log.identity)
        for entry in cell.entries:
            await connection.publish(entry.subject, entry.payload, {HEADER: str(entry.time_ms)})
        feed = await open_feed(connection, CELL)
        for message in cell.feed:
            await feed.publish(
                FeedMessage(subject=message.subject, payload=message.payload, message_id=message.id, headers={})
            )
        blobs = await open_blobs(connection, CELL)
        for name, blob in cell.blobs.items():
            meta = msgspec.structs.replace(store.read_meta(blob), log_identity=log.identity)
            encoded = blob.partition(b"\n")[2]
            await blobs.put(name, msgspec.json.encode(meta) + b"\n" + encoded, position=meta.position)
        leases = await open_leases(connection, CELL)
        for producer, seen in cell.leases.items():
            record = LeaseRecord(
                holder="one", epoch=seen.epoch, term_ms=5000, position=seen.position, log_hash=seen.log_hash
            )
            await leases.register(producer.value).write(record, expected=0)
        cells.write(data, cells.CellInfo(cell=CELL, nats_url=server.url))


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a cell that has stopped: its log, feed, snapshots and leases. Never to be changed."""
    data = tmp_path_factory.mktemp("sound") / "cell"
    data.mkdir()
    anyio.run(_store, data)
    return data


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(sound, tmp_path / "cell")


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """`headgate ARGS...` in this process: exit code, and all output."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args: object) -> tuple[int, str]:
        code = main.run([str(arg) for arg in args])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call
