"""Dry runs: each verb is checked and answered as if, and nothing is stored."""

import pytest
from tests.contract.cases import (
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    config_map,
    core,
    invalid,
    kueue,
    status,
    told,
    workload,
)

pytestmark = pytest.mark.anyio


async def test_a_dry_create_stores_nothing(server, namespace):
    """The answer has uid and defaults, but no version."""
    for path, body in (
        (core(namespace, "configmaps"), config_map("a", {"k": "1"})),
        (kueue("workloads", namespace=namespace), workload("a")),
    ):
        answer = await server.call("POST", path, body, dryRun="All")
        assert answer.status == 201
        assert "uid" in answer.json["metadata"]
        assert "resourceVersion" not in answer.json["metadata"]
        assert (await server.call("GET", f"{path}/a")).status == 404


async def test_dry_writes_of_an_object_store_nothing(server, namespace):
    """Update, the patches, apply and delete answer with what would be, in the version that is."""
    path = core(namespace, "configmaps", "a")
    stored = (await server.call("POST", core(namespace, "configmaps"), config_map("a", {"k": "1"}))).json
    version = stored["metadata"]["resourceVersion"]
    changes = [
        await server.call("PUT", path, config_map("a", {"k": "2"}), dryRun="All"),
        await server.call("PATCH", path, {"data": {"k": "2"}}, content_type=MERGE_PATCH, dryRun="All"),
        await server.call(
            "PATCH", path, [{"op": "replace", "path": "/data/k", "value": "2"}], content_type=JSON_PATCH, dryRun="All"
        ),
        await server.call(
            "PATCH", path, config_map("a", {"k": "2"}), content_type=APPLY, dryRun="All", fieldManager="m", force="true"
        ),
    ]
    for answer in changes:
        assert (answer.status, answer.json["data"]) == (200, {"k": "2"})
        assert answer.json["metadata"]["resourceVersion"] == version
    for options in ({"dryRun": "All"}, {}):
        body = None if options else {"dryRun": ["All"]}
        assert (await server.call("DELETE", path, body, **options)).json["status"] == "Success"
    assert (await server.call("DELETE", core(namespace, "configmaps"), dryRun="All")).status == 200
    assert (await server.call("GET", path)).json == stored


async def test_a_dry_apply_creates_nothing(server, namespace):
    """201 without an object."""
    path = core(namespace, "configmaps", "a")
    answer = await server.call("PATCH", path, config_map("a"), content_type=APPLY, dryRun="All", fieldManager="m")
    assert answer.status == 201
    assert (await server.call("GET", path)).status == 404


async def test_a_dry_run_is_refused_as_the_write_would_be(server, namespace):
    """Conflicts, taken names and invalid objects are found without writing."""
    path = core(namespace, "configmaps")
    await server.call("POST", path, config_map("a"))
    answer = await server.call("POST", path, config_map("a"), dryRun="All")
    details = {"name": "a", "kind": "configmaps"}
    assert answer.json == status(409, "AlreadyExists", 'configmaps "a" already exists', details)
    assert (await server.call("POST", path, config_map("A_"), dryRun="All")).status == 422
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"k": "2"}}
    answer = await server.call("PATCH", f"{path}/a", stale, content_type=MERGE_PATCH, dryRun="All")
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")


async def test_dry_run_is_all_or_nothing(server, namespace):
    """Any other value is 422."""
    answer = await server.call("POST", core(namespace, "configmaps"), config_map("a"), dryRun="Some")
    details = {"group": "meta.k8s.io", "kind": "CreateOptions"}
    cause = ("NotSupported", "dryRun", 'Unsupported value: ["Some"]: supported values: "All"')
    assert told(answer.json) == invalid('CreateOptions.meta.k8s.io ""', details, cause)
