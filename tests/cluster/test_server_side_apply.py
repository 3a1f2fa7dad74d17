"""Server-side apply: ownership of fields, conflicts, and removal of what is applied no longer."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.testing.cluster import BY_PLURAL, Cluster
from headgate.testing.cluster.api.apply import merged


def owned(obj, manager, operation="Apply", subresource=""):
    for entry in obj["metadata"]["managedFields"]:
        if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, operation, subresource):
            return entry["fieldsV1"]
    return None


def test_apply_creates_and_owns_what_it_names(client, config_map):
    """201 the first time, 200 afterwards, and no revision when nothing changes."""
    created = client.apply(config_map, "one")
    assert client.status == 201
    assert owned(created, "one") == {"f:data": {"f:a": {}}}
    again = client.apply(config_map, "one")
    assert client.status == 200
    assert again == created


def test_two_managers_share_an_equal_value_and_conflict_over_a_different_one(client, config_map):
    """409 names the manager and the field; force takes the field over."""
    client.apply(config_map, "one")
    client.apply(config_map, "two")
    assert client.status == 200
    config_map["data"] = {"a": "2"}
    refusal = client.apply(config_map, "two")
    assert (client.status, refusal["reason"]) == (409, "Conflict")
    assert refusal["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert refusal["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    forced = client.apply(config_map, "two", force="true")
    assert forced["data"] == {"a": "2"}
    assert owned(forced, "one") is None


def test_what_is_applied_no_longer_is_removed_unless_shared(client, config_map):
    """A field leaves with its last owner."""
    config_map["data"] = {"a": "1", "b": "1"}
    client.apply(config_map, "one")
    client.apply({**config_map, "data": {"b": "1"}}, "two")
    left = client.apply({**config_map, "data": {}}, "one")
    assert left["data"] == {"b": "1"}
    assert owned(left, "two") == {"f:data": {"f:b": {}}}


def test_an_update_takes_the_fields_it_changes(client, config_map):
    """A later apply of the old value then conflicts with the updater."""
    client.apply(config_map, "one")
    patched = client.patch(config_map, "merge", {"data": {"a": "2"}})
    assert owned(patched, "one") is None
    assert owned(patched, "tester", "Update") == {"f:data": {"f:a": {}}}
    refusal = client.apply(config_map, "one")
    assert refusal["message"].startswith('Apply failed with 1 conflict: conflict with "tester" using v1')


def test_an_object_made_otherwise_is_owned_by_who_was_before(client, config_map):
    """Changing a field of it conflicts; adding one does not."""
    client.create(config_map)
    assert client.apply({**config_map, "data": {"new": "1"}}, "one")["data"] == {"a": "1", "new": "1"}
    refusal = client.apply({**config_map, "data": {"a": "2"}}, "one")
    assert 'conflict with "before-first-apply" using v1' in refusal["message"]


def test_status_is_owned_apart_from_the_rest(client, workload):
    """Conditions are merged by type; each manager's own go when it drops them; spec is untouched."""
    client.create(workload)

    def condition(kind, status="True"):
        return {
            "type": kind,
            "status": status,
            "reason": "R",
            "message": "m",
            "lastTransitionTime": "2023-11-14T22:13:20Z",
        }

    def status(*conditions):
        return {**workload, "spec": {}, "status": {"conditions": list(conditions)}}

    first = client.apply(status(condition("QuotaReserved"), condition("Admitted")), "admission", "status")
    assert [c["type"] for c in first["status"]["conditions"]] == ["QuotaReserved", "Admitted"]
    assert first["spec"]["podSets"][0]["count"] == 2
    second = client.apply(status(condition("PodsReady")), "reconciler", "status")
    assert [c["type"] for c in second["status"]["conditions"]] == ["QuotaReserved", "Admitted", "PodsReady"]
    third = client.apply(status(condition("QuotaReserved")), "admission", "status")
    assert [c["type"] for c in third["status"]["conditions"]] == ["QuotaReserved", "PodsReady"]
    fields = owned(third, "admission", subresource="status")
    assert list(fields["f:status"]["f:conditions"]) == ['k:{"type":"QuotaReserved"}']
    refusal = client.apply(status(condition("QuotaReserved", "False")), "reconciler", "status")
    assert client.status == 409
    assert refusal["details"]["causes"][0]["field"] == '.status.conditions[type="QuotaReserved"].status'


