"""The three patches that carry differences: merge, JSON and strategic merge; what they refuse, and what they make."""

import pytest
from tests.contract.cases import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    config_map,
    core,
    invalid,
    kueue,
    refusal,
    status,
    told,
    workload,
)

pytestmark = pytest.mark.anyio

INAPPLICABLE = "the server rejected our request due to an error in our request"


@pytest.fixture
async def patch(server, namespace):
    """Patch the ConfigMap `a`, which holds `k`, two finalizers and a label."""
    made = config_map("a", {"k": "1"}, finalizers=["x.io/a", "x.io/b"], labels={"l": "1"})
    await server.call("POST", core(namespace, "configmaps"), made)

    async def send(body, kind=MERGE_PATCH, **query):
        return await server.call("PATCH", core(namespace, "configmaps", "a"), body, content_type=kind, **query)

    return send


@pytest.fixture
async def patch_pod(server, namespace):
    """Patch a pod with two containers."""
    containers = [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}]}, {"name": "d", "image": "i:1"}]
    pod = {
        "metadata": {"name": "p", "finalizers": ["x.io/keep"], "labels": {"a": "1", "b": "2"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": containers,
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
    }
    await server.call("POST", core(namespace, "pods"), pod)

    async def send(body, *rest, **query):
        return await server.call(
            "PATCH", core(namespace, "pods", "p", *rest), body, content_type=STRATEGIC_PATCH, **query
        )

    return send


async def test_a_merge_patch_merges_maps_and_removes_by_null(patch):
    """RFC 7386: null removes, maps merge, everything else replaces."""
    after = (await patch({"data": {"k": None, "n": "2"}, "metadata": {"finalizers": ["x.io/c"]}})).json
    assert after["data"] == {"n": "2"}
    assert after["metadata"]["finalizers"] == ["x.io/c"]
    assert after["metadata"]["labels"] == {"l": "1"}


async def test_a_patch_that_changes_nothing_writes_nothing(patch):
    """The version stays."""
    before = (await patch({})).json
    assert (await patch({"data": {"k": "1"}})).json == before
    assert (await patch([], JSON_PATCH)).json == before
    assert (await patch({"data": {"k": "1"}}, STRATEGIC_PATCH)).json == before


async def test_a_stale_version_in_a_patch_conflicts(patch):
    """A patch that names the version it is meant for is as safe as an update."""
    answer = await patch({"metadata": {"resourceVersion": "1"}, "data": {"k": "2"}})
    message = (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the "
        "latest version and try again"
    )
    assert answer.json == status(409, "Conflict", message, {"name": "a", "kind": "configmaps"})


async def test_another_uid_in_a_patch_is_422(patch):
    """A patch that names another object changes a field that cannot change."""
    answer = await patch({"metadata": {"uid": "abc"}})
    cause = ("Invalid", "metadata.uid", 'Invalid value: "abc": field is immutable')
    assert told(answer.json) == invalid('ConfigMap "a"', {"name": "a", "kind": "ConfigMap"}, cause)


async def test_a_patch_cannot_rename_or_move(patch):
    """Name and namespace are those of the path."""
    answer = await patch({"metadata": {"name": "b"}})
    message = "the name of the object (b) does not match the name on the URL (a)"
    assert answer.json == refusal(400, "BadRequest", message)
    answer = await patch({"metadata": {"namespace": "default"}})
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert answer.json == refusal(400, "BadRequest", message)
    for body in ({"metadata": None}, {"kind": None, "apiVersion": None}):
        answer = await patch(body)
        message = "the name of the object (a based on URL) was undeterminable: name must be provided"
        assert answer.json == refusal(400, "BadRequest", message)


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (
            MERGE_PATCH,
            b"[1]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (MERGE_PATCH, b"{", "error decoding patch: unexpected end of JSON input"),
        (MERGE_PATCH, b"", "error decoding patch: unexpected end of JSON input"),
        (
            JSON_PATCH,
            b"{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            JSON_PATCH,
            b"[1]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (JSON_PATCH, b"[", "error decoding patch: unexpected end of JSON input"),
        (STRATEGIC_PATCH, b"[1]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ],
    ids=["merge list", "merge cut", "merge empty", "JSON object", "JSON number", "JSON cut", "strategic list"],
)
async def test_a_patch_that_is_none_is_400(patch, kind, body, message):
    """The message has the expected type."""
    assert (await patch(body, kind)).json == refusal(400, "BadRequest", message)


async def test_what_is_no_patch_type_is_415(server, namespace, patch):
    """The content type selects the kind of patch; strategic merge is for built-in kinds only."""
    answer = await patch({}, "application/json")
    assert answer.json == status(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))
    path = kueue("workloads", "w", namespace=namespace)
    for kind in (STRATEGIC_PATCH, "application/json"):
        answer = await server.call("PATCH", path, {}, content_type=kind)
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
        assert answer.json["message"].startswith(message)
        assert answer.json == refusal(415, "UnsupportedMediaType", answer.json["message"])


async def test_only_an_apply_can_be_forced(patch):
    """422 about the options."""
    answer = await patch({}, force="true")
    details = {"group": "meta.k8s.io", "kind": "PatchOptions"}
    cause = ("Forbidden", "force", "Forbidden: may not be specified for non-apply patch")
    assert told(answer.json) == invalid('PatchOptions.meta.k8s.io ""', details, cause)


async def test_a_patch_to_what_cannot_be_decoded_is_422(patch):
    """The cause is the patch; it quotes the object that came of it and ends with the decoder's words."""
    for body, ending in (
        ({"data": {"q": 1}}, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ({"nope": 1}, 'strict decoding error: unknown field "nope"'),
    ):
        answer = await patch(body, fieldValidation="Strict")
        (cause,) = answer.json["details"]["causes"]
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        assert (cause["field"], cause["reason"]) == ("patch", "FieldValueInvalid")
        assert cause["message"].startswith('Invalid value: "{\\"apiVersion\\":\\"v1\\",')
        assert cause["message"].endswith(ending)
        assert answer.json["message"] == f' "" is invalid: patch: {cause["message"]}'


async def test_a_patch_with_unknown_fields_is_remarked_on(patch):
    """As an update is."""
    answer = await patch({"nope": 1, "data": {"k": "2"}})
    assert (answer.status, answer.headers["warning"]) == (200, '299 - "unknown field \\"nope\\""')


async def test_a_patch_of_an_absent_object_is_not_found(server, namespace):
    """Patches do not create."""
    answer = await server.call("PATCH", core(namespace, "configmaps", "a"), {}, content_type=MERGE_PATCH)
    details = {"name": "a", "kind": "configmaps"}
    assert answer.json == status(404, "NotFound", 'configmaps "a" not found', details)


async def test_the_operations_of_a_json_patch(patch):
    """Add, replace, remove, move, copy and test, in order, all or none."""
    operations = [
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "add", "path": "/data/m", "value": "2"},
        {"op": "replace", "path": "/data/m", "value": "3"},
        {"op": "copy", "from": "/data/m", "path": "/data/o"},
        {"op": "move", "from": "/data/o", "path": "/data/p"},
        {"op": "remove", "path": "/data/k"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
        {"op": "add", "path": "/metadata/finalizers/1", "value": "x.io/c"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x.io/d"},
        {"op": "replace", "path": "/metadata/finalizers/0", "value": "x.io/e"},
        {"op": "remove", "path": "/metadata/finalizers/-1"},
    ]
    after = (await patch(operations, JSON_PATCH)).json
    assert after["data"] == {"m": "3", "p": "3"}
    assert after["metadata"]["labels"] == {"l": "1", "a/b": "c"}
    assert after["metadata"]["finalizers"] == ["x.io/e", "x.io/c", "x.io/b"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/k", "value": "2"},
        {"op": "test", "path": "/data/none", "value": "2"},
        {"op": "test", "path": "/data/none/deep", "value": "2"},
        {"op": "remove", "path": "/data/none"},
        {"op": "remove", "path": "/none/deep"},
        {"op": "replace", "path": "/none/deep", "value": "1"},
        {"op": "add", "path": "/none/deep", "value": "1"},
        {"op": "add", "path": "/metadata/finalizers/9", "value": "x.io/c"},
        {"op": "remove", "path": "/metadata/finalizers/9"},
        {"op": "remove", "path": "/metadata/finalizers/x"},
        {"op": "nope", "path": "/data/k", "value": "1"},
        {"op": "add", "value": "1"},
        {"path": "/data/k", "value": "1"},
    ],
    ids=lambda operation: " ".join(str(operation.get(key, "-")) for key in ("op", "path")),
)
async def test_a_json_patch_that_does_not_apply_is_422(patch, operation):
    """The server does not say why; nothing of the patch is done."""
    answer = await patch([{"op": "add", "path": "/data/z", "value": "1"}, operation], JSON_PATCH)
    assert answer.json == status(422, "Invalid", INAPPLICABLE, {})
    assert (await patch({})).json["data"] == {"k": "1"}


async def test_a_json_patch_is_lenient_where_kubernetes_is(patch):
    """A missing field equals null, replace adds, and a value left out is empty text."""
    operations = [
        {"op": "test", "path": "/data/none", "value": None},
        {"op": "replace", "path": "/data/none", "value": "1"},
        {"op": "add", "path": "/data/left"},
    ]
    assert (await patch(operations, JSON_PATCH)).json["data"] == {"k": "1", "none": "1", "left": ""}


async def test_a_json_patch_has_at_most_ten_thousand_operations(patch):
    """413 beyond."""
    answer = await patch([{"op": "add", "path": "/data/k", "value": "1"}] * 10_001, JSON_PATCH)
    message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    assert answer.json == refusal(413, "RequestEntityTooLarge", message)


async def test_a_patch_cannot_change_the_kind_of_a_custom_resource(server, namespace):
    """422 about apiVersion and kind of the patched object."""
    await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))
    path = kueue("workloads", "w", namespace=namespace)
    answer = await server.call("PATCH", path, {"kind": "Pod"}, content_type=MERGE_PATCH)
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "Pod"}
    cause = ("Invalid", "kind", 'Invalid value: "Pod": must be Workload')
    assert told(answer.json) == invalid('Pod.kueue.x-k8s.io "w"', details, cause)
    answer = await server.call("PATCH", path, {"apiVersion": "kueue.x-k8s.io/v1beta1"}, content_type=MERGE_PATCH)
    cause = ("Invalid", "apiVersion", 'Invalid value: "kueue.x-k8s.io/v1beta1": must be kueue.x-k8s.io/v1beta2')
    assert told(answer.json) == invalid('Workload.kueue.x-k8s.io "w"', {**details, "kind": "Workload"}, cause)


async def test_strategic_merge_finds_items_by_their_key(patch_pod):
    """A container is named by its name, not by its place."""
    after = (await patch_pod({"spec": {"containers": [{"name": "d", "image": "i:2"}]}})).json
    assert [(c["name"], c["image"]) for c in after["spec"]["containers"]] == [("c", "i:1"), ("d", "i:2")]


async def test_strategic_merge_needs_the_key(patch_pod):
    """500 names the key that is missing."""
    answer = await patch_pod({"spec": {"containers": [{"image": "i:2"}]}})
    message = "map: map[image:i:2] does not contain declared merge key: name"
    assert (answer.status, answer.json["message"]) == (500, message)
    assert "reason" not in answer.json


async def test_strategic_merge_joins_sets(patch_pod):
    """What the patch names comes first; $deleteFromPrimitiveList takes away."""
    after = (await patch_pod({"metadata": {"finalizers": ["x.io/two"]}})).json
    assert after["metadata"]["finalizers"] == ["x.io/two", "x.io/keep"]
    after = (await patch_pod({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/keep"]}})).json
    assert after["metadata"]["finalizers"] == ["x.io/two"]


async def test_strategic_merge_orders_by_set_element_order(patch_pod):
    """$setElementOrder puts what it lists in its order."""
    body = {"$setElementOrder/finalizers": ["x.io/new", "x.io/keep"], "finalizers": ["x.io/new"]}
    after = (await patch_pod({"metadata": body})).json
    assert after["metadata"]["finalizers"] == ["x.io/new", "x.io/keep"]


async def test_strategic_merge_directives_replace_and_delete_maps(patch_pod):
    """$patch: replace and $patch: delete apply to the map that contains them."""
    after = (await patch_pod({"metadata": {"labels": {"$patch": "replace", "c": "3"}}})).json
    assert after["metadata"]["labels"] == {"c": "3"}
    after = (await patch_pod({"metadata": {"labels": {"$patch": "delete"}}})).json
    assert "labels" not in after["metadata"]


async def test_strategic_merge_of_conditions(patch_pod):
    """Conditions are joined by type; one that is new comes first."""
    await patch_pod({"status": {"conditions": [{"type": "X", "status": "True"}]}}, "status")
    after = (await patch_pod({"status": {"conditions": [{"type": "Y", "status": "False"}]}}, "status")).json
    assert [(c["type"], c["status"]) for c in after["status"]["conditions"]] == [("Y", "False"), ("X", "True")]


async def test_strategic_merge_directives_delete_list_items(patch_pod):
    """$patch: delete in an item takes the item away; of a pod's containers that is forbidden."""
    await patch_pod(
        {"status": {"conditions": [{"type": "X", "status": "True"}, {"type": "Y", "status": "True"}]}}, "status"
    )
    after = (await patch_pod({"status": {"conditions": [{"type": "X", "$patch": "delete"}]}}, "status")).json
    assert [c["type"] for c in after["status"]["conditions"]] == ["Y"]
    answer = await patch_pod({"spec": {"containers": [{"name": "d", "$patch": "delete"}]}})
    cause = ("Forbidden", "spec.containers", "Forbidden: pod updates may not add or remove containers")
    assert told(answer.json) == invalid('Pod "p"', {"name": "p", "kind": "Pod"}, cause)


async def test_a_strategic_patch_that_cannot_be_decoded_quotes_itself(patch_pod):
    """The cause is the patch, as Go prints it."""
    answer = await patch_pod({"nope": 1}, fieldValidation="Strict")
    text = 'Invalid value: "map[nope:1]": strict decoding error: unknown field "nope"'
    assert told(answer.json) == invalid(' ""', {}, ("Invalid", "patch", text))
