"""
Backoff between repeated attempts: delays double up to a maximum, with jitter so that processes do not synchronise.

The source of randomness is a parameter, so a simulation with a seed waits the same times in every run.
"""

from random import Random

import anyio


class Backoff:
    """
    One series of attempts: each delay is between half of and the whole of the current step.

    The step starts at `first_s` and doubles up to `max_s`, in seconds. Without `random` the jitter is not repeatable.
    """

    def __init__(self, *, first_s: float = 0.02, max_s: float = 2.0, random: Random | None = None) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._random = random or Random()  # noqa: S311 - jitter, not a secret
        self._step_s = first_s

    def next_s(self, at_least_s: float | None = None) -> float:
        """
        The delay before the next attempt, in seconds.

        `at_least_s` is the server's request (`Retry-After`). It is never undercut, and the jitter is added to it, so
        that the clients with the same number do not return at the same instant.
        """
        delay_s = self._step_s * self._random.uniform(0.5, 1.0)
        self._step_s = min(self._step_s * 2, self._max_s)
        return delay_s if at_least_s is None else max(delay_s, at_least_s * self._random.uniform(1.0, 1.25))

    async def wait(self) -> None:
        """Sleeps for the delay before the next attempt."""
        await anyio.sleep(self.next_s())

    def reset(self) -> None:
        """Starts again with the first step: the last attempt made progress."""
        self._step_s = self._first_s
