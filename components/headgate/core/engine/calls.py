"""The calls of one machine that are not answered yet: how many run, and which wait because too many do."""

from collections import deque

from headgate.core.machine.contract import Call


class Calls:
    """At most `calls_max` calls run at once; the others wait in order."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._running: set[str] = set()
        self._waiting: deque[Call] = deque()
        self._untold: dict[str, Call] = {}
        """The calls whose end the machine has not been told yet, by id."""

    @property
    def unanswered(self) -> int:
        """Calls without an answer, running or waiting."""
        return len(self._running) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether so many calls are unanswered that no further decision may be taken."""
        return self.unanswered >= self._calls_max

    def add(self, call: Call) -> None:
        """Take a call up. It runs as soon as `start` gives it out."""
        self._waiting.append(call)
        self._untold[call.id] = call

    def end(self, call_id: str) -> None:
        """A call was answered. An id that is not under way is ignored."""
        self._running.discard(call_id)

    def told(self, call_id: str) -> Call | None:
        """The machine is told of the end of a call: which call that was; None of what is no call (a snapshot)."""
        return self._untold.pop(call_id, None)

    def start(self) -> list[Call]:
        """The calls that may run from now on."""
        started = []
        while self._waiting and len(self._running) < self._calls_max:
            call = self._waiting.popleft()
            self._running.add(call.id)
            started.append(call)
        return started

    def clear(self) -> None:
        """Forget all of them."""
        self._running.clear()
        self._waiting.clear()
        self._untold.clear()
