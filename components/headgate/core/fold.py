"""
The fold: state(n) = apply(state(n-1), commit(n)).

There is one fold, and every process that needs state uses it. It checks each commit's envelope (order, fence, hash
chains), then applies its events in order. What it finds broken, it raises: a state beyond a broken commit would not
be the state of this log.

`encode` gives the canonical bytes of a state, the same in every process, on every machine, under any hash seed;
`restore` reads them back.
"""

import msgspec

from headgate.core import attesting, fold_decisions, fold_objects, fold_workloads, identity, places
from headgate.core.state import ProducerRecord, State, Tables
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, chain, commit_id, digest
from headgate.events.effects import LeaderElected


class BrokenLogError(Exception):
    """
    Raised when a commit cannot follow on the commits before it.

    The stream has lost or changed messages, or a producer wrote past its fence. The process must stop.
    """

    def __init__(self, *, seq: int, why: str) -> None:
        super().__init__(
            f"the log is broken at position {seq}: {why}. Nothing from there on was folded. Check the stream with "
            f"`headgate audit`; restore it from a backup, or start a new cell, which rebuilds it from the API server."
        )
        self.seq = seq
        self.why = why


APPLY = {**fold_objects.APPLY, **fold_workloads.APPLY, **fold_decisions.APPLY, **identity.APPLY}


def apply(state: State, logged: LoggedCommit) -> None:
    """
    Fold one commit into the state.

    Raises BrokenLogError when it cannot follow on those before, IllegalTransitionError when an event cannot follow on
    the stage of its workload. The state must not be used after either.
    """
    commit = logged.commit
    producer = state.producers.get(commit.producer)
    if producer is None:
        producer = state.producers[commit.producer] = ProducerRecord()
    _check(state, producer, logged)
    log_hash = chain(state.log_hash, logged.hash)
    attesting.extend(state, commit, logged.seq, log_hash)
    state.position = logged.seq
    state.log_hash = log_hash
    if commit.time_ms > state.now_ms:
        state.now_ms = commit.time_ms
    producer.epoch = commit.epoch
    producer.number = commit.number
    producer.last_hash = logged.hash
    producer.last_seq = logged.seq
    producer.last_ms = commit.time_ms
    for event in commit.events:
        if type(event) is LeaderElected:
            producer.holder = event.holder
            state.relisting = state.relisting or commit.producer is Producer.INFORMER_BRIDGE
        else:
            APPLY[type(event)](state, event, commit, logged.seq)


def _check(state: State, producer: ProducerRecord, logged: LoggedCommit) -> None:
    commit = logged.commit
    why = ""
    if logged.seq <= state.position:
        why = f"it comes after position {state.position}"
    elif commit.number != producer.number + 1:
        why = f"{commit.producer.value} commits {producer.number + 1} to {commit.number - 1} are missing"
    elif commit.prev != producer.last_hash:
        why = (
            f"{commit.producer.value} commit {commit.number} says that the one before it has the hash "
            f"{commit.prev or 'of none'}, but position {producer.last_seq} has {producer.last_hash or 'none'}"
        )
    elif commit.epoch < producer.epoch:
        why = f"{commit.producer.value} of epoch {commit.epoch} wrote after epoch {producer.epoch} had begun"
    elif commit.id != commit_id(commit.producer, commit.epoch, commit.number):
        why = f"its id is {commit.id}, not {commit_id(commit.producer, commit.epoch, commit.number)}"
    else:
        why = attesting.objection(state, commit)
    if why:
        raise BrokenLogError(seq=logged.seq, why=why)


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[Tables] = msgspec.json.Decoder(Tables)
TABLES = tuple(field for field in Tables.__struct_fields__)


def tables(state: State) -> Tables:
    """The state without its indexes: what is encoded."""
    return Tables(**{field: getattr(state, field) for field in TABLES})


def encode(state: State) -> bytes:
    """The canonical bytes of a state: JSON with sorted keys."""
    return _encoder.encode(tables(state))


def state_hash(state: State) -> str:
    """The hash of the canonical bytes."""
    return digest(encode(state))


def restore(cell: str, encoded: bytes) -> State:
    """
    The state that `encode` was given.

    Raises msgspec.MsgspecError when the bytes are none.
    """
    stored = _decoder.decode(encoded)
    state = State(cell=cell, **{field: getattr(stored, field) for field in TABLES})
    fold_objects.reindex(state)
    places.reindex(state)
    return state


def new_state(cell: str) -> State:
    """The state before the first commit."""
    return State(cell=cell)
