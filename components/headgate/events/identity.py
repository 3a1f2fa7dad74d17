"""
Identity: the cell, cluster and stream that this log belongs to.

The first event of a new log, after the election of the informer bridge, founds the cell: it names the cell, the cluster
and the stream, and the keys that its processes sign with. Readers of the log compare them with their environment, so
that two clusters never share one log, and a log never serves a foreign cluster. These are facts of the informer bridge,
which alone has the cluster's id; they change when an operator restores a cell or rotates keys.
"""

from typing import Literal

from headgate.events.base import EventBase
from headgate.events.ids import Seq

Signing = Literal["required", "off"]
"""Whether every commit must be signed by its producer."""

Keys = dict[str, tuple[str, ...]]
"""The public keys of each producer by its name: base64url ed25519, more than one while they are rotated."""


class CellFounded(EventBase, frozen=True, tag="cell.founded"):
    """
    Appended by the informer bridge, once in a log: as its first event, or as the next one in a log that lacks it.

    `cluster` identifies the cluster (`headgate.core.reading.decoding.cluster_id_of`), `stream` the stream on the
    broker, and `log_id` this log among all that were ever founded; it is random. `resumes` is the `log_id` of the log
    that this one replaces, when the cell was rebuilt from its API server.
    """

    cell: str
    cluster: str
    stream: str
    log_id: str
    keys: Keys = {}
    signing: Signing = "off"
    resumes: str = ""


class CellKeysChanged(EventBase, frozen=True, tag="cell.keys_changed"):
    """Appended by the informer bridge when its public keys differ from the log's; from here on these are valid."""

    keys: Keys
    signing: Signing
    why: str = ""


class CellRestored(EventBase, frozen=True, tag="cell.restored"):
    """
    Appended by the informer bridge, or by `headgate restore` in its name, when a cell continues from a backup.

    `backup` is the backup's id, `position` the last position in it. `lost_to` is the newest position that the cell is
    known to have had before, so everything after `position` up to there is lost. `stream` is the stream in which the
    log continues.
    """

    backup: str
    position: Seq
    stream: str
    lost_to: Seq = Seq(0)
    why: str = ""
