"""
Whether a stream delivers all that it claims to hold.

A broker whose storage lost its newest entries (a power loss, a file that was truncated or deleted) and kept its index
reports its former last sequence. A consumer then waits for entries that never arrive. So a reader first reads the last
entry itself: one request, and the difference is detected before any wait.
"""

import anyio

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.messages import by_seq, last_of_subject
from headgate.adapters.jetstream.stream import StreamInfo, stream_deleted, stream_info
from headgate.adapters.log import LogHole, LogTorn

PATIENCE_S = 0.5
"""How long a claimed entry may be missing until that is accepted."""
REPLICATED_PATIENCE_S = 5.0
"""The same where a newly elected leader may still be applying entries."""


async def torn_end(connection: Connection, info: StreamInfo) -> LogTorn | None:
    """What the stream claims and cannot deliver at its end, or None. Waits before it reports a torn end."""
    name = info.config.name
    backoff = Backoff(first_s=0.05, max_s=0.5)
    patience_s = REPLICATED_PATIENCE_S if info.config.num_replicas > 1 else PATIENCE_S
    give_up_at = anyio.current_time() + patience_s
    while True:
        claimed = info.state.last_seq
        if claimed == 0 or await by_seq(connection, name, claimed) is not None:
            return None
        if anyio.current_time() >= give_up_at:
            return LogTorn(f"stream {name}", ends_at=await _last_delivered(connection, info), claimed=claimed)
        await backoff.wait()
        info = await stream_info(connection, name)


async def hole_in(connection: Connection, info: StreamInfo) -> LogHole | None:
    """The first entry that is missing between the first and the last, by the broker's own report, or None."""
    state, name = info.state, info.config.name
    if state.last_seq == 0 or state.messages >= state.last_seq - state.first_seq + 1:
        return None
    missing = await stream_deleted(connection, name)
    if not missing:
        return None
    found = missing[0] + 1
    for each in missing[1:]:
        if each != found:
            break
        found += 1
    return LogHole(f"stream {name}", expected=missing[0], found=found)


async def _last_delivered(connection: Connection, info: StreamInfo) -> int:
    """The last existing entry, 0 if there is none."""
    found = [await last_of_subject(connection, info.config.name, subject) for subject in info.config.subjects]
    return max((last.entry.seq for last in found if last is not None), default=0)
