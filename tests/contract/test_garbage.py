"""Owners and dependents: what the garbage collector deletes, leaves alone or waits for."""

import asyncio

import pytest
from tests.contract.cases import core, kueue
from tests.contract.samples import LEASE, LOCAL_QUEUE

pytestmark = pytest.mark.anyio

WAIT_TRIES = 400
MERGE = "application/merge-patch+json"


async def until(server, path: str, found) -> dict:
    """Wait until an answer is as wished."""
    for _ in range(WAIT_TRIES):
        answer = await server.call("GET", path)
        if found(answer):
            return answer.json
        await asyncio.sleep(0.05)
    raise AssertionError(answer.json)


def is_gone(answer) -> bool:
    """Whether the object is not there."""
    return answer.status == 404


def owned_by(owner, **more) -> dict:
    """A reference to an owner."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **more,
    }


@pytest.fixture
async def owner(server, namespace):
    """An object of a custom kind for others to depend on."""
    (made,) = await LOCAL_QUEUE.create(server, namespace, "owner")
    return made


async def test_dependents_go_in_the_background_of_their_owner(server, namespace, owner):
    """The owner is gone at once; what depends on it follows, and what depends on that."""
    (child,) = await LEASE.create(server, namespace, "child", ownerReferences=[owned_by(owner)])
    await LOCAL_QUEUE.create(server, namespace, "grandchild", ownerReferences=[owned_by(child)])
    await LEASE.create(server, namespace, "other")
    answer = await server.call(
        "DELETE", LOCAL_QUEUE.path(namespace, "owner"), {"propagationPolicy": "Background", "kind": "DeleteOptions"}
    )
    assert answer.json["status"] == "Success"
    assert is_gone(await server.call("GET", LOCAL_QUEUE.path(namespace, "owner")))
    await until(server, LEASE.path(namespace, "child"), is_gone)
    await until(server, LOCAL_QUEUE.path(namespace, "grandchild"), is_gone)
    assert (await server.call("GET", LEASE.path(namespace, "other"))).status == 200


async def test_an_owner_in_the_foreground_waits_for_those_that_block_it(server, namespace, owner):
    """It stays, marked and with a finalizer, until the dependents that block its deletion are gone."""
    await LEASE.create(
        server,
        namespace,
        "held",
        ownerReferences=[owned_by(owner, blockOwnerDeletion=True)],
        finalizers=["example.com/hold"],
    )
    await LEASE.create(server, namespace, "free", ownerReferences=[owned_by(owner)])
    answer = await server.call("DELETE", LOCAL_QUEUE.path(namespace, "owner"), propagationPolicy="Foreground")
    assert answer.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert answer.json["metadata"]["deletionTimestamp"]
    await until(server, LEASE.path(namespace, "free"), is_gone)
    await until(server, LEASE.path(namespace, "held"), lambda found: "deletionTimestamp" in found.json["metadata"])
    assert (await server.call("GET", LOCAL_QUEUE.path(namespace, "owner"))).status == 200
    released = await server.call(
        "PATCH", LEASE.path(namespace, "held"), {"metadata": {"finalizers": None}}, content_type=MERGE
    )
    assert released.status == 200
    await until(server, LEASE.path(namespace, "held"), is_gone)
    await until(server, LOCAL_QUEUE.path(namespace, "owner"), is_gone)


async def test_a_dependent_that_does_not_block_is_not_waited_for(server, namespace, owner):
    """Foreground deletion deletes it, and lets the owner go before it is gone."""
    await LEASE.create(server, namespace, "held", ownerReferences=[owned_by(owner)], finalizers=["example.com/hold"])
    await server.call("DELETE", LOCAL_QUEUE.path(namespace, "owner"), propagationPolicy="Foreground")
    await until(server, LOCAL_QUEUE.path(namespace, "owner"), is_gone)
    held = await until(
        server, LEASE.path(namespace, "held"), lambda found: "deletionTimestamp" in found.json["metadata"]
    )
    assert held["metadata"]["finalizers"] == ["example.com/hold"]


async def test_orphans_stay_without_their_owner(server, namespace, owner):
    """Orphaning cuts the references first; then the owner goes."""
    (other,) = await LOCAL_QUEUE.create(server, namespace, "other")
    await LEASE.create(server, namespace, "only", ownerReferences=[owned_by(owner)])
    await LEASE.create(server, namespace, "both", ownerReferences=[owned_by(owner), owned_by(other)])
    answer = await server.call("DELETE", LOCAL_QUEUE.path(namespace, "owner"), propagationPolicy="Orphan")
    assert answer.json["metadata"]["finalizers"] == ["orphan"]
    await until(server, LOCAL_QUEUE.path(namespace, "owner"), is_gone)
    only = (await server.call("GET", LEASE.path(namespace, "only"))).json
    assert "ownerReferences" not in only["metadata"]
    both = (await server.call("GET", LEASE.path(namespace, "both"))).json
    assert both["metadata"]["ownerReferences"] == [owned_by(other)]


async def test_a_dependent_lives_as_long_as_one_of_its_owners(server, namespace, owner):
    """The reference to the one that is gone is cut; the dependent goes with the last."""
    (second,) = await LOCAL_QUEUE.create(server, namespace, "second")
    await LEASE.create(server, namespace, "child", ownerReferences=[owned_by(owner), owned_by(second)])
    await LOCAL_QUEUE.delete(server, namespace, "owner")
    await until(
        server,
        LEASE.path(namespace, "child"),
        lambda found: found.json["metadata"]["ownerReferences"] == [owned_by(second)],
    )
    await LOCAL_QUEUE.delete(server, namespace, "second")
    await until(server, LEASE.path(namespace, "child"), is_gone)


async def test_an_owner_that_is_another_by_its_uid_is_no_owner(server, namespace, owner):
    """A reference holds by uid: to an object that was never there, or is another by now, it holds nothing."""
    stranger = owned_by(owner) | {"uid": "00000000-0000-0000-0000-000000000000"}
    await LEASE.create(server, namespace, "child", ownerReferences=[stranger])
    await until(server, LEASE.path(namespace, "child"), is_gone)
    assert (await server.call("GET", LOCAL_QUEUE.path(namespace, "owner"))).status == 200


async def test_a_namespaced_object_may_belong_to_a_cluster_scoped_one(server, namespace):
    """The owner is found without a namespace, and its dependents go with it wherever they are."""
    name = server.fresh_name("flavor")
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}}
    made = await server.call("POST", kueue("resourceflavors"), flavor)
    assert made.status == 201, made.json
    await LEASE.create(server, namespace, "child", ownerReferences=[owned_by(made.json)])
    assert (await server.call("DELETE", kueue("resourceflavors", name))).status == 200
    await until(server, LEASE.path(namespace, "child"), is_gone)


async def test_an_owner_in_another_namespace_is_none(server, namespace, owner):
    """References do not cross namespaces: the dependent of an owner elsewhere is an orphan and deleted."""
    elsewhere = await server.fresh_namespace()
    await LEASE.create(server, elsewhere, "child", ownerReferences=[owned_by(owner)])
    await until(server, LEASE.path(elsewhere, "child"), is_gone)


async def test_an_adopted_object_goes_with_its_new_owner(server, namespace, owner):
    """References may be added later, by a patch."""
    (config,) = [(await server.call("POST", core(namespace, "configmaps"), {"metadata": {"name": "adopted"}})).json]
    assert "ownerReferences" not in config["metadata"]
    patch = {"metadata": {"ownerReferences": [owned_by(owner)]}}
    path = core(namespace, "configmaps", "adopted")
    assert (await server.call("PATCH", path, patch, content_type=MERGE)).status == 200
    await LOCAL_QUEUE.delete(server, namespace, "owner")
    await until(server, path, is_gone)
