"""
The cluster's record of its cell: which log it has, and its last known position.

A broker cannot detect that it has lost its store. So the informer bridge periodically writes to the cluster which log
the cell has, with the position, log hash and commit at its end: one ConfigMap, `headgate-cell-<cell>`. Before it founds
or continues a cell it compares the log with that record. A log that is empty, shorter, another one, or has another
commit at the recorded position has lost decisions that this cluster has executed, and no process may continue from it.

The record follows a log that was restored (`cell.restored`) or rebuilt (`cell.founded` with `resumes`).
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.resources import CONFIG_MAPS, NAMESPACES
from headgate.adapters.kubernetes.transport import Transport
from headgate.adapters.log import EntryNotFound, Log, LogDamaged
from headgate.core.state.tables import Identity, State
from headgate.events.commit import digest
from headgate.events.ids import Seq
from headgate.events.remedy import REMEDY

_LOG: Final = logging.getLogger(__name__)

MANAGER: Final = "headgate-informer-bridge"
"""The field manager of the record."""
LABELS: Final = {"app.kubernetes.io/name": "headgate", "app.kubernetes.io/component": "cell-record"}

FOLD_PAUSE_S: Final = 0.02
"""The interval between two checks of whether the log has been folded far enough."""


class LogForgottenError(LogDamaged):
    """Raised when the cluster's record is ahead of the broker's log. An operator decides."""

    def __init__(self, log: str, *, where: str, record: "CellRecord", found: str) -> None:
        super().__init__(
            f"{log}: {found}, but the record in the cluster ({where}) knows the log {record.log_id} up to position "
            f"{record.position}: the broker has lost it, or came back from an older copy. {REMEDY}"
        )
        self.record = record


class CellRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    The content of the ConfigMap: the log's identity, the position of its end, and the log hash up to there.

    `commit_hash` is the digest of the entry at `position`, which can be compared without folding anything.
    """

    cell: str
    cluster: str
    stream: str
    log_id: str
    position: Seq
    log_hash: str
    commit_hash: str


class _ConfigMap(msgspec.Struct, kw_only=True):
    data: dict[str, str] = {}


_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


class CellRecords:
    """The record of one cell, in the ConfigMap `name` of a namespace."""

    def __init__(self, transport: Transport, *, cell: str, namespace: str) -> None:
        self._client = KubeClient(transport)
        self.namespace = namespace
        self.name = f"headgate-cell-{cell}"

    @property
    def where(self) -> str:
        """The location of the record, for messages."""
        return f"ConfigMap {self.namespace}/{self.name}"

    async def read(self) -> CellRecord | None:
        """
        The record; None when there is none, or the ConfigMap is not a record.

        Raises KubernetesError when the API server does not answer.
        """
        try:
            raw = await self._client.get(CONFIG_MAPS, self.name, self.namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        try:
            return msgspec.convert(_CONFIG_MAP.decode(raw).data, CellRecord, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _LOG.warning("%s is no record of a cell and will be written anew: %s", self.where, error)
            return None

    async def write(self, record: CellRecord) -> None:
        """Write the record, and its namespace if that is missing and may be created. Raises KubernetesError."""
        body: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": LABELS},
            "data": {key: str(value) for key, value in msgspec.to_builtins(record).items()},
        }
        try:
            await self._client.patch(CONFIG_MAPS, self.name, body, self.namespace, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._create(body)

    async def _create(self, body: dict[str, object]) -> None:
        try:
            await self._client.create(CONFIG_MAPS, body, self.namespace, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._client.create(NAMESPACES, {"metadata": {"name": self.namespace}}, field_manager=MANAGER)
            await self._client.create(CONFIG_MAPS, body, self.namespace, field_manager=MANAGER)

    async def hold_against(self, record: CellRecord, state: State, log: Log) -> None:
        """
        Check that the log is the one in the cluster's record. `state` is live: its owner goes on folding.

        Raises LogForgottenError when it is not.
        """
        # The record was read before, so everything in it is in the log by now, and is about to be folded.
        last = await log.last_seq()
        while state.position < last:  # noqa: ASYNC110 - the loop that folds has nobody to tell
            await anyio.sleep(FOLD_PAUSE_S)
        found = await _objection(record, state, log)
        if found:
            raise LogForgottenError(log.name, where=self.where, record=record, found=found)


async def _objection(record: CellRecord, state: State, log: Log) -> str:
    """What the log lacks compared with the record; "" when nothing."""
    identity, last = state.identity, state.position
    if identity is None:
        return f"the log ends at {last} and was never founded" if last else "the log is empty"
    if identity.log_id != record.log_id:
        return "" if identity.resumes == record.log_id else f"the log is another one, {identity.log_id}"
    if _is_known_loss(identity, record):
        return ""
    if record.position > last:
        return f"the log ends at {last}"
    try:
        entry = await log.get(record.position)
    except EntryNotFound:
        # Entries before the first were trimmed, behind a snapshot that was checked against the log at the start.
        if record.position < await log.first_seq():
            return ""
        return f"the log cannot deliver position {record.position}"
    if digest(entry.payload) != record.commit_hash:
        return f"the log has another commit at position {record.position}"
    return ""


def _is_known_loss(identity: Identity, record: CellRecord) -> bool:
    """Whether the log itself records the loss of the recorded part, and where it continues."""
    restored = identity.restored
    return restored is not None and restored.position <= record.position <= restored.lost_to


async def record_of(state: State, log: Log) -> CellRecord | None:
    """The record of a log that has been folded; None while its cell is not founded."""
    identity, position, log_hash = state.identity, state.position, state.log_hash
    if identity is None:
        return None
    return CellRecord(
        cell=identity.cell,
        cluster=identity.cluster,
        stream=identity.stream,
        log_id=identity.log_id,
        position=position,
        log_hash=log_hash,
        commit_hash=digest((await log.get(position)).payload),
    )


async def keep_record(
    records: CellRecords,
    state: State,
    log: Log,
    *,
    every_ms: int,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> None:
    """
    Write the record for as long as a term lasts, whenever the log has grown.

    A refusal of the API server is reported once, and the write is repeated. Raises LogForgottenError when the cluster's
    record belongs to another log: then another cell of this name is running here.
    """
    written = Seq(0)
    told = ""
    while True:
        try:
            if state.identity is not None and state.position != written:
                known = await records.read()
                if known is not None and known.log_id != state.identity.log_id:
                    await records.hold_against(known, state, log)
                record = await record_of(state, log)
                if record is not None:
                    await records.write(record)
                    written = record.position
            told = ""
        except KubernetesError as error:
            if str(error) != told:
                told = str(error)
                _LOG.warning(
                    "%s cannot be written, so a broker that loses its store would not be noticed: %s",
                    records.where,
                    error,
                )
        await sleep(every_ms / 1000)
