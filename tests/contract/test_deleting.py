"""Deleting: preconditions, what holds an object back, what becomes of its dependents, and what is answered."""

import pytest
from tests.contract.cases import MERGE_PATCH, batch, config_map, core, invalid, kueue, refusal, status, told, workload

pytestmark = pytest.mark.anyio

OPTIONS = {"group": "meta.k8s.io", "kind": "DeleteOptions"}


@pytest.fixture
async def make(server, namespace):
    """Create a ConfigMap and return its path and itself."""

    async def create(name="a", **metadata):
        answer = await server.call("POST", core(namespace, "configmaps"), config_map(name, {"k": "1"}, **metadata))
        assert answer.status == 201, answer.json
        return core(namespace, "configmaps", name), answer.json

    return create


async def test_a_deletion_answers_with_success_and_what_is_gone(server, make):
    """A Status with the uid; afterwards the object is not found."""
    path, made = await make()
    answer = await server.call("DELETE", path)
    details = {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert answer.json == expected
    answer = await server.call("DELETE", path)
    absent = {"name": "a", "kind": "configmaps"}
    assert answer.json == status(404, "NotFound", 'configmaps "a" not found', absent)


async def test_a_custom_resource_answers_with_its_group(server, namespace):
    """The same for custom resources."""
    made = (await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))).json
    answer = await server.call("DELETE", kueue("workloads", "w", namespace=namespace))
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "workloads", "uid": made["metadata"]["uid"]}
    assert answer.json["details"] == details


async def test_another_uid_or_version_is_a_conflict(server, make):
    """Preconditions are about the object that was meant; kept ones delete it."""
    path, made = await make()
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    answer = await server.call("DELETE", path, {"preconditions": {"uid": "abc"}})
    message = (
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (abc) does not match the UID in '
        "record "
        f"({uid}). The object might have been deleted and then recreated"
    )
    assert answer.json == status(409, "Conflict", message, {"name": "a", "kind": "ConfigMap"})
    answer = await server.call("DELETE", path, {"preconditions": {"resourceVersion": "1"}})
    message = (
        f'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not '
        "match the "
        f"ResourceVersion in record ({version}). The object might have been modified"
    )
    assert answer.json == status(409, "Conflict", message, {"name": "a", "kind": "ConfigMap"})
    answer = await server.call("DELETE", path, {"preconditions": {"uid": uid, "resourceVersion": version}})
    assert answer.json["status"] == "Success"


async def test_finalizers_hold_an_object_and_only_shrink(server, make):
    """Marked, it can be changed, but not be given new finalizers; with the last one it is gone."""
    path, made = await make(finalizers=["x.io/a", "x.io/b"])
    marked = (await server.call("DELETE", path)).json
    assert marked["metadata"]["deletionTimestamp"] >= made["metadata"]["creationTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await server.call("DELETE", path)).json == marked

    async def patched(body):
        return await server.call("PATCH", path, body, content_type=MERGE_PATCH)

    assert (await patched({"data": {"x": "y"}})).json["data"] == {"k": "1", "x": "y"}
    answer = await patched({"metadata": {"finalizers": ["x.io/a", "x.io/b", "x.io/d", "x.io/c"]}})
    text = (
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"x.io/c", "x.io/d"}'
    )
    cause = ("Forbidden", "metadata.finalizers", text)
    assert told(answer.json) == invalid('ConfigMap "a"', {"name": "a", "kind": "ConfigMap"}, cause)
    assert (await patched({"metadata": {"finalizers": ["x.io/b"]}})).json["metadata"]["finalizers"] == ["x.io/b"]
    assert "deletionTimestamp" in (await patched({"metadata": {"deletionTimestamp": None}})).json["metadata"]
    last = (await patched({"metadata": {"finalizers": None}})).json
    assert "finalizers" not in last["metadata"]
    assert (await server.call("GET", path)).status == 404


