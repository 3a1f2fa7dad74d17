"""
The registry of all events.

The union below is the contract. A type that is not in it cannot be appended and cannot be read; two types with one tag
are refused when this module is imported.
"""

from types import MappingProxyType
from typing import get_args

from headgate.events.base import EventBase, tag_of
from headgate.events.decisions import Decision
from headgate.events.effects import Effect
from headgate.events.facts import Fact
from headgate.events.queueing import QueueEvent

Event = Fact | QueueEvent | Decision | Effect
"""Any event: a fact, a step of queue life, a decision or an effect."""


def index_by_tag(types: tuple[type[EventBase], ...]) -> dict[str, type[EventBase]]:
    """Event types by tag. Raises ValueError when two share one or a tag is not `<entity>.<event>`."""
    by_tag: dict[str, type[EventBase]] = {}
    for event_type in types:
        tag = tag_of(event_type)
        if tag in by_tag:
            raise ValueError(f"{event_type.__name__} and {by_tag[tag].__name__} both have the tag {tag!r}: rename one")
        if tag.count(".") != 1 or not all(tag.split(".")):
            raise ValueError(f"{event_type.__name__} has the tag {tag!r}: a tag is <entity>.<event>")
        by_tag[tag] = event_type
    return by_tag


TAGS = MappingProxyType(index_by_tag(get_args(Event)))
"""Every event type by its tag."""

MODULES = MappingProxyType(
    {
        **{tag_of(event_type): "fact" for event_type in get_args(Fact)},
        **{tag_of(event_type): "queue event" for event_type in get_args(QueueEvent)},
        **{tag_of(event_type): "decision" for event_type in get_args(Decision)},
        **{tag_of(event_type): "effect" for event_type in get_args(Effect)},
    }
)
"""The family, one of four, of each tag."""

ENTITIES = tuple(sorted({tag.partition(".")[0] for tag in TAGS}))
"""The entity tokens that the feed's subjects start with, after the cell."""
