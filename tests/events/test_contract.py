"""The event contract: what goes into the log comes out of it, and what is not known stops the reader."""

import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.commit import (
    Commit,
    Position,
    UnreadableCommitError,
    commit_id,
    decode_commit,
    encode_commit,
)
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import ENTITIES, MODULES, TAGS, Event, index_by_tag
from headgate.events.subjects import (
    check_cell,
    escape,
    feed_subject,
    log_subject,
    parse_feed_subject,
    parse_log_subject,
    subject_key,
    unescape,
)

TEXT = st.text(max_size=12)


def values(hint: object) -> st.SearchStrategy[typing.Any]:
    """Any value of a field's type; enough of `st.from_type` for what Structs are made of."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, typing.NewType):
        return values(hint.__supertype__)
    if hint is typing.Any or hint is str:
        return TEXT
    if hint is int:
        return st.integers(-(2**53), 2**53)
    if hint is float:
        return st.integers(-1000, 1000).map(lambda n: n + 0.5)
    if hint is bool:
        return st.booleans()
    if hint is msgspec.UnsetType:
        return st.just(msgspec.UNSET)
    if hint == facts.Manifest:
        return st.dictionaries(TEXT, TEXT, max_size=2).map(lambda each: msgspec.Raw(msgspec.json.encode(each)))
    if hint is type(None):
        return st.none()
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        return st.one_of(*(values(arg) for arg in args))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    if origin in (dict, __import__("collections").abc.Mapping):
        return st.dictionaries(TEXT, values(args[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return structs(hint)
    raise TypeError(hint)


def structs(struct: type[msgspec.Struct]) -> st.SearchStrategy[typing.Any]:
    """Any instance of a Struct."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    return st.fixed_dictionaries({field.name: values(field.type) for field in fields.values()}).map(
        lambda kwargs: struct(**kwargs)
    )


def commit_of(*events: EventBase) -> Commit:
    """A commit that carries these events."""
    return Commit(
        id=commit_id(Producer.BINDER, Epoch(1), 1),
        producer=Producer.BINDER,
        epoch=Epoch(1),
        number=1,
        time_ms=UnixMs(1),
        prev="",
        events=events,  # type: ignore[arg-type]
        cause=Position(Seq(3), 2),
    )


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_every_event_comes_back_as_it_went_in(tag: str) -> None:
    """Round trip: decode(encode(event)) == event, for any values of its fields."""

    @settings(max_examples=12)
    @given(structs(TAGS[tag]))
    def law(event: EventBase) -> None:
        commit = commit_of(event)
        logged = decode_commit(7, "headgate.main.log.binder", encode_commit(commit))
        assert logged.commit == commit
        assert logged.seq == 7

    law()


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_an_unknown_field_is_ignored(tag: str) -> None:
    """A newer writer's additional fields, in the event and in the envelope, do not stop an older reader."""
    required = {field.name: example(field.type) for field in msgspec.structs.fields(TAGS[tag]) if field.required}
    plain = encode_commit(commit_of(TAGS[tag](**required)))
    raw = msgspec.json.decode(plain)
    raw["from_the_future"] = {"a": [1]}
    raw["events"][0]["from_the_future"] = [None]
    assert decode_commit(1, "s", msgspec.json.encode(raw)).commit == decode_commit(1, "s", plain).commit


def example(hint: object) -> object:
    """Some value of a field's type."""
    found: list[object] = []

    @settings(max_examples=1, database=None)
    @given(values(hint))
    def pick(value: object) -> None:
        found.append(value)

    pick()
    return found[0]


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_every_event_says_who_appends_it_and_when(tag: str) -> None:
    """An event's docstring names the process that appends it and the moment."""
    doc = TAGS[tag].__doc__ or ""
    assert "Appended by" in doc
    assert any(
        name in doc
        for name in (
            "informer bridge",
            "queue manager",
            "scheduler",
            "binder",
            "ungater",
            "snapshotter",
            "every process",
        )
    )
    assert any(word in doc for word in ("when", "as the first", "each time", "the next workloads")), doc


