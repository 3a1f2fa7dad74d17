"""Termination of namespaces: what vanishes with one, what holds it, what may not be made in it."""

import asyncio

import pytest
from tests.contract.cases import core, status
from tests.contract.samples import LEASE, LOCAL_QUEUE, names, watching

pytestmark = pytest.mark.anyio

WAIT_TRIES = 300


async def until_gone(server, path: str) -> None:
    """Wait until an object is not there any more."""
    for _ in range(WAIT_TRIES):
        if (await server.call("GET", path)).status == 404:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} is still there")


def of(conditions, *fields: str):
    """Conditions by type, each as the values of some fields."""
    return {condition["type"]: tuple(condition[field] for field in fields) for condition in conditions}


async def test_a_new_namespace_is_active_and_labelled_with_its_name(server, namespace):
    """Every namespace has the finalizer that its termination goes through, and a label that selectors can use."""
    found = (await server.call("GET", f"/api/v1/namespaces/{namespace}")).json
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["status"] == {"phase": "Active"}


async def test_everything_in_a_namespace_vanishes_with_it(server, namespace):
    """The deletion is answered with the namespace as Terminating; watchers see each object go, and then itself."""
    for sample in (LEASE, LOCAL_QUEUE):
        await sample.create(server, namespace, "a", "b")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await server.call("POST", core(namespace, "pods"), pod)).status == 201
    version = (await server.call("GET", LOCAL_QUEUE.path(namespace))).json["metadata"]["resourceVersion"]
    async with watching(server, LOCAL_QUEUE.path(namespace), resourceVersion=version) as events:
        answer = await server.call("DELETE", f"/api/v1/namespaces/{namespace}")
        assert answer.status == 200
        assert answer.json["kind"] == "Namespace"
        assert answer.json["status"] == {"phase": "Terminating"}
        assert answer.json["metadata"]["deletionTimestamp"]
        assert sorted(await events.seen(2)) == [("DELETED", "a"), ("DELETED", "b")]
    await until_gone(server, f"/api/v1/namespaces/{namespace}")
    for path in (LEASE.path(namespace), LOCAL_QUEUE.path(namespace), core(namespace, "pods")):
        assert names(await server.call("GET", path)) == []


async def test_a_finalizer_holds_its_object_and_the_namespace_says_so(server, namespace):
    """
    What is left is counted in the namespace's conditions; the finalizer gone, all of it goes.

    Meanwhile nothing new is made in the namespace: 403 with a cause. Existing objects can be changed, and
    a second deletion has no effect.
    """
    for sample in (LEASE, LOCAL_QUEUE):
        await sample.create(server, namespace, "held", finalizers=["example.com/hold"])
    path = f"/api/v1/namespaces/{namespace}"
    assert (await server.call("DELETE", path)).status == 200
    for _ in range(WAIT_TRIES):
        found = (await server.call("GET", path)).json
        if "conditions" in found["status"]:
            break
        await asyncio.sleep(0.05)
    assert found["status"]["phase"] == "Terminating"
    assert of(found["status"]["conditions"], "status", "reason", "message") == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),  # noqa: E501
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),  # noqa: E501
        "NamespaceContentRemaining": ("True", "SomeResourcesRemain", "Some resources are remaining: leases.coordination.k8s.io has 1 resource instances, localqueues.kueue.x-k8s.io has 1 resource instances"),  # noqa: E501
        "NamespaceFinalizersRemaining": ("True", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances"),  # noqa: E501
    }  # fmt: skip
    held = (await server.call("GET", LEASE.path(namespace, "held"))).json
    assert held["metadata"]["deletionTimestamp"]
    for sample in (LEASE, LOCAL_QUEUE):
        refused = await server.call("POST", sample.path(namespace), sample.manifest("new"))
        details = {"name": "new", "group": sample.group, "kind": sample.plural}
        causes = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        assert refused.json == status(
            403, "Forbidden", f'{sample.resource} "new" is forbidden: {why}', details | {"causes": causes}
        )
        await sample.label(server, namespace, "held", still="changes")
    again = await server.call("DELETE", path)
    assert (again.status, again.json["status"]["phase"]) == (200, "Terminating")
    for sample in (LEASE, LOCAL_QUEUE):
        released = await server.call(
            "PATCH",
            sample.path(namespace, "held"),
            {"metadata": {"finalizers": None}},
            content_type="application/merge-patch+json",
        )
        assert released.status == 200
    await until_gone(server, path)


async def test_nothing_is_made_in_a_namespace_that_is_not_there(server):
    """404 names the namespace, not the object."""
    absent = server.fresh_name("absent")
    for sample in (LEASE, LOCAL_QUEUE):
        answer = await server.call("POST", sample.path(absent), sample.manifest("a"))
        assert answer.json == status(
            404, "NotFound", f'namespaces "{absent}" not found', {"name": absent, "kind": "namespaces"}
        )


async def test_the_initial_namespaces_may_not_be_deleted(server):
    """403 protects default, kube-system and kube-public."""
    for name in ("default", "kube-system", "kube-public"):
        answer = await server.call("DELETE", f"/api/v1/namespaces/{name}")
        assert answer.json == status(
            403,
            "Forbidden",
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            {"name": name, "kind": "namespaces"},
        )
