"""
Whether a stream delivers all that it claims to hold.

A broker whose storage lost its newest entries (a power loss, a file that was cut or is gone) and kept its index reports
the last sequence that it once had. A consumer then waits for entries that never come. So whoever begins to read looks
at the last entry itself: one request, and the difference shows before anybody waits.
"""

import anyio

from headgate.adapters.jetstream.backoff import Backoff
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.messages import by_seq, last_of_subject
from headgate.adapters.jetstream.stream import StreamInfo, stream_deleted, stream_info
from headgate.adapters.log import LogHole, LogTorn

PATIENCE_S = 0.5
"""How long an entry that is claimed may be missing until that is believed."""
REPLICATED_PATIENCE_S = 5.0
"""The same where a leader just elected may still be applying entries."""


async def torn_end(connection: Connection, info: StreamInfo) -> LogTorn | None:
    """What the stream claims and cannot deliver at its end, or None. Takes its time before it says that there is."""
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
    """The first entry that is missing between the first and the last, by the broker's own account, or None."""
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
    """The last entry that there is, 0 if there is none."""
    found = [await last_of_subject(connection, info.config.name, subject) for subject in info.config.subjects]
    return max((last.entry.seq for last in found if last is not None), default=0)
