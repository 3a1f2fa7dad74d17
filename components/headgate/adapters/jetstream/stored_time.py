"""
The time when an entry was first stored, where the broker's own time is that of a restore.

The times of a log are part of its content: the fold bounds each producer's clock by them. A broker gives a message the
time at which it stores it, so `headgate restore` adds the first one as a header, and every reader takes it from there.
The header is used only if it is before the broker's time: a writer that forges it can make an entry older than it is,
which restricts its own clock more, and never younger.
"""

from collections.abc import Mapping
from typing import Final

HEADER: Final = "Headgate-Stored-Ms"
DIGITS_MAX: Final = 15
_LINE: Final = f"\r\n{HEADER}:".encode()


def only_header(block: bytes) -> dict[str, str] | None:
    """The header in the headers of a message on the wire, or None. The others are not parsed: that costs too much."""
    begin = block.find(_LINE)
    if begin < 0:
        return None
    value = block[begin + len(_LINE) : block.find(b"\r\n", begin + 2)]
    return {HEADER: value.decode("ascii", "replace").strip()}


def stored_ms(headers: Mapping[str, str] | None, broker_ms: int) -> int:
    """When a message with these headers was stored first, in milliseconds since the epoch."""
    first = headers.get(HEADER, "") if headers else ""
    return min(int(first), broker_ms) if first.isdecimal() and len(first) <= DIGITS_MAX else broker_ms
