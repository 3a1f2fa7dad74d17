"""
The journal of a simulated cluster: its objects outlive its process.

A `Journal` owns one directory, locked against a second process, with one file in it, `objects.jsonl`: a header line
(format, seed of the uids), then one line per batch with the objects that it put and deleted. `Cluster` calls `flush`
at the end of every request and of every step of the controllers, before any response or watch shows what they did; a
batch is therefore never half a step, and what the controllers find after a restart is what a step left.

Promises: what was answered has been handed to the operating system, so a process that is killed loses nothing (a
machine that loses power may lose its last seconds: nothing is synced but snapshots). A torn last line, which was
never acknowledged, is dropped with one line to the log. Anything else that cannot be read stops the start with a
JournalError that names file and line. A write that fails ends the process before it answers, by `failed`.

Bound: when the file is larger than COMPACT_RATIO times what the live objects took when it was last written as a
whole, and than COMPACT_BYTES_MIN, it is replaced (by rename) by a snapshot of them; so it is at every start.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from headgate.testing.cluster.kinds import KINDS, Kind
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import ENCODED_MAX, Change, Key, ObjectVersion, Table

JsonObject = dict[str, Any]

FILE: Final = "objects.jsonl"
FORMAT: Final = 1
COMPACT_RATIO: Final = 4
"""How many times as large as its live objects a journal may become."""
COMPACT_BYTES_MIN: Final = 4 * 1024 * 1024
"""A journal smaller than this is left alone."""

_KINDS: Final = {kind.resource: kind for kind in KINDS}
_encode: Final = msgspec.json.Encoder().encode


class JournalError(Exception):
    """The journal cannot be used; the message has the reason and the remedy."""


class JournalFullError(JournalError):
    """Raised when there is no room for the file: starting again helps once there is."""


class JournalInUseError(JournalError):
    """Another process has the journal; it may be about to end."""


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line. `seed` is that of uids and generated names, which have to continue from it."""

    format: int
    seed: str


class _Put(msgspec.Struct, frozen=True, kw_only=True):
    """An object as it is now. `kind` is its resource, as `jobs.batch`."""

    kind: str
    object: Any


