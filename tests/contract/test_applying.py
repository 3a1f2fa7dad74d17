"""Server-side apply: who owns which field, what conflicts, and which fields go when none applies them any more."""

from typing import Any

import pytest
from tests.contract.cases import (
    APPLY,
    MERGE_PATCH,
    UNCHECKED,
    condition,
    config_map,
    core,
    invalid,
    kueue,
    managers,
    refusal,
    status,
    told,
    unsaid,
    workload,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def apply(server, namespace):
    """Apply a configuration of the ConfigMap `a`, or of another path."""

    async def send(body, manager="m1", path="", **query):
        path = path or core(namespace, "configmaps", "a")
        if manager:
            query["fieldManager"] = manager
        return await server.call("PATCH", path, body, content_type=APPLY, **query)

    return send


def conflict(*causes):
    """The whole body of an apply conflict; each cause is (who, field)."""
    told_causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field} for who, field in causes
    ]
    if len(causes) == 1:
        text = f"1 conflict: conflict with {causes[0][0]}: {causes[0][1]}"
    else:
        groups: dict[str, list[str]] = {}
        for who, field in causes:
            groups.setdefault(who, []).append(field)
        lines = [
            f"conflicts with {who}:\n" + "\n".join(f"- {field}" for field in fields) for who, fields in groups.items()
        ]
        text = f"{len(causes)} conflicts: " + "\n".join(lines)
    return status(409, "Conflict", f"Apply failed with {text}", {"causes": told_causes})


async def test_apply_creates(apply):
    """201, and the applier owns the leaves of its configuration."""
    answer = await apply(config_map("a", {"x": "1"}, labels={"l": "1"}))
    assert answer.status == 201
    owned = {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}
    assert managers(answer.json) == {"m1/Apply": owned}
    (entry,) = answer.json["metadata"]["managedFields"]
    assert (entry["apiVersion"], entry["fieldsType"], "time" in entry) == ("v1", "FieldsV1", True)


async def test_applying_the_same_again_writes_nothing(apply):
    """The version and the time of the entry stay."""
    first = (await apply(config_map("a", {"x": "1"}))).json
    again = await apply(config_map("a", {"x": "1"}))
    assert (again.status, again.json) == (200, first)


async def test_saying_what_is_so_shares_the_field(apply):
    """Two managers own it, and it stays until both have stopped."""
    await apply(config_map("a", {"x": "1", "y": "1"}))
    shared = (await apply(config_map("a", {"x": "1"}), "m2")).json
    assert managers(shared)["m2/Apply"] == {"f:data": {"f:x": {}}}
    left = (await apply(config_map("a", {"y": "1"}))).json
    assert left["data"] == {"x": "1", "y": "1"}
    gone = (await apply(config_map("a"), "m2")).json
    assert gone["data"] == {"y": "1"}
    assert "m2/Apply" not in managers(gone)


async def test_what_a_manager_no_longer_applies_is_removed(apply):
    """Unless another manager owns it."""
    await apply(config_map("a", {"x": "1", "y": "1"}, labels={"l": "1"}))
    after = (await apply(config_map("a", {"x": "1"}))).json
    assert after["data"] == {"x": "1"}
    assert "labels" not in after["metadata"]


async def test_changing_a_field_of_another_manager_conflicts(apply):
    """The message names who and what; nothing is written."""
    before = (await apply(config_map("a", {"x": "1", "y": "1"}))).json
    answer = await apply(config_map("a", {"y": "2"}), "m2")
    assert answer.json == conflict(('"m1"', ".data.y"))
    answer = await apply(config_map("a", {"x": "2", "y": "2"}), "m2")
    assert answer.json == conflict(('"m1"', ".data.x"), ('"m1"', ".data.y"))
    assert (await apply(config_map("a", {"x": "1", "y": "1"}))).json == before


