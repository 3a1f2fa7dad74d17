"""
The fold: state(n) = apply(state(n-1), commit(n)).

There is one fold, and every process that needs state uses it. It checks each commit's envelope (order, fence, hash
chains), then applies its events in order. It raises on every violation: a state beyond a broken commit would not be the
state of this log.

An event that cannot be applied raises `EventFailedError`, whatever its handler raises: `headgate.core.fold.containment`
defines what a reader does then. While something is in quarantine (`headgate.core.fold.quarantine`), or where a commit
has failed before, events are applied one by one, and those about several objects object by object.

`encode` gives the canonical bytes of a state, the same in every process, on every machine, under any hash seed;
`restore` reads them back.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.core.fold import (
    decisions as fold_decisions,
)
from headgate.core.fold import (
    extenders as fold_extenders,
)
from headgate.core.fold import (
    nodes as fold_nodes,
)
from headgate.core.fold import (
    objects as fold_objects,
)
from headgate.core.fold import (
    placement as fold_placement,
)
from headgate.core.fold import (
    provisioning as fold_provisioning,
)
from headgate.core.fold import (
    quarantine,
    topology_usage,
    transitions,
)
from headgate.core.fold import (
    topology as fold_topology,
)
from headgate.core.fold import (
    workloads as fold_workloads,
)
from headgate.core.fold.quarantine import EventFailedError, EventPart, Treatments
from headgate.core.log import attestation, cell_identity, refusal
from headgate.core.log.log_time import effective_ms
from headgate.core.state import manifests, resting, sharing
from headgate.core.state.tables import Index, ProducerRecord, State, Tables, Workload
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, chain, commit_id, digest
from headgate.events.effects import LeaderElected, ObjectQuarantined, ObjectReleased
from headgate.events.facts import ObjectObserved
from headgate.events.ids import WorkloadKey
from headgate.events.registry import Event
from headgate.events.remedy import REMEDY


class BrokenLogError(Exception):
    """
    Raised when a commit cannot follow on the commits before it.

    The stream has lost or changed messages, or a producer wrote past its fence. The process must stop.
    """

    def __init__(self, *, seq: int, why: str) -> None:
        super().__init__(
            f"the log is broken at position {seq}: {why}. Nothing from there on was folded. "
            f"`headgate audit` lists all damage. {REMEDY}."
        )
        self.seq = seq
        self.why = why


HANDLERS = (
    fold_objects.HANDLERS.joined(fold_nodes.HANDLERS)
    .joined(fold_workloads.HANDLERS)
    .joined(fold_decisions.HANDLERS)
    .joined(fold_topology.HANDLERS)
    .joined(fold_provisioning.HANDLERS)
    .joined(fold_placement.HANDLERS)
    .joined(fold_extenders.HANDLERS)
    .joined(cell_identity.HANDLERS)
)
"""The handlers of all events but `leader.elected` and those of the quarantine, which `_apply_element` handles."""

_find = HANDLERS.find()


NO_TREATMENTS = Treatments()


# Large: the steps of folding one commit in their order: nothing changes before the commit is accepted.
def apply(state: State, logged: LoggedCommit, treatments: Treatments = NO_TREATMENTS) -> bool:
    """
    Fold one commit into the state. `treatments` are for events that failed before.

    False when the entry is refused: then only the log position changes.

    Raises BrokenLogError when it cannot follow on those before, EventFailedError when an event of it cannot be applied.
    The state must not be used after either.
    """
    why = refusal.refusal(state, logged)
    if why is not None:
        _refuse(state, logged, why)
        return False
    commit = logged.commit
    producer = state.producers.get(commit.producer)
    if producer is None:
        producer = state.producers[commit.producer] = ProducerRecord()
    _check(state, producer, logged)
    log_hash = chain(state.log_hash, logged.hash)
    attestation.extend(state, commit, logged.seq, log_hash)
    state.position = logged.seq
    state.log_hash = log_hash
    claimed_ms = commit.time_ms
    at_ms = effective_ms(state, commit.producer, claimed_ms, logged.stored_ms)
    if at_ms != claimed_ms:
        # All its events are folded at its effective time.
        commit = replace(commit, time_ms=at_ms)
        logged = replace(logged, commit=commit)
    if at_ms > state.now_ms:
        state.now_ms = at_ms
    producer.epoch = commit.epoch
    producer.number = commit.number
    producer.last_hash = logged.hash
    producer.last_seq = logged.seq
    producer.last_ms = claimed_ms
    if state.quarantine or logged.seq in treatments:
        _apply_one_by_one(state, logged, treatments)
        return True
    index = 0
    try:
        for index, event in enumerate(commit.events):
            handler = _find(type(event))
            if handler is None:
                _apply_one_by_one(state, logged, treatments, index)
                return True
            handler(state, event, commit, logged.seq)
    except (BrokenLogError, EventFailedError, MemoryError):
        raise
    except Exception as error:
        raise EventFailedError(EventPart(logged.seq, index, 0), commit.events[index], error) from error
    return True


def _refuse(state: State, logged: LoggedCommit, why: str) -> None:
    if logged.seq <= state.position:
        raise BrokenLogError(seq=logged.seq, why=f"it comes after position {state.position}")
    refusal.refuse(state, logged, why)
    log_hash = chain(state.log_hash, logged.hash)
    attestation.extend(state, None, logged.seq, log_hash)
    state.position = logged.seq
    state.log_hash = log_hash


def _apply_one_by_one(state: State, logged: LoggedCommit, treatments: Treatments, first: int = 0) -> None:
    for index, event in enumerate(logged.commit.events[first:], first):
        for sub, element in enumerate(quarantine.elements(event)):
            at = EventPart(logged.seq, index, sub)
            try:
                _apply_element(state, element, logged, at, treatments)
            except (BrokenLogError, MemoryError):
                raise
            except Exception as error:
                raise EventFailedError(at, element, error) from error


def _apply_element(state: State, event: Event, logged: LoggedCommit, at: EventPart, treatments: Treatments) -> None:
    """Apply an event about one object, unless the event or its object is set aside."""
    failures = treatments.of(at)
    if failures is not None:
        for failure in failures:
            # What an object holds is read from the indexes.
            reindex(state)
            quarantine.set_aside(state, failure, event, at)
        reindex(state)
        own = quarantine.subject_of(event).name
        if any(failure.object.name == own for failure in failures):
            quarantine.set_aside_event(state, event, at)
            return
    match event:
        case LeaderElected():
            state.producers[logged.commit.producer].holder = event.holder
            state.relisting = state.relisting or logged.commit.producer is Producer.INFORMER_BRIDGE
        case ObjectQuarantined():
            if quarantine.quarantined(state, event, logged, at):
                reindex(state)
        case ObjectReleased():
            _put_back(state, event, logged)
        case _:
            if quarantine.applies(state, event, logged.seq):
                HANDLERS.of(event)(state, event, logged.commit, logged.seq)
                quarantine.applied(state, event, logged.seq)


def _put_back(state: State, event: ObjectReleased, logged: LoggedCommit) -> None:
    kept = quarantine.released(state, event)
    if kept is not None:
        reindex(state)
        for fact in kept:
            HANDLERS.of(fact)(state, fact, logged.commit, logged.seq)


def _check(state: State, producer: ProducerRecord, logged: LoggedCommit) -> None:
    commit = logged.commit
    why: str | None = None
    if logged.seq <= state.position:
        why = f"it comes after position {state.position}"
    elif logged.subject and refusal.subjects_of(state.cell)[logged.subject] is not commit.producer:
        why = f"it stands on {logged.subject}, and says that {commit.producer.value} of this cell appended it"
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
        why = attestation.objection(state, commit)
    if why is not None:
        raise BrokenLogError(seq=logged.seq, why=why)


_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=sharing.plain)


class _Encoded(Tables):
    workloads: dict[WorkloadKey, msgspec.Raw] = {}  # type: ignore[assignment]


_decoder: msgspec.json.Decoder[_Encoded] = msgspec.json.Decoder(_Encoded)
_read_workload = msgspec.json.Decoder(Workload).decode
TABLES = tuple(field for field in Tables.__struct_fields__)
RESTING = ("workloads", "jobs")
"""The tables whose records may be at rest."""


def tables(state: State) -> Tables:
    """The state without its indexes: what is encoded."""
    found: dict[str, Any] = {field: getattr(state, field) for field in TABLES}
    for field in RESTING:
        # Empty ones are left out, which the encoder knows of a dict's own type only.
        found[field] = found[field] or {}
    return Tables(**found)


def encode(state: State) -> bytes:
    """The canonical bytes of a state: JSON with sorted keys."""
    encoded = tables(state)
    encoded.objects = {
        resource: {name: manifests.canonical(manifest) for name, manifest in objects.items()}
        for resource, objects in state.objects.items()
    }
    encoded.quarantine = {
        name: replace(record, fact=replace(record.fact, object=manifests.canonical(record.fact.object)))
        if isinstance(record.fact, ObjectObserved)
        else record
        for name, record in state.quarantine.items()
    }
    return _encoder.encode(encoded)


def state_hash(state: State) -> str:
    """The hash of the canonical bytes."""
    return digest(encode(state))


def restore(cell: str, encoded: bytes) -> State:
    """
    The state that `encode` was given.

    Raises msgspec.MsgspecError when the bytes are no encoded state.
    """
    stored = _decoder.decode(encoded)
    state = new_state(cell)
    for field in TABLES:
        if field not in RESTING:
            setattr(state, field, getattr(stored, field))
    state.jobs.update(stored.jobs)
    # Each shares one object among equal specs, as folding does, before the next is read: a snapshot contains each as
    # often as it occurs.
    for key, raw in stored.workloads.items():
        workload = _read_workload(raw)
        fold_workloads.share(state, workload)
        state.workloads[key] = workload
    for job in state.jobs:
        state.jobs.touch(job)
    for record in state.pods.values():
        record.pod = state.shared.pod(record.pod)
    for objects in state.objects.values():
        for name, manifest in objects.items():
            # Each is a part of the snapshot's bytes, which would be kept for it.
            objects[name] = manifest.copy()
    reindex(state)
    return state


def reindex(state: State) -> None:
    """Rebuild every index from the tables."""
    before, state.index = state.index, Index()
    fold_objects.reindex(state)
    fold_provisioning.reindex(state)
    fold_nodes.reindex(state, before)
    topology_usage.reindex(state, before)
    transitions.reindex(state)
    quarantine.reindex(state)
    # Caches that compare the count of changes must find that everything may have changed.
    state.index.changes = max(state.index.changes, before.changes)
    for cluster_queue in {**before.changed, **state.index.changed}:
        transitions.touch(state, cluster_queue)


def new_state(cell: str) -> State:
    """The state before the first commit."""
    return State(cell=cell, workloads=resting.workloads(), jobs=resting.jobs())
