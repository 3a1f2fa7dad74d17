"""
The origin of the log's stream, for a process that opens it: original, restored from a backup, or begun anew.

`headgate restore` and `headgate rebuild` leave a marker at the stream. Its content has to be in the log before any
process acts: the informer bridge appends `cell.restored` at the start of its first term, and the others wait for it; or
it founds the cell once more, in place of the abandoned log. Used by the gate of each process
(`headgate.processes.runtime.cell_identity`).
"""

import msgspec

from headgate.adapters.jetstream.refill import Marker, marker_of
from headgate.adapters.jetstream.stream import StreamInfo, identity_of
from headgate.core.log import branches, reconciliation
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.identity import CellRestored
from headgate.events.ids import Seq

UNRECORDED = "the log was restored from a backup: waiting for the informer bridge to append cell.restored"
"""The status of a process that waits for the bridge."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The stream's marker; without one it is original. `stream` is its identity."""

    stream: str
    marker: Marker | None = None

    @property
    def is_rebuilt(self) -> bool:
        """Whether a new log is to begin here in place of an abandoned one."""
        return self.marker is not None and self.marker.kind == "rebuilt"

    def unrecorded(self, state: State, *, lost_to: int = 0) -> CellRestored | None:
        """The restore that is not in the log yet; None if there is none. `lost_to` is further knowledge of the loss."""
        marker = self.marker
        if marker is None or marker.kind != "restored":
            return None
        event = CellRestored(
            backup=marker.backup,
            position=Seq(marker.position),
            stream=self.stream,
            lost_to=Seq(max(lost_to, marker.position) if lost_to else 0),
            why=marker.why,
        )
        return None if branches.is_recorded(state.branches, event) else event

    def waits_for(self, state: State, producer: Producer) -> str:
        """What has to be in the log before this process may lead; "" when nothing is missing."""
        if producer is not Producer.INFORMER_BRIDGE and self.unrecorded(state) is not None:
            return UNRECORDED
        return "" if reconciliation.is_open(state, producer) else reconciliation.WAITING


def origin_of(info: StreamInfo) -> Origin:
    """The origin of a stream."""
    return Origin(stream=identity_of(info), marker=marker_of(info))
