"""
Waiting for what other tasks and processes bring about.

No time is measured: the limit is generous, and there so that a test whose condition never holds ends, with what it
waited for and with everything that it started. pytest's time-out cannot do that, for it leaves the event loop midway.
"""

import inspect
from collections.abc import Awaitable, Callable

import anyio

PAUSE_S = 0.01
PAUSE_GROWTH = 1.2
PAUSE_MAX_S = 0.1
"""What takes long is asked for less often: each question about a cluster costs its API server as much as an answer."""

PATIENCE_S = 150.0

Asked = Callable[[], object | Awaitable[object]]
"""A function or a coroutine function."""


async def until(condition: Asked, told: Asked = lambda: "the condition") -> None:
    """
    Return when the condition holds.

    Raises AssertionError with the text of `told` when it never does.
    """
    pause_s = PAUSE_S
    with anyio.move_on_after(PATIENCE_S):
        while True:
            if await _answer(condition):
                return
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_MAX_S)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain: {await _answer(told)}")


async def _answer(asked: Asked) -> object:
    answer = asked()
    return await answer if inspect.isawaitable(answer) else answer
