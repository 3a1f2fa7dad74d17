"""
Leases: which process leads, and in which epoch.

A process that must be the only one (each producer of the log) holds its producer's lease while it leads. The lease
decides which process *tries*; the fence of the log, which refuses a deposed leader's append, makes a mistake harmless.
So leases may err on the side of taking over.

A lease is one record in a register with compare-and-set. Clocks are never compared: an observer takes over when it has
seen the record unchanged for longer than its term *by the observer's own monotonic clock*; a leader steps down when it
could not renew within the term by its own. As the leader counts from before it sent the renewal and the observer from
after it saw it, the leader stops first, unless it is stopped itself (SIGSTOP, a frozen machine); the fence covers that
case.

Each acquisition gets an epoch one higher than the last, forever: records are never deleted, and `epoch_min` provides
the greatest epoch in the log should the register be lost. A restarted process of the same name takes over at once,
without waiting for its former instance to expire.

The rules are here (`LeaseRules`, without clock or I/O), and so is the loop around them (`Lease`), which uses a
register: JetStream's or one in memory.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import msgspec
from msgspec import Struct


class LeaseRecord(Struct, frozen=True, kw_only=True):
    """
    The content of the register. `holder` is "" when the lease was released.

    `instance` and `renewal` make each record unique, so that a writer whose answer was lost can recognise its own.
    `position` and `log_hash` are how far the holder had folded the log at the last renewal, and the hash of the log up
    to there: a later process can detect that the log is shorter, or another one.
    """

    holder: str
    epoch: int
    term_ms: int
    instance: str = ""
    renewal: int = 0
    position: int = 0
    log_hash: str = ""


Head = Callable[[], tuple[int, str]]
"""How far the holder has folded the log, and its hash there."""


class Registered(Struct, frozen=True):
    """A record and the revision of the register that holds it; revision 0 with no record is an empty register."""

    revision: int
    record: LeaseRecord | None


class LeaseRegister(Protocol):
    """One compare-and-set cell. Both calls wait while the broker is unavailable."""

    async def read(self) -> Registered:
        """The current content of the register."""
        ...

    async def write(self, record: LeaseRecord, *, expected: int) -> int | None:
        """
        Replaces the record if the register's revision is `expected`; the new revision, or None if it was not.

        Determines the true outcome when an answer is lost.
        """
        ...


class LeaseRules:
    """
    One candidate's view of a lease: the observed record and the time since when it is unchanged.

    Pure: the caller passes the monotonic time in milliseconds.
    """

    def __init__(self, holder: str, instance: str, term_ms: int, *, epoch_min: int = 0) -> None:
        if not holder:
            raise ValueError("a lease's holder needs a name")
        self._holder = holder
        self._instance = instance
        self._term_ms = term_ms
        self._epoch_min = epoch_min
        self._seen_revision = -1
        self._seen_at_ms = 0

    def bid(self, seen: Registered, now_ms: int) -> LeaseRecord | None:
        """The record to write at `seen.revision` in order to lead, or None: another process leads, try again later."""
        if seen.revision != self._seen_revision:
            self._seen_revision, self._seen_at_ms = seen.revision, now_ms
        record = seen.record
        free = (
            record is None
            or record.holder in ("", self._holder)
            or now_ms - self._seen_at_ms > max(record.term_ms, self._term_ms)
        )
        if not free:
            return None
        epoch = max(record.epoch if record is not None else 0, self._epoch_min) + 1
        return LeaseRecord(holder=self._holder, epoch=epoch, term_ms=self._term_ms, instance=self._instance)

    @staticmethod
    def renewed(record: LeaseRecord, position: int = 0, log_hash: str = "") -> LeaseRecord:
        """The record that keeps the lease for another term, with the head of the log as its holder knows it now."""
        return msgspec.structs.replace(record, renewal=record.renewal + 1, position=position, log_hash=log_hash)

    @staticmethod
    def released(record: LeaseRecord) -> LeaseRecord:
        """The record that releases the lease; it keeps the epoch."""
        return msgspec.structs.replace(record, holder="", renewal=record.renewal + 1)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Leadership:
    """
    Held from an acquisition to its loss. `epoch` goes into every commit; `lost` is set when the lease is lost.

    Wait for `lost`, or check `is_valid` before an action that two processes must not do. Once lost, it stays lost.
    """

    def __init__(self, epoch: int, holder: str, valid_until_ms: int, now_ms: Callable[[], int]) -> None:
        self.epoch = epoch
        self.holder = holder
        self.lost = anyio.Event()
        self.why_lost = ""
        self._valid_until_ms = valid_until_ms
        self._now_ms = now_ms

    def is_valid(self) -> bool:
        """Whether the last renewal is younger than the term, by this machine's clock, right now."""
        if not self.lost.is_set() and self._now_ms() > self._valid_until_ms:
            self.lose("the lease was not renewed within its term")
        return not self.lost.is_set()

    def extend(self, valid_until_ms: int) -> None:
        """The lease was renewed."""
        self._valid_until_ms = valid_until_ms

    @property
    def left_ms(self) -> int:
        """How long the lease holds without a renewal."""
        return self._valid_until_ms - self._now_ms()

    def lose(self, why: str) -> None:
        """The lease is lost, or was released."""
        if not self.lost.is_set():
            self.why_lost = why
            self.lost.set()


