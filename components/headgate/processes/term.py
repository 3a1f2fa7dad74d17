"""
One term of leadership: the machine, what reaches it from outside, and what it has asked for.

A term begins when `leader.elected` is folded and ends when the lease is lost, the log refuses an append, or the process
stops; with it end its calls, its feeder and its timer, so nothing of one term reaches the next. Owned by the host's
loop: only that touches the machine.

Bounds: `stimuli_max` stimuli of the feeder wait here (it is held up beyond); while `calls_max` calls have no answer the
host takes no decision, and whatever a machine asked for in one go waits its turn.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus

from headgate.core.about import ObjectFailedError
from headgate.core.machine import Call, Completed, Machine, Stimulus, TakeSnapshot
from headgate.core.state import State
from headgate.events.ids import Epoch
from headgate.processes.status import Counters

Offer = Callable[[Stimulus], Awaitable[None]]
"""Hands a stimulus to the machine; waits while too many wait already."""

Feeder = Callable[[State, Offer], Coroutine[Any, Any, None]]
"""Watches the outside for as long as a term lasts (the informer bridge's reflectors)."""

Report = Callable[[Completed], None]

TIMER_STEP_S = 10.0
"""How late a time may be noticed that has come because the clock was set."""


class Carrier(Protocol):
    """Carries out what machines ask for; cancelled when the term ends."""

    async def call(self, call: Call) -> Completed:
        """
        Carry out one call to the API server, for as long as it takes, and bring the final answer.

        Raises ObjectFailedError when there is no making it.
        """
        ...

    def snapshot(self, command: TakeSnapshot, state: State, report: Report) -> Callable[[], Coroutine[Any, Any, None]]:
        """
        Encode the state as it is now, and return what stores it and reports.

        The state goes on changing while it is stored, so the encoding cannot wait. What comes of the snapshot later
        (its verification) may be reported too, under another id.
        """
        ...


class Term:
    """A term that has been opened in the log."""

    def __init__(
        self,
        epoch: Epoch,
        machine: Machine,
        *,
        carrier: Carrier,
        feeder: Feeder | None,
        counters: Counters,
        ring: Callable[[], None],
        now_ms: Callable[[], int],
        calls_max: int,
        stimuli_max: int,
    ) -> None:
        self.epoch = epoch
        self.machine = machine
        self.dirty = True
        self.failed: ObjectFailedError | None = None
        """An object that a call could not be made for."""
        self._wake_at_ms: int | None = None
        self._carrier = carrier
        self._feeder = feeder
        self._counters = counters
        self._ring = ring
        self._now_ms = now_ms
        self._calls_max = calls_max
        self._stimuli_max = stimuli_max
        self._heard: deque[Stimulus] = deque()
        self._room = asyncio.Event()
        self._waiting: deque[Call] = deque()
        self._calls: dict[str, Call] = {}
        """The calls whose end the machine has not been told yet, by id."""
        self._running = 0
        self._tasks: anyio.abc.TaskGroup | None = None
        self._over = anyio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the term's tasks until it ends; started by the host."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if self._feeder is not None:
                    tasks.start_soon(self._feeder, self.machine.state, self._offer)
                task_status.started()
                await self._over.wait()
                tasks.cancel_scope.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def end(self) -> None:
        """Drop everything that is under way. What has to happen is derived again by the next leader."""
        self._over.set()
        self._heard.clear()
        self._waiting.clear()
        self._counters.calls_unfinished = self._counters.stimuli_waiting = 0

    @property
    def is_full(self) -> bool:
        """Whether so many calls have no answer that no further decision is taken."""
        return self._running + len(self._waiting) >= self._calls_max

    @property
    def calls_unfinished(self) -> int:
        """Calls without an answer."""
        return self._running + len(self._waiting)

    def take_heard(self) -> list[Stimulus]:
        """What reached the term since the last time, in order."""
        heard = list(self._heard)
        self._heard.clear()
        self._room.set()
        self._counters.stimuli_waiting = 0
        return heard

    def ended(self, call_id: str) -> Call | None:
        """The call that has ended; None when it was none of ours (a snapshot)."""
        return self._calls.pop(call_id, None)

    def call(self, call: Call) -> None:
        """Carry out a call; `Completed` follows among what is heard."""
        self._counters.calls += 1
        self._calls[call.id] = call
        self._waiting.append(call)
        self._start_calls()

    def snapshot(self, command: TakeSnapshot) -> None:
        """Store a snapshot of the state as it is now."""
        assert self._tasks is not None
        self._tasks.start_soon(self._carrier.snapshot(command, self.machine.state, self._hear))

    def wake_at(self, at_ms: int) -> None:
        """Ring at this time; replaces an earlier request."""
        self._wake_at_ms = at_ms
        self._set_timer()

    def is_due(self, now_ms: int) -> bool:
        """Whether the time that the machine asked for has come; says so once."""
        if self._wake_at_ms is None or now_ms < self._wake_at_ms:
            return False
        self._wake_at_ms = None
        return True

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._wake_at_ms is None or self._over.is_set():
            return
        delay_s = max(self._wake_at_ms - self._now_ms(), 0) / 1000
        # In steps, so that a clock that is set forward is noticed. One that was set back has not come that far.
        after = self._set_timer if delay_s > TIMER_STEP_S else self._ring_if_due
        self._timer = asyncio.get_running_loop().call_later(min(delay_s, TIMER_STEP_S), after)

    def _ring_if_due(self) -> None:
        if self._wake_at_ms is not None and self._now_ms() < self._wake_at_ms:
            self._set_timer()
        else:
            self._ring()

    def _start_calls(self) -> None:
        assert self._tasks is not None
        while self._waiting and self._running < self._calls_max:
            self._running += 1
            self._tasks.start_soon(self._carry_out, self._waiting.popleft())
        self._counters.calls_unfinished = self.calls_unfinished

    async def _carry_out(self, call: Call) -> None:
        try:
            completed = await self._carrier.call(call)
        except ObjectFailedError as failed:
            self.failed = failed
            self._ring()
            return
        finally:
            self._running -= 1
        if completed.status >= 300:
            self._counters.calls_refused += 1
        self._hear(completed)
        if not self._over.is_set():
            self._start_calls()

    def _hear(self, stimulus: Stimulus) -> None:
        if self._over.is_set():
            return
        self._heard.append(stimulus)
        self._counters.stimuli_waiting = len(self._heard)
        self._ring()

    async def _offer(self, stimulus: Stimulus) -> None:
        while len(self._heard) >= self._stimuli_max:
            self._room.clear()
            await self._room.wait()
        self._hear(stimulus)
