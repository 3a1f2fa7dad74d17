"""
Calls of plugins: what a plugin raises, or answers against the contract, costs the pod that it was asked for.

A call that fails ends as PluginError, whose status names the plugin, the extension point, the type of the exception and
its message. The caller turns it into the answer of its extension point. What is no plugin's fault passes through.
"""

from collections.abc import Callable, Hashable
from types import UnionType
from typing import Any, Final, TypeVar

import numpy as np

from headgate.core.placement.arrays import Ints
from headgate.core.placement.extenders.calls import AnswersMissingError
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import PreEnqueuePlugin, QueueSortPlugin
from headgate.core.placement.framework.status import Code, PluginError, PluginStatus
from headgate.core.placement.pods import PodInfo
from headgate.core.state.error_text import describe

AnswerT = TypeVar("AnswerT")

PRE_ENQUEUE: Final = "PreEnqueue"
QUEUE_SORT: Final = "QueueSort"

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


def failed(plugin: str, point: str, failure: Exception) -> PluginError:
    """
    What to raise where a plugin has raised an exception.

    Raises what is not the plugin's: MemoryError, the failure of another plugin that this one has asked, and that an
    extender has not answered yet.
    """
    if isinstance(failure, MemoryError | PluginError | AnswersMissingError):
        raise failure
    return PluginError(PluginStatus(Code.ERROR, (f'running {point} plugin "{plugin}": {describe(failure)}',), plugin))


def asked(plugin: str, point: str, kind: type[AnswerT], method: Callable[..., AnswerT], *arguments: Any) -> AnswerT:
    """The answer of a plugin, of the type that the extension point has. Raises PluginError."""
    try:
        answer = method(*arguments)
        check_kind(answer, kind)
        check_status(getattr(answer, "status", answer))
    except Exception as failure:
        raise failed(plugin, point, failure) from failure
    return answer


def pre_enqueued(plugin: PreEnqueuePlugin, cycle: PlacementCycle) -> PluginStatus:
    """What a plugin says of a pod that is to enter the queue, under its name; an exception is an error."""
    try:
        return asked(plugin.name, PRE_ENQUEUE, PluginStatus, plugin.pre_enqueue, cycle).of(plugin.name)
    except PluginError as failure:
        return failure.status


def sort_key(plugin: QueueSortPlugin, pod: PodInfo, queued_ms: int) -> tuple[int | str, ...]:
    """The place of a pod in the queue by a plugin: integers and text, which have an order. Raises PluginError."""
    try:
        key = plugin.sort_key(pod, queued_ms)
        check_kind(key, tuple)
        for part in key:
            check_kind(part, int | str)
    except Exception as failure:
        raise failed(plugin.name, QUEUE_SORT, failure) from failure
    return key


def check_kind(answer: object, kind: type | UnionType) -> None:
    """Raise TypeError for an answer of another type."""
    if not isinstance(answer, kind):
        raise _contradicts(answer, getattr(kind, "__name__", str(kind)))


def check_key(key: Hashable) -> None:
    """Raise TypeError for a key that has a part, however deep, that cannot be looked up."""
    dict.fromkeys((key,))


def check_status(status: Any) -> None:
    """Raise TypeError for what is no status, or one that cannot be kept and written."""
    check_kind(status, PluginStatus)
    check_kind(status.code, Code)
    check_kind(status.reasons, tuple)
    for reason in status.reasons:
        check_kind(reason, str)


def integer(answer: Any) -> int:
    """A score of one node. Raises TypeError or OverflowError for anything but an integer of 64 bits."""
    check_kind(answer, int | np.integer)
    if not _INT_MIN <= answer <= _INT_MAX:
        raise OverflowError(f"{answer} has more than 64 bits")
    return int(answer)


def integers(answer: object, count: int) -> Ints:
    """Answers for many nodes. Raises TypeError or ValueError for anything but an array of so many integers."""
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "iu":
        raise _contradicts(answer, "an array of integers")
    if answer.shape != (count,):
        raise ValueError(f"it answers an array of the shape {answer.shape} for {count} nodes")
    return answer.astype(np.int64, copy=False)


def _contradicts(answer: object, expected: str) -> TypeError:
    kind = type(answer).__name__
    shown = f"{kind} of {answer.dtype}" if isinstance(answer, np.ndarray) else kind
    return TypeError(f"it answers {shown} instead of {expected}")