class _Gone(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is no more."""

    kind: str
    namespace: str
    name: str


class _Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One further line: what a request or a step changed, and the counters of resource versions and uids after it."""

    rv: int
    identities: int
    put: list[_Put] = []
    delete: list[_Gone] = []


_decode_header: Final = msgspec.json.Decoder(_Header).decode
_decode_batch: Final = msgspec.json.Decoder(_Batch).decode


class _Kept(msgspec.Struct):
    """The contents of a file."""

    seed: str
    rv: int = 0
    identities: int = 0
    objects: dict[tuple[str, Key], JsonObject] = {}


class Journal:
    """
    The objects of one cluster in one directory, which is made.

    `seed` is for a journal that does not exist yet, and should be one that no other cluster has had. `log` gets,
    in one line each, messages for the operator. `failed` is called when a batch cannot be written, and must not
    return: the objects in memory are then ahead of those that would be found again.

    Raises JournalInUseError, and JournalError where the file cannot be read or is damaged.
    """

    def __init__(
        self, directory: Path, *, seed: str, log: Callable[[str], None], failed: Callable[[OSError], NoReturn]
    ) -> None:
        self.path = directory / FILE
        self._log = log
        self._failed = failed
        self._registry: Registry | None = None
        self._pending: dict[tuple[str, Key], ObjectVersion | None] = {}
        self._file = -1
        self._size = 0
        self._compact_at = COMPACT_BYTES_MIN
        try:
            self._lock = _locked(directory)
        except OSError as error:
            raise JournalError(f"{directory} cannot be used: {error.strerror or error}; name another --data") from error
        try:
            self._kept: _Kept | None = _read(self.path, log)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except BaseException:
            os.close(self._lock)
            raise
        self.seed = seed if self._kept is None else self._kept.seed

    def attach(self, registry: Registry) -> None:
        """
        Give an empty registry the objects that were kept, and keep what it changes from now on.

        Its seed has to be the journal's. Raises JournalFullError where the file cannot be written.
        """
        kept, self._kept = self._kept, None
        if kept is not None:
            store = registry.store
            found = (
                (store.table(_KINDS[resource]), key, kept.objects[resource, key]) for resource, key in kept.objects
            )
            registry.restore(kept.identities, kept.rv, found)
        self._registry = registry
        try:
            self._rewrite(registry)
        except OSError as error:
            raise JournalFullError(
                f"{self.path} cannot be written: {error.strerror or error}; make room for it"
            ) from error
        registry.store.listen(self._on_change)

    def flush(self) -> None:
        """Write what has changed since the last flush, as one batch. A failure is passed to `failed`."""
        if not self._pending:
            return
        assert self._registry is not None, "only attached journals hear of changes"
        pending, self._pending = self._pending, {}
        # Answers and watches show most of these too and share their JSON; of many at once they would all be kept.
        shared = len(pending) <= ENCODED_MAX
        puts, gone = [], []
        for (resource, key), entry in pending.items():
            if entry is None:
                gone.append(_Gone(kind=resource, namespace=key[0], name=key[1]))
            else:
                encoded = entry.encoded if shared else _encode(entry.obj)
                puts.append(_Put(kind=resource, object=msgspec.Raw(encoded)))
        line = _line(self._registry, puts, gone)
        try:
            _write_all(self._file, line)
        except OSError as error:
            self._failed(error)
        self._size += len(line)
        if self._size > self._compact_at:
            self._compact(self._registry)

    def close(self) -> None:
        """Write what is left, and let another process have the directory. Closing twice is fine."""
        if self._file >= 0:
            self.flush()
            os.close(self._file)
            self._file = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _on_change(self, table: Table, change: Change) -> None:
        # Of several versions within a batch only the last can ever be read.
        self._pending[table.kind.resource, change.entry.key] = None if change.type == "DELETED" else change.entry

    def _compact(self, registry: Registry) -> None:
        try:
            self._rewrite(registry)
        except OSError as error:
            # The journal is whole without it; it is tried again when the file has doubled.
            self._compact_at = 2 * self._size
            self._log(f"{self.path} grows, for it cannot be rewritten: {error.strerror or error}; make room for it")

    def _rewrite(self, registry: Registry) -> None:
        """Replace the file by one with nothing but the live objects, whole or not at all."""
        part = self.path.with_name(FILE + ".part")
        size = 0
        with part.open("wb") as file:
            size += file.write(_encode(_Header(format=FORMAT, seed=self.seed)) + b"\n")
            size += file.write(_line(registry, [], []))
            for table in registry.store.tables.values():
                for entry in table.select(""):
                    put = _Put(kind=table.kind.resource, object=entry.obj)
                    size += file.write(_line(registry, [put], []))
            file.flush()
            os.fsync(file.fileno())
        fresh = os.open(part, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            part.replace(self.path)
        except BaseException:
            os.close(fresh)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = fresh, size
        self._compact_at = max(COMPACT_BYTES_MIN, COMPACT_RATIO * size)


def _line(registry: Registry, puts: list[_Put], gone: list[_Gone]) -> bytes:
    return _encode(_Batch(rv=registry.store.rv, identities=registry.identities, put=puts, delete=gone)) + b"\n"


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _locked(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise JournalInUseError(
            f"{directory} belongs to a cluster that runs already: stop it, or name another --data"
        ) from None
    return lock


def _read(path: Path, log: Callable[[str], None]) -> _Kept | None:
    """The contents of the file; None when there is none. Raises JournalError on damage, OSError."""
    kept: _Kept | None = None
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        for number, line in enumerate(file, 1):
            try:
                if kept is None:
                    kept = _Kept(_header(line).seed)
                elif line.endswith(b"\n"):
                    _take(kept, _decode_batch(line))
                else:
                    log(
                        f"{path}:{number}: dropped the last record, of which only {len(line)} bytes were written when "
                        "the cluster was killed; nobody was told of what it said"
                    )
            except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
                raise JournalError(
                    f"{path}:{number}: this is no record of a simulated cluster ({error}): put a copy of the file in "
                    "its place, or delete it, and the cluster starts empty"
                ) from error
    return kept


def _header(line: bytes) -> _Header:
    header = _decode_header(line)
    if header.format != FORMAT:
        raise ValueError(f"its format is {header.format}, known is {FORMAT}")
    return header


def _take(kept: _Kept, batch: _Batch) -> None:
    if batch.rv < kept.rv or batch.identities < kept.identities:
        raise ValueError(f"resource version {batch.rv} after {kept.rv}")
    kept.rv, kept.identities = batch.rv, batch.identities
    for put in batch.put:
        kind, metadata = _known(put.kind), put.object["metadata"]
        if not 0 < int(metadata["resourceVersion"]) <= batch.rv:
            raise ValueError(f"resource version {metadata['resourceVersion']} in a batch of {batch.rv}")
        namespace = metadata["namespace"] if kind.namespaced else ""
        kept.objects[put.kind, (namespace, metadata["name"])] = put.object
    for gone in batch.delete:
        # It may have come and gone within the batch.
        kept.objects.pop((gone.kind, (gone.namespace, gone.name)), None)


def _known(resource: str) -> Kind:
    kind = _KINDS.get(resource)
    if kind is None:
        raise ValueError(f"there is no kind {resource!r}")
    return kind
