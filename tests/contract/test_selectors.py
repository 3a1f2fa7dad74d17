"""Selectors: which objects labels and fields choose, and the error for a selector that cannot be parsed."""

import pytest
from tests.contract.cases import batch, core, kueue, status
from tests.contract.samples import LEASE, LOCAL_QUEUE, names

pytestmark = pytest.mark.anyio

NAME_FORM = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_FORM = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ONLY_METADATA = 'is not a known field selector: only "metadata.name", "metadata.namespace"'


@pytest.fixture(params=[LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
def sample(request):
    """The kind that is selected from."""
    return request.param


LABELLED = {
    "a": {"tier": "front", "size": "3", "empty": ""},
    "b": {"tier": "back", "size": "12"},
    "c": {"tier": "back", "example.com/x": "1"},
    "d": {},
}

CHOSEN = [
    ("tier=front", "a"),
    ("tier==back", "bc"),
    ("tier!=back", "ad"),
    ("tier", "abc"),
    ("!tier", "d"),
    (" ! tier ", "d"),
    ("tier in (front, back)", "abc"),
    ("tier in (front)", "a"),
    ("tier notin (front)", "bcd"),
    ("tier in ()", ""),
    ("tier in (front,,x)", "a"),
    ("empty=", "a"),
    ("empty in (,)", "a"),
    ("tier=back,size", "b"),
    ("tier=back,size!=12", "c"),
    ("size>3", "b"),
    ("size<4", "a"),
    ("example.com/x=1", "c"),
    ("in=x", ""),
    ("tier=in", ""),
    ("", "abcd"),
]


async def test_labels_choose(server, namespace, sample):
    """Equality, sets, presence, absence and comparisons; all requirements of a selector must be met."""
    for name, labels in LABELLED.items():
        await sample.create(server, namespace, name, labels=labels)
    for selector, expected in CHOSEN:
        answer = await server.call("GET", sample.path(namespace), labelSelector=selector)
        assert names(answer) == list(expected), selector


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),  # noqa: E501
        ("-a=b", f'unable to parse requirement: <nil>: Invalid value: "-a": {NAME_FORM}'),
        ("/a=b", 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'),
        ("x/=b", f'unable to parse requirement: <nil>: Invalid value: "x/": name part must be non-empty; {NAME_FORM}'),
        ("a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {VALUE_FORM}'),
    ],
)  # fmt: skip
async def test_a_label_selector_that_cannot_be_read_is_refused(server, namespace, sample, selector, message):
    """400 BadRequest has where parsing stopped and what was expected; the same for lists, watches and deletions."""
    for method, query in (("GET", {}), ("GET", {"watch": "true", "timeoutSeconds": "1"}), ("DELETE", {})):
        answer = await server.call(method, sample.path(namespace), labelSelector=selector, **query)
        assert answer.json == status(400, "BadRequest", message)


async def test_names_and_namespaces_choose_objects_of_every_kind(server, namespace, sample):
    """Both are fields of whatever has them; terms are joined by commas and escaped by backslashes."""
    await sample.create(server, namespace, "a", "b", "c")
    for selector, expected in (
        ("metadata.name=b", "b"),
        ("metadata.name==b", "b"),
        ("metadata.name!=b", "ac"),
        ("metadata.name!=b,metadata.name!=c", "a"),
        (f"metadata.namespace={namespace}", "abc"),
        ("metadata.namespace=other", ""),
        ("metadata.name=", ""),
        (",", "abc"),
        (r"metadata.name=a\,b", ""),
    ):
        answer = await server.call("GET", sample.path(namespace), fieldSelector=selector)
        assert names(answer) == list(expected), selector
    everywhere = await server.call("GET", sample.path(), fieldSelector=f"metadata.namespace={namespace}")
    assert names(everywhere) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        (LEASE.path("default"), "spec.holderIdentity", f'"spec.holderIdentity" {ONLY_METADATA}'),
        (core("default", "configmaps"), "data.x", f'"data.x" {ONLY_METADATA}'),
        (core("default", "pods"), "spec.priority", "field label not supported: spec.priority"),
        ("/api/v1/nodes", "metadata.namespace", "field label not supported: metadata.namespace"),
        ("/api/v1/namespaces", "spec.x", "field label not supported: spec.x"),
        (core("default", "events"), "x", "field label not supported: x"),
        ("/apis/events.k8s.io/v1/namespaces/default/events", "involvedObject.kind", "field label not supported: involvedObject.kind"),  # noqa: E501
        (batch("default"), "spec.suspend", 'field label "spec.suspend" not supported for Job'),
        (LOCAL_QUEUE.path("default"), "spec.clusterQueue", "field label not supported: spec.clusterQueue"),
        (kueue("clusterqueues"), "metadata.namespace", "field label not supported: metadata.namespace"),
        (kueue("workloads", namespace="default"), "spec.queueName", "field label not supported: spec.queueName"),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", "value", f'"value" {ONLY_METADATA}'),
    ],
)  # fmt: skip
async def test_fields_that_are_not_indexed_are_refused(server, path, field, message):
    """400 BadRequest; the supported fields differ from kind to kind, and so do the messages."""
    answer = await server.call("GET", path, fieldSelector=f"{field}=x")
    assert answer.json == status(400, "BadRequest", message)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a,x", "invalid selector: 'metadata.name=a,x'; can't understand 'x'"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a\\b", "invalid field selector: invalid escape sequence: \\b"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
