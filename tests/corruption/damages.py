"""
What may happen to the stores of a cell, by kind. Each damage draws where and how from a seed, and returns what it did.

They are of two sorts: those of a store that fails (bytes flip, ends are cut, entries are lost, come twice or in another
order, an older copy comes back) and those of an attacker who writes (into an entry, under another's name, with every
hash made to match).
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec
from tests.corruption.cells import CELL, Cell, Message, recorded

from headgate.adapters.log import LogEntry
from headgate.core import fold
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.events.commit import decode_commit, digest, encode_commit
from headgate.events.ids import Seq, UnixMs
from headgate.processes.snapshots import store

OTHER_SEED = 9
"""The run that foreign entries come from."""

Damage = Callable[[Cell, random.Random], str]


def _renumbered(entries: list[LogEntry]) -> list[LogEntry]:
    return [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries, 1)]


def _with(entry: LogEntry, payload: bytes) -> LogEntry:
    return msgspec.structs.replace(entry, payload=payload)


def flip(cell: Cell, rng: random.Random) -> str:
    """A bit of an entry is another one."""
    index = rng.randrange(len(cell.entries))
    entry = cell.entries[index]
    at, bit = rng.randrange(len(entry.payload)), rng.randrange(8)
    payload = bytearray(entry.payload)
    payload[at] ^= 1 << bit
    cell.entries[index] = _with(entry, bytes(payload))
    return f"bit {bit} of byte {at} of position {entry.seq}"


def cut(cell: Cell, rng: random.Random) -> str:
    """An entry ends too soon."""
    index = rng.randrange(len(cell.entries))
    entry = cell.entries[index]
    kept = rng.randrange(len(entry.payload))
    cell.entries[index] = _with(entry, entry.payload[:kept])
    return f"position {entry.seq} after {kept} bytes"


def drop(cell: Cell, rng: random.Random) -> str:
    """An entry is not there: there is a hole, or the others have closed up."""
    entry = cell.entries.pop(rng.randrange(len(cell.entries)))
    closed_up = rng.random() < 0.5
    if closed_up:
        cell.entries = _renumbered(cell.entries)
    return f"position {entry.seq}, {'closed up' if closed_up else 'with a hole'}"


def swap(cell: Cell, rng: random.Random) -> str:
    """Two entries have changed places."""
    index = rng.randrange(len(cell.entries) - 1)
    one, other = cell.entries[index], cell.entries[index + 1]
    cell.entries[index : index + 2] = [
        msgspec.structs.replace(other, seq=one.seq, time_ms=one.time_ms),
        msgspec.structs.replace(one, seq=other.seq, time_ms=other.time_ms),
    ]
    return f"positions {one.seq} and {other.seq}"


def duplicate(cell: Cell, rng: random.Random) -> str:
    """An entry is there twice: right behind itself, or at the end."""
    entry = rng.choice(cell.entries)
    where = entry.seq if rng.random() < 0.5 else len(cell.entries)
    cell.entries.insert(where, entry)
    cell.entries = _renumbered(cell.entries)
    return f"position {entry.seq} behind {where}"


def roll_back(cell: Cell, rng: random.Random) -> str:
    """The log is an older copy of itself; the other stores are not."""
    kept = rng.randrange(len(cell.entries))
    del cell.entries[kept:]
    return f"to position {kept}"


def foreign(cell: Cell, rng: random.Random) -> str:
    """An entry of another cell, of another log of this cell, or of none is at the end or in the place of one."""
    other = rng.choice(recorded(OTHER_SEED).entries)
    subject = rng.choice(
        [other.subject, rng.choice(cell.entries).subject, other.subject.replace(f".{CELL}.", ".other.")]
    )
    payload = rng.choice([other.payload, b"{}", b"hello"])
    at_end = rng.random() < 0.5
    index = len(cell.entries) - 1 if at_end else rng.randrange(len(cell.entries))
    here = cell.entries[index]
    if at_end:
        cell.entries.append(LogEntry(here.seq + 1, subject, here.time_ms, payload))
    else:
        cell.entries[index] = LogEntry(here.seq, subject, here.time_ms, payload)
    return f"on {subject}, {'at the end' if at_end else f'in the place of position {here.seq}'}"


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in JSON that is neither a list nor an object."""
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in _leaves(each, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in _leaves(each, (*path, index))]
    return [path]


def _edited(payload: bytes, rng: random.Random, fields: tuple[str, ...]) -> tuple[bytes, str]:
    """A commit in which one value of these fields is another one of its kind."""
    body = msgspec.json.decode(payload)
    path = rng.choice([leaf for key in fields if key in body for leaf in _leaves(body[key], (key,))])
    place = body
    for step in path[:-1]:
        place = place[step]
    before = place[path[-1]]
    match before:
        case bool():
            place[path[-1]] = not before
        case int():
            place[path[-1]] = before + rng.choice([1, -1, 1000])
        case str():
            place[path[-1]] = before[:-1] if rng.random() < 0.5 and before else f"{before}0"
        case _:
            place[path[-1]] = "1"
    return msgspec.json.encode(body), f"{'/'.join(map(str, path))}: {before!r} is {place[path[-1]]!r}"


