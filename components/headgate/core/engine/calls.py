"""
The unanswered calls of one machine, to the API server and to extenders.

They run, or wait because of the limit.
"""

from collections import deque

from headgate.core.machine.contract import AskExtender, Call


class Calls:
    """At most `calls_max` calls run at once; the others wait in order."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._running: set[str] = set()
        self._waiting: deque[Call | AskExtender] = deque()
        self._untold: dict[str, Call | AskExtender] = {}
        """The calls whose end was not passed to the machine yet, by id."""

    @property
    def unanswered(self) -> int:
        """Calls without an answer, running or waiting."""
        return len(self._running) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the number of unanswered calls forbids a further decision."""
        return self.unanswered >= self._calls_max

    def add(self, call: Call | AskExtender) -> None:
        """Add a call. It runs as soon as `start` returns it."""
        self._waiting.append(call)
        self._untold[call.id] = call

    def end(self, call_id: str) -> None:
        """A call was answered. An id that is not under way is ignored."""
        self._running.discard(call_id)

    def completed(self, call_id: str) -> Call | AskExtender | None:
        """The end of a call is passed to the machine: returns that call; None if it is no call (a snapshot)."""
        return self._untold.pop(call_id, None)

    def start(self) -> list[Call | AskExtender]:
        """The calls that may run from now on."""
        started: list[Call | AskExtender] = []
        while self._waiting and len(self._running) < self._calls_max:
            call = self._waiting.popleft()
            self._running.add(call.id)
            started.append(call)
        return started

    def clear(self) -> None:
        """Drop all of them."""
        self._running.clear()
        self._waiting.clear()
        self._untold.clear()
