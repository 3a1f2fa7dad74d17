"""
The report of a process that must stop: a readable explanation instead of a traceback.

For an event that can neither be folded nor quarantined it is the workload's whole history, line by line, as in
`headgate explain`, read from the log up to the failing commit.
"""

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.adapters.log import Log
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.log.refusal import CommitFilter
from headgate.core.state import sharing
from headgate.core.views.descriptions import format_time
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, decode_entry
from headgate.events.families import names_workload
from headgate.events.ids import WorkloadKey
from headgate.events.queueing import HeadsOffered
from headgate.events.registry import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from headgate.adapters.log import LogEntry

LINES_MAX: Final = 200
"""The number of newest lines shown of a long history."""


def concerns(event: Event, key: WorkloadKey) -> bool:
    """Whether an event names the workload."""
    if isinstance(event, HeadsOffered):
        return any(head.workload == key for head in event.heads)
    return names_workload(event) and event.workload == key


def lines_of(logged: LoggedCommit, key: WorkloadKey) -> list[str]:
    """The lines of one commit about a workload: position, time, producer, event."""
    commit = logged.commit
    return [
        f"{logged.seq}.{index}  {format_time(commit.time_ms)}  {commit.producer.value} epoch {commit.epoch}  "
        f"{tag_of(event)}  {_fields(event)}"
        for index, event in enumerate(commit.events)
        if concerns(event, key)
    ]


def _fields(event: Event) -> str:
    if isinstance(event, HeadsOffered):
        return f"({len(event.heads)} heads)"
    fields = msgspec.to_builtins(event, enc_hook=sharing.plain)
    return " ".join(
        f"{name}={value}" for name, value in fields.items() if name not in ("type", "workload") and _is_short(value)
    )


def _is_short(value: object) -> bool:
    return isinstance(value, str | int) and len(str(value)) <= 200


async def story_of(log: Log, cell: str, error: EventFailedError) -> str:
    """The history of the object whose event cannot be folded, as text, ending with the error itself."""
    key = WorkloadKey(error.own.key)
    lines: list[str] = []
    gate = CommitFilter(cell)
    reading: AsyncGenerator[list[LogEntry], None] = log.read(1, stop=error.at.seq)  # type: ignore[assignment]
    async with aclosing(reading):
        async for entries in reading:
            for entry in entries:
                logged = decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
                if gate.admits(logged):
                    lines += lines_of(logged, key)
    told = "\n  ".join(lines[-LINES_MAX:])
    left_out = f"({len(lines) - LINES_MAX} earlier lines left out)\n  " if len(lines) > LINES_MAX else ""
    return f"the story of {error.own.kind} {key}:\n  {left_out}{told}\n{error}"
