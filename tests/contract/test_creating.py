"""Creating objects: names, what the server adds and passes over, and bodies that are not what they should be."""

import pytest
from tests.contract.cases import config_map, core, invalid, kueue, refusal, status, told, unsaid, workload

pytestmark = pytest.mark.anyio

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "
NOT_JSON = UNRECOGNIZED + "couldn't get version/kind; json parse error: "
TYPE_META = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
CANNOT = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '


async def test_a_new_object_gets_identity_and_time(server, namespace):
    """Uid, version and creation time are the server's, whatever the body has; there is no selfLink."""
    claimed = {"uid": "abc", "creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "/x"}
    made = (await server.call("POST", core(namespace, "configmaps"), config_map("a", {"k": "v"}, **claimed))).json
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("a", namespace)
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"] > "2026-01-01T00:00:00Z"
    assert int(metadata["resourceVersion"]) > 0
    assert "selfLink" not in metadata
    assert "deletionTimestamp" not in metadata


async def test_versions_only_grow(server, namespace):
    """A later write has the larger resourceVersion, over all kinds."""
    first = (await server.call("POST", core(namespace, "configmaps"), config_map("a", {}))).json
    second = (await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))).json
    third = (await server.call("POST", core(namespace, "configmaps"), config_map("b", {}))).json
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (first, second, third)]
    assert versions == sorted(set(versions))


async def test_a_taken_name_is_already_exists(server, namespace):
    """409 AlreadyExists, which is not the 409 of a stale write."""
    path = core(namespace, "configmaps")
    await server.call("POST", path, config_map("a", {}))
    answer = await server.call("POST", path, config_map("a", {}))
    details = {"name": "a", "kind": "configmaps"}
    assert answer.json == status(409, "AlreadyExists", 'configmaps "a" already exists', details)


async def test_a_taken_name_of_a_custom_resource_is_already_exists(server, namespace):
    """The same for custom resources, with their group."""
    path = kueue("workloads", namespace=namespace)
    await server.call("POST", path, workload("w"))
    answer = await server.call("POST", path, workload("w"))
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "workloads"}
    message = 'workloads.kueue.x-k8s.io "w" already exists'
    assert answer.json == status(409, "AlreadyExists", message, details)


async def test_a_missing_namespace_is_not_found(server):
    """404 names the namespace, not the object."""
    for path, body in (
        (core("nowhere", "configmaps"), config_map("a")),
        (kueue("workloads", namespace="nowhere"), workload("w")),
    ):
        answer = await server.call("POST", path, body)
        details = {"name": "nowhere", "kind": "namespaces"}
        assert answer.json == status(404, "NotFound", 'namespaces "nowhere" not found', details)


@pytest.mark.parametrize(
    ("metadata", "causes"),
    [
        ({"name": "A_b"}, [("Invalid", "metadata.name", f'Invalid value: "A_b": {SUBDOMAIN}')]),
        (
            {"name": "a" * 254},
            [("Invalid", "metadata.name", f'Invalid value: "{"a" * 254}": must be no more than 253 characters')],
        ),
        ({"name": ""}, [("Required", "metadata.name", "Required value: name or generateName is required")]),
    ],
    ids=["letters", "length", "none"],
)
async def test_a_name_is_a_subdomain(server, namespace, metadata, causes):
    """422 with the rule that the name breaks."""
    body = {**config_map("x"), "metadata": metadata}
    answer = await server.call("POST", core(namespace, "configmaps"), body)
    details = ({"name": metadata["name"]} if metadata["name"] else {}) | {"kind": "ConfigMap"}
    assert told(answer.json) == invalid(f'ConfigMap "{metadata["name"]}"', details, *causes)


async def test_a_namespaces_name_is_a_label(server):
    """Namespaces have shorter names, without dots."""
    answer = await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    text = 'Invalid value: "a.b": must not contain dots'
    expected = invalid('Namespace "a.b"', {"name": "a.b", "kind": "Namespace"}, ("Invalid", "metadata.name", text))
    assert told(answer.json) == expected