def test_apply_needs_a_manager_and_yaml_is_understood(client, config_map):
    """400 without fieldManager; the body may be YAML."""
    path = client.path(config_map)
    body = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  when: 2020-01-01\n"
    media = "application/apply-patch+yaml"
    assert "fieldManager: Required value" in client.call("PATCH", path, body, media)["message"]
    assert client.call("PATCH", path, body, media, fieldManager="one")["data"] == {"when": "2020-01-01"}


def test_all_writes_are_tracked_on_request(clock, config_map):
    """With `track_all_fields` objects carry managedFields from their creation, as from a real API server."""
    cluster = Cluster(clock, track_all_fields=True)
    path = "/api/v1/namespaces/default/configmaps"
    created = cluster.request("POST", path, {}, config_map, user="kubectl/1.36").json()
    assert owned(created, "kubectl", "Update") == {"f:data": {".": {}, "f:a": {}}}
    patch = {"data": {"b": "1"}}
    patched = cluster.request("PATCH", path + "/c", {}, patch, "application/merge-patch+json", user="other/1").json()
    assert owned(patched, "other", "Update") == {"f:data": {"f:b": {}}}
    assert owned(patched, "kubectl", "Update") == {"f:data": {".": {}, "f:a": {}}}


VALUES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]))


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), VALUES), max_size=8))
def test_forced_applies_leave_the_union_of_the_last_configurations(applies):
    """With force, the object is what its appliers last applied, later ones over earlier ones, and nothing else."""
    cluster = Cluster(lambda: 0, controllers=None)
    last: dict[str, dict[str, str]] = {}
    expected: dict[str, str] = {}
    media, path = "application/apply-patch+yaml", "/api/v1/namespaces/default/configmaps/c"
    for manager, data in applies:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        answer = cluster.request("PATCH", path, {"fieldManager": manager, "force": "true"}, body, media)
        assert answer.status in {200, 201}
        other = last.get("two" if manager == "one" else "one", {})
        # What the other one owned with another value is lost to it.
        for key in [key for key, value in data.items() if key in other and other[key] != value]:
            del other[key]
        dropped = last.get(manager, {}).keys() - data.keys() - other.keys()
        expected = {key: value for key, value in expected.items() if key not in dropped} | data
        last[manager] = dict(data)
        assert answer.json().get("data", {}) == expected


def test_equal_field_sets_are_kept_once(client, config_map):
    """A thousand objects written alike share one set; each still answers for itself when it is written otherwise."""
    client.apply(config_map, "one")
    client.apply({**config_map, "metadata": {**config_map["metadata"], "name": "d"}}, "one")
    kind = BY_PLURAL[("", "configmaps")]
    first, second = (client.cluster.find(kind, "default", name) for name in ("c", "d"))
    assert owned(first, "one") is owned(second, "one")
    client.apply({**config_map, "data": {"a": "1", "b": "1"}}, "one")
    assert owned(client.cluster.find(kind, "default", "c"), "one") == {"f:data": {"f:a": {}, "f:b": {}}}
    assert owned(client.cluster.find(kind, "default", "d"), "one") == {"f:data": {"f:a": {}}}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=8,
    ),
    st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2), max_size=3
    ),
)
def test_a_merge_that_changes_nothing_gives_back_the_live_value(live, config):
    """Callers may compare by identity; and merging twice is merging once."""
    once = merged(live, config, None)
    assert merged(once, config, None) is once
    if once == live:
        assert once is live
