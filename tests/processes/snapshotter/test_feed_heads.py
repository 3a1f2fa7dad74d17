"""Each message of the feed names its commit and the log that it attests: a feed of another log is detected."""

from typing import Any

import pytest
from tests.support.history import History

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.core.log.branches import EventId
from headgate.events import subjects
from headgate.events.base import Producer
from headgate.events.commit import Position
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import Seq
from headgate.processes.runtime.process_status import Status
from headgate.processes.snapshotter import feed
from headgate.processes.snapshotter.feed import (
    COMMIT_HASH,
    DEFECT,
    LOG_HASH,
    LOG_POSITION,
    FeedBeyondLogError,
    Feeding,
    messages_of,
)
from headgate.processes.snapshotter.feed_writer import LastMessage
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog

pytestmark = pytest.mark.anyio
BRIDGE = Producer.INFORMER_BRIDGE


class Ended:
    """A feed with an end."""

    def __init__(self, last: LastMessage) -> None:
        self._last = last

    async def last(self) -> LastMessage:
        return self._last


def written() -> History:
    log = History()
    for number in range(5):
        log.put(BRIDGE, NamespaceObserved(name=f"n{number}"))
    return log


async def hold(log: History, last: LastMessage | None = None, **headers: Any) -> None:
    """Hold the feed's end, that of this log with these headers where none is given, against the log."""
    memory = MemoryLog()
    for entry in log.entries:
        memory.publish(entry.subject, entry.payload)
    message = messages_of("main", log.commits[-1])[0]
    position = Position(Seq(log.position))
    if last is None:
        last = LastMessage(EventId("", position), message.subject, message.payload, {**message.headers, **headers})
    status = Status(process="snapshotter", cell="main", holder="s", health=DependencyHealth())
    publishing = Feeding(Ended(last), AsyncMemoryLog(memory), status, batch_max=10)  # type: ignore[arg-type]
    await publishing._hold_against_log(log.state)


def test_a_message_carries_its_commit_and_what_that_attests() -> None:
    """The hash of the commit, and the hash of the log up to the position that its producer had folded."""
    log = written()
    (message,) = messages_of("main", log.commits[-1])
    assert message.headers[COMMIT_HASH] == log.commits[-1].hash
    assert message.headers[LOG_HASH] == log.commits[-1].commit.log
    assert message.headers[LOG_POSITION] == str(log.position - 1)


async def test_a_feed_that_ends_in_this_log_is_gone_on_with() -> None:
    """Also one of a version whose messages did not say."""
    log = written()
    await hold(log)
    await hold(log, None, **{LOG_HASH: "", COMMIT_HASH: log.commits[-1].hash})


@pytest.mark.parametrize(
    ("header", "words"), [(COMMIT_HASH, "and the log has another commit there"), (LOG_HASH, "another hash at 5")]
)
async def test_a_feed_of_another_log_with_the_same_event_at_its_end_is_told(header: str, words: str) -> None:
    """The event is equal and at the same position; its commit is not."""
    with pytest.raises(FeedBeyondLogError, match=words):
        await hold(written(), None, **{header: "0" * 32})


async def test_a_message_that_cannot_be_made_costs_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the feed at its place with the failure; corrected code continues after it."""
    log = written()
    sound = subjects.feed_subject

    def broken(cell: str, event: Any) -> str:
        assert event.name != "n4", "planted"
        return sound(cell, event)

    monkeypatch.setattr(feed, "feed_subject", broken)
    before, after = messages_of("main", log.commits[-2])[0], messages_of("main", log.commits[-1])[0]
    assert DEFECT not in before.headers
    assert after.headers[DEFECT].startswith("AssertionError: planted in ")
    assert (after.subject, after.payload) == ("headgate.main.namespace.observed._._", b"{}")
    assert after.headers["ce-id"] == f"{log.position}.0"
    assert "ce-subject" not in after.headers
    await hold(log)
    last = LastMessage(EventId("", Position(Seq(log.position))), after.subject, after.payload, after.headers)
    monkeypatch.undo()
    await hold(log, last)
