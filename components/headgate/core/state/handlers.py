"""
The table of handlers by event type, and the types that bind a handler to its event.

Used by the fold and by `headgate.core.log.cell_identity`, whose modules each make a table; `headgate.core.fold` joins
them. A handler that is registered for another event type than its own is a type error. So is passing `of` an event that
no handler is registered for: the type of a table names the events that it has.
"""

from collections.abc import Callable
from typing import Generic, Never, Protocol, TypeVar, cast

from headgate.core.state.tables import State
from headgate.events.base import EventBase
from headgate.events.commit import Commit
from headgate.events.ids import Seq

E = TypeVar("E", bound=EventBase)
Handled = TypeVar("Handled", bound=EventBase, contravariant=True)

Handler = Callable[[State, E, Commit, Seq], None]
"""Applies an event of one type, of a commit at a position of the log, to the state."""


class Find(Protocol):
    """Looks up the handler of an event type; None without one."""

    def __call__(self, kind: type[E], /) -> Handler[E] | None:
        """The handler."""


class EventHandlers(dict[type[EventBase], Handler[Never]], Generic[Handled]):
    """The handlers of the events of the union `Handled`."""

    def on(self, kind: type[E], handler: Handler[E]) -> "EventHandlers[Handled | E]":
        """Add the handler of one more event type, to the table itself."""
        assert kind not in self, f"{kind.__name__} has two handlers"
        self[kind] = handler
        return cast("EventHandlers[Handled | E]", self)

    def joined(self, other: "EventHandlers[E]") -> "EventHandlers[Handled | E]":
        """A table with the handlers of both."""
        both = EventHandlers[Handled | E]({**self, **other})
        assert len(both) == len(self) + len(other), "an event type has a handler in each"
        return both

    def find(self) -> "Find":
        """The look-up of a handler by event type, at the cost of the dictionary's own."""
        return cast("Find", self.get)

    def of(self, event: Handled) -> Handler[Handled]:
        """The handler of an event that has one."""
        return cast("Handler[Handled]", self[type(event)])