def edit(cell: Cell, rng: random.Random) -> str:
    """A value in an entry was changed."""
    index = rng.randrange(len(cell.entries))
    entry = cell.entries[index]
    fields = tuple(msgspec.json.decode(entry.payload))
    payload, said = _edited(entry.payload, rng, fields)
    cell.entries[index] = _with(entry, payload)
    return f"position {entry.seq}: {said}"


def rewrite(cell: Cell, rng: random.Random) -> str:
    """A value in an event was changed, and every hash after it recomputed."""
    index = rng.randrange(len(cell.entries))
    payload, said = _edited(cell.entries[index].payload, rng, ("events",))
    at = cell.entries[index].seq
    state = fold.new_state(CELL)
    for number, entry in enumerate(cell.entries):
        try:
            commit = decode_commit(entry.seq, entry.subject, payload if number == index else entry.payload).commit
            if number >= index:
                made, _ = next_commit(
                    state,
                    commit.producer,
                    commit.epoch,
                    Append(events=commit.events, decided_at=commit.decided_at, cause=commit.cause),
                    UnixMs(commit.time_ms),
                    commit.trace,
                )
                entry = _with(entry, encode_commit(made))
                cell.entries[number] = entry
            fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
        except Exception:  # noqa: BLE001 - what cannot be made to match stays as it is
            cell.entries[number:] = [_with(entry, payload) if number == index else entry, *cell.entries[number + 1 :]]
            return f"position {at}, as far as possible: {said}"
    return f"position {at}: {said}"


def clock(cell: Cell, rng: random.Random) -> str:
    """The broker's time of one entry, or of all from one on, is another one."""
    index = rng.randrange(len(cell.entries))
    by_ms = rng.choice([-1, 1]) * rng.choice([500, 60_000, 86_400_000])
    last = index + 1 if rng.random() < 0.5 else len(cell.entries)
    for each in range(index, last):
        entry = cell.entries[each]
        cell.entries[each] = msgspec.structs.replace(entry, time_ms=entry.time_ms + by_ms)
    return f"positions {index + 1} to {last} by {by_ms} ms"


def snapshot(cell: Cell, rng: random.Random) -> str:
    """A snapshot was changed: a byte of it, its contents with every hash made to match, or its position."""
    name = rng.choice(sorted(cell.blobs))
    blob = bytearray(cell.blobs[name])
    how = rng.choice(["byte", "state", "cut", "moved"])
    if how == "byte":
        blob[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del blob[rng.randrange(len(blob)) :]
    elif how == "moved":
        position = int(name.rpartition("-")[2]) + rng.choice([-1, 1, 1000])
        del cell.blobs[name]
        name = store.name_of(Seq(position))
        meta = msgspec.structs.replace(store.read_meta(bytes(blob)), position=position)
        blob[: blob.index(b"\n")] = msgspec.json.encode(meta)
    else:
        encoded = bytes(blob).partition(b"\n")[2]
        tables = msgspec.json.decode(encoded)
        record = tables["cluster_queues"][sorted(tables["cluster_queues"])[0]]
        record["generation"] = record.get("generation", 0) + 1
        changed = msgspec.json.encode(tables, order="deterministic")
        meta = msgspec.structs.replace(
            store.read_meta(bytes(blob)), state_hash=digest(changed), size_bytes=len(changed)
        )
        blob = bytearray(msgspec.json.encode(meta) + b"\n" + changed)
    cell.blobs[name] = bytes(blob)
    return f"{name}: {how}"


def feed(cell: Cell, rng: random.Random) -> str:
    """A message of the feed is lost, doubled, or has other contents."""
    index = rng.randrange(len(cell.feed) - 1)
    message = cell.feed[index]
    how = rng.choice(["lost", "twice", "changed", "swapped"])
    match how:
        case "lost":
            del cell.feed[index]
        case "twice":
            cell.feed.insert(index, message)
        case "changed":
            cell.feed[index] = Message(message.id, message.subject, message.payload + b" ")
        case _:
            cell.feed[index : index + 2] = [cell.feed[index + 1], message]
    return f"{message.id} {how}"


def lease(cell: Cell, rng: random.Random) -> str:
    """The store of the leases is an older one, or one of another log."""
    producer = rng.choice(sorted(cell.leases))
    seen = cell.leases[producer]
    how = rng.choice(["older", "foreign"])
    if how == "older":
        seen = msgspec.structs.replace(seen, epoch=seen.epoch - 1)
    else:
        seen = msgspec.structs.replace(seen, log_hash=digest(seen.log_hash.encode()))
    cell.leases[producer] = seen
    return f"that of the {producer.value}: {how}"


KINDS: dict[str, Damage] = {
    each.__name__: each
    for each in (flip, cut, drop, swap, duplicate, roll_back, foreign, edit, rewrite, clock, snapshot, feed, lease)
}
