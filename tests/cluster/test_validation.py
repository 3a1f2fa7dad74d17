"""Bad manifests are refused as Kubernetes refuses them: 422 with field paths, 400 for what cannot be decoded."""

import copy

import pytest


def causes(answer):
    return {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}


def quota(manifest, **fields):
    changed = copy.deepcopy(manifest)
    changed["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0].update(fields)
    return changed


QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"nominalQuota": "many"}, "nominalQuota", f'Invalid value: "many": {QUOTA}.nominalQuota in body should match'),
        ({"nominalQuota": None}, "nominalQuota", "Required value"),
        ({"nominalQuota": []}, "nominalQuota", 'Invalid value: "array": '),
    ],
)
def test_quotas_of_a_cluster_queue(client, cluster_queue, fields, field, message):
    """Each fault is reported with the path to it."""
    answer = client.create(quota(cluster_queue, **fields))
    assert client.status == 422
    assert answer["message"].startswith('ClusterQueue.kueue.x-k8s.io "cq" is invalid: ')
    assert causes(answer)[f"{QUOTA}.{field}"].startswith(message)


def test_a_borrowing_limit_needs_a_cohort(client, cluster_queue):
    """A rule of the definition; what Kueue's webhooks would add is not in an API server."""
    assert causes(client.create(quota(cluster_queue, borrowingLimit="1"))) == {
        "spec": "Invalid value: borrowingLimit must be nil when cohort is empty"
    }
    cluster_queue["spec"]["cohortName"] = "team"
    client.create(quota(cluster_queue, lendingLimit="10", borrowingLimit="100"))
    assert client.status == 201


def test_borrowing_preemption_needs_reclaiming(client, cluster_queue):
    """A policy that could never apply is refused."""
    cluster_queue["spec"]["preemption"] = {"borrowWithinCohort": {"policy": "LowerPriority"}}
    assert "spec.preemption" in causes(client.create(cluster_queue))


def test_defaults_are_those_of_the_crd(client, cluster_queue, workload):
    """What a ClusterQueue and a Workload say when they do not say it."""
    spec = client.create(cluster_queue)["spec"]
    assert spec["queueingStrategy"] == "BestEffortFIFO"
    assert spec["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    assert spec["preemption"]["borrowWithinCohort"] == {"policy": "Never"}
    assert spec["stopPolicy"] == "None"
    del workload["spec"]["podSets"][0]["name"], workload["spec"]["podSets"][0]["count"]
    created = client.create(workload)["spec"]
    assert created["active"] is True
    assert (created["podSets"][0]["name"], created["podSets"][0]["count"]) == ("main", 1)


@pytest.mark.parametrize("strictness", ["Strict", "Warn", "Ignore"])
def test_unknown_fields(client, cluster_queue, strictness):
    """Strict refuses with 400, Warn drops and warns, Ignore drops."""
    cluster_queue["spec"]["nominal"] = 1
    answer = client.create(cluster_queue, fieldValidation=strictness)
    if strictness == "Strict":
        assert client.status == 400
        assert answer["message"].endswith('strict decoding error: unknown field "spec.nominal"')
        return
    assert client.status == 201
    assert "nominal" not in answer["spec"]
    warned = client.last.headers.get("Warning")
    assert warned == ('299 - "unknown field \\"spec.nominal\\""' if strictness == "Warn" else None)


def test_wrong_types_are_400_for_core_kinds_and_422_for_custom_ones(client, pod, workload):
    """As decoding into Go structs, and as validating against a CRD's schema, would say."""
    pod["spec"]["priority"] = "high"
    answer = client.create(pod)
    assert client.status == 400
    assert answer["message"].startswith('Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal')
    workload["spec"]["podSets"][0]["count"] = "two"
    answer = client.create(workload)
    assert client.status == 422
    assert causes(answer)["spec.podSets[0].count"] == (
        'Invalid value: "string": spec.podSets[0].count in body must be of type integer: "string"'
    )


@pytest.mark.parametrize("field", ["podFailurePolicy", "successPolicy"])
def test_a_policy_of_a_job_is_an_object(client, job, field):
    """Anything else does not decode."""
    job["spec"][field] = [{}]
    refusal = client.create(job)
    assert client.status == 400
    assert f"cannot unmarshal array into Go struct field JobSpec.spec.{field}" in refusal["message"]


@pytest.mark.parametrize(("amount", "status"), [("1e1.5", 400), ("1e9223372036854775807", 201), ("1e400", 201)])
def test_odd_amounts_are_decoded_or_refused_at_once(client, job, amount, status):
    """An exponent may be large, and is a whole number."""
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount}}
    client.create(job)
    assert client.status == status
    client.settle(until_ms=1000)


