"""Events, commits and specs are invisible to the cyclic collector: a state of a million objects costs it little."""

import gc

import msgspec
import pytest

from headgate.events import objects
from headgate.events.commit import Commit, LoggedCommit, decode_commit
from headgate.events.registry import TAGS

STRUCTS = [
    *TAGS.values(),
    Commit,
    LoggedCommit,
    *(each for each in vars(objects).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)),
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_no_type_of_the_contract_is_tracked(struct: type[msgspec.Struct]) -> None:
    """They are trees, so there is nothing for the collector to find; a subclass without it would be walked."""
    assert struct.__struct_config__.gc is False


def test_a_decoded_commit_is_not_tracked() -> None:
    """Neither the envelope, nor its events, nor what they hold."""
    spec = b'{"queueName":"main","podSets":[{"count":1,"template":{"spec":{"containers":[{"name":"c"}]}}}]}'
    event = b'{"type":"workload.observed","workload":"a/w","uid":"u","created_ms":1,"spec":' + spec + b"}"
    payload = (
        b'{"id":"binder-1-1","producer":"binder","epoch":1,"number":1,"time_ms":1,"prev":"","events":[' + event + b"]}"
    )
    logged = decode_commit(1, "s", payload)
    (observed,) = logged.commit.events
    held = [logged, logged.commit, observed, observed.spec, observed.spec.pod_sets[0].template.spec]  # type: ignore[union-attr]
    assert not any(gc.is_tracked(each) for each in held)