async def test_a_conflict_with_several_managers_names_them_all(apply):
    """Each field is listed below its manager."""
    await apply(config_map("a", {"x": "1", "y": "1"}, labels={"l": "1"}), "m2")
    await apply(config_map("a", {"x": "1"}), "m1")
    answer = await apply(config_map("a", {"x": "3", "y": "3"}, labels={"l": "3"}), "m3")
    expected = conflict(('"m1"', ".data.x"), ('"m2"', ".data.x"), ('"m2"', ".data.y"), ('"m2"', ".metadata.labels.l"))
    assert told(answer.json) == told(expected)


async def test_an_updater_takes_what_it_changes_and_conflicts_by_its_version(server, namespace, apply):
    """Updates own the containers too, and are named with the version that they wrote."""
    await apply(config_map("a", {"x": "1"}))
    updated = await server.call(
        "PATCH",
        core(namespace, "configmaps", "a"),
        {"data": {"x": "6", "u": "1"}},
        content_type=MERGE_PATCH,
        fieldManager="up",
    )
    assert managers(updated.json) == {"up/Update": {"f:data": {"f:u": {}, "f:x": {}}}}
    assert (await apply(config_map("a", {"x": "7"}))).json == conflict(('"up" using v1', ".data.x"))


async def test_force_takes_the_field(server, namespace, apply):
    """The other manager loses it; `force=false` is no force."""
    path = core(namespace, "configmaps")
    await server.call("POST", path, config_map("a", {"x": "1", "y": "1"}), fieldManager="maker")
    created = (await server.call("GET", f"{path}/a")).json
    assert managers(created) == {"maker/Update": {"f:data": {".": {}, "f:x": {}, "f:y": {}}}}
    assert (await apply(config_map("a", {"x": "7"}), force="false")).status == 409
    after = (await apply(config_map("a", {"x": "7"}), force="true")).json
    assert after["data"] == {"x": "7", "y": "1"}
    owned: dict[str, Any] = {"maker/Update": {"f:data": {".": {}, "f:y": {}}}, "m1/Apply": {"f:data": {"f:x": {}}}}
    assert managers(after) == owned


async def test_managed_fields_are_reset_by_an_empty_entry(server, namespace, apply):
    """For the next applier the object belongs to the manager that wrote it before."""
    await apply(config_map("a", {"x": "1"}))
    reset: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
    after = (await server.call("PATCH", core(namespace, "configmaps", "a"), reset, content_type=MERGE_PATCH)).json
    assert "managedFields" not in after["metadata"]
    after = (await apply(config_map("a", {"y": "1"}))).json
    expected: dict[str, Any] = {
        "before-first-apply/Update": {"f:data": {".": {}, "f:x": {}}},
        "m1/Apply": {"f:data": {"f:y": {}}},
    }
    assert managers(after) == expected


async def test_an_applier_names_itself(apply):
    """422 without a field manager."""
    details = {"group": "meta.k8s.io", "kind": "PatchOptions"}
    cause = ("Required", "fieldManager", "Required value: is required for apply patch")
    assert told((await apply(config_map("a"), "")).json) == invalid('PatchOptions.meta.k8s.io ""', details, cause)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"kind": None, "apiVersion": None}, "/, Kind="),
        ({"apiVersion": None}, "/, Kind=ConfigMap"),
        ({"kind": "Secret"}, "/v1, Kind=Secret"),
        ({"apiVersion": "v2"}, "/v2, Kind=ConfigMap"),
    ],
    ids=["none", "no version", "another kind", "another version"],
)
async def test_a_configuration_says_what_it_is(apply, change, shown):
    """400 for another type, or none."""
    body = {key: value for key, value in {**config_map("a"), **change}.items() if value is not None}
    assert (await apply(body)).json == refusal(400, "BadRequest", f"invalid object type: {shown}")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"nope": 1}, ".nope: field not declared in schema"),
        ({"data": {"x": 1}}, ".data.x: expected string, got &value.valueUnstructured{Value:1}"),
        ({"data": "x"}, ".data: expected map, got &{x}"),
    ],
    ids=["field", "text", "map"],
)
async def test_a_configuration_fits_the_schema(apply, change, problem):
    """500 without a reason, under any field validation: the message has the path."""
    answer = await apply({**config_map("a"), **change})
    assert answer.json == unsaid(f"failed to create typed patch object (/a; /v1, Kind=ConfigMap): {problem}")


