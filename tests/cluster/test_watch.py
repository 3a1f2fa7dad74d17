"""Watches: a list plus its watch is always the present state, and an end is always reported."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.testing.cluster import BY_PLURAL, ApiStatusError, Cluster
from headgate.testing.cluster.api.watch import BOOKMARK_INTERVAL_MS
from headgate.testing.cluster.api.writes import Deletion

PATH = "/api/v1/namespaces/default/configmaps"
CONFIG_MAPS = BY_PLURAL[("", "configmaps")]


def events(watch):
    return [(event["type"], event["object"]) for event in map(msgspec.json.decode, watch.poll())]


def kinds(watch):
    return [(kind, obj["metadata"].get("name")) for kind, obj in events(watch)]


def config_map_named(name, **labels):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "poll", "relist"]), st.sampled_from("abc"), st.sampled_from(["x", "y"])
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from(["", "l=x"]))
def test_list_and_watch_together_are_the_state(steps, selector):
    """Folding the events of a watch into the list it started from gives the list at the end."""
    cluster = Cluster(lambda: 0, controllers=None)
    query = {"labelSelector": selector}

    def listing():
        answer = cluster.request("GET", PATH, query).json()
        typed = {"apiVersion": "v1", "kind": "ConfigMap"}
        items = {item["metadata"]["name"]: typed | item for item in answer["items"]}
        return items, answer["metadata"]["resourceVersion"]

    def started():
        seen, rv = listing()
        return seen, cluster.watch(PATH, {**query, "resourceVersion": rv})

    mirror, watch = started()

    def fold():
        for kind, obj in events(watch):
            name = obj["metadata"]["name"]
            if kind == "DELETED":
                del mirror[name]
            else:
                assert (name in mirror) is (kind == "MODIFIED")
                mirror[name] = obj

    for step, name, label in steps:
        entry = cluster.registry.find(CONFIG_MAPS, "default", name)
        match step:
            case "put":
                cluster.apply(config_map_named(name, l=label))
            case "delete" if entry is not None:
                cluster.registry.delete(CONFIG_MAPS, entry, Deletion())
            case "relist":
                mirror, watch = started()
            case _:
                fold()
    fold()
    assert mirror == listing()[0]


def test_a_watch_without_a_revision_shows_the_state_first(client):
    """Synthetic ADDED events, in key order, then what happens."""
    for name in ("b", "a"):
        client.create(config_map_named(name))
    watch = client.cluster.watch(PATH)
    assert kinds(watch) == [("ADDED", "a"), ("ADDED", "b")]
    client.delete(config_map_named("a"))
    assert kinds(watch) == [("DELETED", "a")]


def test_a_deleted_event_carries_the_revision_of_the_deletion(client):
    """So that a watch can be resumed after it."""
    created = client.create(config_map_named("a"))
    watch = client.cluster.watch(PATH, {"resourceVersion": created["metadata"]["resourceVersion"]})
    client.delete(config_map_named("a"))
    ((kind, obj),) = events(watch)
    assert kind == "DELETED"
    assert int(obj["metadata"]["resourceVersion"]) == client.cluster.store.rv
    resumed = client.cluster.watch(PATH, {"resourceVersion": obj["metadata"]["resourceVersion"]})
    assert resumed.poll() == []


def test_leaving_and_entering_a_selection_are_deleted_and_added(client):
    """A watcher with a selector sees the world through it."""
    watch = client.cluster.watch(PATH, {"labelSelector": "l=x", "resourceVersion": str(client.cluster.store.rv)})
    client.create(config_map_named("a", l="x"))
    client.patch(config_map_named("a"), "merge", {"metadata": {"labels": {"l": "y"}}})
    client.patch(config_map_named("a"), "merge", {"metadata": {"labels": {"l": "x"}}})
    client.patch(config_map_named("a"), "merge", {"data": {"k": "v"}})
    assert kinds(watch) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("MODIFIED", "a")]


def test_a_revision_older_than_the_history_is_gone(client):
    """One ERROR event with 410 Expired, then the end."""
    start = str(client.cluster.store.rv)
    client.create(config_map_named("a"))
    client.cluster.store.table(CONFIG_MAPS).compact()
    watch = client.cluster.watch(PATH, {"resourceVersion": start})
    ((kind, status),) = events(watch)
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"].startswith("too old resource version")
    assert watch.closed


def test_a_watcher_that_does_not_read_falls_out_of_the_history(clock):
    """The history is the only buffer: who is further behind than it gets 410 and must list again."""
    cluster = Cluster(clock, history_max=10)
    watch = cluster.watch(PATH, {"resourceVersion": str(cluster.store.rv)})
    for number in range(21):
        cluster.apply(config_map_named(f"c{number}"))
    ((kind, status),) = events(watch)
    assert (kind, status["code"]) == ("ERROR", 410)
    late = cluster.watch(PATH, {"resourceVersion": str(cluster.store.rv - 5)})
    assert len(late.poll()) == 5


def test_bookmarks_come_with_time_and_before_the_end(client, clock):
    """A silent watch that allows them learns how far it is; timeoutSeconds ends it."""
    watch = client.cluster.watch(
        PATH, {"resourceVersion": str(client.cluster.store.rv), "allowWatchBookmarks": "true", "timeoutSeconds": "90"}
    )
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    assert watch.poll() == []
    assert watch.next_due_ms() == clock.now_ms + BOOKMARK_INTERVAL_MS
    clock.now_ms += BOOKMARK_INTERVAL_MS
    ((kind, obj),) = events(watch)
    assert kind == "BOOKMARK"
    assert obj["kind"] == "ConfigMap"
    assert int(obj["metadata"]["resourceVersion"]) == client.cluster.store.rv
    clock.now_ms += 30_000
    assert [kind for kind, _ in events(watch)] == ["BOOKMARK"]
    assert watch.closed


def test_initial_events_end_with_an_annotated_bookmark(client):
    """sendInitialEvents: the state, the mark, then changes."""
    client.create(config_map_named("a"))
    watch = client.cluster.watch(
        PATH,
        {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"},
    )
    (first, mark) = events(watch)
    assert first[0] == "ADDED"
    assert mark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_of_one_object_sees_only_it(client):
    """By field selector."""
    watch = client.cluster.watch(PATH, {"fieldSelector": "metadata.name=a"})
    client.create(config_map_named("a"))
    client.create(config_map_named("b"))
    assert kinds(watch) == [("ADDED", "a")]


def test_the_callback_tells_of_changes_until_closed(client):
    """Once per change of the watched kind."""
    calls = []
    watch = client.cluster.watch(PATH)
    watch.notify(lambda: calls.append(1))
    client.create(config_map_named("a"))
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    assert len(calls) == 1
    watch.close()
    client.create(config_map_named("b"))
    assert len(calls) == 1
    assert watch.poll() == []


def test_decoded_events_are_those_of_the_lines(client):
    """`poll_events` saves the encoding and has the same contents."""
    one, other = client.cluster.watch(PATH), client.cluster.watch(PATH)
    client.create(config_map_named("a"))
    assert one.poll_events() == events(other)


@pytest.mark.parametrize(("query", "code"), [({"resourceVersion": "x"}, 500), ({"sendInitialEvents": "true"}, 422)])
def test_a_watch_that_contradicts_itself_is_refused(client, query, code):
    """At once, not as an event."""
    with pytest.raises(ApiStatusError) as caught:
        client.cluster.watch(PATH, query)
    assert caught.value.code == code