async def test_a_generated_name_is_the_prefix_and_five_letters(server, namespace):
    """GenerateName stays in the object; a prefix that is too long is cut, a name wins over it."""
    path = core(namespace, "configmaps")
    made = [await server.call("POST", path, {"metadata": {"generateName": "job-"}}) for _ in range(2)]
    names = {answer.json["metadata"]["name"] for answer in made}
    assert len(names) == 2
    assert all(name.startswith("job-") and len(name) == 9 for name in names)
    assert made[0].json["metadata"]["generateName"] == "job-"
    long = await server.call("POST", path, {"metadata": {"generateName": "g" * 100}})
    assert len(long.json["metadata"]["name"]) == 63
    both = await server.call("POST", path, {"metadata": {"generateName": "job-", "name": "chosen"}})
    assert both.json["metadata"]["name"] == "chosen"


async def test_a_prefix_is_checked_as_the_name_is(server, namespace):
    """The prefix and the name made of it are two causes."""
    answer = await server.call("POST", core(namespace, "configmaps"), {"metadata": {"generateName": "Bad_"}})
    causes = answer.json["details"]["causes"]
    assert {cause["field"] for cause in causes} == {"metadata.generateName", "metadata.name"}
    assert f'Invalid value: "Bad_": {SUBDOMAIN}' in {cause["message"] for cause in causes}


async def test_another_namespace_in_the_body_is_400(server, namespace):
    """The path decides; a body that contradicts it is refused."""
    answer = await server.call("POST", core(namespace, "configmaps"), config_map("a", namespace="default"))
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert answer.json == refusal(400, "BadRequest", message)


async def test_a_version_on_a_new_object_is_500(server, namespace):
    """The storage refuses it, with neither a reason nor details."""
    for path, body in (
        (core(namespace, "configmaps"), config_map("a")),
        (kueue("workloads", namespace=namespace), workload("w")),
    ):
        body["metadata"]["resourceVersion"] = "5"
        answer = await server.call("POST", path, body)
        assert answer.json == unsaid("resourceVersion should not be set on objects to be created")


async def test_a_builtin_needs_no_type_in_its_body(server, namespace):
    """The path defines kind and version."""
    answer = await server.call("POST", core(namespace, "configmaps"), {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert (answer.status, answer.json["kind"], answer.json["apiVersion"]) == (201, "ConfigMap", "v1")


async def test_a_custom_resource_needs_its_type_in_its_body(server, namespace):
    """Without kind it is not recognized, without apiVersion it has another one."""
    path = kueue("workloads", namespace=namespace)
    answer = await server.call("POST", path, b'{"metadata":{"name":"w"}}')
    message = (
        "the object provided is unrecognized (must be of type Workload): Object 'Kind' is missing in "
        '\'{"metadata":{"name":"w"}}\' ({"metadata":{"name":"w"}})'
    )
    assert answer.json == refusal(400, "BadRequest", message)
    answer = await server.call("POST", path, {"kind": "Workload", "metadata": {"name": "w"}})
    message = "the API version in the data () does not match the expected API version (kueue.x-k8s.io/v1beta2)"
    assert answer.json == refusal(400, "BadRequest", message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"kind": "Nonsense"},
            'Nonsense in version "v1" cannot be handled as a ConfigMap: no kind "Nonsense" is registered for version '
            '"v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        (
            {"kind": "Pod"},
            'Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown '
            "conversion",
        ),
        (
            {"apiVersion": "v2"},
            'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version '
            '"v2" in scheme "pkg/runtime/scheme.go:111"',
        ),
    ],
    ids=["no kind", "another kind", "another version"],
)
async def test_another_type_in_the_body_of_a_builtin_is_400(server, namespace, change, message):
    """The body is of its own kind, and that cannot be converted to the kind of the path."""
    body = {**config_map("a"), **change}
    if body["kind"] == "Pod":
        del body["metadata"]["name"]
    answer = await server.call("POST", core(namespace, "configmaps"), body)
    assert answer.json == refusal(400, "BadRequest", message)


