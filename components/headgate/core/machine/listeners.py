"""
Listeners: the parts of a machine, each with the types of events that it is for.

A machine gets every event of the log, and most parts of it need few of them. A listener names its types once, by the
annotation of its parameter:

    def on_event(self, event: facts.PodObserved | facts.PodDeleted) -> None: ...

So mypy knows whether its `match` has a case for each and none for others, and an event that a part is not for costs it
nothing. Used by the machines, which make a table of their parts and pass every event to it.
"""

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from headgate.events.base import EventBase

Listener = Callable[[Any], None]
"""Takes an event of the types that its parameter `event` is annotated with: one event type, or a union of some."""


class Listeners:
    """The listeners of a machine by event type."""

    def __init__(self, *listeners: Listener) -> None:
        self._of: dict[type[EventBase], tuple[Listener, ...]] = {}
        for listener in listeners:
            for kind in _event_types(listener):
                self._of[kind] = (*self._of.get(kind, ()), listener)

    def are_for(self, event: EventBase) -> bool:
        """Whether any of them is for an event of this type."""
        return type(event) in self._of

    def on_event(self, event: EventBase) -> None:
        """Pass an event to those that are for its type, in their order."""
        for listener in self._of.get(type(event), ()):
            listener(event)


def _event_types(listener: Listener) -> tuple[type[EventBase], ...]:
    annotated = get_type_hints(listener)["event"]
    return get_args(annotated) or (annotated,)
