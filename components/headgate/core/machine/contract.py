"""
The contract of a machine: stimuli in, commands out.

Every process is a machine. Its `decide` takes one stimulus and returns the commands to carry out; it reads no clock,
draws no randomness and does no I/O, so the same stimuli give the same commands. A small loop outside (see
`headgate.processes.runtime.host`, and `headgate.testing.world` for the simulated one) feeds it:

    commit read from the log     -> fold it into the machine's state, then decide(Committed)
    nothing left to fold, and no append of ours is under way -> decide(Settled)
    an outside call has ended    -> decide(Completed)
    the API server shows objects -> decide(Listed / Changed)      (informer bridge only)
    or a watch resumes or reaches a bookmark -> decide(Resumed / Progressed)

and carries out the returned commands. The loop promises:

- It folds every commit, in order, before it passes it to the machine.
- It requests an append only by `Settled`, when the machine's own last append is folded. So a machine never decides
  twice on a state that lacks its own last decision. At most one `Append` is returned, and it is acknowledged before any
  `Call` that follows from it exists: calls are derived from folded state (durable before visible).
- A call ends exactly once while the process lives. After a crash its end is not reported: what has to happen is derived
  again from the folded state, so each call must be safe to repeat.
"""

from typing import Any, Protocol

import msgspec

from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit, Position
from headgate.events.ids import PodKey, Seq, UnixMs
from headgate.events.registry import Event

# --- stimuli -------------------------------------------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A commit has just been folded into the state."""

    logged: LoggedCommit


class Settled(msgspec.Struct, frozen=True, gc=False):
    """Everything read is folded and no append of this process is under way: the moment to decide. Time is an input."""

    now_ms: UnixMs


class Completed(msgspec.Struct, frozen=True, gc=False):
    """An outside call has ended for good. `status` is the HTTP status, `body` the answer's bytes."""

    call_id: str
    status: int
    body: bytes = b""


class Listed(msgspec.Struct, frozen=True, gc=False):
    """The API server's whole list of one resource (its plural name), as JSON objects."""

    resource: str
    objects: tuple[bytes, ...]
    resource_version: str


class Changed(msgspec.Struct, frozen=True, gc=False):
    """One watch event of a resource. `kind` is ADDED, MODIFIED or DELETED."""

    resource: str
    kind: str
    object: bytes
    resource_version: str


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """
    The API server resumes this resource's watch from the mark in the log (`State.resource_versions`).

    Nothing was listed: changes since the mark follow as `Changed`. If the server turns out to have dropped that version
    after all, a `Listed` follows instead.
    """

    resource: str
    resource_version: str


class Progressed(msgspec.Struct, frozen=True, gc=False):
    """Everything of this resource up to this version was shown (a bookmark of its watch)."""

    resource: str
    resource_version: str


Stimulus = Committed | Settled | Completed | Listed | Changed | Resumed | Progressed

# --- commands ------------------------------------------------------------------------------------------------------


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Append these events as one commit, fenced. Only ever returned from `Settled`."""

    events: tuple[Event, ...]
    decided_at: Seq = Seq(0)
    cause: Position | None = None


APPLY_PATCH = "application/apply-patch+yaml"
"""The media type of server-side apply. JSON is YAML."""
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""The media type of a patch that merges lists by the keys of their items. The API server has it for its own kinds."""


def deletion_of(uid: str) -> dict[str, Any]:
    """The body of a DELETE that is for the object with this uid alone, not for another of its name."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """
    A request to the API server. Operating errors are retried outside; `Completed` has the final answer.

    `id` is unique among the calls under way. Calls with the same non-empty `lane` are carried out in order. `body` is
    encoded as JSON. `content_type` "" means application/json.
    """

    id: str
    method: str
    path: str
    query: dict[str, str] = {}
    body: Any = None
    content_type: str = ""
    lane: str = ""


class AskExtender(msgspec.Struct, frozen=True, kw_only=True):
    """
    A call of a scheduler extender about a pod. It is made once: nothing is retried.

    `extender` is its `urlPrefix` and `path` what is configured for the verb; how it is reached, and for how long an
    answer is waited for, the process has from its configuration. `id` is as that of a `Call`, and `Completed` has the
    answer: with status 0 there is none, and `body` says why.
    """

    id: str
    pod: PodKey
    extender: str
    path: str
    body: Any


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Send `Settled` at this time at the latest. A later `WakeAt` replaces an earlier one."""

    at_ms: UnixMs


class TakeSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Store a snapshot of the state as it is now, then send `Completed` with this id (snapshotter only)."""

    call_id: str


Command = Append | Call | AskExtender | WakeAt | TakeSnapshot


class Machine(Protocol):
    """
    The pure part of a process.

    It is made from a state (after a cold start: the newest snapshot with the tail folded in), derives from it what is
    left to do, and from then on decides stimulus by stimulus. It reads the state and never writes it.
    """

    state: State

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """The commands that follow from a stimulus."""
        ...
