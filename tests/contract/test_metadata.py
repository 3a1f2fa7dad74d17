"""Metadata: what labels, annotations, finalizers and owner references may be."""

import pytest
from tests.contract.cases import MERGE_PATCH, UNCHECKED, config_map, core, invalid, kueue, told, workload

pytestmark = pytest.mark.anyio

NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
PREFIX = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    NAME.replace("name part must", "a valid label key must")
    + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
STANDARD = "name is neither a standard finalizer name nor is it fully qualified"


@pytest.fixture(params=["configmaps", "workloads"])
async def refused(server, namespace, request):
    """Patch the metadata of a built-in object or a custom resource and compare with the causes of the refusal."""
    custom = request.param == "workloads"
    collection = kueue("workloads", namespace=namespace) if custom else core(namespace, "configmaps")
    await server.call("POST", collection, workload("a") if custom else config_map("a"))
    what = 'Workload.kueue.x-k8s.io "a"' if custom else 'ConfigMap "a"'
    details = (
        {"name": "a", "group": "kueue.x-k8s.io", "kind": "Workload"} if custom else {"name": "a", "kind": "ConfigMap"}
    )

    async def compare(metadata, *causes):
        answer = await server.call("PATCH", f"{collection}/a", {"metadata": metadata}, content_type=MERGE_PATCH)
        if custom and any(reason == "TooLong" for reason, _, _ in causes):
            causes = (*causes, UNCHECKED)
        assert told(answer.json) == invalid(what, details, *causes)

    return compare


@pytest.mark.parametrize(
    ("key", "problems"),
    [
        ("-a", [NAME]),
        ("a_", [NAME]),
        ("x/y/z", [KEY]),
        ("a/", ["name part must be non-empty", NAME]),
        ("/b", ["prefix part must be non-empty"]),
        ("Ab.C/d", [PREFIX]),
        ("l" * 64, ["name part must be no more than 63 bytes"]),
    ],
)
async def test_a_label_key_is_a_qualified_name(refused, key, problems):
    """One cause for each rule that it breaks."""
    causes = [("Invalid", "metadata.labels", f'Invalid value: "{key}": {problem}') for problem in problems]
    await refused({"labels": {key: "x"}}, *causes)


async def test_a_label_value_is_short_and_plain(refused):
    """Letters, digits and three signs, at most 63 bytes."""
    await refused({"labels": {"a": "-b"}}, ("Invalid", "metadata.labels", f'Invalid value: "-b": {VALUE}'))
    long = "b" * 64
    text = f'Invalid value: "{long}": must be no more than 63 bytes'
    await refused({"labels": {"a": long}}, ("Invalid", "metadata.labels", text))


async def test_an_annotation_key_is_a_qualified_name(refused):
    """Its value may be anything."""
    await refused({"annotations": {"a b": "-"}}, ("Invalid", "metadata.annotations", f'Invalid value: "a b": {NAME}'))


async def test_annotations_have_a_bound_together(refused):
    """256 KiB of keys and values."""
    cause = ("TooLong", "metadata.annotations", "Too long: may not be more than 262144 bytes")
    await refused({"annotations": {"a": "b" * (256 * 1024)}}, cause)


async def test_an_owner_is_named_in_full(refused):
    """Version, kind, name and uid."""
    field = "metadata.ownerReferences"
    await refused(
        {"ownerReferences": [{}]},
        ("Invalid", f"{field}.apiVersion", 'Invalid value: "": version must not be empty'),
        *(("Invalid", f"{field}.{name}", 'Invalid value: "": must not be empty') for name in ("kind", "name", "uid")),
    )


async def test_an_event_owns_nothing(refused):
    """The kind is disallowed as an owner."""
    owner = {"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u"}
    shown = '{"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}'
    text = f"Invalid value: {shown}: /v1, Kind=Event is disallowed from being an owner"
    await refused({"ownerReferences": [owner]}, ("Invalid", "metadata.ownerReferences", text))


async def test_an_object_has_one_controller(refused):
    """Two owners that both say to be it are refused."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in ("x", "y")]
    shown = ",".join(
        f'{{"apiVersion":"v1","kind":"Pod","name":"{name}","uid":"{name}","controller":true}}' for name in ("x", "y")
    )
    text = (
        f'Invalid value: [{shown}]: Only one reference can have Controller set to true. Found "true" in references for '
        "Pod/x and Pod/y"
    )
    await refused({"ownerReferences": owners}, ("Invalid", "metadata.ownerReferences", text))


async def test_a_finalizer_of_a_builtin_is_qualified(server, namespace):
    """A name without a domain is one of the standard ones, or refused."""
    await server.call("POST", core(namespace, "configmaps"), config_map("a"))
    body = {"metadata": {"finalizers": ["no good", "plain"]}}
    answer = await server.call("PATCH", core(namespace, "configmaps", "a"), body, content_type=MERGE_PATCH)
    assert told(answer.json) == invalid(
        'ConfigMap "a"',
        {"name": "a", "kind": "ConfigMap"},
        ("Invalid", "metadata.finalizers", f'Invalid value: "no good": {NAME}'),
        ("Invalid", "metadata.finalizers[0]", f'Invalid value: "no good": {STANDARD}'),
        ("Invalid", "metadata.finalizers[1]", f'Invalid value: "plain": {STANDARD}'),
    )


async def test_a_finalizer_of_a_custom_resource_should_be_qualified(server, namespace):
    """A name without a domain is remarked on."""
    await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))
    body = {"metadata": {"finalizers": ["plain"]}}
    answer = await server.call("PATCH", kueue("workloads", "w", namespace=namespace), body, content_type=MERGE_PATCH)
    assert (answer.status, answer.headers["warning"]) == (
        200,
        '299 - "metadata.finalizers: \\"plain\\": prefer a domain-qualified finalizer name to avoid accidental '
        "conflicts "
        'with other finalizer writers"',
    )