async def test_a_field_selector_that_cannot_be_read_is_refused(server, namespace, sample, selector, message):
    """400 BadRequest names the invalid part."""
    answer = await server.call("GET", sample.path(namespace), fieldSelector=selector)
    assert answer.json == status(400, "BadRequest", message)


async def test_pods_are_chosen_by_node_and_phase(server, namespace):
    """What schedulers and kubelets ask for: the pods of one node, of none, those that are over."""
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    node = server.fresh_name("node")
    assert (await server.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})).status == 201
    for name, more in (("bound", {"nodeName": node}), ("free", {"schedulerName": "mine"})):
        made = await server.call("POST", core(namespace, "pods"), {"metadata": {"name": name}, "spec": spec | more})
        assert made.status == 201, made.json
    done = {"status": {"phase": "Succeeded"}}
    path = core(namespace, "pods", "free", "status")
    assert (await server.call("PATCH", path, done, content_type="application/merge-patch+json")).status == 200
    for selector, expected in (
        (f"spec.nodeName={node}", ["bound"]),
        ("spec.nodeName=", ["free"]),
        ("spec.nodeName!=", ["bound"]),
        ("status.phase=Succeeded,spec.nodeName=", ["free"]),
        ("status.phase!=Succeeded,spec.nodeName=", []),
        ("spec.schedulerName=mine", ["free"]),
        ("spec.restartPolicy=Never", ["bound", "free"]),
        ("spec.hostNetwork=false", ["bound", "free"]),
        ("metadata.name=free,spec.nodeName=", ["free"]),
    ):
        assert names(await server.call("GET", core(namespace, "pods"), fieldSelector=selector)) == expected, selector
    assert (await server.call("DELETE", f"/api/v1/nodes/{node}")).status == 200


async def test_jobs_nodes_and_namespaces_are_chosen_by_their_fields(server, namespace):
    """A job by how many pods succeeded, a node by whether it takes pods, a namespace by its phase."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    assert (await server.call("POST", batch(namespace), job)).status == 201
    assert names(await server.call("GET", batch(namespace), fieldSelector="status.successful=0")) == ["j"]
    assert names(await server.call("GET", batch(namespace), fieldSelector="status.successful=1")) == []
    closed = server.fresh_name("closed")
    node = {"metadata": {"name": closed}, "spec": {"unschedulable": True}}
    assert (await server.call("POST", "/api/v1/nodes", node)).status == 201
    assert closed in names(await server.call("GET", "/api/v1/nodes", fieldSelector="spec.unschedulable=true"))
    assert closed not in names(await server.call("GET", "/api/v1/nodes", fieldSelector="spec.unschedulable=false"))
    assert (await server.call("DELETE", f"/api/v1/nodes/{closed}")).status == 200
    active = await server.call(
        "GET", "/api/v1/namespaces", fieldSelector=f"status.phase=Active,metadata.name={namespace}"
    )
    assert names(active) == [namespace]


async def test_workloads_are_chosen_by_the_cluster_queue_that_holds_them(server, namespace):
    """The one field that Kueue's definition makes selectable, in the version that is stored."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    for name in ("waits", "runs"):
        workload = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name},
            "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]},
        }
        made = await server.call("POST", kueue("workloads", namespace=namespace), workload)
        assert made.status == 201, made.json
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
    path = kueue("workloads", "runs", "status", namespace=namespace)
    patched = await server.call(
        "PATCH", path, {"status": {"admission": admission}}, content_type="application/merge-patch+json"
    )
    assert patched.status == 200, patched.json
    path = kueue("workloads", namespace=namespace)
    field = "status.admission.clusterQueue"
    assert names(await server.call("GET", path, fieldSelector=f"{field}=cq")) == ["runs"]
    assert names(await server.call("GET", path, fieldSelector=f"{field}!=cq")) == ["waits"]
    older = await server.call("GET", path.replace("v1beta2", "v1beta1"), fieldSelector=f"{field}=cq")
    assert older.json == status(400, "BadRequest", f"field label not supported: {field}")
