"""
Storing snapshots, and folding the log again to verify them.

`SnapshotCarrier` carries out `TakeSnapshot`: the state is encoded at once (it goes on changing), then stored, old
snapshots are removed, and the result is passed to the machine. After that the range since the snapshot before is folded
again in a worker thread, from that snapshot's bytes, and the two hashes are compared. A difference means that the fold
is not deterministic, that this process's memory is damaged, or that a snapshot is; the process reports it in its log
output, in /readyz and in the log of the cell, and continues: the commits themselves are not in doubt.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from headgate.adapters.log import BlobDamaged, BlobNotFound, Blobs, Log
from headgate.core import fold
from headgate.core.fold.quarantine import version_to_retry
from headgate.core.machine.contract import Completed, TakeSnapshot
from headgate.core.state.tables import State
from headgate.events.ids import Seq, UnixMs
from headgate.machines.snapshotter.decide import VERIFY, SnapshotVerification, StoredSnapshot
from headgate.processes.runtime.leadership import NoCarrier, Report
from headgate.processes.runtime.process_status import Status
from headgate.processes.snapshots import point_in_time
from headgate.processes.snapshots import store as snapshots
from headgate.processes.snapshots.store import SnapshotMeta, SnapshotUnusableError

_LOG: Final = logging.getLogger(__name__)

DIVERGENCE: Final = "divergence"


class SnapshotCarrier(NoCarrier):
    """Stores snapshots, keeps the newest `keep`, and verifies them if configured."""

    def __init__(
        self, log: Log, blobs: Blobs, status: Status, *, keep: int, verify: bool, now_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._blobs = blobs
        self._status = status
        self._keep = keep
        self._verify = verify
        self._now_ms = now_ms
        self._verifying = anyio.Lock()

    def snapshot(self, command: TakeSnapshot, state: State, report: Report) -> Callable[[], Coroutine[Any, Any, None]]:
        """See `Carrier`."""
        meta, blob = snapshots.pack(state, log_identity=self._log.identity, taken_ms=UnixMs(self._now_ms()))

        async def store() -> None:
            before = await self._newest_before(meta.position)
            info = await self._blobs.put(snapshots.name_of(meta.position), blob, position=meta.position)
            await self._blobs.keep_last(self._keep)
            self._status.counters.snapshots += 1
            _LOG.info(
                "snapshot %s stored: %d bytes, %d after compression",
                info.name,
                info.size_bytes,
                info.stored_bytes,
                extra={"position": meta.position, "state_hash": meta.state_hash},
            )
            report(_completed(command.call_id, meta, info.name))
            if self._verify:
                async with self._verifying:
                    await self._refold(before, meta, report)

        return store

    async def _newest_before(self, position: Seq) -> State:
        """The start of the verification: the snapshot before, or nothing. Taken before it can be removed."""
        if not self._verify:
            return fold.new_state(self._status.cell)
        for info in reversed(await self._blobs.listing()):
            if info.position >= position:
                continue
            try:
                blob = await self._blobs.get(info.name)
                meta, state = await anyio.to_thread.run_sync(snapshots.unpack, blob, self._status.cell)
                await snapshots.check_announced(self._log, meta)
            except (BlobNotFound, BlobDamaged, SnapshotUnusableError) as error:
                _LOG.warning("snapshot %s cannot be verified from: %s", info.name, error)
            else:
                if not version_to_retry(state):
                    return state
        return fold.new_state(self._status.cell)

    async def _refold(self, state: State, meta: SnapshotMeta, report: Report) -> None:
        start = state.position
        # The snapshot's writer has treated events that cannot be folded in the same way.
        again = point_in_time.refolding(self._log, self._status.cell, self._blobs)
        state = await point_in_time.fold_on(self._log, state, meta.position, again)
        refolded = await anyio.to_thread.run_sync(fold.state_hash, state)
        self._status.counters.verifications += 1
        verified = SnapshotVerification(position=meta.position, live_hash=meta.state_hash, refolded_hash=refolded)
        if refolded != meta.state_hash:
            self._status.counters.divergences += 1
            text = (
                f"the state at position {meta.position} has the hash {meta.state_hash}, but folding the log again from "
                f"position {start} gives {refolded}: restart this process, and compare with `headgate replay --verify`"
            )
            _LOG.error("divergence: %s", text, extra={"position": meta.position})
            self._status.problem(DIVERGENCE, text)
        report(Completed(f"{VERIFY}{meta.position}", 200, msgspec.json.encode(verified)))


def _completed(call_id: str, meta: SnapshotMeta, name: str) -> Completed:
    stored = StoredSnapshot(
        name=name,
        position=meta.position,
        state_hash=meta.state_hash,
        log_hash=meta.log_hash,
        size_bytes=meta.size_bytes,
    )
    return Completed(call_id, 200, msgspec.json.encode(stored))
