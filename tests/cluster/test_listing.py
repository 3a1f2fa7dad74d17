"""Selectors and pages: which objects a list shows, and that pages are of one moment."""

import pytest

from headgate.testing.cluster import BY_PLURAL
from headgate.testing.cluster.storage.store import ENCODED_MAX

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def labelled(client, config_map):
    """Six objects c0..c5 with labels even/odd and a size."""
    for number in range(6):
        labels = {"parity": "even" if number % 2 == 0 else "odd", "size": str(number)}
        if number == 5:
            labels["last"] = ""
        client.create({**config_map, "metadata": {"name": f"c{number}", "namespace": "default", "labels": labels}})
    return client


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("parity=even", "024"),
        ("parity==odd", "135"),
        ("parity!=odd", "024"),
        ("size in (1,2,9)", "12"),
        ("size notin (0,1,2),parity=odd", "35"),
        ("last", "5"),
        ("!last,parity=odd", "13"),
        ("size>3", "45"),
        ("nothing=here", ""),
        ("", "012345"),
    ],
)
def test_label_selectors(labelled, selector, expected):
    """Equality, sets, existence and comparison, and their conjunction."""
    listing = labelled.call("GET", PATH, labelSelector=selector)
    assert "".join(item["metadata"]["name"][1:] for item in listing["items"]) == expected


def test_a_selector_that_cannot_be_read_is_400(labelled):
    """Nothing is guessed."""
    assert labelled.call("GET", PATH, labelSelector="a in b")["reason"] == "BadRequest"
    message = '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert labelled.call("GET", PATH, fieldSelector="data.a=1")["message"] == message


def test_field_selectors_of_pods(client, pod):
    """By node, phase, scheduler and name."""
    client.create(pod)
    other = {**pod, "metadata": {"name": "q"}, "spec": {**pod["spec"], "schedulerName": "headgate"}}
    client.create(other)

    def names(selector):
        return [i["metadata"]["name"] for i in client.call("GET", "/api/v1/pods", fieldSelector=selector)["items"]]

    assert names("spec.schedulerName=headgate") == ["q"]
    assert names("spec.schedulerName!=headgate") == ["p"]
    assert names("spec.nodeName=") == ["p", "q"]
    assert names("metadata.name=p,status.phase=Pending") == ["p"]
    assert names("status.phase=Running") == []


def test_pages_are_of_one_moment(labelled, config_map):
    """Each page is as of the first one's revision: what happens between the pages does not show."""
    first = labelled.call("GET", PATH, limit="2")
    assert [item["metadata"]["name"] for item in first["items"]] == ["c0", "c1"]
    assert first["metadata"]["remainingItemCount"] == 4
    labelled.delete({**config_map, "metadata": {"name": "c3"}})
    labelled.create({**config_map, "metadata": {"name": "c2a"}})
    labelled.patch({**config_map, "metadata": {"name": "c4"}}, "merge", {"data": {"a": "changed"}})
    second = labelled.call("GET", PATH, limit="3", **{"continue": first["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in second["items"]] == ["c2", "c3", "c4"]
    assert second["items"][2]["data"] == {"a": "1"}
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = labelled.call("GET", PATH, limit="3", **{"continue": second["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in last["items"]] == ["c5"]
    assert "continue" not in last["metadata"]


def test_an_old_continue_token_is_410(labelled):
    """When the history no longer reaches back, the client must list again."""
    token = labelled.call("GET", PATH, limit="2")["metadata"]["continue"]
    labelled.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "z"}})
    labelled.cluster.store.tables[("", "configmaps")].compact()
    refusal = labelled.call("GET", PATH, limit="2", **{"continue": token})
    assert (labelled.status, refusal["reason"]) == (410, "Expired")


def test_exact_revisions_are_served_while_the_history_lasts(labelled, config_map):
    """resourceVersionMatch=Exact shows the past; a future revision is 504."""
    then = labelled.call("GET", PATH)["metadata"]["resourceVersion"]
    labelled.delete({**config_map, "metadata": {"name": "c0"}})
    assert len(labelled.call("GET", PATH, resourceVersion=then, resourceVersionMatch="Exact")["items"]) == 6
    assert len(labelled.call("GET", PATH, resourceVersion=then, resourceVersionMatch="NotOlderThan")["items"]) == 5
    labelled.call("GET", PATH, resourceVersion="99999")
    assert labelled.status == 504


def test_lists_across_namespaces_and_by_name(client, config_map):
    """All namespaces, one namespace."""
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    client.create(config_map)
    client.create({**config_map, "metadata": {"name": "d", "namespace": "other"}})
    assert len(client.call("GET", "/api/v1/configmaps")["items"]) == 2
    assert len(client.call("GET", "/api/v1/namespaces/other/configmaps")["items"]) == 1


def test_the_json_of_old_versions_is_not_kept(client, config_map):
    """Versions that watches have sent long ago keep only the object; a list of them has the same contents as before."""
    names = [f"m{number:03}" for number in range(ENCODED_MAX + 20)]
    for name in names:
        client.create({**config_map, "metadata": {**config_map["metadata"], "name": name}})
    kept = list(client.cluster.store.table(BY_PLURAL[("", "configmaps")]).select("default"))
    assert sum(entry._encoded is not None for entry in kept) <= ENCODED_MAX
    items = client.call("GET", "/api/v1/configmaps")["items"]
    assert [item["metadata"]["name"] for item in items] == names
    typed = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert [typed | item for item in items] == [entry.obj for entry in kept]