def test_an_unknown_event_type_is_refused_by_name() -> None:
    """A fold that skipped what it does not know would not be the state of this log."""
    payload = encode_commit(commit_of(TAGS["node.deleted"](name="n"))).replace(b"node.deleted", b"node.exploded")
    with pytest.raises(UnreadableCommitError) as refused:
        decode_commit(12, "headgate.main.log.binder", payload)
    assert "position 12" in str(refused.value)
    assert "headgate.main.log.binder" in str(refused.value)
    assert "node.exploded" in str(refused.value)
    assert "run that version or newer" in str(refused.value)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff\xfe", b'{"id":1}', b'{"events":[]}'])
def test_bytes_that_are_no_commit_are_refused_with_their_position(payload: bytes) -> None:
    """An undecodable entry stops the reader with position, subject and what to do."""
    with pytest.raises(UnreadableCommitError, match=r"position 5 on x\.y: .*Nothing after it was folded"):
        decode_commit(5, "x.y", payload)


def test_two_events_with_one_tag_are_refused() -> None:
    """The registry refuses duplicate tags."""

    class First(EventBase, frozen=True, tag="thing.happened"):
        pass

    class Second(EventBase, frozen=True, tag="thing.happened"):
        pass

    with pytest.raises(ValueError, match=r"Second and First both have the tag 'thing\.happened'"):
        index_by_tag((First, Second))


def test_a_tag_has_an_entity_and_an_event() -> None:
    """The registry refuses tags that make no feed subject."""

    class Odd(EventBase, frozen=True, tag="thing"):
        pass

    with pytest.raises(ValueError, match="a tag is <entity>"):
        index_by_tag((Odd,))


def test_the_registry_is_the_union() -> None:
    """Each event of the union has a tag and a family, and nothing else has."""
    assert set(TAGS.values()) == set(typing.get_args(Event))
    assert MODULES.keys() == TAGS.keys()
    assert {tag.split(".")[0] for tag in TAGS} == set(ENTITIES)


def test_log_entities_are_not_feed_entities() -> None:
    """The log's subjects and the feed's cannot meet: `log` is no entity."""
    assert "log" not in ENTITIES


@given(st.text())
def test_any_name_survives_as_one_subject_token(name: str) -> None:
    """Escaping is undone by unescaping, and leaves nothing that NATS reads as structure."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    token = escape(name)
    assert unescape(token) == name
    assert token
    assert not set(token) & set(".*> \t\r\n\0")
    assert token.isascii()


@pytest.mark.parametrize("token", ["", "%", "%zz", "a%2"])
def test_a_token_that_escape_cannot_have_made_is_refused(token: str) -> None:
    """Unescaping does not guess."""
    with pytest.raises(ValueError, match="not an escaped subject token"):
        unescape(token)


def test_feed_subjects_can_be_taken_apart() -> None:
    """A feed subject gives back entity, event, namespace and name."""
    event = TAGS["pod.deleted"](pod="team-a/train.0", uid="u")
    subject = feed_subject("main", event)
    assert subject == "headgate.main.pod.deleted.team-a.train%2E0"
    parts = parse_feed_subject(subject)
    assert (parts.cell, parts.entity, parts.event, parts.namespace, parts.name) == (
        "main",
        "pod",
        "deleted",
        "team-a",
        "train.0",
    )


def test_an_event_is_filed_under_its_own_entity() -> None:
    """`job.started` has the subject of the job, though it names the workload, too."""
    event = TAGS["job.started"](job="batch/Job/a/j", job_uid="1", workload="a/w", workload_uid="2")
    assert subject_key(event) == "batch/Job/a/j"


@pytest.mark.parametrize("producer", list(Producer))
def test_log_subjects_can_be_taken_apart(producer: Producer) -> None:
    """A log subject gives back cell and producer."""
    assert parse_log_subject(log_subject("gpu-1", producer)) == ("gpu-1", producer)


@pytest.mark.parametrize("cell", ["", "Main", "a.b", "-a", "a-", "a b", "x" * 64])
def test_a_cell_is_a_dns_label(cell: str) -> None:
    """A cell's name is part of subjects, streams and hosts."""
    with pytest.raises(ValueError, match="DNS label"):
        check_cell(cell)
