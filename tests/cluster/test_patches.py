"""The patches that carry differences, each by its own rules."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.testing.cluster.api.patch import json_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)


def difference(before, after):
    """The merge patch from one object to another (RFC 7386 has one for every pair without nulls in the target)."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif before[key] != value or type(before[key]) is not type(value):
            patch[key] = difference(before[key], value)
    return patch


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


@given(JSON, JSON)
def test_a_merge_patch_of_the_difference_leads_there(before, after):
    """For any two documents; and the patched one is never written into."""
    after = without_nulls(after)
    before = without_nulls(before)
    kept = copy.deepcopy(before)
    patch = difference(before, after)
    if patch is not None:
        assert merge_patched(before, patch) == after
    assert before == kept


@given(JSON)
def test_json_patch_add_then_remove_is_nothing(document):
    """Adding a key and removing it leaves an equal document, and the original untouched."""
    target = {"x": document}
    operations: list[dict[str, Any]] = [{"op": "add", "path": "/y", "value": 1}, {"op": "remove", "path": "/y"}]
    assert json_patch(target, operations) == target


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/l/1", "value": 9}], {"l": [1, 9, 2], "o": {"a/b": 1}}),
        ([{"op": "add", "path": "/l/-", "value": 9}], {"l": [1, 2, 9], "o": {"a/b": 1}}),
        ([{"op": "replace", "path": "/o/a~1b", "value": 2}], {"l": [1, 2], "o": {"a/b": 2}}),
        ([{"op": "move", "from": "/l/0", "path": "/m"}], {"l": [2], "o": {"a/b": 1}, "m": 1}),
        ([{"op": "copy", "from": "/o", "path": "/p"}], {"l": [1, 2], "o": {"a/b": 1}, "p": {"a/b": 1}}),
        ([{"op": "test", "path": "/l/0", "value": 1}, {"op": "remove", "path": "/l/0"}], {"l": [2], "o": {"a/b": 1}}),
    ],
)
def test_json_patch_operations(operations, expected):
    """RFC 6902, with list indexes, the end of a list and escaped keys."""
    assert json_patch({"l": [1, 2], "o": {"a/b": 1}}, operations) == expected


def test_a_failed_test_operation_changes_nothing(client, config_map):
    """422, and none of the other operations is done."""
    seen = client.create(config_map)
    operations: list[dict[str, Any]] = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/metadata/uid", "value": "someone-else"},
    ]
    assert client.patch(config_map, "json", operations)["reason"] == "Invalid"
    assert client.status == 422
    assert client.get(config_map) == seen


def test_a_patch_may_carry_a_revision(client, config_map):
    """With a stale one it is refused, like a PUT."""
    seen = client.create(config_map)
    fresh = client.patch(
        config_map, "merge", {"metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]}, "data": {"b": "1"}}
    )
    assert fresh["data"] == {"a": "1", "b": "1"}
    client.patch(
        config_map, "merge", {"metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]}, "data": {"c": "1"}}
    )
    assert client.status == 409


def test_strategic_merge_joins_lists_by_their_keys(client, pod):
    """Containers by name: one is changed, one stays; conditions by type."""
    pod["spec"]["containers"].append({"name": "side", "image": "old"})
    client.create(pod)
    patched = client.patch(pod, "strategic", {"spec": {"containers": [{"name": "side", "image": "new"}]}})
    assert [(c["name"], c["image"]) for c in patched["spec"]["containers"]] == [("main", "busybox"), ("side", "new")]
    for kind in ("A", "B"):
        condition = {"type": kind, "status": "True"}
        patched = client.patch(pod, "strategic", {"status": {"conditions": [condition]}}, "status")
    assert [c["type"] for c in patched["status"]["conditions"]] == ["B", "A"]
    gone = {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}}
    patched = client.patch(pod, "strategic", gone, "status")
    assert [c["type"] for c in patched["status"]["conditions"]] == ["B"]


def test_strategic_merge_replaces_atomic_lists_and_honours_directives(client, pod):
    """Tolerations are one value; $patch: replace takes a keyed list whole; primitives are removed from sets."""
    pod["metadata"]["finalizers"] = ["a/b", "c/d"]
    client.create(pod)
    first = {"key": "x", "operator": "Exists"}
    client.patch(pod, "strategic", {"spec": {"tolerations": [first]}})
    second = {"key": "y", "operator": "Exists"}
    refusal = client.patch(pod, "strategic", {"spec": {"tolerations": [second]}})
    assert "existing toleration can not be modified" in refusal["message"]
    patched = client.patch(pod, "strategic", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}})
    assert patched["metadata"]["finalizers"] == ["c/d"]
    replaced = {"status": {"conditions": [{"$patch": "replace"}, {"type": "Z", "status": "True"}]}}
    client.patch(pod, "strategic", {"status": {"conditions": [{"type": "A", "status": "True"}]}}, "status")
    patched = client.patch(pod, "strategic", replaced, "status")
    assert [c["type"] for c in patched["status"]["conditions"]] == ["Z"]


def test_custom_kinds_take_no_strategic_merge(client, cluster_queue):
    """415 with the types that are accepted."""
    client.create(cluster_queue)
    refusal = client.patch(cluster_queue, "strategic", {"spec": {}})
    assert (client.status, refusal["reason"]) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in refusal["message"]


def test_a_patch_is_validated_like_any_write(client, cluster_queue):
    """The result of the patch counts, not the patch."""
    client.create(cluster_queue)
    refusal = client.patch(cluster_queue, "merge", {"spec": {"stopPolicy": "Sometimes"}})
    assert refusal["details"]["causes"][0] == {
        "reason": "FieldValueNotSupported",
        "message": 'Unsupported value: "Sometimes": supported values: "None", "Hold", "HoldAndDrain"',
        "field": "spec.stopPolicy",
    }
