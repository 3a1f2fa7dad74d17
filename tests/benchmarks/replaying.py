"""How long a process needs to fold a log of a million events from a real broker."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from itertools import islice

import anyio
from tests.benchmarks.lives import CELL, Payload, Writer, history
from tests.benchmarks.measure import Report, Row, profiled

from headgate.adapters.jetstream import Connection, connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.jetstream_log import JetStreamLog
from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events.commit import decode_commit

EVENTS = 1_000_000
WAVE = 6
"""Jobs that move together: about nine events a commit, as a cell under steady load writes."""
TARGET_S = 15.0
IN_FLIGHT = 500


async def fill(connection: Connection, payloads: Iterator[Payload]) -> int:
    """
    Store a history as fast as the broker takes it; the number of commits.

    Order on one connection is kept, so nothing needs to be awaited one by one. (Processes append fenced, each after its
    last; that is another measurement.)
    """
    last = 0
    while batch := list(islice(payloads, IN_FLIGHT)):
        acks = await asyncio.gather(*(connection.publish(subject, payload) for subject, payload in batch))
        assert [ack.seq for ack in acks] == list(range(last + 1, last + len(batch) + 1))
        last += len(batch)
    return last


async def replay(log: JetStreamLog) -> State:
    """Read and fold everything."""
    state = fold.new_state(CELL)
    async for entries in log.read(1):
        for entry in entries:
            fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
    return state


async def read(log: JetStreamLog) -> int:
    """Read everything, and do nothing with it."""
    count = 0
    async for entries in log.read(1):
        count += len(entries)
    return count


async def measure(directory: str, events: int) -> Report:
    report = Report(name="replay")
    writer = Writer()
    async with EmbeddedServer(directory) as server, connect(server.url, name="bench") as connection:
        log = await open_log(connection, CELL)
        begun = time.perf_counter()
        commits = await fill(connection, history(events, WAVE, writer))
        filled_s = time.perf_counter() - begun
        begun = time.perf_counter()
        state = await replay(log)
        replay_s = time.perf_counter() - begun
        begun = time.perf_counter()
        assert await read(log) == commits == state.position
        read_s = time.perf_counter() - begun
    report.rows.append(
        Row(
            what=f"replay {writer.events:,} events from NATS",
            figure=f"{replay_s:.1f} s ({writer.events / replay_s:,.0f} events/s)",
            target=f"<= {TARGET_S:.0f} s",
            met=replay_s <= TARGET_S,
            compared=f"{replay_s / read_s:.2f} x reading it alone ({read_s:.1f} s)",
        )
    )
    report.notes.append(
        f"{commits:,} commits, {writer.events / commits:.1f} events each; reading takes "
        f"{read_s / commits * 1e6:.0f} us a commit (nats-py), decoding and folding "
        f"{(replay_s - read_s) / commits * 1e6:.0f} us; storing took {filled_s:.1f} s"
    )
    return report


def run(*, profile: bool = False, events: int = EVENTS) -> Report:
    """Fill a stream, replay it."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        report = anyio.run(measure, directory, events)
    if profile:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
            report.profile = profiled(lambda: anyio.run(measure, directory, events // 10))
    return report
