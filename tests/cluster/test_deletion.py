"""Deletion: preconditions, finalizers, owners, namespaces."""

import pytest

from headgate.testing.cluster import BY_PLURAL

CONFIG_MAPS = BY_PLURAL[("", "configmaps")]


def test_delete_says_what_is_gone(client, config_map):
    """A Status with the uid; then 404."""
    uid = client.create(config_map)["metadata"]["uid"]
    answer = client.delete(config_map)
    assert (answer["status"], answer["details"]["uid"]) == ("Success", uid)
    client.delete(config_map)
    assert client.status == 404


def test_preconditions_protect_from_deleting_another_one(client, config_map):
    """By uid and by resourceVersion."""
    seen = client.create(config_map)["metadata"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        assert client.delete(config_map, {"preconditions": wrong})["reason"] == "Conflict"
    right = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}
    assert client.delete(config_map, {"preconditions": right})["status"] == "Success"


def test_a_finalizer_holds_the_object_until_it_is_removed(client, config_map):
    """DeletionTimestamp is set; no finalizer may come; the last one to go takes the object with it."""
    config_map["metadata"]["finalizers"] = ["example.com/hold"]
    client.create(config_map)
    watch = client.cluster.watch("/api/v1/configmaps", {"resourceVersion": str(client.cluster.store.rv)})
    held = client.delete(config_map)
    assert held["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:20Z"
    client.create(config_map)
    assert client.status == 409
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert "no new finalizers can be added" in client.patch(config_map, "merge", more)["message"]
    client.patch(config_map, "merge", {"metadata": {"finalizers": None}})
    client.get(config_map)
    assert client.status == 404
    assert [kind for kind, _ in watch.poll_events()] == ["MODIFIED", "DELETED"]


def test_delete_collection_takes_what_is_selected(client, config_map):
    """By label, in one namespace."""
    for name in "ab":
        client.create({**config_map, "metadata": {"name": name, "labels": {"n": name}}})
    client.call("DELETE", "/api/v1/namespaces/default/configmaps", labelSelector="n=a")
    assert [o["metadata"]["name"] for o in client.cluster.objects(CONFIG_MAPS)] == ["b"]


@pytest.fixture
def family(client, config_map):
    """An owner, a child that blocks, and a child with two owners."""
    owners = [client.create({**config_map, "metadata": {"name": name}}) for name in ("owner", "other")]
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    client.create({**config_map, "metadata": {"name": "child", "ownerReferences": references[:1]}})
    client.create({**config_map, "metadata": {"name": "shared", "ownerReferences": references}})
    return client


def names(client):
    return [obj["metadata"]["name"] for obj in client.cluster.objects(CONFIG_MAPS)]


def named(config_map, name):
    return {**config_map, "metadata": {"name": name}}


def test_background_deletion_collects_dependents_afterwards(family, config_map):
    """A child with another owner stays, with one reference less."""
    family.delete(named(config_map, "owner"), propagationPolicy="Background")
    assert names(family) == ["child", "other", "shared"]
    family.settle()
    assert names(family) == ["other", "shared"]
    shared = family.get(named(config_map, "shared"))
    assert [owner["name"] for owner in shared["metadata"]["ownerReferences"]] == ["other"]


def test_foreground_deletion_waits_for_what_blocks_it(family, config_map):
    """The owner stays, with its finalizer, until a held child is gone."""
    child = named(config_map, "child")
    family.patch(child, "merge", {"metadata": {"finalizers": ["example.com/hold"]}})
    held = family.delete(named(config_map, "owner"), {"propagationPolicy": "Foreground"})
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    family.settle()
    assert "owner" in names(family)
    assert "deletionTimestamp" in family.get(child)["metadata"]
    family.patch(child, "merge", {"metadata": {"finalizers": None}})
    family.settle()
    assert "child" not in names(family)
    assert "owner" not in names(family)


def test_orphaning_cuts_the_references(family, config_map):
    """The children stay without the owner."""
    family.delete(named(config_map, "owner"), {"propagationPolicy": "Orphan"})
    family.settle()
    assert names(family) == ["child", "other", "shared"]
    assert "ownerReferences" not in family.get(named(config_map, "child"))["metadata"]


def test_a_dependent_of_nobody_is_collected(client, config_map):
    """An owner reference to a uid that does not exist."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "no-such-uid"}
    client.create({**config_map, "metadata": {"name": "child", "ownerReferences": [owner]}})
    client.settle()
    assert names(client) == []


def test_a_namespace_goes_with_all_that_is_in_it(client, config_map, pod):
    """Terminating first: nothing new comes in; then content, then the namespace."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    client.create(space)
    for manifest in (config_map, pod):
        client.create({**manifest, "metadata": {"name": "x", "namespace": "team"}})
    assert client.delete(space)["status"]["phase"] == "Terminating"
    refusal = client.create({**config_map, "metadata": {"name": "y", "namespace": "team"}})
    assert client.status == 403
    assert refusal["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    client.settle()
    client.get(space)
    assert client.status == 404
    assert client.call("GET", "/api/v1/pods")["items"] == []


def test_a_namespace_that_somebody_holds_is_finalized_once(client):
    """A finalizer in its metadata keeps it, empty, until it is removed; nothing is written meanwhile."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "finalizers": ["example.com/hold"]}}
    client.create(space)
    client.delete(space)
    client.settle()
    held = client.get(space)
    assert held["spec"].get("finalizers", []) == []
    client.settle()
    assert client.get(space) == held
    client.patch(space, "merge", {"metadata": {"finalizers": None}})
    client.get(space)
    assert client.status == 404


def test_an_object_that_may_not_be_written_stays(client, workload, job):
    """Its rules ask for a spec, and it has none: who collects garbage cannot take its finalizer away, and continues."""
    owner = client.create(job)["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner["uid"], "blockOwnerDeletion": True}
    bare = {**workload, "metadata": {"name": "w", "namespace": "default", "ownerReferences": [reference]}, "spec": None}
    client.create(bare)
    client.delete(job, {"propagationPolicy": "Foreground"})
    client.settle()
    assert client.get(bare)["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in client.get(job)["metadata"]


def test_deleting_a_job_orphans_its_pods_unless_told_otherwise(client, job):
    """The back-compatible default of batch/v1, with its warning."""
    client.create(job)
    client.settle(until_ms=0)
    client.delete(job)
    assert "child pods are preserved by default" in client.last.headers["Warning"]
    client.settle(until_ms=0)
    (left,) = client.call("GET", "/api/v1/pods")["items"]
    assert "ownerReferences" not in left["metadata"]
