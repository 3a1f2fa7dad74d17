"""
Whether a process belongs to the cell whose log it has folded: the gate before its first term.

A log records its cell, cluster and stream (`headgate.core.log.cell_identity`). Before a process becomes a candidate for
leadership it determines its stream and, if it uses Kubernetes, the cluster. The informer bridge, which founds the cell,
also compares the log with the cluster's record (`headgate.processes.runtime.cell_record`), so that a broker that has
lost its data is not taken for a new one. The others wait until the cell is founded.

A request that the API server refuses is repeated until it succeeds; a process that cannot determine its identity does
not act.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import anyio

from headgate.adapters.backoff import Backoff
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.retry import Sleep
from headgate.adapters.lease import LeaseRecord
from headgate.adapters.log import Log, LogDamaged
from headgate.core.log.attestation import hash_at
from headgate.core.log.cell_identity import objection
from headgate.core.reading.decoding import UnreadableObjectError
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.identity import CellFounded
from headgate.events.ids import Seq
from headgate.events.registry import Event
from headgate.events.remedy import REMEDY
from headgate.processes.runtime.cell_record import CellRecord, CellRecords
from headgate.processes.runtime.cluster_recognition import ForeignCellError, RecognisingTransport, ask_cluster_id
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.signing_keys import ProcessKeys
from headgate.processes.runtime.stream_origin import Origin

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

UNKNOWN_LOG: Final = "unknown"
"""The value of `resumes` for a log that replaces one without a record in the cluster."""
PROBLEM: Final = "identity"
"""The name in the status under which the gate reports what it waits for."""


class Leases(Protocol):
    """The leases of a cell (`headgate.adapters.jetstream.lease.JetStreamLeases`)."""

    async def holder(self, producer: str) -> LeaseRecord | None:
        """The record of a producer's lease; None if it was never held."""
        ...


