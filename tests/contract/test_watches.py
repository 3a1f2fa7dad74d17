"""Watches: exactly the changes after a version, in order; the present state first; selectors; the ends of a watch."""

from typing import Any

import pytest
from tests.contract.cases import core, status
from tests.contract.samples import LEASE, LOCAL_QUEUE, told, version_of, watched, watching

from headgate.adapters.kubernetes.errors import ApiError

pytestmark = pytest.mark.anyio

STREAM: dict[str, Any] = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.fixture(params=[LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
def sample(request):
    """The kind that is watched."""
    return request.param


async def version_now(server, sample, namespace) -> str:
    """The version of a consistent list."""
    answer = await server.call("GET", sample.path(namespace))
    return answer.json["metadata"]["resourceVersion"]


# --- changes


async def test_a_watch_from_a_version_shows_the_changes_after_it_in_order_and_each_once(server, namespace, sample):
    """Creations, changes and deletions come as they happened, whether before the watch began or after."""
    await sample.create(server, namespace, "a", "b")
    version = await version_now(server, sample, namespace)
    (c,) = await sample.create(server, namespace, "c")
    a = await sample.label(server, namespace, "a", x="1")
    await sample.delete(server, namespace, "b")
    async with watching(server, sample.path(namespace), resourceVersion=version) as events:
        first = await events.take(3)
        assert told(first[0]) == ("ADDED", "c", version_of(c))
        assert told(first[1]) == ("MODIFIED", "a", version_of(a))
        assert first[2]["type"] == "DELETED"
        (d,) = await sample.create(server, namespace, "d")
        again = await sample.label(server, namespace, "a", x="2")
        assert [told(event) for event in await events.take(2)] == [
            ("ADDED", "d", version_of(d)),
            ("MODIFIED", "a", version_of(again)),
        ]
        assert version_of(first[1]["object"]) < version_of(first[2]["object"]) < version_of(d)


async def test_the_objects_of_events_are_the_versions_as_written(server, namespace, sample):
    """An event carries the whole object with its type, as the answer to the write did."""
    version = await version_now(server, sample, namespace)
    (made,) = await sample.create(server, namespace, "a")
    changed = await sample.label(server, namespace, "a", x="1")
    async with watching(server, sample.path(namespace), resourceVersion=version) as events:
        assert await events.take(2) == [{"type": "ADDED", "object": made}, {"type": "MODIFIED", "object": changed}]


async def test_a_deletion_shows_the_last_state_at_the_version_of_the_deletion(server, namespace, sample):
    """DELETED carries what was there last; only its version is new, and later than that of the state."""
    (made,) = await sample.create(server, namespace, "a")
    async with watching(server, sample.path(namespace), resourceVersion=str(version_of(made))) as events:
        await sample.delete(server, namespace, "a")
        event = await events.next()
    assert version_of(event["object"]) > version_of(made)
    made["metadata"]["resourceVersion"] = event["object"]["metadata"]["resourceVersion"]
    assert event == {"type": "DELETED", "object": made}


async def test_a_write_that_changes_nothing_is_no_event(server, namespace, sample):
    """The same label again makes no version, so no event is sent."""
    (made,) = await sample.create(server, namespace, "a", labels={"x": "1"})
    async with watching(server, sample.path(namespace), resourceVersion=str(version_of(made))) as events:
        assert version_of(await sample.label(server, namespace, "a", x="1")) == version_of(made)
        changed = await sample.label(server, namespace, "a", x="2")
        assert told(await events.next()) == ("MODIFIED", "a", version_of(changed))


async def test_a_watch_over_all_namespaces_sees_every_namespace(server, sample):
    """The collection over all namespaces has the changes of all of them in one order."""
    first, second = await server.fresh_namespace(), await server.fresh_namespace()
    version = await version_now(server, sample, first)
    await sample.create(server, first, "a", labels={"case": first})
    await sample.create(server, second, "b", labels={"case": first})
    await sample.delete(server, first, "a")
    async with watching(server, sample.path(), resourceVersion=version, labelSelector=f"case={first}") as events:
        assert await events.seen(3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_a_watch_of_one_name_sees_nothing_else(server, namespace, sample):
    """One object is watched by a field selector on its name."""
    version = await version_now(server, sample, namespace)
    await sample.create(server, namespace, "a", "b")
    await sample.delete(server, namespace, "a", "b")
    async with watching(
        server, sample.path(namespace), resourceVersion=version, fieldSelector="metadata.name=b"
    ) as events:
        assert await events.seen(2) == [("ADDED", "b"), ("DELETED", "b")]


async def test_the_path_of_an_object_is_read_and_not_watched(server, namespace, sample):
    """A get takes no notice of watch=true."""
    (made,) = await sample.create(server, namespace, "a")
    assert (await server.call("GET", sample.path(namespace, "a"), watch="true", timeoutSeconds="1")).json == made
    absent = await server.call("GET", sample.path(namespace, "b"), watch="true", timeoutSeconds="1")
    assert absent.status == 404


# --- selectors


async def test_an_object_enters_and_leaves_a_selection(server, namespace, sample):
    """What begins to match is ADDED, what ceases to match is DELETED, whatever was written."""
    version = await version_now(server, sample, namespace)
    await sample.create(server, namespace, "never")
    (made,) = await sample.create(server, namespace, "a")
    entered = await sample.label(server, namespace, "a", chosen="yes")
    within = await sample.label(server, namespace, "a", other="1")
    left = await sample.label(server, namespace, "a", chosen=None)
    back = await sample.label(server, namespace, "a", chosen="yes")
    await sample.delete(server, namespace, "a")
    async with watching(server, sample.path(namespace), resourceVersion=version, labelSelector="chosen=yes") as events:
        found = await events.take(5)
    assert [told(event) for event in found[:4]] == [
        ("ADDED", "a", version_of(entered)),
        ("MODIFIED", "a", version_of(within)),
        ("DELETED", "a", version_of(left)),
        ("ADDED", "a", version_of(back)),
    ]
    assert found[4]["type"] == "DELETED"
    assert version_of(made) < version_of(entered)


async def test_what_leaves_a_selection_is_shown_as_it_was(server, namespace, sample):
    """The DELETED of an object that ceased to match has the labels that matched, and the version of the change."""
    (made,) = await sample.create(server, namespace, "a", labels={"chosen": "yes"})
    left = await sample.label(server, namespace, "a", chosen="no")
    async with watching(
        server, sample.path(namespace), resourceVersion=str(version_of(made)), labelSelector="chosen=yes"
    ) as events:
        event = await events.next()
    assert told(event) == ("DELETED", "a", version_of(left))
    assert event["object"]["metadata"]["labels"] == {"chosen": "yes"}


async def test_a_pod_is_watched_by_its_node(server, namespace):
    """A binding moves a pod into the selection by node name."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": ""}}
    made = await server.call("POST", core(namespace, "pods"), pod)
    assert made.status == 201, made.json
    async with watching(
        server,
        core(namespace, "pods"),
        resourceVersion=str(version_of(made.json)),
        fieldSelector="spec.nodeName=somewhere",
    ) as events:
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"}, "metadata": {"name": "p"}}
        bound = await server.call("POST", core(namespace, "pods", "p", "binding"), target)
        assert bound.status == 201, bound.json
        event = await events.next()
    assert (event["type"], event["object"]["spec"]["nodeName"]) == ("ADDED", "somewhere")


# --- beginnings


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_from_nowhere_begins_with_what_is_there(server, namespace, sample, version):
    """Without a version, or from 0, all present objects come as ADDED; with bookmarks, one marks their end."""
    made = await sample.create(server, namespace, "b", "a")
    await version_now(server, sample, namespace)
    query = {"resourceVersion": version} if version else {}
    async with watching(server, sample.path(namespace), allowWatchBookmarks="true", **query) as events:
        first = await events.take(2)
        assert [told(event) for event in first] == [
            ("ADDED", "a", version_of(made[1])),
            ("ADDED", "b", version_of(made[0])),
        ]
        end = await events.next()
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await sample.delete(server, namespace, "a")
        assert await events.seen(1) == [("DELETED", "a")]


async def test_a_watch_from_nowhere_without_bookmarks_has_none(server, namespace, sample):
    """Who does not ask for bookmarks gets the present state and then changes."""
    await sample.create(server, namespace, "a")
    async with watching(server, sample.path(namespace)) as events:
        assert await events.seen(1) == [("ADDED", "a")]
        await sample.delete(server, namespace, "a")
        assert await events.seen(1) == [("DELETED", "a")]


@pytest.mark.parametrize("version", ["", "0", "now"])
async def test_a_streaming_list_ends_in_a_bookmark_that_is_as_new_as_a_list(server, namespace, sample, version):
    """
    With sendInitialEvents it gives the state at least as new as the version, then a bookmark.

    A watch from the bookmark's version misses nothing and repeats nothing.
    """
    made = await sample.create(server, namespace, "a", "b")
    now = await version_now(server, sample, namespace)
    query = {"resourceVersion": now if version == "now" else version} if version else {}
    async with watching(server, sample.path(namespace), **STREAM, **query) as events:
        assert [told(event) for event in await events.take(2)] == [
            ("ADDED", name, version_of(obj)) for name, obj in zip("ab", made, strict=True)
        ]
        end = await events.next()
    assert end["type"] == "BOOKMARK"
    assert (end["object"]["kind"], end["object"]["apiVersion"]) == (sample.kind, sample.api_version)
    assert end["object"]["metadata"] == {
        "resourceVersion": end["object"]["metadata"]["resourceVersion"],
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    assert version_of(end["object"]) >= version_of(made[1])
    (c,) = await sample.create(server, namespace, "c")
    async with watching(server, sample.path(namespace), resourceVersion=str(version_of(end["object"]))) as events:
        assert told(await events.next()) == ("ADDED", "c", version_of(c))


async def test_a_streaming_list_of_nothing_is_a_bookmark(server, namespace, sample):
    """The end of the initial events comes also where there are none, and of a selection too."""
    await sample.create(server, namespace, "a")
    async with watching(server, sample.path(namespace), labelSelector="x=y", **STREAM) as events:
        assert (await events.next())["type"] == "BOOKMARK"


async def test_a_streaming_list_from_the_future_times_out_as_an_event(server, namespace):
    """The watch is accepted and ends with an ERROR of code 504."""
    (event,) = await watched(server, LEASE.path(namespace), **STREAM, resourceVersion="99999999", timeoutSeconds="9")
    current = int(event["object"]["message"].rpartition(" ")[2])
    assert event == {
        "type": "ERROR",
        "object": status(
            504,
            "Timeout",
            f"Timeout: Too large resource version: 99999999, current: {current}",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        ),
    }


async def test_a_watch_from_the_future_says_nothing_about_the_past(server, namespace, sample):
    """A version that is not reached yet is waited for in silence: what happens before it is not shown."""
    async with watching(server, sample.path(namespace), resourceVersion="99999999", timeoutSeconds="1") as events:
        await sample.create(server, namespace, "a")
        assert await events.rest() == []


async def test_a_watch_that_sends_no_initial_events_begins_now(server, namespace, sample):
    """With sendInitialEvents=false and no version it begins with the next change."""
    await sample.create(server, namespace, "a")
    await version_now(server, sample, namespace)
    async with watching(
        server, sample.path(namespace), sendInitialEvents="false", resourceVersionMatch="NotOlderThan"
    ) as events:
        await sample.create(server, namespace, "b")
        assert await events.seen(1) == [("ADDED", "b")]


# --- ends


async def test_a_watch_ends_when_its_time_is_up(server, namespace, sample):
    """With timeoutSeconds the stream ends cleanly, without an error."""
    (made,) = await sample.create(server, namespace, "a")
    assert await watched(server, sample.path(namespace), resourceVersion=str(version_of(made))) == []


# --- other views


async def test_a_watch_through_another_version_shows_that_version(server, namespace):
    """Objects are stored in one version and served in both: a watch shows the one of its path."""
    (made,) = await LOCAL_QUEUE.create(server, namespace, "a")
    version = str(version_of(made) - 1)
    async with watching(server, LOCAL_QUEUE.path(namespace, version="v1beta1"), resourceVersion=version) as events:
        event = await events.next()
        assert told(event) == ("ADDED", "a", version_of(made))
        assert event["object"]["apiVersion"] == "kueue.x-k8s.io/v1beta1"
        await LOCAL_QUEUE.delete(server, namespace, "a")
        event = await events.next()
        assert (event["type"], event["object"]["apiVersion"]) == ("DELETED", "kueue.x-k8s.io/v1beta1")


async def test_a_watch_of_metadata_shows_metadata(server, namespace, sample):
    """With as=PartialObjectMetadata events and bookmarks hold type and metadata only."""
    (made,) = await sample.create(server, namespace, "a")
    first, end = (await watched(server, sample.path(namespace), headers={"Accept": PARTIAL}, **STREAM))[:2]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    assert first == {"type": "ADDED", "object": partial | {"metadata": made["metadata"]}}
    assert end["type"] == "BOOKMARK"
    assert end["object"] == partial | {
        "metadata": {
            "resourceVersion": end["object"]["metadata"]["resourceVersion"],
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
    }


async def test_a_watch_of_nothing_yet_waits(server, sample):
    """Neither the namespace nor an object has to be there; what comes is shown."""
    absent = server.fresh_name("later")
    async with watching(server, sample.path(absent)) as events:
        assert (await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": absent}})).status == 201
        await sample.create(server, absent, "a")
        assert await events.seen(1) == [("ADDED", "a")]


# --- refusals


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("sendInitialEvents=true", ["F sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"]),
        ("sendInitialEvents=false", ["F sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"]),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", ["F sendInitialEvents requires setting resourceVersionMatch to NotOlderThan", "N Exact"]),  # noqa: E501
        ("resourceVersionMatch=NotOlderThan", ["F resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"]),  # noqa: E501
        ("resourceVersionMatch=Exact&resourceVersion=5", ["F resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided", "N Exact"]),  # noqa: E501
        ("continue=abc", ["F resourceVersionMatch is forbidden when continue is provided"]),
    ],
)  # fmt: skip
async def test_watch_options_that_do_not_go_together_are_refused(server, namespace, sample, query, causes):
    """422 Invalid before the stream begins."""
    found = []
    for cause in causes:
        code, _, text = cause.partition(" ")
        refusal = ("FieldValueForbidden", f"Forbidden: {text}")
        if code == "N":
            refusal = ("FieldValueNotSupported", f'Unsupported value: "{text}": supported values: "NotOlderThan"')
        found.append({"reason": refusal[0], "message": refusal[1], "field": "resourceVersionMatch"})
    texts = [f"resourceVersionMatch: {cause['message']}" for cause in found]
    given = dict(part.split("=") for part in query.split("&"))
    answer = await server.call("GET", sample.path(namespace), watch="true", **{"timeoutSeconds": "1", **given})
    assert answer.json == status(
        422,
        "Invalid",
        'ListOptions.meta.k8s.io "" is invalid: ' + (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"),
        {"group": "meta.k8s.io", "kind": "ListOptions", "causes": found},
    )


async def test_a_version_that_is_none_is_an_error_without_a_reason(server, namespace, sample):
    """500, in the server's words; a client can do nothing but start again."""
    with pytest.raises(ApiError) as caught:
        async with watching(server, sample.path(namespace), resourceVersion="x"):
            pass
    assert caught.value.status == 500
    assert caught.value.message == 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
