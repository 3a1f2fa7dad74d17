"""
Planted defects: code that raises for one object of many, put in the place of what is sound.

For the tests of containment, in the simulated world and beside it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from headgate.core import fold
from headgate.core.fold import quarantine
from headgate.core.state.tables import State
from headgate.events.commit import Commit
from headgate.events.ids import Seq


class DefectError(Exception):
    """The defect of these tests."""


def is_of(name: str, key: str) -> bool:
    """Whether a key is that of the Job of this name, of its Workload, or of one of its pods."""
    return key in (f"team/{name}", f"batch/Job/team/{name}") or key.startswith((f"team/job-{name}-", f"team/{name}-"))


@contextmanager
def swapped(place: Any, name: Any, broken: Callable[[Any], Any]) -> Iterator[None]:
    """While the block runs, an attribute or an item is what `broken` makes of it."""
    sound = place[name] if isinstance(place, dict) else getattr(place, name)
    put: Callable[[Any], None] = (
        (lambda value: place.__setitem__(name, value))
        if isinstance(place, dict)
        else (lambda value: setattr(place, name, value))
    )
    put(broken(sound))
    try:
        yield
    finally:
        put(sound)


def raises_if(is_it: Callable[..., bool]) -> Callable[[Any], Any]:
    """A function as it was, but that it raises after its work where something is true of its arguments."""

    def make(sound: Any) -> Any:
        @wraps(sound)
        def broken(*args: Any, **more: Any) -> Any:
            result = sound(*args, **more)
            if is_it(*args):
                raise DefectError("planted")
            return result

        return broken

    return make


def in_fold(kind: Any, name: str) -> Any:
    """In the handler of an event, where that is about the Job of this name or its Workload."""

    def is_it(state: State, event: Any, commit: Commit, seq: Seq) -> bool:
        return is_of(name, quarantine.subject_of(event).key)

    return swapped(fold.HANDLERS, kind, raises_if(is_it))


def in_noting(machine: type, method: str, name: str) -> Any:
    """In a method that takes an event, where that is about the Job of this name or its Workload."""

    def is_it(_: Any, event: Any, *__: Any) -> bool:
        return is_of(name, quarantine.subject_of(event).key)

    return swapped(machine, method, raises_if(is_it))


def over(place: Any, function: str, name: str) -> Any:
    """In a function whose second argument is a workload, or its key."""
    return swapped(place, function, raises_if(lambda _, it, *__: is_of(name, getattr(it, "key", it))))
