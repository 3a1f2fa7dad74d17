"""
What all events share, and the producers that may append.

An event is a frozen Struct in the past tense whose tag is `<entity>.<event>`: the same two words as in its subject on
the feed. Fields added after a release have defaults, so that old logs remain readable.
"""

import enum

import msgspec


class Producer(enum.StrEnum):
    """The processes that append to the log, each on a subject of its own, fenced by that subject's last sequence."""

    INFORMER_BRIDGE = "informer-bridge"
    QUEUE_MANAGER = "queue-manager"
    SCHEDULER = "scheduler"
    BINDER = "binder"
    UNGATER = "ungater"
    SNAPSHOTTER = "snapshotter"


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """
    Base of every event. Subclasses give their tag, `<entity>.<event>`.

    Events are trees, made from the leaves up and never written into: there are no cycles for the collector to find.
    """


def tag_of(event: "EventBase | type[EventBase]") -> str:
    """The tag, `<entity>.<event>`, of an event or an event type."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
