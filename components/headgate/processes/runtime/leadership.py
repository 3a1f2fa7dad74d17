"""
The I/O of one machine: its feeder, its calls, its snapshots and its timer.

A `LeadershipTerm` begins when the driver has created a machine and ends when the driver drops it; its tasks end with
it, so nothing of one machine reaches the next. It is owned by the host's loop. Inputs of its tasks go to the driver,
which holds them until it delivers them to the machine.

Bounds: the feeder waits while the driver has no room for its stimuli; the driver decides how many calls run at once
(`headgate.core.engine.driver.DriverLimits`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus

from headgate.core.machine.contract import AskExtender, Call, Completed, Stimulus, TakeSnapshot
from headgate.core.state.attribution import ObjectFailedError
from headgate.core.state.tables import State
from headgate.processes.runtime.process_status import Counters

Offer = Callable[[Stimulus], Awaitable[None]]
"""Passes a stimulus to the machine; waits while too many are pending."""

Feeder = Callable[[State, Offer], Coroutine[Any, Any, None]]
"""Watches an external source for as long as a term lasts (the informer bridge's reflectors)."""

Report = Callable[[Completed], None]

TIMER_STEP_S = 10.0
"""The maximum delay of a timer after the clock was set."""


class Carrier(Protocol):
    """Executes the machines' requests; cancelled when the term ends."""

    async def call(self, call: Call) -> Completed:
        """
        Execute one call to the API server, for as long as it takes, and return the final answer.

        Raises ObjectFailedError when the call cannot be made.
        """
        ...

    async def ask(self, ask: AskExtender) -> Completed:
        """
        Call an extender once. The answer has status 0, and says why, if there is none in time.

        Raises ObjectFailedError when the call cannot be made.
        """
        ...

    def snapshot(self, command: TakeSnapshot, state: State, report: Report) -> Callable[[], Coroutine[Any, Any, None]]:
        """
        Encode the state as it is now, and return what stores it and reports.

        The state goes on changing while it is stored, so the encoding cannot wait. A later result of the snapshot (its
        verification) may be reported too, under another id.
        """
        ...


class NoCallsError(Exception):
    """Raised when a machine requests something that its process has no means for."""


class NoCarrier:
    """For processes that only append."""

    async def call(self, call: Call) -> Completed:
        """Refuse."""
        raise NoCallsError(f"{call.method} {call.path}: this process makes no calls to the API server")

    async def ask(self, ask: AskExtender) -> Completed:
        """Refuse."""
        raise NoCallsError(f"{ask.extender}: this process calls no extenders")

    def snapshot(self, command: TakeSnapshot, state: State, report: Report) -> Callable[[], Coroutine[Any, Any, None]]:  # noqa: ARG002
        """Refuse."""
        raise NoCallsError(f"{command.call_id}: this process takes no snapshots")


class LeadershipTerm:
    """The tasks of a machine. `receive` passes a stimulus to the driver; `has_room`: whether more may wait there."""

    def __init__(
        self,
        state: State,
        *,
        carrier: Carrier,
        feeder: Feeder | None,
        counters: Counters,
        receive: Callable[[Stimulus], None],
        has_room: Callable[[], bool],
        ring: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._carrier = carrier
        self._feeder = feeder
        self._counters = counters
        self._give = receive
        self._has_room = has_room
        self._ring = ring
        self._timer = Timer(ring, now_ms)
        self.failed: ObjectFailedError | None = None
        """An object for which a call could not be made."""
        self._room = asyncio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._over = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the tasks until the term ends; started by the host."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if self._feeder is not None:
                    tasks.start_soon(self._feeder, self._state, self._offer)
                task_status.started()
                await self._over.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._timer.cancel()

    def end(self) -> None:
        """Cancel everything that is under way. The next machine derives the remaining work again."""
        self._over.set()
        self._timer.cancel()

    def call(self, call: Call | AskExtender) -> None:
        """Execute a call; `Completed` follows as a stimulus."""
        assert self._tasks is not None
        self._counters.calls += 1
        self._tasks.start_soon(self._carry_out, call)

    def snapshot(self, command: TakeSnapshot) -> None:
        """Store a snapshot of the state as it is now."""
        assert self._tasks is not None
        self._tasks.start_soon(self._carrier.snapshot(command, self._state, self._receive))

    def wake_at(self, at_ms: int) -> None:
        """Wake the machine at this time; replaces an earlier request."""
        self._timer.set(at_ms)

    def make_room(self) -> None:
        """Pending stimuli were delivered to the machine."""
        self._room.set()

    async def _carry_out(self, call: Call | AskExtender) -> None:
        try:
            match call:
                case AskExtender():
                    completed = await self._carrier.ask(call)
                case Call():
                    completed = await self._carrier.call(call)
        except ObjectFailedError as failed:
            self.failed = failed
            self._ring()
            return
        if completed.status >= 300 or not completed.status:
            self._counters.calls_refused += 1
        self._receive(completed)

    def _receive(self, stimulus: Stimulus) -> None:
        if self._over.is_set():
            return
        self._give(stimulus)
        self._ring()

    async def _offer(self, stimulus: Stimulus) -> None:
        while not self._has_room():
            self._room.clear()
            await self._room.wait()
        self._receive(stimulus)


class Timer:
    """Fires at a time of a clock that may be adjusted meanwhile."""

    def __init__(self, ring: Callable[[], None], now_ms: Callable[[], int]) -> None:
        self._ring = ring
        self._now_ms = now_ms
        self._at_ms = 0
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether it waits for a time."""
        return self._handle is not None

    def set(self, at_ms: int) -> None:
        """Fire at this time, and no longer at the one that was set before."""
        self.cancel()
        self._at_ms = at_ms
        delay_s = max(at_ms - self._now_ms(), 0) / 1000
        # In steps, so that a clock that is set forward is detected. One that was set back has not reached the time yet.
        self._handle = asyncio.get_running_loop().call_later(min(delay_s, TIMER_STEP_S), self._look)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        self._handle = None
        if self._now_ms() < self._at_ms:
            self.set(self._at_ms)
        else:
            self._ring()
