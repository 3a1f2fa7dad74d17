"""
The audit of data beside the log: snapshots, leases, the feed, the stream itself.

A log may be consistent and yet not be the one that the cell has acted on: cut off at its end, rolled back, replaced.
Other stores still have traces of its former contents. `Evidence` is what was found there, as data; `judge` compares it
with an audit of the log. `FeedJudge` compares the feed with the log, message by message.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from headgate.core.audit.log import Audit, AuditFinding
from headgate.core.log.branches import number_at, parse_event_id, token_of
from headgate.core.state.tables import Branch
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, decode_event, encode_event
from headgate.events.ids import Seq
from headgate.events.subjects import feed_subject
from headgate.events.upcasting import feed_message

RESTORE: Final = (
    "stop every process of this cell, and continue from a backup with `headgate restore --from DIR --set-aside FILE`"
)


class SeenSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A stored snapshot: its declared identity, or (`why`) why it cannot be read. `older` is one of another layout."""

    name: str
    position: Seq
    why: str = ""
    older: bool = False
    state_hash: str = ""
    log_hash: str = ""
    log_identity: str = ""


class SeenLease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a producer: its epoch, and the end of the log that its holder had folded, if recorded."""

    producer: Producer
    epoch: int = 0
    position: Seq = Seq(0)
    log_hash: str = ""
    why: str = ""


class SeenStream(msgspec.Struct, frozen=True, kw_only=True):
    """The stream of the log: its identity, and what makes it unfit to keep a log."""

    name: str
    identity: str
    perils: tuple[str, ...] = ()


class SeenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's record of its cell: its location, its log, and the recorded end of that log."""

    where: str
    log_id: str
    position: Seq
    log_hash: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found beside a log. `looked_at` names it for the summary."""

    stream: SeenStream
    snapshots: tuple[SeenSnapshot, ...] = ()
    leases: tuple[SeenLease, ...] = ()
    record: SeenRecord | None = None
    looked_at: tuple[str, ...] = ()


def judge(audit: Audit, evidence: Evidence) -> list[AuditFinding]:
    """The contradictions between the log and the data beside it."""
    return [
        *_stream(audit, evidence.stream),
        *(finding for seen in evidence.snapshots for finding in _snapshot(audit, seen, evidence.stream)),
        *(finding for seen in evidence.leases for finding in _lease(audit, seen)),
        *(_record(audit, evidence.record) if evidence.record is not None else ()),
    ]


def _stream(audit: Audit, seen: SeenStream) -> Iterator[AuditFinding]:
    at = Position(Seq(audit.last))
    for peril in seen.perils:
        yield AuditFinding(check="stream", position=at, text=peril, about=seen.name)
    identity = audit.state.identity
    if identity is not None and identity.stream != seen.identity:
        text = (
            f"the log was written to the stream created {identity.stream}, and {seen.name} was created "
            f"{seen.identity}: it is a copy. Run one cell on one stream; if the other one is lost, {RESTORE}"
        )
        yield AuditFinding(check="stream", position=Position(identity.founded_at), text=text, about=seen.name)


def _snapshot(audit: Audit, seen: SeenSnapshot, stream: SeenStream) -> Iterator[AuditFinding]:
    at = Position(seen.position)

    def found(text: str) -> AuditFinding:
        return AuditFinding(check="snapshots", position=at, text=f"snapshot {seen.name} {text}", about=seen.name)

    remove = "No process starts from it; the snapshotter replaces it with its next ones"
    if seen.why:
        if not seen.older:
            yield found(f"of position {seen.position} cannot be used: {seen.why}. {remove}")
        return
    if seen.position > audit.last:
        yield found(
            f"is of position {seen.position}, and the log ends at {audit.last}: it has lost commits that this cell has "
            f"acted on; {RESTORE}"
        )
        return
    if seen.log_identity != stream.identity:
        yield found(f"was taken of the stream created {seen.log_identity}, not of this one. {remove}")
        return
    log_hash = audit.log_hash_at(seen.position)
    if log_hash and log_hash != seen.log_hash:
        yield found(
            f"was taken of a log with the hash {seen.log_hash} up to position {seen.position}; this one has "
            f"{log_hash}: the log is another one than this cell has acted on; {RESTORE}"
        )
        return
    announced = audit.announced.get(seen.position)
    if announced is not None and announced != (seen.state_hash, seen.log_hash):
        yield found(
            f"was changed: its state has the hash {seen.state_hash}, and by its snapshot.taken in the log "
            f"{announced[0]}. {remove}"
        )
        return
    state_hash = audit.state_hashes.get(seen.position, "")
    if state_hash and state_hash != seen.state_hash:
        yield found(
            f"holds a state with the hash {seen.state_hash}; folding the log up to position {seen.position} gives "
            f"{state_hash}. {remove}"
        )


def _lease(audit: Audit, seen: SeenLease) -> Iterator[AuditFinding]:
    record = audit.state.producers.get(seen.producer)
    epoch = record.epoch if record is not None else 0
    at = Position(record.last_seq if record is not None else Seq(0))
    name = f"the lease of the {seen.producer.value}"
    if seen.why:
        text = f"{name} cannot be read: {seen.why}. Stop that process and start it again: it writes a new one"
        yield AuditFinding(check="leases", position=at, text=text, about=seen.producer.value)
        return
    if audit.folds and seen.epoch < epoch:
        text = (
            f"{name} is of epoch {seen.epoch}, and the log has epoch {epoch}: the leases are older than the "
            "log. Restart the processes: each begins an epoch behind that of the log"
        )
        yield AuditFinding(check="leases", position=at, text=text, about=seen.producer.value)
    if seen.position > audit.last:
        text = (
            f"its holder had folded the log up to position {seen.position}, and it ends at {audit.last}: commits are "
            f"lost; {RESTORE}"
        )
        yield AuditFinding(
            check="leases", position=Position(seen.position), text=f"{name}: {text}", about=seen.producer
        )
        return
    log_hash = audit.log_hash_at(seen.position)
    if seen.log_hash and log_hash and log_hash != seen.log_hash:
        text = (
            f"its holder had folded a log with the hash {seen.log_hash} up to position {seen.position}; this one has "
            f"{log_hash}: it is another log; {RESTORE}"
        )
        yield AuditFinding(
            check="leases", position=Position(seen.position), text=f"{name}: {text}", about=seen.producer
        )


def _record(audit: Audit, seen: SeenRecord) -> Iterator[AuditFinding]:
    identity = audit.state.identity
    why = ""
    if identity is None or identity.log_id != seen.log_id:
        if identity is not None and identity.resumes == seen.log_id:
            return
        is_this = f"this one is {identity.log_id}" if identity is not None else "this one was never founded"
        why = f"is of the log {seen.log_id}, and {is_this}"
    elif identity.restored is not None and identity.restored.position <= seen.position <= identity.restored.lost_to:
        return
    elif seen.position > audit.last:
        why = f"knows the log up to position {seen.position}, and it ends at {audit.last}: commits are lost"
    elif (log_hash := audit.log_hash_at(seen.position)) and log_hash != seen.log_hash:
        why = f"has the hash {seen.log_hash} for the log up to position {seen.position}; this one has {log_hash}"
    if why:
        at = Position(min(seen.position, Seq(audit.last)))
        text = f"the cluster's record of its cell ({seen.where}) {why}; {RESTORE}"
        yield AuditFinding(check="cluster", position=at, text=text, about=seen.where)


# --- the feed ------------------------------------------------------------------------------------------------------

FEED_FINDINGS_MAX: Final = 20
"""Beyond this number, differences between feed and log are counted, and not reported one by one."""


class FeedJudge:
    """
    Compares a feed with the log that it was derived from.

    First `expect` every commit of the log, in order. Then pass the messages of the feed in their order (`message`): as
    long as each is the next that is expected, its content proves it; its id is used only where one is not.
    """

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._starts = array("Q", [0])
        """At each position, the number of the first event there."""
        self._digests = array("Q")
        self._next = 0
        self.findings: list[AuditFinding] = []
        self.more = 0
        """Findings beyond `FEED_FINDINGS_MAX`."""
        self.messages = 0

    def expect(self, logged: LoggedCommit) -> None:
        """The events of a commit that the feed must contain."""
        while len(self._starts) <= logged.seq:
            self._starts.append(len(self._digests))
        for event in logged.commit.events:
            self._digests.append(_digest(feed_subject(self._cell, event), encode_event(event)))

    @property
    def end(self) -> int:
        """The last position up to which the feed is compared."""
        return len(self._starts) - 1

    def begin(self, first_id: str) -> None:
        """The id of the first message that the feed still has."""
        place = self._place(first_id)
        if place is not None:
            self._next = place

    def is_next(self, subject: str, payload: bytes) -> bool:
        """Whether a message is the next one expected. If so it is consumed."""
        self.messages += 1
        if self._next >= len(self._digests):
            return False
        expected = self._digests[self._next]
        if expected != _digest(subject, payload) and expected != _digest(*_in_present_form(subject, payload)):
            return False
        self._next += 1
        return True

    def message(self, seq: int, message_id: str, branches: tuple[Branch, ...]) -> bool:
        """
        Check a message that is not the next one, by its id.

        False when it is behind the end of the comparison: there is nothing more to check.
        """
        place = self._place(message_id)
        if place is None:
            self._find(Seq(0), f"message {seq} of the feed has the id {message_id!r}: somebody else writes there")
            return True
        named = parse_event_id(message_id)
        tokens = [token_of(branches, number) for number in range(len(branches) + 1)]
        number = tokens.index(named.token) if named.token in tokens else None
        if number is None or (number < len(branches) and named.position.seq > branches[number].after):
            if not branches:
                self._find(named.position.seq, f"message {seq} of the feed is event {named} of another log")
            return True  # Lost behind a break that is recorded in the log.
        if named.position.seq > self.end:
            return False
        if number_at(branches, named.position.seq) != number or place < self._next:
            self._find(named.position.seq, f"message {seq} of the feed has event {named} once more, or out of order")
            return True
        if place > self._next:
            missing = self._id_of(self._next)
            self._find(missing.seq, f"the feed has no message for event {missing} and those up to {named}")
        else:
            self._find(named.position.seq, f"message {seq} of the feed says of event {named} what the log does not say")
        self._next = place + 1
        return True

    def beyond(self, message_id: str, log_end: int) -> None:
        """The feed ends with this message, and the log at a position before it."""
        named = parse_event_id(message_id)
        text = f"the feed ends with event {named}, and the log at position {log_end}: commits are lost; {RESTORE}"
        self._find(named.position.seq, text)

    def _find(self, position: Seq, text: str) -> None:
        if len(self.findings) >= FEED_FINDINGS_MAX:
            self.more += 1
            return
        self.findings.append(AuditFinding(check="feed", position=Position(position), text=text))

    def _place(self, message_id: str) -> int | None:
        """The number of the event that an id names, as if the log continued forever; None when the id is invalid."""
        try:
            position = parse_event_id(message_id).position
        except ValueError:
            return None
        if position.seq > self.end:
            return len(self._digests)
        return self._starts[position.seq] + position.index

    def _id_of(self, number: int) -> Position:
        low, high = 0, self.end
        while low < high:
            middle = (low + high + 1) // 2
            if self._starts[middle] <= number:
                low = middle
            else:
                high = middle - 1
        return Position(Seq(low), number - self._starts[low])


def _in_present_form(subject: str, payload: bytes) -> tuple[str, bytes]:
    """A message that an earlier version published as this one would: with the fields and defaults of today."""
    subject, present = feed_message(subject, payload)
    try:
        return subject, encode_event(decode_event(present))
    except msgspec.DecodeError:
        return subject, present


def _digest(subject: str, payload: bytes) -> int:
    return int.from_bytes(blake2b(payload, digest_size=8, key=subject.encode()[:64]).digest())
