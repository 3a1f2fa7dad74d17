"""Signed commits: a client of the broker without a key has no effect, in any fold; the real processes continue."""

import random
from typing import Any

import msgspec
import pytest
from tests.events.test_contract import example
from tests.support.history import History

from headgate.core import fold
from headgate.core.log.authority import author_of, may_append
from headgate.core.log.refusal import CommitFilter, admitted
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state import sharing
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Commit, LoggedCommit, UnreadableCommitError, commit_id, decode_entry, encode_commit
from headgate.events.facts import NamespaceObserved
from headgate.events.identity import CellFounded, CellKeysChanged
from headgate.events.ids import Epoch, UnixMs
from headgate.events.registry import TAGS
from headgate.events.signing import Signer, anchored, decode_key, encode_key, is_signed_by, signed_here
from headgate.events.subjects import log_subject

BRIDGE, BINDER, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.BINDER, Producer.SCHEDULER
QUEUE_MANAGER = Producer.QUEUE_MANAGER


def signer(number: int) -> Signer:
    return Signer([bytes([number]) * 32])


SIGNERS = {producer: signer(number) for number, producer in enumerate(Producer, 1)}
KEYS = {producer.value: each.public for producer, each in SIGNERS.items()}
FOUNDED = CellFounded(cell="main", cluster="c", stream="s", log_id="l", keys=KEYS, signing="required")


class Signed(History):
    """A founded log whose producers sign. `publish` is what any client can do with the broker's permission."""

    def __init__(self, *, founded: bool = True) -> None:
        super().__init__()
        self.signers = dict(SIGNERS)
        if founded:
            self.commit(BRIDGE, FOUNDED)

    def payload(self, producer: Producer, *events: Any, by: Signer | None = None, **changes: Any) -> bytes:
        """The producer's next commit, encoded and signed."""
        record = self.state.producers.get(producer)
        epoch = record.epoch if record is not None else Epoch(1)
        commit, _ = next_commit(self.state, producer, Epoch(epoch), Append(events=events), UnixMs(self.now_ms))
        commit = msgspec.structs.replace(commit, **changes)
        return (by or self.signers[producer]).sign(encode_commit(commit))

    def publish(self, producer: Producer, payload: bytes) -> bool:
        logged = decode_entry(self.position + 1, log_subject("main", producer), payload, self.now_ms)
        self.commits.append(logged)
        return fold.apply(self.state, logged)

    def commit(self, producer: Producer, *events: Any) -> None:
        assert self.publish(producer, self.payload(producer, *events))

    @property
    def why(self) -> str:
        assert self.state.refused is not None
        return self.state.refused.newest[-1].why


def test_a_signature_covers_everything_that_follows_it() -> None:
    """Each byte of a signed commit counts, and the commit reads as one that is not signed."""
    commit = Commit(
        id=commit_id(BINDER, Epoch(1), 1),
        producer=BINDER,
        epoch=Epoch(1),
        number=1,
        time_ms=UnixMs(5),
        prev="",
        events=(),
    )
    plain = encode_commit(commit)
    payload = SIGNERS[BINDER].sign(plain)
    assert decode_entry(1, "headgate.main.log.binder", payload).commit == commit
    assert b"{" + payload[96:] == plain
    assert is_signed_by(KEYS["binder"], payload)
    assert not is_signed_by(KEYS["scheduler"], payload)
    draw = random.Random(1)
    for index in range(len(payload)):
        changed = bytearray(payload)
        changed[index] ^= 1 << draw.randrange(8)
        assert not is_signed_by(KEYS["binder"], bytes(changed)), index


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"sig":"', b'{"sig":"' + b"A" * 86 + b'",', b"\xff" * 200])
def test_what_is_no_signed_commit_is_not_signed(payload: bytes) -> None:
    """Torn, empty and binary payloads are an answer, not an error."""
    assert not is_signed_by(KEYS["binder"], payload)


def test_keys_are_text_and_seeds_do_not_show() -> None:
    """A key comes back as it was written; other texts are refused; a signer shows its public keys alone."""
    seed = bytes(range(32))
    assert decode_key(encode_key(seed)) == seed
    for bad in ("", "AAAA", "ä" * 43, encode_key(seed) + "A"):
        with pytest.raises(ValueError, match="43 characters"):
            decode_key(bad)
    assert encode_key(seed) not in repr(Signer([seed]))


def some_event(event: type[EventBase]) -> EventBase:
    """An event of a type, with something in each of its required fields."""
    required = {field.name: example(field.type) for field in msgspec.structs.fields(event) if field.required}
    return event(**required)


@pytest.mark.parametrize("producer", list(Producer))
def test_nobody_without_the_key_appends_for_a_process(producer: Producer) -> None:
    """Unsigned, signed by another process's key or by an unknown key: refused, and the real producer continues."""
    log = Signed()
    log.commit(producer)
    before = fold.tables(log.state)
    stranger = signer(99)
    other = next(each for each in Producer if each is not producer)
    plain, _ = next_commit(log.state, producer, Epoch(1), Append(events=()), UnixMs(log.now_ms))
    for payload in (
        encode_commit(plain),
        log.payload(producer, by=stranger),
        log.payload(producer, by=SIGNERS[other]),
        b"hello",
        log.payload(producer)[:-1],
    ):
        assert not log.publish(producer, payload)
        assert f"not signed by the {producer.value}" in log.why
    after = fold.tables(log.state)
    assert after.producers[producer].number == before.producers[producer].number
    assert after.producers[producer].last_seq == log.position
    log.commit(producer)


