"""
etcd's own hands, for what the API server does not offer: compaction, and a backup of its data.

Requests go to etcd's JSON gateway on its client port.
"""

import base64
import os
import shutil
import signal
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import anyio.to_thread
import msgspec

_COMPACT_REV_KEY: Final = "compact_rev_key"
"""The key of the API servers' compaction revision; they watch it to drop what they hold in memory."""

_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.001


class _Header(msgspec.Struct):
    revision: int


class _Answer(msgspec.Struct):
    header: _Header


async def compact(session: aiohttp.ClientSession, url: str) -> int:
    """
    Compact all history up to now, as the API server's compactor does every five minutes; the revision.

    Raises aiohttp.ClientError when etcd refuses.
    """
    key = base64.b64encode(_COMPACT_REV_KEY.encode()).decode()
    revision = await _ask(session, f"{url}/v3/kv/range", {"key": key})
    # The note is a write itself, so the history ends one revision before the present, as with the real compactor.
    value = base64.b64encode(str(revision).encode()).decode()
    await _ask(session, f"{url}/v3/kv/put", {"key": key, "value": value})
    await _ask(session, f"{url}/v3/kv/compaction", {"revision": str(revision), "physical": True})
    return revision


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> int:
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        return msgspec.json.decode(await response.read(), type=_Answer, strict=False).header.revision


async def copy_data(data: Path, to: Path, pid: int) -> None:
    """
    Copy the data directory of a running etcd, a child of this process, while it is stopped (SIGSTOP).

    What is then in the files is what a crash at this moment would leave, and from that etcd recovers.
    """
    shutil.rmtree(to, ignore_errors=True)
    os.kill(pid, signal.SIGSTOP)
    try:
        with anyio.fail_after(_TIMEOUT_S):
            await _standing_still(pid)
        await anyio.to_thread.run_sync(shutil.copytree, data, to)
    finally:
        os.kill(pid, signal.SIGCONT)


async def _standing_still(pid: int) -> None:
    while True:
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None:  # noqa: ASYNC222 - WNOHANG does not wait
            return
        await anyio.sleep(_POLL_S)
