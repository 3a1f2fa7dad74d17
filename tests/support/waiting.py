"""Waiting for what other tasks and processes bring about. The limit is the test's timeout; no time is measured."""

import inspect
from collections.abc import Awaitable, Callable

import anyio

PAUSE_S = 0.01


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Return when the condition, a function or a coroutine function, holds."""
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        await anyio.sleep(PAUSE_S)