async def test_another_kind_in_the_body_of_a_custom_resource_is_422(server, namespace):
    """The refusal is about the kind that the body names."""
    body = {**workload("w"), "kind": "LocalQueue"}
    answer = await server.call("POST", kueue("workloads", namespace=namespace), body)
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "LocalQueue"}
    cause = ("Invalid", "kind", 'Invalid value: "LocalQueue": must be Workload')
    assert told(answer.json) == invalid('LocalQueue.kueue.x-k8s.io "w"', details, cause)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", NOT_JSON + "unexpected end of JSON input (<empty>)"),
        (b'{"a":', NOT_JSON + 'unexpected end of JSON input ({"a":)'),
        (b"hello", NOT_JSON + "invalid character 'h' looking for beginning of value (68656c6c6f)"),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap",}',
            NOT_JSON + "invalid character '}' looking for beginning of object key string "
            '({"apiVersion":"v1","kind":"Con ...)',
        ),
        (b"[1]", NOT_JSON + f"json: cannot unmarshal array into Go value of type {TYPE_META} (5b315d)"),
        (b'"x"', NOT_JSON + f"json: cannot unmarshal string into Go value of type {TYPE_META} (227822)"),
    ],
    ids=["empty", "cut", "text", "comma", "list", "string"],
)
async def test_a_body_that_is_no_object_is_400(server, namespace, body, message):
    """The message quotes how it begins."""
    answer = await server.call("POST", core(namespace, "configmaps"), body)
    assert answer.json == refusal(400, "BadRequest", message)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"data": {"k": 5}}, "cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ({"data": "x"}, "cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string"),
        (
            {"metadata": {"name": 5}},
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            {"metadata": {"labels": {"a": True}}},
            "cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"metadata": {"finalizers": "x"}},
            "cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers of type []string",
        ),
        (
            {"metadata": {"ownerReferences": ["x"]}},
            "cannot unmarshal string into Go struct field ObjectMeta.metadata.ownerReferences of type "
            "v1.OwnerReference",
        ),
        ({"metadata": "x"}, "cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
    ],
    ids=["number", "map", "name", "label", "finalizers", "owner", "metadata"],
)
async def test_a_value_of_the_wrong_type_cannot_be_decoded(server, namespace, body, problem):
    """400 in the words of the decoder, before anything else is looked at."""
    answer = await server.call("POST", core(namespace, "configmaps"), {**config_map("a"), **body})
    assert answer.json == refusal(400, "BadRequest", f"{CANNOT}json: {problem}")


async def test_metadata_of_a_custom_resource_is_decoded_by_itself(server, namespace):
    """The message begins at the metadata."""
    body = {**workload("w"), "metadata": {"name": 5}}
    answer = await server.call("POST", kueue("workloads", namespace=namespace), body)
    message = (
        'Workload in version "v1beta2" cannot be handled as a Workload: json: cannot unmarshal number into Go struct '
        "field ObjectMeta.name of type string"
    )
    assert answer.json == refusal(400, "BadRequest", message)


async def test_bodies_may_be_yaml(server, namespace):
    """YAML is read as JSON is; `1` in quotes is text."""
    body = b'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: "1"}\n'
    answer = await server.call("POST", core(namespace, "configmaps"), body, content_type="application/yaml")
    assert (answer.status, answer.json["data"]) == (201, {"k": "1"})


async def test_a_content_type_that_is_not_read_is_415(server, namespace):
    """415 lists what is."""
    answer = await server.call("POST", core(namespace, "configmaps"), config_map("a"), content_type="text/plain")
    message = "the body of the request was in an unknown format - accepted media types include: application/json, "
    assert answer.json["message"].startswith(message)
    assert answer.json == refusal(415, "UnsupportedMediaType", answer.json["message"])