async def test_marking_raises_the_generation_of_a_custom_resource(server, namespace):
    """Being deleted is a change that controllers must see."""
    body = workload("w")
    body["metadata"]["finalizers"] = ["x.io/a"]
    await server.call("POST", kueue("workloads", namespace=namespace), body)
    path = kueue("workloads", "w", namespace=namespace)
    marked = (await server.call("DELETE", path)).json
    assert marked["metadata"]["generation"] == 2
    await server.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    assert (await server.call("GET", path)).status == 404


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
async def test_a_propagation_policy_is_a_finalizer(server, make, policy, finalizer):
    """Until the garbage collector has carried out the policy, the object stays; it then removes the finalizer."""
    path, _ = await make(finalizers=["x.io/held"])
    marked = (await server.call("DELETE", path, {"propagationPolicy": policy})).json
    assert set(marked["metadata"]["finalizers"]) == {"x.io/held", finalizer}


async def test_background_deletes_at_once(server, make):
    """Dependents are looked for afterwards."""
    path, _ = await make()
    assert (await server.call("DELETE", path, propagationPolicy="Background")).json["status"] == "Success"


async def test_a_job_orphans_its_pods_by_default(server, namespace):
    """With a warning, for that surprises."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "j", "finalizers": ["x.io/held"]}, "spec": {"suspend": True, "template": template}}
    await server.call("POST", batch(namespace), job)
    answer = await server.call("DELETE", batch(namespace, "j"))
    assert set(answer.json["metadata"]["finalizers"]) == {"x.io/held", "orphan"}
    assert answer.headers["warning"] == (
        '299 - "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove '
        'them or set propagationPolicy=Orphan to suppress this warning"'
    )


@pytest.mark.parametrize("in_query", [True, False], ids=["query", "body"])
async def test_an_unknown_policy_is_422(server, make, in_query):
    """The options are checked in the query and in the body."""
    path, _ = await make()
    options = {"propagationPolicy": "Nope"}
    answer = await (server.call("DELETE", path, **options) if in_query else server.call("DELETE", path, options))
    text = 'Unsupported value: "Nope": supported values: "Foreground", "Background", "Orphan", "nil"'
    expected = invalid('DeleteOptions.meta.k8s.io ""', OPTIONS, ("NotSupported", "propagationPolicy", text))
    assert told(answer.json) == expected


async def test_options_in_a_body_replace_those_of_the_query(server, make):
    """A dry run in the query beside a body is none."""
    path, _ = await make()
    assert (await server.call("DELETE", path, {"gracePeriodSeconds": 0}, dryRun="All")).json["status"] == "Success"
    assert (await server.call("GET", path)).status == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (
            b'{"apiVersion":"v1","kind":"Pod"}',
            'no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        (
            b'{"gracePeriodSeconds":"x"}',
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
    ],
    ids=["cut", "kind", "type"],
)
async def test_options_that_are_none_are_400(server, make, body, message):
    """Nothing is deleted by a request that was not understood."""
    path, _ = await make()
    answer = await server.call("DELETE", path, body)
    assert answer.json == refusal(400, "BadRequest", message)
    assert (await server.call("GET", path)).status == 200


async def test_an_unscheduled_pod_is_marked_and_gone(server, namespace):
    """The answer shows the pod with its deletion, for a pod is deleted gracefully even when that takes no time."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = (await server.call("POST", core(namespace, "pods"), pod)).json
    gone = (await server.call("DELETE", core(namespace, "pods", "p"))).json
    assert gone["kind"] == "Pod"
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    assert gone["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert (await server.call("GET", core(namespace, "pods", "p"))).status == 404


@pytest.mark.parametrize("plural", ["configmaps", "pods"])
async def test_all_namespaces_are_not_deleted_at_once(server, plural):
    """405 without a namespace."""
    answer = await server.call("DELETE", f"/api/v1/{plural}")
    message = "the server does not allow this method on the requested resource"
    assert answer.json == status(405, "MethodNotAllowed", message, {})
