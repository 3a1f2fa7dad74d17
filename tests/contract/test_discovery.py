"""Discovery: what the server serves, its health, and its errors for paths that it does not serve."""

import anyio
import pytest
from tests.contract.cases import core, kueue, status
from tests.contract.samples import LEASE, LOCAL_QUEUE

pytestmark = pytest.mark.anyio

AGGREGATED = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
UNKNOWN = status(404, "NotFound", "the server could not find the requested resource", {})
NOT_ALLOWED = status(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})

# Path of a group version, resource, then its discovery entry: kind, singular, short names, categories, namespaced.
RESOURCES = [
    ("/api/v1", "namespaces", "Namespace", "namespace", ["ns"], [], False),
    ("/api/v1", "nodes", "Node", "node", ["no"], [], False),
    ("/api/v1", "pods", "Pod", "pod", ["po"], ["all"], True),
    ("/api/v1", "events", "Event", "event", ["ev"], [], True),
    ("/api/v1", "configmaps", "ConfigMap", "configmap", ["cm"], [], True),
    ("/api/v1", "limitranges", "LimitRange", "limitrange", ["limits"], [], True),
    ("/apis/batch/v1", "jobs", "Job", "job", [], ["all"], True),
    ("/apis/scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "priorityclass", ["pc"], [], False),
    ("/apis/node.k8s.io/v1", "runtimeclasses", "RuntimeClass", "runtimeclass", [], [], False),
    ("/apis/coordination.k8s.io/v1", "leases", "Lease", "lease", [], [], True),
    ("/apis/events.k8s.io/v1", "events", "Event", "event", ["ev"], [], True),
    ("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "poddisruptionbudget", ["pdb"], [], True),
    ("/apis/kueue.x-k8s.io/v1beta2", "workloads", "Workload", "workload", ["kwl", "kueueworkload", "kueueworkloads"], [], True),  # noqa: E501
    ("/apis/kueue.x-k8s.io/v1beta1", "localqueues", "LocalQueue", "localqueue", ["queue", "queues", "lq"], [], True),
    ("/apis/kueue.x-k8s.io/v1beta2", "clusterqueues", "ClusterQueue", "clusterqueue", ["cq"], [], False),
    ("/apis/kueue.x-k8s.io/v1beta2", "resourceflavors", "ResourceFlavor", "resourceflavor", ["flavor", "flavors", "rf"], [], False),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("root", "plural", "kind", "singular", "short", "categories", "namespaced"), RESOURCES)
async def test_discovery_describes_a_resource(server, root, plural, kind, singular, short, categories, namespaced):
    """Names, scope and verbs, as `kubectl api-resources` reads them."""
    found = (await server.call("GET", root)).json
    assert (found["kind"], found["groupVersion"]) == (
        "APIResourceList",
        root.removeprefix("/apis/").removeprefix("/api/"),
    )
    resource = next(resource for resource in found["resources"] if resource["name"] == plural)
    assert (resource["kind"], resource["singularName"], resource["namespaced"]) == (kind, singular, namespaced)
    assert (resource.get("shortNames", []), resource.get("categories", [])) == (short, categories)
    verbs = [verb for verb in VERBS if verb != "deletecollection"] if plural == "namespaces" else VERBS
    assert sorted(resource["verbs"]) == verbs


async def test_discovery_lists_subresources(server):
    """Status where there is one, binding and eviction of pods, with what is sent to them."""
    pods = {r["name"]: r for r in (await server.call("GET", "/api/v1")).json["resources"]}
    assert sorted(pods["pods/status"]["verbs"]) == ["get", "patch", "update"]
    assert (pods["pods/binding"]["kind"], pods["pods/binding"]["verbs"]) == ("Binding", ["create"])
    eviction = pods["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    assert eviction["verbs"] == ["create"]
    assert pods["namespaces/finalize"]["verbs"] == ["update"]
    ours = {r["name"]: r for r in (await server.call("GET", "/apis/kueue.x-k8s.io/v1beta2")).json["resources"]}
    assert sorted(ours["workloads/status"]["verbs"]) == ["get", "patch", "update"]
    assert "resourceflavors/status" not in ours


async def test_groups_name_their_versions(server):
    """The first version is the preferred one; a group can also be requested alone."""
    groups = {group["name"]: group for group in (await server.call("GET", "/apis")).json["groups"]}
    versions = [{"groupVersion": f"kueue.x-k8s.io/{v}", "version": v} for v in ("v1beta2", "v1beta1")]
    ours = {"name": "kueue.x-k8s.io", "versions": versions, "preferredVersion": versions[0]}
    assert groups["kueue.x-k8s.io"] == ours
    assert {"batch", "coordination.k8s.io", "events.k8s.io", "policy", "apiextensions.k8s.io"} <= set(groups)
    one = await server.call("GET", "/apis/kueue.x-k8s.io")
    assert one.json == {"kind": "APIGroup", "apiVersion": "v1"} | ours
    assert (await server.call("GET", "/api")).json["versions"] == ["v1"]


@pytest.mark.parametrize(("root", "group"), [("/api", ""), ("/apis", "kueue.x-k8s.io"), ("/apis", "batch")])
async def test_discovery_comes_in_one_piece(server, root, group):
    """Aggregated discovery: every group with its versions and resources in one answer, as clients ask for it first."""
    answer = await server.call("GET", root, headers={"Accept": f"{AGGREGATED},application/json"})
    assert answer.headers["content-type"].startswith("application/json;g=apidiscovery.k8s.io;v=v2")
    assert (answer.json["kind"], answer.json["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    found = next(item for item in answer.json["items"] if item["metadata"].get("name", "") == group)
    plural, kind, scope, version = {
        "": ("pods", "Pod", "Namespaced", "v1"),
        "batch": ("jobs", "Job", "Namespaced", "v1"),
        "kueue.x-k8s.io": ("clusterqueues", "ClusterQueue", "Cluster", "v1beta2"),
    }[group]
    assert found["versions"][0]["version"] == version
    assert found["versions"][0]["freshness"] == "Current"
    resource = next(item for item in found["versions"][0]["resources"] if item["resource"] == plural)
    # Kubernetes' own groups leave out of a kind the group and the version that the reader has just passed.
    response_kind = {"group": group, "version": version} if "." in group else {"group": "", "version": ""}
    assert resource["responseKind"] == response_kind | {"kind": kind}
    assert (resource["scope"], resource["singularResource"]) == (scope, kind.lower())
    assert sorted(resource["verbs"]) == VERBS
    statuses = [item for item in resource["subresources"] if item["subresource"] == "status"]
    assert statuses[0]["responseKind"] == response_kind | {"kind": kind}
    assert sorted(statuses[0]["verbs"]) == ["get", "patch", "update"]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/ping"])
async def test_a_healthy_server_says_ok(server, path):
    """Plain text, for probes."""
    answer = await server.call("GET", path)
    assert (answer.status, answer.json) == (200, "ok")
    assert answer.headers["content-type"].startswith("text/plain")


async def test_the_version_is_that_of_the_release(server):
    """Major, minor and the tag, by which clients choose what to ask for."""
    found = (await server.call("GET", "/version")).json
    assert (found["major"], found["minor"], found["gitVersion"]) == ("1", "36", "v1.36.3")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nothings",
        "/api/v1/namespaces/default/nothings",
        "/api/v2",
        "/apis/batch/v2",
        "/apis/batch/v1/nothings",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/x",
    ],
)
async def test_what_is_not_served_in_a_group_of_kubernetes_is_not_found(server, path):
    """404 with a Status that names nothing."""
    assert (await server.call("GET", path)).json == UNKNOWN


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/apis/nothing.io",
        "/apis/nothing.io/v1/things",
        kueue("nothings"),
        "/apis/kueue.x-k8s.io/v9",
        "/apis/kueue.x-k8s.io/v9/localqueues",
        kueue("localqueues", "x"),
        kueue("clusterqueues", namespace="default"),
        "/livez/nothing",
    ],
)
async def test_what_is_not_served_elsewhere_is_a_page_not_found(server, path):
    """404 in plain text: no handler exists for the path, also for custom kinds."""
    answer = await server.call("GET", path)
    assert (answer.status, answer.json) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/pods"),
        ("PUT", "/api/v1/nodes"),
        ("PATCH", "/api/v1/nodes"),
        ("POST", "/api/v1/nodes/x"),
        ("DELETE", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", LEASE.path("default", "x")),
        ("POST", "/version"),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_not_allowed(server, method, path):
    """405 with a Status; the body is not looked at."""
    assert (await server.call(method, path, {})).json == NOT_ALLOWED


async def openapi_document(server, group_version):
    """The document that the index names. Who asks with the hash of an older document is redirected to the newer one."""
    for _ in range(100):
        index = (await server.call("GET", "/openapi/v3")).json["paths"]
        path, _, query = index[group_version]["serverRelativeURL"].partition("?")
        answer = await server.call("GET", path, **dict([query.split("=", 1)]))
        if answer.status != 301:
            assert answer.status == 200
            return answer.json
        await anyio.sleep(0.1)
    raise AssertionError(f"the document of {group_version} changes all the time")


async def test_the_published_schemas_are_found_by_group_and_version(server):
    """OpenAPI v3, as far as kubectl reads it: an index, documents, the kinds that a schema is of."""
    index = (await server.call("GET", "/openapi/v3")).json["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/kueue.x-k8s.io/v1beta2", "apis/kueue.x-k8s.io/v1beta1"} <= set(index)
    document = await openapi_document(server, "apis/kueue.x-k8s.io/v1beta2")
    gvk = {"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": "LocalQueue"}
    schema = next(
        schema
        for schema in document["components"]["schemas"].values()
        if schema.get("x-kubernetes-group-version-kind") == [gvk]
    )
    assert schema["properties"]["spec"]["properties"]["stopPolicy"]["enum"] == ["None", "Hold", "HoldAndDrain"]
    operation = document["paths"]["/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == gvk
    shared = {p["name"] for p in operation["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= shared


async def test_a_missing_object_is_named(server, namespace):
    """404 of an object names it and its resource."""
    answer = await server.call("GET", LOCAL_QUEUE.path(namespace, "x"))
    assert answer.json == status(
        404,
        "NotFound",
        'localqueues.kueue.x-k8s.io "x" not found',
        {"name": "x", "group": "kueue.x-k8s.io", "kind": "localqueues"},
    )
    answer = await server.call("DELETE", core(namespace, "configmaps", "x"))
    assert answer.json == status(404, "NotFound", 'configmaps "x" not found', {"name": "x", "kind": "configmaps"})