class Lease:
    """A candidate for one lease. `hold` waits for leadership; it may be entered again after it ended."""

    def __init__(
        self,
        register: LeaseRegister,
        holder: str,
        *,
        term_ms: int = 5_000,
        now_ms: Callable[[], int] = _monotonic_ms,
        head: Head = lambda: (0, ""),
    ) -> None:
        self._head = head
        self._register = register
        self._holder = holder
        self._term_ms = term_ms
        self._now_ms = now_ms

    @asynccontextmanager
    async def hold(self, *, epoch_min: int = 0) -> AsyncIterator[Leadership]:
        """
        Waits until this candidate leads, renews the lease while the block runs, and releases it at its end.

        The epoch is greater than `epoch_min` (the greatest epoch found in the log) and than every epoch given before.
        The block is not ended when the lease is lost: it has to watch `Leadership.lost`.
        """
        revision, record, asked_at_ms = await self._acquire(epoch_min)
        leadership = Leadership(record.epoch, self._holder, asked_at_ms + self._term_ms, self._now_ms)
        keeper = _Keeper(self._register, self._term_ms, self._now_ms, leadership, revision, record, self._head)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keeper.renew_for_ever)
                tasks.start_soon(keeper.watch_the_clock)
                try:
                    yield leadership
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            await keeper.release()

    async def _acquire(self, epoch_min: int) -> tuple[int, LeaseRecord, int]:
        rules = LeaseRules(self._holder, uuid.uuid4().hex, self._term_ms, epoch_min=epoch_min)
        while True:
            seen = await self._register.read()
            asked_at_ms = self._now_ms()
            bid = rules.bid(seen, asked_at_ms)
            if bid is not None:
                position, log_hash = self._head()
                bid = msgspec.structs.replace(bid, position=position, log_hash=log_hash)
                revision = await self._register.write(bid, expected=seen.revision)
                if revision is not None and self._now_ms() - asked_at_ms <= self._term_ms:
                    return revision, bid, asked_at_ms
            else:
                await anyio.sleep(self._term_ms / 4000)


class _Keeper:
    """Keeps one leadership: renews its record, and ends it when the lease is no longer certain."""

    def __init__(
        self,
        register: LeaseRegister,
        term_ms: int,
        now_ms: Callable[[], int],
        leadership: Leadership,
        revision: int,
        record: LeaseRecord,
        head: Head,
    ) -> None:
        self._head = head
        self._register = register
        self._term_ms = term_ms
        self._now_ms = now_ms
        self._leadership = leadership
        self._revision = revision
        self._record = record

    async def renew_for_ever(self) -> None:
        leadership = self._leadership
        while not leadership.lost.is_set():
            await anyio.sleep(self._term_ms / 3000)
            asked_at_ms = self._now_ms()
            renewed = LeaseRules.renewed(self._record, *self._head())
            revision = await self._register.write(renewed, expected=self._revision)
            if revision is None:
                leadership.lose("another holder took the lease over")
                return
            self._revision, self._record = revision, renewed
            # A renewal that succeeded too late revives nothing: a caller of `is_valid` has stepped down meanwhile.
            if leadership.is_valid():
                leadership.extend(asked_at_ms + self._term_ms)

    async def watch_the_clock(self) -> None:
        while self._leadership.is_valid():  # noqa: ASYNC110 - it is time itself that is waited for
            await anyio.sleep(max(self._leadership.left_ms, 0) / 1000 + 0.001)

    async def release(self) -> None:
        """Releases the lease if it is still ours; if the broker does not answer soon, it expires instead."""
        self._leadership.lose("the lease was given up")
        with anyio.move_on_after(1, shield=True):
            # Under another holder's record the compare-and-set fails, which is correct.
            await self._register.write(LeaseRules.released(self._record), expected=self._revision)
