"""Replacing objects: what must be given, what conflicts, what an update cannot change, and when nothing is written."""

from typing import Any

import pytest
from tests.contract.cases import (
    MERGE_PATCH,
    batch,
    config_map,
    core,
    invalid,
    kueue,
    refusal,
    status,
    told,
    unsaid,
    workload,
)

pytestmark = pytest.mark.anyio

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.fixture
async def stored(server, namespace):
    """A ConfigMap `a`, as it was created."""
    return (await server.call("POST", core(namespace, "configmaps"), config_map("a", {"k": "1"}))).json


@pytest.fixture
async def stored_workload(server, namespace):
    """A Workload `w`, as it was created."""
    return (await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))).json


async def test_a_stale_version_conflicts(server, namespace, stored):
    """409 Conflict; nothing is written."""
    path = core(namespace, "configmaps", "a")
    await server.call("PUT", path, {**stored, "data": {"k": "2"}})
    answer = await server.call("PUT", path, {**stored, "data": {"k": "3"}})
    details = {"name": "a", "kind": "configmaps"}
    message = f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert answer.json == status(409, "Conflict", message, details)
    assert (await server.call("GET", path)).json["data"] == {"k": "2"}


@pytest.mark.parametrize("version", [None, "0"], ids=["none", "zero"])
async def test_a_builtin_is_replaced_without_a_version(server, namespace, stored, version):
    """Without a version, or with zero, the last writer wins."""
    claim = {} if version is None else {"resourceVersion": version}
    answer = await server.call("PUT", core(namespace, "configmaps", "a"), config_map("a", {"k": "2"}, **claim))
    assert (answer.status, answer.json["data"]) == (200, {"k": "2"})
    assert answer.json["metadata"]["uid"] == stored["metadata"]["uid"]


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_a_custom_resource_is_not_replaced_without_a_version(server, namespace, stored_workload, subresource):
    """422: a custom resource is only replaced with its resourceVersion."""
    path = kueue("workloads", *filter(None, ["w", subresource]), namespace=namespace)
    answer = await server.call("PUT", path, workload("w"))
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "workloads"}
    cause = ("Invalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
    assert told(answer.json) == invalid('workloads.kueue.x-k8s.io "w"', details, cause)


async def test_a_version_that_is_no_number_is_500(server, namespace, stored):
    """The storage cannot read it."""
    answer = await server.call("PUT", core(namespace, "configmaps", "a"), config_map("a", resourceVersion="abc"))
    assert answer.json == unsaid('strconv.ParseUint: parsing "abc": invalid syntax')


async def test_another_uid_conflicts(server, namespace, stored):
    """The object was deleted and recreated: 409, with both uids."""
    answer = await server.call("PUT", core(namespace, "configmaps", "a"), config_map("a", uid="abc"))
    message = (
        'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: '
        f"/registry/configmaps/{namespace}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
        f"precondition: abc, UID in object meta: {stored['metadata']['uid']}"
    )
    assert answer.json == status(409, "Conflict", message, {"name": "a", "kind": "configmaps"})


async def test_another_uid_of_a_custom_resource_conflicts(server, namespace, stored_workload):
    """The same; the key has the group."""
    metadata = {**stored_workload["metadata"], "uid": "abc"}
    answer = await server.call(
        "PUT", kueue("workloads", "w", namespace=namespace), {**stored_workload, "metadata": metadata}
    )
    message = (
        'Operation cannot be fulfilled on workloads.kueue.x-k8s.io "w": StorageError: invalid object, Code: 4, Key: '
        f"/registry/kueue.x-k8s.io/workloads/{namespace}/w, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
        f"failed: UID in precondition: abc, UID in object meta: {stored_workload['metadata']['uid']}"
    )
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "workloads"}
    assert answer.json == status(409, "Conflict", message, details)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        (
            {"name": "a", "namespace": "default"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
    ids=["name", "no name", "namespace"],
)
async def test_the_body_names_the_object_of_the_path(server, namespace, stored, metadata, message):
    """400 if it names another one, or none."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    answer = await server.call("PUT", core(namespace, "configmaps", "a"), body)
    assert answer.json == refusal(400, "BadRequest", message)


async def test_an_absent_object_is_not_found(server, namespace):
    """An update does not create, whatever versions and uids it claims."""
    claims: list[dict[str, Any]] = [{}, {"resourceVersion": "5"}, {"uid": "abc"}]
    for claim in claims:
        answer = await server.call("PUT", core(namespace, "configmaps", "a"), config_map("a", **claim))
        details = {"name": "a", "kind": "configmaps"}
        assert answer.json == status(404, "NotFound", 'configmaps "a" not found', details)


async def test_an_update_that_changes_nothing_writes_nothing(server, namespace, stored, stored_workload):
    """The version stays, even if another manager sends the same."""
    for path, obj in (
        (core(namespace, "configmaps", "a"), stored),
        (kueue("workloads", "w", namespace=namespace), stored_workload),
    ):
        answer = await server.call("PUT", path, obj, fieldManager="another")
        assert answer.json == obj


async def test_an_update_replaces_everything(server, namespace, stored):
    """What the body leaves out is gone, labels and annotations too."""
    path = core(namespace, "configmaps", "a")
    await server.call("PUT", path, config_map("a", {"k": "1", "l": "2"}, labels={"x": "y"}, annotations={"x": "y"}))
    after = (await server.call("PUT", path, config_map("a", {"l": "2"}))).json
    assert after["data"] == {"l": "2"}
    assert not {"labels", "annotations"} & after["metadata"].keys()


async def test_what_only_the_server_sets_stays(server, namespace, stored):
    """A creation time and a generated name in the body are passed over."""
    claim = {"creationTimestamp": "2020-01-01T00:00:00Z"}
    after = (await server.call("PUT", core(namespace, "configmaps", "a"), config_map("a", {"k": "2"}, **claim))).json
    for name in ("uid", "creationTimestamp"):
        assert after["metadata"][name] == stored["metadata"][name]


async def test_an_update_does_not_delete(server, namespace, stored):
    """DeletionTimestamp is immutable."""
    time = "2020-01-01T00:00:00Z"
    answer = await server.call("PUT", core(namespace, "configmaps", "a"), config_map("a", deletionTimestamp=time))
    cause = ("Invalid", "metadata.deletionTimestamp", f'Invalid value: "{time}": field is immutable')
    assert told(answer.json) == invalid('ConfigMap "a"', {"name": "a", "kind": "ConfigMap"}, cause)


async def test_generation_counts_changes_of_the_spec(server, namespace, stored_workload):
    """Labels and status leave it, the spec raises it; a ConfigMap has none."""
    path = kueue("workloads", "w", namespace=namespace)
    assert stored_workload["metadata"]["generation"] == 1

    async def patched(body, *rest):
        answer = await server.call("PATCH", "/".join([path, *rest]), body, content_type=MERGE_PATCH)
        return answer.json["metadata"]["generation"]

    assert await patched({"metadata": {"labels": {"a": "b"}}}) == 1
    assert await patched({"status": {"requeueState": {"count": 1}}}, "status") == 1
    assert await patched({"spec": {"active": False}}) == 2
    assert await patched({"spec": {"active": False}}) == 2


async def test_generation_of_a_job_counts_changes_of_the_spec(server, namespace):
    """The same of a built-in kind."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"suspend": True, "template": template},
    }
    made = (await server.call("POST", batch(namespace), job)).json
    assert made["metadata"]["generation"] == 1
    path = batch(namespace, "j")
    labelled = await server.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE_PATCH)
    assert labelled.json["metadata"]["generation"] == 1
    changed = await server.call("PATCH", path, {"spec": {"parallelism": 3}}, content_type=MERGE_PATCH)
    assert changed.json["metadata"]["generation"] == 2


