"""Refusals of requests, as opposed to objects: paths and verbs that are not served."""

import pytest
from tests.contract.cases import config_map, core, kueue, status

pytestmark = pytest.mark.anyio

NOT_SERVED = status(404, "NotFound", "the server could not find the requested resource", {})
NOT_ALLOWED = status(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


async def test_an_object_that_is_not_there_is_named(server, namespace):
    """404 NotFound has the kind in plural, with its group, and the name."""
    answer = await server.call("GET", core(namespace, "configmaps", "absent"))
    details = {"name": "absent", "kind": "configmaps"}
    assert answer.json == status(404, "NotFound", 'configmaps "absent" not found', details)
    answer = await server.call("GET", kueue("workloads", "absent", namespace=namespace))
    details = {"name": "absent", "group": "kueue.x-k8s.io", "kind": "workloads"}
    assert answer.json == status(404, "NotFound", 'workloads.kueue.x-k8s.io "absent" not found', details)


@pytest.mark.parametrize(
    "rest", ["nothings/x", "configmaps/a/status", "configmaps/a/b/c"], ids=["resource", "subresource", "depth"]
)
async def test_a_path_that_is_not_served_is_not_found(server, namespace, rest):
    """404 without a name: the resource is missing, not an object of it."""
    answer = await server.call("GET", core(namespace, rest))
    assert answer.json == NOT_SERVED


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("POST", "configmaps/a"),
        ("PUT", "configmaps"),
        ("PATCH", "configmaps"),
        ("OPTIONS", "configmaps"),
        ("GET", "pods/p/binding"),
    ],
)
async def test_a_verb_that_a_path_does_not_have_is_405(server, namespace, method, rest):
    """405 MethodNotAllowed."""
    body = None if method in {"GET", "OPTIONS"} else config_map("a")
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = await server.call(method, core(namespace, rest), body, content_type=kind)
    assert answer.json == NOT_ALLOWED


async def test_objects_are_created_in_a_namespace(server):
    """405 on the path over all namespaces."""
    assert (await server.call("POST", "/api/v1/configmaps", config_map("a"))).json == NOT_ALLOWED