async def test_a_charset_does_not_matter(server, namespace):
    """JSON is UTF-8, whatever charset the content type names."""
    answer = await server.call(
        "POST", core(namespace, "configmaps"), config_map("a"), content_type="application/json; charset=utf-8"
    )
    assert answer.status == 201


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_request_has_a_largest_size(server, namespace):
    """413 beyond 3 MiB; a ConfigMap's own bound is 1 MiB."""
    path = core(namespace, "configmaps")
    answer = await server.call("POST", path, config_map("a", {"k": "x" * (3 * 1024 * 1024 + 1)}))
    expected = refusal(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    assert answer.json == expected
    answer = await server.call("POST", path, config_map("a", {"k": "x" * (1024 * 1024 + 1)}))
    cause = ("TooLong", "[]", "Too long: may not be more than 1048576 bytes")
    assert told(answer.json) == invalid('ConfigMap "a"', {"name": "a", "kind": "ConfigMap"}, cause)


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
async def test_unknown_and_repeated_fields(server, namespace, validation):
    """Strict refuses them, Warn remarks on them, Ignore drops them in silence."""
    body = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","colour":1},"data":{"k":"1","k":"2"},"more":1}'
    )
    answer = await server.call("POST", core(namespace, "configmaps"), body, fieldValidation=validation)
    if validation == "Strict":
        problems = 'duplicate field "data.k", unknown field "metadata.colour", unknown field "more"'
        assert sorted(answer.json["message"].partition("strict decoding error: ")[2].split(", ")) == problems.split(
            ", "
        )
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        return
    assert answer.status == 201
    assert answer.json["data"] == {"k": "2"}
    assert "more" not in answer.json
    assert ("warning" in answer.headers) is (validation == "Warn")


async def test_an_unknown_field_validation_is_422(server, namespace):
    """Options are checked as objects are."""
    answer = await server.call("POST", core(namespace, "configmaps"), config_map("a"), fieldValidation="Nope")
    text = 'Unsupported value: "Nope": supported values: "", "Ignore", "Strict", "Warn"'
    details = {"group": "meta.k8s.io", "kind": "CreateOptions"}
    expected = invalid('CreateOptions.meta.k8s.io ""', details, ("NotSupported", "fieldValidation", text))
    assert told(answer.json) == expected


async def test_a_field_manager_is_short_and_printable(server, namespace):
    """The name of a field manager has at most 128 bytes and no control characters."""
    path, details = core(namespace, "configmaps"), {"group": "meta.k8s.io", "kind": "CreateOptions"}
    answer = await server.call("POST", path, config_map("a"), fieldManager="x" * 129)
    cause = ("TooLong", "fieldManager", "Too long: may not be more than 128 bytes")
    assert told(answer.json) == invalid('CreateOptions.meta.k8s.io ""', details, cause)
    answer = await server.call("POST", path, config_map("a"), fieldManager="x\n")
    cause = ("Invalid", "fieldManager", 'Invalid value: "x\\n": invalid character U+000A (at position 1)')
    assert told(answer.json) == invalid('CreateOptions.meta.k8s.io ""', details, cause)


async def test_empty_and_null_maps_of_a_builtin_are_left_out(server, namespace):
    """A struct does not distinguish an empty map from none."""
    path = core(namespace, "configmaps")
    for name, data in (("null", None), ("empty", {})):
        body = {**config_map(name, labels={}, annotations={}), "data": data}
        made = (await server.call("POST", path, body)).json
        assert "data" not in made
        assert not {"labels", "annotations", "managedFields"} & made["metadata"].keys()


async def test_keys_of_a_config_map_are_file_names(server, namespace):
    """Keys with blanks, parent folders, and keys that are both text and binary are refused."""
    body = {**config_map("a", {"a b": "x", "..": "y", "c": "1"}), "binaryData": {"c": "eA=="}}
    answer = await server.call("POST", core(namespace, "configmaps"), body)
    rule = (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
        "'KEY_NAME',  "
        "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )
    assert told(answer.json) == invalid(
        'ConfigMap "a"',
        {"name": "a", "kind": "ConfigMap"},
        ("Invalid", "data[a b]", f'Invalid value: "a b": {rule}'),
        ("Invalid", "data[..]", "Invalid value: \"..\": must not be '..'"),
        ("Invalid", "data[c]", 'Invalid value: "c": duplicate of key present in binaryData'),
    )