async def test_the_main_endpoint_takes_no_notice_of_status(server, namespace, stored_workload):
    """Neither on create nor on update; nothing is written for it."""
    path = kueue("workloads", "w", namespace=namespace)
    answer = await server.call("PUT", path, {**stored_workload, "status": {"requeueState": {"count": 3}}})
    assert answer.json == stored_workload
    made = await server.call(
        "POST", kueue("workloads", namespace=namespace), {**workload("v"), "status": {"requeueState": {"count": 3}}}
    )
    assert "status" not in made.json


async def test_the_status_endpoint_takes_no_notice_of_the_rest(server, namespace, stored_workload):
    """Of a custom resource neither spec nor metadata."""
    path = kueue("workloads", "w", "status", namespace=namespace)
    body = {"status": {"requeueState": {"count": 3}}, "spec": {"active": False}, "metadata": {"labels": {"a": "b"}}}
    after = (await server.call("PATCH", path, body, content_type=MERGE_PATCH)).json
    assert after["status"] == {"requeueState": {"count": 3}}
    assert after["spec"] == stored_workload["spec"]
    assert "labels" not in after["metadata"]
    assert (await server.call("GET", path)).json == after


async def test_the_status_endpoint_of_a_builtin_takes_labels(server, namespace):
    """Built-in kinds differ: labels go through, finalizers do as well, the spec does not."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"suspend": True, "template": template},
    }
    await server.call("POST", batch(namespace), job)
    body = {"spec": {"parallelism": 9}, "metadata": {"labels": {"c": "d"}}}
    after = (await server.call("PATCH", batch(namespace, "j", "status"), body, content_type=MERGE_PATCH)).json
    assert after["spec"]["parallelism"] == 1
    assert after["metadata"]["labels"]["c"] == "d"
