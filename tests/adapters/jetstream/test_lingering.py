"""A tail that polls in batches misses nothing, and is sent nothing that it has not requested."""

import anyio
import pytest

from headgate.adapters.jetstream import Connection, open_log
from headgate.adapters.jetstream.jetstream_log import JetStreamLog
from headgate.adapters.log import Appended

pytestmark = pytest.mark.anyio

PATIENCE_S = 20


async def append_more(log: JetStreamLog, last: int, count: int) -> int:
    for _ in range(count):
        outcome = await log.append("binder", b"x", expected_last=last, commit_id="x")
        assert isinstance(outcome, Appended)
        last = outcome.seq
    return last


async def test_a_lingering_tail_is_sent_nothing_between_two_receives(connection: Connection, cell: str) -> None:
    """What is appended while its owner is busy stays with the broker, and comes when it is requested."""
    log = await open_log(connection, cell)
    last = await append_more(log, 0, 3)
    with anyio.fail_after(PATIENCE_S):
        async with log.tail(1, linger_s=0.01) as tail:
            while tail.position < last:
                await tail.receive()
            last = await append_more(log, last, 20)
            await connection.client.flush()
            assert tail.lag == 0
            seen: list[int] = []
            while tail.position < last:
                seen += [entry.seq for entry in await tail.receive()]
    assert seen == list(range(4, last + 1))


async def test_a_lingering_tail_that_finds_nothing_waits_for_the_next_entry(connection: Connection, cell: str) -> None:
    """Quiet and busy times follow each other: each entry is returned once, in order, and the consumer stays."""
    log = await open_log(connection, cell)
    seen: list[int] = []
    async with log.tail(1, linger_s=0.001) as tail, anyio.create_task_group() as tasks:

        async def read() -> None:
            while True:
                seen.extend([entry.seq for entry in await tail.receive()])

        tasks.start_soon(read)
        last = 0
        with anyio.fail_after(PATIENCE_S):
            for count in (1, 5, 1, 100, 1, 1):
                last = await append_more(log, last, count)
                while len(seen) < last:  # noqa: ASYNC110 - polled, so that the reader is left alone
                    await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
        assert tail.repairs == 0
    assert seen == list(range(1, last + 1))