async def test_a_configuration_of_a_custom_resource_fits_its_schema(namespace, apply):
    """The same by the schema of its definition."""
    path = kueue("workloads", "w", namespace=namespace)
    what = "failed to create typed patch object (/w; kueue.x-k8s.io/v1beta2, Kind=Workload): "
    answer = await apply(workload("w", nope=1), path=path)
    assert answer.json == unsaid(what + ".spec.nope: field not declared in schema")
    answer = await apply(workload("w", active="x"), path=path)
    assert answer.json == unsaid(what + ".spec.active: expected boolean, got &{x}")
    pod_sets = workload("w")["spec"]["podSets"]
    answer = await apply(workload("w", podSets=[*pod_sets, *pod_sets]), path=path)
    assert answer.json == unsaid(what + '.spec.podSets: duplicate entries for key [name="main"]')


async def test_a_configuration_has_no_managed_fields(apply):
    """They are the server's."""
    answer = await apply(config_map("a", managedFields=[{"manager": "x"}]))
    assert answer.json == refusal(400, "BadRequest", "metadata.managedFields must be nil")


async def test_a_stale_version_in_a_configuration_conflicts(apply):
    """As in an update; a configuration that creates may say any version."""
    assert (await apply(config_map("a", {"x": "1"}, resourceVersion="1"))).status == 201
    answer = await apply(config_map("a", {"x": "2"}, resourceVersion="1"))
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert "please apply your changes to the latest version" in answer.json["message"]


async def test_another_uid_in_a_configuration_is_refused(namespace, apply):
    """409 where there is no object, 422 where there is another one."""
    answer = await apply(config_map("a", uid="abc"))
    message = (
        'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid abc, and no '
        "existing object was found"
    )
    assert answer.json == status(409, "Conflict", message, {"name": "a", "kind": "configmaps"})
    await apply(config_map("a"))
    cause = ("Invalid", "metadata.uid", 'Invalid value: "abc": field is immutable')
    answer = await apply(config_map("a", uid="abc"))
    assert told(answer.json) == invalid('ConfigMap "a"', {"name": "a", "kind": "ConfigMap"}, cause)


async def test_a_missing_namespace_is_not_found(apply):
    """Apply does not create namespaces."""
    answer = await apply(config_map("a"), path=core("nowhere", "configmaps", "a"))
    details = {"name": "nowhere", "kind": "namespaces"}
    assert answer.json == status(404, "NotFound", 'namespaces "nowhere" not found', details)


async def test_finalizers_are_a_set(apply):
    """Each manager owns its own."""
    await apply(config_map("a", finalizers=["x.io/a"]))
    both = (await apply(config_map("a", finalizers=["x.io/b"]), "m2")).json
    assert both["metadata"]["finalizers"] == ["x.io/a", "x.io/b"]
    assert managers(both)["m2/Apply"] == {"f:metadata": {"f:finalizers": {'v:"x.io/b"': {}}}}
    left = (await apply(config_map("a"))).json
    assert left["metadata"]["finalizers"] == ["x.io/b"]


