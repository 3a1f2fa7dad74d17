"""Deletion of collections: what a selector spares, what finalizers hold, what is answered."""

import pytest
from tests.contract.cases import status
from tests.contract.samples import LEASE, LOCAL_QUEUE, names, watching

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
def sample(request):
    """The kind whose objects are deleted."""
    return request.param


async def test_a_collection_is_deleted_as_far_as_a_selector_chooses(server, namespace, sample):
    """Each chosen object is deleted and shown to watchers; the others stay."""
    await sample.create(server, namespace, "a", "c", labels={"old": "yes"})
    await sample.create(server, namespace, "b")
    version = (await server.call("GET", sample.path(namespace))).json["metadata"]["resourceVersion"]
    answer = await server.call("DELETE", sample.path(namespace), labelSelector="old=yes")
    assert answer.status == 200, answer.json
    assert answer.json["kind"] == f"{sample.kind}List"
    assert names(answer) == ["a", "c"]
    assert names(await server.call("GET", sample.path(namespace))) == ["b"]
    async with watching(server, sample.path(namespace), resourceVersion=version) as events:
        assert sorted(await events.seen(2)) == [("DELETED", "a"), ("DELETED", "c")]


async def test_an_empty_collection_is_deleted_without_ado(server, namespace, sample):
    """The answer is an empty list."""
    answer = await server.call("DELETE", sample.path(namespace))
    assert names(answer) == []


async def test_finalizers_hold_objects_of_a_deleted_collection(server, namespace, sample):
    """They are marked, and go when their finalizers do."""
    await sample.create(server, namespace, "held", finalizers=["example.com/hold"])
    await sample.create(server, namespace, "free")
    assert (await server.call("DELETE", sample.path(namespace))).status == 200
    (held,) = (await server.call("GET", sample.path(namespace))).json["items"]
    assert held["metadata"]["name"] == "held"
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_dry_run_deletes_nothing(server, namespace, sample):
    """The answer is that of a deletion, the objects are still there."""
    await sample.create(server, namespace, "a")
    answer = await server.call("DELETE", sample.path(namespace), dryRun="All")
    assert answer.status == 200, answer.json
    assert names(answer) == ["a"]
    assert names(await server.call("GET", sample.path(namespace))) == ["a"]


async def test_list_options_of_a_deletion_must_go_together(server, namespace, sample):
    """The options choose a list, so they are held to its rules."""
    answer = await server.call("DELETE", sample.path(namespace), resourceVersionMatch="Exact")
    message = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    cause = {
        "reason": "FieldValueForbidden",
        "message": f"Forbidden: {message}",
        "field": "resourceVersionMatch",
    }
    assert answer.json == status(
        422,
        "Invalid",
        f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {message}',
        {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]},
    )