@pytest.mark.parametrize("tag", sorted(tag for tag, event in TAGS.items() if author_of(event) is not None))
def test_a_forged_event_of_each_type_is_refused(tag: str) -> None:
    """Without the author's key on the author's subject, and with another process's own key on that one's."""
    event: Any = some_event(TAGS[tag])
    author = author_of(TAGS[tag])
    assert author is not None
    other = next(each for each in (SCHEDULER, BINDER, QUEUE_MANAGER) if not may_append(each, TAGS[tag], 0))
    log = Signed()
    log.commit(author)
    log.commit(other)
    before = msgspec.to_builtins(fold.tables(log.state), enc_hook=sharing.plain)
    commit, _ = next_commit(log.state, author, Epoch(1), Append(events=(event,)), UnixMs(log.now_ms))
    assert not log.publish(author, encode_commit(commit))
    assert not log.publish(author, log.payload(author, event, by=SIGNERS[other]))
    assert not log.publish(other, log.payload(other, event))
    assert f"that is for the {author.value} to say" in log.why
    after = msgspec.to_builtins(fold.tables(log.state), enc_hook=sharing.plain)
    for table in before.keys() - {"position", "log_hash", "log_hashes", "producers", "refused"}:
        assert after[table] == before[table], table


def test_a_copy_of_a_signed_commit_is_refused() -> None:
    """The broker's readers see signed commits: publishing one again stops none."""
    log = Signed()
    payload = log.payload(BRIDGE, NamespaceObserved(name="a"))
    assert log.publish(BRIDGE, payload)
    assert not log.publish(BRIDGE, payload)
    assert "it is a copy of commit" in log.why
    assert not log.publish(BINDER, payload)
    log.commit(BRIDGE, NamespaceObserved(name="b"))


def test_what_a_newer_version_has_signed_stops_the_reader() -> None:
    """A signature that holds over an unknown event is no forgery: the state beyond would not be the log's."""
    log = Signed()
    observed = log.payload(BRIDGE, NamespaceObserved(name="a"))
    newer = observed.replace(b"namespace.observed", b"namespace.teleport")
    resigned = SIGNERS[BRIDGE].sign(b"{" + newer[96:])
    with pytest.raises(UnreadableCommitError, match=r"namespace\.teleport"):
        log.publish(BRIDGE, resigned)


def test_keys_are_changed_by_the_bridge_and_count_from_there_on() -> None:
    """Both keys while they are rotated, then the new one alone; only the bridge changes them."""
    log = Signed()
    old, new = SIGNERS[BINDER], signer(77)
    log.commit(BINDER)
    both = {**KEYS, "binder": (*new.public, *old.public)}
    assert not log.publish(BINDER, log.payload(BINDER, CellKeysChanged(keys=both, signing="required")))
    assert not log.publish(BINDER, log.payload(BINDER, by=new))
    log.commit(BRIDGE, CellKeysChanged(keys=both, signing="required"))
    assert log.publish(BINDER, log.payload(BINDER, by=new))
    assert log.publish(BINDER, log.payload(BINDER, by=old))
    log.commit(BRIDGE, CellKeysChanged(keys={**KEYS, "binder": new.public}, signing="required"))
    assert not log.publish(BINDER, log.payload(BINDER, by=old))
    assert log.publish(BINDER, log.payload(BINDER, by=new))
    log.commit(BRIDGE, CellKeysChanged(keys={}, signing="off"))
    plain, _ = next_commit(log.state, BINDER, Epoch(1), Append(events=()), UnixMs(log.now_ms))
    assert log.publish(BINDER, encode_commit(plain))


def forged_log(seed: int) -> list[LoggedCommit]:
    """A log of signed commits with forgeries and copies among them."""
    draw, log = random.Random(seed), Signed()
    for number in range(60):
        producer = draw.choice(list(Producer))
        match draw.randrange(6):
            case 0:
                log.publish(producer, log.payload(producer, by=signer(99)))
            case 1:
                log.publish(producer, draw.choice(log.commits).payload)
            case _:
                log.commit(producer, *([NamespaceObserved(name=f"n{number}")] if producer is BRIDGE else []))
    return log.commits


@pytest.mark.parametrize("draw", range(20))
def test_commits_that_come_many_at_once_are_judged_as_one_by_one(draw: int) -> None:
    """Anchors, gates and who reads beside a state agree with the fold, entry for entry."""
    log = forged_log(draw)
    state, gate, together = fold.new_state("main"), CommitFilter("main"), fold.new_state("main")
    taken = [fold.apply(state, logged) for logged in log]
    assert [gate.admits(logged) for logged in log] == taken
    assert [fold.apply(together, logged) for logged in anchored(log)] == taken
    assert fold.encode(together) == fold.encode(state)
    assert [admitted(state, logged) for logged in log] == taken
    assert False in taken


def test_what_a_process_has_signed_itself_vouches_for_no_other_bytes() -> None:
    """A noted signature is one of a key and of all bytes: another key, and any other byte, is checked and refused."""
    own, other = signer(41), signer(42)
    payload = own.sign(b'{"id":"noted"}')
    signed_here(own.public[0], payload)
    assert is_signed_by(own.public, payload)
    assert not is_signed_by(other.public, payload)
    for at in range(len(payload)):
        forged = bytearray(payload)
        forged[at] ^= 1
        assert not is_signed_by(own.public, bytes(forged))
