"""
Backoff between repeated attempts.

Delays double up to a maximum, with jitter so that processes do not synchronise.
"""

import random

import anyio


class Backoff:
    """One series of attempts. `wait` between them; `reset` when one worked."""

    def __init__(self, *, first_s: float = 0.02, max_s: float = 2.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    async def wait(self) -> None:
        """Sleeps for between half and all of the current delay, and doubles it."""
        delay_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        self._next_s = min(self._next_s * 2, self._max_s)
        await anyio.sleep(delay_s)

    def reset(self) -> None:
        """Starts again with the first delay."""
        self._next_s = self._first_s