async def test_owner_references_are_owned_whole(apply):
    """Each is one field, by its uid."""
    uid = (await apply(config_map("a"), path="")).json["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid}
    owned = (await apply(config_map("a", ownerReferences=[owner]), "m2")).json
    assert managers(owned) == {"m2/Apply": {"f:metadata": {"f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {}}}}}
    answer = await apply(config_map("a", ownerReferences=[{**owner, "controller": True}]), "m3")
    assert answer.json == conflict(('"m2"', f'.metadata.ownerReferences[uid="{uid}"]'))


async def test_items_of_a_keyed_list_are_merged_by_key(namespace, apply):
    """A pod set of another manager stays; a field of it conflicts by its key."""
    path = kueue("workloads", "w", namespace=namespace)
    made = await apply(workload("w"), path=path)
    assert made.status == 201
    bare = {key: value for key, value in workload("w").items() if key != "spec"}
    second = {"name": "two", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    after = (await apply({**bare, "spec": {"podSets": [second]}}, "m2", path)).json
    assert [pod_set["name"] for pod_set in after["spec"]["podSets"]] == ["main", "two"]
    for pod_set in ({"name": "main", "count": 5}, {"count": 5}):
        answer = await apply({**bare, "spec": {"podSets": [pod_set]}}, "m3", path)
        assert answer.json == conflict(('"m1"', '.spec.podSets[name="main"].count'))
    after = (await apply(bare, "m2", path)).json
    assert [pod_set["name"] for pod_set in after["spec"]["podSets"]] == ["main"]


async def test_atomic_parts_are_owned_whole(server, apply):
    """A selector and a list without keys are replaced, not merged."""
    name = server.fresh_name("cq")
    path = kueue("clusterqueues", name)
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]

    def queue(**spec):
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": spec,
        }

    made = await apply(queue(namespaceSelector={"matchLabels": {"a": "b"}}, resourceGroups=groups), path=path)
    owned: dict[str, Any] = {"f:spec": {"f:namespaceSelector": {}, "f:resourceGroups": {}}}
    assert managers(made.json) == {"m1/Apply": owned}
    answer = await apply(queue(namespaceSelector={"matchLabels": {"c": "d"}}), "m2", path)
    assert answer.json == conflict(('"m1"', ".spec.namespaceSelector"))
    answer = await apply(queue(resourceGroups=[]), "m2", path)
    assert answer.json == conflict(('"m1"', ".spec.resourceGroups"))


async def test_status_is_applied_at_its_endpoint(server, namespace, apply):
    """Its managers are others than those of the main endpoint; spec and labels of the configuration are passed over."""
    path = kueue("workloads", "w", namespace=namespace)
    await apply(workload("w"), path=path)
    bare = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}}
    reserved = {**bare, "spec": {"active": False}, "status": {"conditions": [condition("QuotaReserved")]}}
    after = (await apply(reserved, "adm", f"{path}/status")).json
    assert after["spec"]["active"] is True
    owned: dict[str, Any] = {".": {}, **{f"f:{name}": {} for name in condition("QuotaReserved")}}
    assert managers(after)["adm/Apply/status"] == {"f:status": {"f:conditions": {'k:{"type":"QuotaReserved"}': owned}}}
    after = (await apply({**bare, "status": {"conditions": [condition("Finished")]}}, "job", f"{path}/status")).json
    assert [held["type"] for held in after["status"]["conditions"]] == ["QuotaReserved", "Finished"]
    answer = await apply(
        {**bare, "status": {"conditions": [condition("QuotaReserved", "False")]}}, "job", f"{path}/status"
    )
    who = '"adm" with subresource "status"'
    assert answer.json == conflict((who, '.status.conditions[type="QuotaReserved"].status'))
    after = (await apply({**bare, "status": {}}, "adm", f"{path}/status")).json
    assert [held["type"] for held in after["status"]["conditions"]] == ["Finished"]
    ignored = await apply({**workload("w"), "status": {"requeueState": {"count": 9}}}, path=path)
    assert ignored.json["status"] == after["status"]


@pytest.mark.parametrize(
    ("emptied", "field", "named"),
    [({"requeueState": {}}, "status.requeueState", "requeueState"), ({}, "status", "")],
)
async def test_emptying_what_one_alone_has_filled_makes_null_of_it(server, namespace, apply, emptied, field, named):
    """An object of which an apply leaves the braces is null, which a custom resource does not take: 422, as it was."""
    path = kueue("workloads", "w", namespace=namespace)
    bare = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}}
    await apply(workload("w"), path=path)
    filled = (await apply({**bare, "status": {"requeueState": {"count": 1}}}, "adm", f"{path}/status")).json
    answer = await apply({**bare, "status": emptied}, "adm", f"{path}/status")
    text = f'Invalid value: "null": {named} in body must be of type object: "null"'
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "Workload"}
    wrong = invalid('Workload.kueue.x-k8s.io "w"', details, ("TypeInvalid", field, text), UNCHECKED)
    assert told(answer.json) == wrong
    assert (await server.call("GET", path)).json == filled
    gone = (await apply(bare, "adm", f"{path}/status")).json
    assert "status" not in gone


