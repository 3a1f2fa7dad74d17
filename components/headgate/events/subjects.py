"""
NATS subjects: of the log, and of the feed.

The log has one subject per producer, `headgate.<cell>.log.<producer>`, because the broker fences per subject. The feed
has one per event and object, `headgate.<cell>.<entity>.<event>.<namespace>.<name>`, so that subscribers select with
wildcards: `headgate.*.workload.admitted.>` is every admission. The name of a job is prefixed by its group and kind:
`headgate.main.job.started.team-a.batch/Job/train`.

Names of Kubernetes objects may contain characters that separate or match tokens in NATS; they are percent-encoded, and
`parse_feed_subject` decodes them. A part that does not apply is `_`.
"""

import re

import msgspec

from headgate.events.base import EventBase, Producer, tag_of
from headgate.events.ids import split_key

ROOT = "headgate"
NONE = "_"
"""The token of a namespace or name that does not apply."""

_CELL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_UNSAFE = re.compile(r"[^A-Za-z0-9_:~@!$&'()+,;=/-]")
_KEY_FIELDS = ("queue", "limit_range", "name", "request", "template")


class FeedSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a feed subject, unescaped; "" where they do not apply."""

    cell: str
    entity: str
    event: str
    namespace: str = ""
    name: str = ""


def check_cell(cell: str) -> str:
    """
    The name of a cell, validated.

    Raises ValueError: a cell is a DNS label, because it is part of subjects, stream names and host names.
    """
    if not _CELL.fullmatch(cell):
        raise ValueError(f"cell {cell!r} is not a DNS label: use at most 63 of a-z, 0-9 and '-', not '-' at either end")
    return cell


def log_subject(cell: str, producer: Producer) -> str:
    """The subject of a producer's commits."""
    return f"{ROOT}.{check_cell(cell)}.log.{producer.value}"


def parse_log_subject(subject: str) -> tuple[str, Producer]:
    """Cell and producer of a log subject. Raises ValueError when it is none."""
    parts = subject.split(".")
    if len(parts) != 4 or parts[0] != ROOT or parts[2] != "log":
        raise ValueError(f"{subject!r} is not a log subject: expected {ROOT}.<cell>.log.<producer>")
    return check_cell(parts[1]), Producer(parts[3])


def escape(name: str) -> str:
    """A name as one subject token. "" becomes `_`."""
    if name == "":
        return NONE
    if name == NONE:
        return "%5F"
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode()), name)


def unescape(token: str) -> str:
    """The name that `escape` encoded. Raises ValueError on a token that it cannot have produced."""
    if token == NONE:
        return ""
    if not token or re.search(r"%(?![0-9A-F]{2})", token):
        raise ValueError(f"{token!r} is not an escaped subject token")
    parts = re.split(r"((?:%[0-9A-F]{2})+)", token)
    return "".join(bytes.fromhex(part.replace("%", "")).decode() if part.startswith("%") else part for part in parts)


def subject_key(event: EventBase) -> str:
    """The name, `<namespace>/<name>` or reference of an event's object; "" for events about no single object."""
    entity = tag_of(event).partition(".")[0]
    for field in (entity, *_KEY_FIELDS):
        value = getattr(event, field, None)
        if isinstance(value, str):
            return value
    return ""


def place_of(key: str) -> tuple[str, str]:
    """Namespace and name in the key of an event's object. The name of a job is `<group>/<kind>/<name>`."""
    match key.split("/"):
        case [group, kind, namespace, name]:
            return namespace, f"{group}/{kind}/{name}"
        case _:
            return split_key(key)


def feed_subject(cell: str, event: EventBase) -> str:
    """The subject on which the feed publishes an event."""
    namespace, name = place_of(subject_key(event))
    return f"{ROOT}.{check_cell(cell)}.{tag_of(event)}.{escape(namespace)}.{escape(name)}"


def parse_feed_subject(subject: str) -> FeedSubject:
    """The parts of a feed subject. Raises ValueError when it is none."""
    parts = subject.split(".")
    if len(parts) != 6 or parts[0] != ROOT:
        raise ValueError(f"{subject!r} is not {ROOT}.<cell>.<entity>.<event>.<namespace>.<name>, as feed subjects are")
    return FeedSubject(
        cell=check_cell(parts[1]),
        entity=parts[2],
        event=parts[3],
        namespace=unescape(parts[4]),
        name=unescape(parts[5]),
    )
