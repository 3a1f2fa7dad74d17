"""A job is named by group, kind, namespace and name; logs that had namespace and name read as batch/v1 Jobs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.events.test_contract import commit_of

from headgate.events import effects, facts
from headgate.events.base import EventBase, tag_of
from headgate.events.commit import decode_commit, encode_commit, encode_event
from headgate.events.ids import JobKey, JobRef, Uid, WorkloadKey
from headgate.events.registry import TAGS
from headgate.events.subjects import feed_subject, parse_feed_subject
from headgate.events.upcasting import feed_message

PART = st.text("abcz-.09", min_size=1, max_size=8)


@given(group=st.one_of(st.just(""), PART), kind=PART, namespace=PART, name=PART)
def test_a_reference_comes_back_from_its_text(group: str, kind: str, namespace: str, name: str) -> None:
    """Also where the group is that of the core API, which has no name."""
    ref = JobRef(group, kind, namespace, name)
    assert JobRef.parse(ref.key) == ref


@pytest.mark.parametrize("text", ["", "train", "team-a/train", "batch/team-a/train", "a/b/c/d/e"])
def test_a_text_that_has_not_four_parts_is_refused(text: str) -> None:
    """A reference is never guessed from less."""
    with pytest.raises(ValueError, match="expected <group>/<kind>/<namespace>/<name>"):
        JobRef.parse(text)


def test_references_that_differ_in_one_part_differ_as_text() -> None:
    """The same namespace and name in two groups, or under two kinds, are different jobs."""
    refs = {
        JobRef("batch", "Job", "team-a", "train"),
        JobRef("batch.volcano.sh", "Job", "team-a", "train"),
        JobRef("batch", "CronJob", "team-a", "train"),
        JobRef("", "Pod", "team-a", "train"),
    }
    assert len({ref.key for ref in refs}) == len(refs)


# --- logs of earlier versions --------------------------------------------------------------------------------------

WITH_JOB = sorted(tag for tag, event in TAGS.items() if any(f.name == "job" for f in msgspec.structs.fields(event)))
REQUIRED: dict[str, Any] = {
    "job_uid": "j",
    "uid": "u",
    "workload": "team-a/w",
    "workload_uid": "w",
    "spec": {"uid": "j", "createdMs": 1},
    "code": 403,
    "reason": "r",
    "message": "m",
}


def former(tag: str, **fields: Any) -> bytes:
    """A commit with an event as an earlier version wrote it."""
    fields_of = {field.name for field in msgspec.structs.fields(TAGS[tag])}
    given = {name: value for name, value in REQUIRED.items() if name in fields_of}
    commit = msgspec.json.decode(encode_commit(commit_of()))
    commit["events"] = [{"type": tag, **given, **fields}]
    return msgspec.json.encode(commit)


def read(payload: bytes) -> EventBase:
    return decode_commit(1, "s", payload).commit.events[0]


def test_every_event_with_a_job_is_known() -> None:
    """The tests below reach all of them."""
    assert {"job.observed", "job.deleted", "job.started", "workload.created", "workload.deleted"} <= set(WITH_JOB)


@pytest.mark.parametrize("tag", WITH_JOB)
def test_a_former_reference_is_that_of_a_batch_job(tag: str) -> None:
    """`team-a/train` in a log of an earlier version is read as `batch/Job/team-a/train`, a present one as it is."""
    if tag == "workload.deleted":
        assert read(former(tag)) == facts.WorkloadDeleted(workload="team-a/w", uid=Uid("u"), job="")  # type: ignore[arg-type]
        return
    present = "batch.volcano.sh/Job/team-a/train"
    assert read(former(tag, job="team-a/train")).job == "batch/Job/team-a/train"  # type: ignore[attr-defined]
    assert read(former(tag, job=present)).job == present  # type: ignore[attr-defined]


@pytest.mark.parametrize("tag", ["object.quarantined", "object.released"])
def test_a_job_that_was_set_aside_is_still_the_same(tag: str) -> None:
    """Of other kinds the name stays as it is: a Workload is known by namespace and name."""
    more = {"error": "e", "where": "w", "version": "v"} if tag == "object.quarantined" else {"why": "w"}
    job = read(former(tag, kind="Job", name="team-a/train", **more))
    workload = read(former(tag, kind="Workload", name="team-a/train", **more))
    assert job.name == "batch/Job/team-a/train"  # type: ignore[attr-defined]
    assert workload.name == "team-a/train"  # type: ignore[attr-defined]


# --- the feed ------------------------------------------------------------------------------------------------------

STARTED = effects.JobStarted(
    job=JobKey("batch/Job/team-a/train"),
    job_uid=Uid("j"),
    workload=WorkloadKey("team-a/w"),
    workload_uid=Uid("w"),
)


def test_jobs_of_two_groups_have_two_subjects() -> None:
    """The namespace has the same place as for every object; group and kind come before the name."""
    other = msgspec.structs.replace(STARTED, job=JobKey("batch.volcano.sh/Job/team-a/train"))
    subject = feed_subject("main", STARTED)
    assert subject != feed_subject("main", other)
    parts = parse_feed_subject(subject)
    assert (parts.entity, parts.namespace, parts.name) == ("job", "team-a", "batch/Job/train")


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (STARTED, "headgate.main.job.started.team-a.train"),
        (
            effects.WorkloadCreated(workload="team-a/w", job=STARTED.job, job_uid=Uid("j")),  # type: ignore[arg-type]
            "headgate.main.workload.created.team-a.w",
        ),
        (
            effects.ObjectReleased(kind="Job", name=STARTED.job, why="it is gone"),
            "headgate.main.object.released.team-a.train",
        ),
    ],
    ids=lambda each: tag_of(each) if isinstance(each, EventBase) else "",
)
def test_a_message_that_an_earlier_version_has_published_is_recognised(event: EventBase, subject: str) -> None:
    """The feed is compared with the log: an event in the former form is equal; anything else is not."""
    present = (feed_subject("main", event), encode_event(event))
    published = encode_event(event).replace(b"batch/Job/", b"")
    assert published != present[1]
    assert feed_message(subject, published) == present
    assert feed_message(*present) == present
    assert feed_message(subject, published.replace(b"team-a", b"team-b", 1)) != present
    assert feed_message(subject.replace("team-a", "team-b"), published) != present
    assert feed_message(subject, published + b" ") != present