async def test_an_emptied_list_of_keyed_items_goes_and_is_nobodys(namespace, apply):
    """Its items are owned and not the list: an empty one has no effect."""
    path = kueue("workloads", "w", namespace=namespace)
    bare = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}}
    made = (await apply(workload("w"), path=path)).json
    await apply({**bare, "status": {"conditions": [condition("Finished")]}}, "adm", f"{path}/status")
    after = (await apply({**bare, "status": {"conditions": []}}, "adm", f"{path}/status")).json
    assert "status" not in after
    assert managers(after) == managers(made)


async def test_an_emptied_map_of_a_builtin_is_absent(apply):
    """What a custom resource is refused for is absent here; the applier owns the empty map."""
    await apply(config_map("a", {"x": "1"}, labels={"l": "1"}))
    after = (await apply(config_map("a", {}, labels={}))).json
    assert "data" not in after
    assert "labels" not in after["metadata"]
    assert managers(after) == {"m1/Apply": {"f:data": {}, "f:metadata": {"f:labels": {}}}}


async def test_status_is_not_created_by_apply(namespace, apply):
    """404 for an object that is not there."""
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}, "status": {}}
    answer = await apply(body, path=kueue("workloads", "w", "status", namespace=namespace))
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "workloads"}
    assert answer.json == status(404, "NotFound", 'workloads.kueue.x-k8s.io "w" not found', details)


async def test_every_write_is_tracked(server, namespace):
    """A creator owns its spec with the containers, a later writer what it changed, the status endpoint by its name."""
    path = kueue("workloads", namespace=namespace)
    made = await server.call("POST", path, {**workload("w"), "spec": {"queueName": "lq"}}, fieldManager="maker")
    assert managers(made.json) == {"maker/Update": {"f:spec": {".": {}, "f:active": {}, "f:queueName": {}}}}
    changed = await server.call(
        "PATCH", f"{path}/w", {"spec": {"priority": 1}}, content_type=MERGE_PATCH, fieldManager="up"
    )
    assert managers(changed.json)["up/Update"] == {"f:spec": {"f:priority": {}}}
    body = {"status": {"requeueState": {"count": 1}}}
    told_status = await server.call("PATCH", f"{path}/w/status", body, content_type=MERGE_PATCH, fieldManager="st")
    owned: dict[str, Any] = {"f:status": {".": {}, "f:requeueState": {".": {}, "f:count": {}}}}
    assert managers(told_status.json)["st/Update/status"] == owned


async def test_an_applied_object_is_validated(namespace, apply):
    """A configuration that breaks the rules of its kind is refused like any write."""
    answer = await apply(workload("w", podSets=[]), path=kueue("workloads", "w", namespace=namespace))
    cause = ("Invalid", "spec.podSets", "Invalid value: 0: spec.podSets in body should have at least 1 items")
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "Workload"}
    assert told(answer.json) == invalid('Workload.kueue.x-k8s.io "w"', details, cause)
