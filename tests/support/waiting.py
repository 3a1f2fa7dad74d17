"""
Waiting for what other tasks and processes bring about.

No time is measured: the limit is generous, and there so that a test whose condition never holds ends, with what it
waited for and with everything that it started. pytest's time-out cannot do that, for it leaves the event loop midway.
"""

import inspect
from collections.abc import Awaitable, Callable

import anyio

PAUSE_S = 0.01
PATIENCE_S = 150.0


async def until(
    condition: Callable[[], object | Awaitable[object]], told: Callable[[], object] = lambda: "the condition"
) -> None:
    """
    Return when the condition, a function or a coroutine function, holds.

    Raises AssertionError with the text of `told` when it never does.
    """
    with anyio.move_on_after(PATIENCE_S):
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await anyio.sleep(PAUSE_S)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain: {told()}")