class IdentityGate:
    """
    The gate of one process. `cluster` is "" until `prepare` has determined it, and for processes without Kubernetes.

    `records` is set for the bridge alone.
    """

    def __init__(
        self,
        *,
        producer: Producer,
        cell: str,
        log: Log,
        status: Status,
        transport: RecognisingTransport | None = None,
        records: CellRecords | None = None,
        origin: Origin | None = None,
        keys: ProcessKeys | None = None,
        leases: Leases | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self.cluster = ""
        self._origin = origin if origin is not None else Origin(stream=log.identity)
        self._record: CellRecord | None = None
        self._producer = producer
        self._keys = keys if keys is not None else ProcessKeys(producer, None, {})
        self._cell = cell
        self._leases = leases
        self._log = log
        self._status = status
        self._transport = transport
        self._records = records
        self._sleep = sleep
        self._log_id = uuid.uuid4().hex

    def waits_for(self, state: State) -> str:
        """What has to be in the log before this process may become a candidate; "" when nothing is missing."""
        if state.identity is None and self._producer is not Producer.INFORMER_BRIDGE:
            return "waiting for the informer bridge to found the cell"
        return self._origin.waits_for(state, self._producer)

    async def prepare(self, state: State) -> None:
        """
        Determine this process's environment, and compare it with the log. Waits for an unresponsive API server.

        Raises ForeignCellError, and LogForgottenError where the cluster's record is ahead of the broker's log.
        """
        if self._transport is not None:
            transport = self._transport
            self.cluster = await self._answered(
                lambda: ask_cluster_id(transport.inner), "the identity of the cluster cannot be read"
            )
        self.check(state)
        if self._leases is not None and not self._replaces(state):
            await hold_against_leases(self._leases, state, self._log)
        if self._records is not None:
            records = self._records
            self._record = await self._answered(records.read, f"{records.where} cannot be read")
            if self._record is not None and not self._replaces(state):
                await records.hold_against(self._record, state, self._log)
        if self._transport is not None:
            self._transport.expected = self.cluster

    def check(self, state: State) -> None:
        """Check that the log is this process's own, as far as is known by now. Raises ForeignCellError."""
        identity = state.identity
        if identity is None:
            # A log of an earlier version at least records which cluster its resource versions come from.
            if self.cluster and state.cluster_id not in {"", self.cluster}:
                raise _foreign(
                    self._cell, f"its log has the objects of the cluster {state.cluster_id}, and this is {self.cluster}"
                )
            return
        # A restored log was written to another stream, which `cell.restored` is about to record.
        stream = identity.stream if self._origin.unrecorded(state) is not None else self._log.identity
        why = objection(identity, cell=self._cell, stream=stream, cluster=self.cluster)
        if why is not None:
            raise _foreign(self._cell, why)
        self._keys.check(identity)

    def founding(self) -> CellFounded | None:
        """The founding event of the bridge, if the log has no identity; None where no cluster is known."""
        if not self.cluster:
            return None
        former = ""
        if self._origin.is_rebuilt:
            former = self._record.log_id if self._record is not None else UNKNOWN_LOG
        return CellFounded(
            cell=self._cell,
            cluster=self.cluster,
            stream=self._log.identity,
            log_id=self._log_id,
            keys=self._keys.public if self._keys.signing == "required" else {},
            signing=self._keys.signing,
            resumes=former,
        )

    def opening(self, state: State) -> tuple[Event, ...]:
        """
        Events that only the bridge appends, before all others: a restore that is not in the log yet, and new keys.

        Keys come last: events before them are verified with the keys valid until then.
        """
        if self._producer is not Producer.INFORMER_BRIDGE:
            return ()
        known = self._record
        same = known is not None and state.identity is not None and known.log_id == state.identity.log_id
        restored = self._origin.unrecorded(state, lost_to=known.position if known is not None and same else 0)
        return tuple(event for event in (restored, self._keys.change(state.identity)) if event is not None)

    def _replaces(self, state: State) -> bool:
        """Whether the log was just restored or restarted on purpose: then it has less than the cluster's record."""
        return self._origin.unrecorded(state) is not None or (self._origin.is_rebuilt and state.identity is None)

    async def _answered(self, ask: Callable[[], Awaitable[_T]], what: str) -> _T:
        """The answer, waited for without limit; meanwhile the status reports what is missing."""
        # Jitter needs no cryptography.
        backoff = Backoff(first_s=0.5, max_s=10.0)
        while True:
            try:
                answer = await ask()
            except (KubernetesError, UnreadableObjectError) as error:
                delay_s = backoff.next_s(error.retry_after if isinstance(error, ApiError) else None)
                self._status.problem(PROBLEM, f"{what}: {error}")
                _LOG.warning("%s: %s; asking again in %.1f s", what, error, delay_s)
                await self._sleep(delay_s)
            else:
                self._status.problem(PROBLEM, None)
                return answer


async def hold_against_leases(leases: Leases, state: State, log: Log) -> None:
    """
    Check that the log still contains what the lease holders had folded at their last renewal.

    Raises LogDamaged. Positions that the state no longer covers are left to the audit.
    """
    seen = [(producer, await leases.holder(producer.value)) for producer in Producer]
    end = max(await log.last_seq(), state.position)
    for producer, record in seen:
        if record is None or not record.log_hash:
            continue
        held = f"the lease of the {producer.value} says that it had folded the log up to position {record.position}"
        if record.position > end:
            raise LogDamaged(f"{log.name}: the log ends at {end}, but {held}. {REMEDY}")
        here = hash_at(state, Seq(record.position)) if record.position <= state.position else ""
        if here not in ("", record.log_hash):
            raise LogDamaged(
                f"{log.name}: {held} with the hash {record.log_hash}, and this one has {here} there: it is another "
                f"log, or was changed. {REMEDY}"
            )


def _foreign(cell: str, why: str) -> ForeignCellError:
    return ForeignCellError(
        f"this process does not belong to cell {cell}: {why}. Give this cell a name of its own (cell, HEADGATE_CELL, "
        "--cell), or point it to the broker and the cluster that belong to its log. A copy of a log is adopted by "
        "`headgate backup --out DIR` and `headgate restore --from DIR --set-aside FILE`"
    )