def test_a_limit_range_of_nothing_limits_nothing(client, pod):
    """Its spec may be absent."""
    client.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "default"}})
    client.create(pod)
    assert client.status == 201


def test_a_status_is_decoded_too(client, job, pod):
    """For every writer: lists and objects where they belong."""
    for manifest, status in ((job, {"uncountedTerminatedPods": "x"}), (pod, {"containerStatuses": ["x"]})):
        client.create(manifest)
        client.patch(manifest, "merge", {"status": status}, subresource="status")
        assert client.status == 422


def test_a_selector_that_is_not_valid_is_refused_for_that(client, job):
    """Whether it matches is not checked."""
    job["spec"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    fields = [cause["field"] for cause in client.create(job)["details"]["causes"]]
    assert client.status == 422
    assert "spec.selector.matchExpressions[0].operator" in fields
    assert "spec.selector" not in fields


def test_bounds_of_lists_and_numbers(client, workload):
    """Eighteen pod sets at most, named apart; counts not negative."""
    one = workload["spec"]["podSets"][0]
    workload["spec"]["podSets"] = [{**one, "name": f"p{number}"} for number in range(19)]
    assert causes(client.create(workload))["spec.podSets"] == "Too many: 19: must have at most 18 items"
    workload["spec"]["podSets"] = [one, {**one, "count": -1}]
    found = causes(client.create(workload))
    assert found["spec.podSets[1]"] == 'Duplicate value: {"name":"main"}'
    assert found["spec.podSets[1].count"].endswith("should be greater than or equal to 0")


def test_what_is_not_json_or_another_kind_is_400(client, config_map):
    """The body is looked at before anything else."""
    path = "/api/v1/namespaces/default/configmaps"
    assert client.call("POST", path, b"{nope")["reason"] == "BadRequest"
    assert "cannot unmarshal array" in client.call("POST", path, [1])["message"]
    assert client.call("POST", path, {**config_map, "kind": "Pod"})["reason"] == "BadRequest"
    assert client.call("POST", path, {**config_map, "apiVersion": "v2"})["reason"] == "BadRequest"
    client.call("POST", path, b"x", "application/vnd.kubernetes.unknown")
    assert client.status == 415


@pytest.mark.parametrize(
    ("kind", "spec", "change", "field"),
    [
        ("LocalQueue", {"clusterQueue": "a"}, {"clusterQueue": "b"}, "spec.clusterQueue"),
        ("AdmissionCheck", {"controllerName": "a"}, {"controllerName": "b"}, "spec.controllerName"),
        ("Topology", {"levels": [{"nodeLabel": "a"}]}, {"levels": [{"nodeLabel": "b"}]}, "spec.levels"),
        (
            "ResourceFlavor",
            {"topologyName": "t", "nodeLabels": {"a": "b"}},
            {"nodeLabels": {"a": "c"}},
            "spec",
        ),
    ],
)
def test_immutable_fields(client, kind, spec, change, field):
    """A change is refused at its path; writing the same again is not."""
    manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    client.create(manifest)
    assert client.status == 201
    answer = client.patch(manifest, "merge", {"spec": change})
    assert client.status == 422
    assert "immutable" in causes(answer)[field]
    client.patch(manifest, "merge", {"spec": spec})
    assert client.status == 200


def test_a_reserved_workload_is_fixed(client, workload):
    """The queue stays while quota is reserved; what is assigned may change and go."""
    client.create(workload)
    condition = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "m",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]}
    client.patch(workload, "merge", {"status": {"conditions": [condition], "admission": admission}}, "status")
    assert client.status == 200
    answer = client.patch(workload, "merge", {"spec": {"queueName": "other"}})
    assert "immutable while workload quota reserved" in causes(answer)["<nil>"]
    for changed in ({**admission, "clusterQueue": "other"}, None):
        client.patch(workload, "merge", {"status": {"admission": changed}}, "status")
        assert client.status == 200


def test_a_topology_ends_with_the_hostname(client):
    """The hostname cannot be above another level, and levels are unique."""
    levels = [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}, {"nodeLabel": "rack"}]
    manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "t"}}
    answer = client.create({**manifest, "spec": {"levels": levels}})
    assert [cause["message"].partition(": ")[2] for cause in answer["details"]["causes"]] == [
        "must be unique",
        "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    ]


def test_labels_and_annotations_have_qualified_names(client, config_map):
    """Keys and values, with the field."""
    config_map["metadata"] |= {"labels": {"a b": "c", "ok": "not ok"}, "annotations": {"x/y/z": ""}}
    answer = client.create(config_map)
    assert client.status == 422
    assert {cause["field"] for cause in answer["details"]["causes"]} == {"metadata.labels", "metadata.annotations"}
