"""
Damage to the files of a broker, and what the commands and a starting process say of it.

A torn tail is in `tests/cli/test_damaged_store.py`. What a broker makes of its damaged files differs; what counts is
that nothing hangs, that no false entry is used, and that each reader reports where the log ends and the remedy.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.corruption.cells import CELL, recorded, start_on
from tests.corruption.test_random import SEED

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.cli import cell as cells
from headgate.cli.output import BROKEN, FAILED, OK, WRONG_USAGE
from headgate.cli.source import decoded
from headgate.core import fold
from headgate.core.state.tables import State

Headgate = Callable[..., tuple[int, str]]
STREAMS = f"{cells.NATS_STORE}/jetstream/$G/streams"
FLIPS = 8


def stream(data: Path, what: str = "") -> Path:
    return data / STREAMS / f"HEADGATE_{CELL}{what}"


def block(data: Path, what: str = "") -> Path:
    (found,) = (stream(data, what) / "msgs").glob("*.blk")
    return found


def cut_half(data: Path) -> None:
    """The second half of the log is gone, and the index with it: the broker counts what is left."""
    path = block(data)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    for index in path.parent.glob("index.db"):
        index.unlink()


def started(data: Path) -> State | str:
    """The state of a process that starts on a store, or why it does not."""

    async def start() -> State | str:
        async with EmbeddedServer(data / cells.NATS_STORE) as server, connect(server.url, name="test") as connection:
            return await start_on(await open_log(connection, CELL), await open_blobs(connection, CELL))

    return anyio.run(start)


def test_a_sound_store_is_sound(headgate: Headgate, data: Path) -> None:
    """The counterpart: everything beside the log is looked at, and nothing is found."""
    code, said = headgate("audit", "--data", data)
    assert code == OK, said
    assert f"{len(recorded(SEED).feed)} messages of the feed" in said
    assert "snapshots" in said
    assert "6 leases" in said
    assert headgate("replay", "--verify", "--data", data)[0] == OK
    state = started(data)
    assert isinstance(state, State)
    assert state.position == len(recorded(SEED).entries)


def test_a_log_that_was_cut_with_its_index(headgate: Headgate, data: Path) -> None:
    """It is consistent in itself. The other stores have more, and the audit names where it ends."""
    cut_half(data)
    code, said = headgate("audit", "--data", data)
    assert code == FAILED, said
    for check in ("snapshots", "leases", "feed"):
        assert check in said
    assert "headgate restore" in said
    why = started(data)
    assert isinstance(why, str)
    assert "snapshot" in why
    assert "headgate restore" in why


def test_a_log_that_is_an_older_copy(headgate: Headgate, data: Path, sound: Path, tmp_path: Path) -> None:
    """The same with the files of a consistent, older state: cut on a copy, opened once, and put back."""
    older = shutil.copytree(sound, tmp_path / "older")
    cut_half(older)
    assert headgate("events", "--data", older, "--at", "10")[0] == OK
    shutil.rmtree(stream(data))
    shutil.copytree(stream(older), stream(data))
    code, said = headgate("audit", "--data", data)
    assert code == FAILED, said
    assert "commits are lost" in said
    assert isinstance(started(data), str)


def test_a_block_that_is_gone(headgate: Headgate, data: Path) -> None:
    """The broker has an index of nothing."""
    block(data).unlink()
    for command in (("audit",), ("replay", "--verify")):
        code, said = headgate(*command, "--data", data)
        assert code != OK, said
        assert "headgate restore" in said or "log" in said
    assert isinstance(started(data), str)


def test_a_stream_that_is_gone(headgate: Headgate, data: Path) -> None:
    """There is no cell to read, and reading makes none."""
    shutil.rmtree(stream(data))
    for command in (("audit",), ("replay", "--verify"), ("state",)):
        code, said = headgate(*command, "--data", data)
        assert code == WRONG_USAGE, said
        assert f"has no cell {CELL!r}" in said
    assert not stream(data).exists()


@pytest.mark.parametrize("seed", range(FLIPS))
def test_a_bit_of_any_file_of_the_store(headgate: Headgate, data: Path, seed: int) -> None:
    """Of the log, its index, the feed, the snapshots, the leases: found, or the log is what it was."""
    rng = random.Random(f"store-{seed}")
    path = rng.choice(sorted(path for path in (data / STREAMS).rglob("*") if path.is_file() and path.stat().st_size))
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    code, said = headgate("audit", "--data", data)
    assert code in (OK, FAILED, BROKEN, WRONG_USAGE), said
    if code == OK:
        state = started(data)
        assert isinstance(state, State), state
        assert state.position == len(recorded(SEED).entries)
        assert fold.state_hash(state) == hash_of_all(data), f"{path.name} at {at} is believed"


def hash_of_all(data: Path) -> str:
    """The state hash of the whole log, folded from its beginning."""

    async def refold() -> str:
        state = fold.new_state(CELL)
        async with EmbeddedServer(data / cells.NATS_STORE) as server, connect(server.url, name="test") as connection:
            async for entries in (await open_log(connection, CELL)).read(1):
                for logged in decoded(entries):
                    fold.apply(state, logged)
        return fold.state_hash(state)

    return anyio.run(refold)
