"""Tables for printing, and metadata alone: what kubectl requests instead of the objects."""

import re

import pytest
from tests.contract.cases import batch, core, kueue, status
from tests.contract.samples import LEASE, LOCAL_QUEUE, watched

pytestmark = pytest.mark.anyio

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
AGE = re.compile(r"\d+(s|m|h)(\d+(s|m))?")
CONTAINERS = {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}], "restartPolicy": "Never"}
STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}

# Name:type of each column; a leading + is one of `-o wide`, a * the one that holds names.
COLUMNS = {
    "/api/v1/namespaces": "*Name|Status|Age",
    "/api/v1/nodes": "*Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime",  # noqa: E501
    "/api/v1/pods": "*Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates",
    "/api/v1/events": "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+*Name",
    "/apis/events.k8s.io/v1/events": "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+*Name",  # noqa: E501
    "/api/v1/configmaps": "*Name|Data|Age",
    "/api/v1/limitranges": "*Name|Created At:date",
    "/apis/batch/v1/jobs": "*Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector",
    "/apis/scheduling.k8s.io/v1/priorityclasses": "*Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy",
    "/apis/node.k8s.io/v1/runtimeclasses": "*Name|Handler|Age",
    "/apis/coordination.k8s.io/v1/leases": "*Name|Holder|Age",
    "/apis/policy/v1/poddisruptionbudgets": "*Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": "*Name|Created At:date",
    kueue("workloads"): "*Name|Queue|Reserved in|Admitted|Finished|Age:date",
    kueue("localqueues"): "*Name|ClusterQueue|Pending Workloads:integer|Admitted Workloads:integer",
    kueue("clusterqueues"): "*Name|Cohort|+Strategy|Pending Workloads:integer|+Admitted Workloads:integer",
}  # fmt: skip


def shown(column) -> str:
    """A column definition in the notation above."""
    kind = "" if column["type"] == "string" else f":{column['type']}"
    return f"{'+' * column['priority']}{'*' if column['format'] == 'name' else ''}{column['name']}{kind}"


def masked(row):
    """The cells of a row, with ages as a word."""
    return ["AGE" if isinstance(cell, str) and AGE.fullmatch(cell) else cell for cell in row["cells"]]


async def rows(server, path, **query):
    """The rows of a table by name, with ages masked."""
    answer = await server.call("GET", path, headers={"Accept": TABLE}, includeObject="None", **query)
    assert answer.status == 200, answer.json
    return {row["cells"][0]: masked(row)[1:] for row in answer.json["rows"]}


@pytest.mark.parametrize("path", COLUMNS)
async def test_the_columns_of_a_kind(server, path):
    """Names, types and priorities of the columns, and which of them holds the name."""
    answer = await server.call("GET", path, headers={"Accept": TABLE}, limit="1")
    assert (answer.json["kind"], answer.json["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert "|".join(shown(column) for column in answer.json["columnDefinitions"]) == COLUMNS[path]


async def test_the_cells_of_pods(server, namespace):
    """Readiness, the phase or a more specific reason, restarts, its node."""
    node = server.fresh_name("node")
    gated = CONTAINERS | {"schedulingGates": [{"name": "example.com/gate"}]}
    for name, spec in (("gated", gated), ("waits", CONTAINERS)):
        made = await server.call("POST", core(namespace, "pods"), {"metadata": {"name": name}, "spec": spec})
        assert made.status == 201, made.json
    running = {
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}],
            "nominatedNodeName": node,
            "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}},
                {
                    "name": "d",
                    "image": "j",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": {"exitCode": 1, "reason": "Error"}},
                },
            ],
        }
    }
    path = core(namespace, "pods", "waits", "status")
    none = "<none>"
    assert await rows(server, core(namespace, "pods")) == {
        "gated": ["0/2", "SchedulingGated", "0", "AGE", none, none, none, none],
        "waits": ["0/2", "Pending", "0", "AGE", none, none, none, none],
    }
    patched = await server.call("PATCH", path, running, content_type="application/merge-patch+json")
    assert patched.status == 200, patched.json
    assert (await rows(server, core(namespace, "pods")))["waits"] == [
        "1/2", "Error", "0", "AGE", "10.0.0.1", none, node, none,
    ]  # fmt: skip


async def test_the_cells_of_jobs(server, namespace):
    """The state, how many of how many, and with `-o wide` what runs and how its pods are found."""
    for name, spec in (("one", {}), ("many", {"completions": 3, "parallelism": 2}), ("any", {"parallelism": 3})):
        job = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": CONTAINERS}} | spec}
        assert (await server.call("POST", batch(namespace), job)).status == 201
    for name, (state, *found) in (await rows(server, batch(namespace))).items():
        assert state in {"Running", "Suspended"}
        uid = (await server.call("GET", batch(namespace, name))).json["metadata"]["uid"]
        assert found == [
            {"one": "0/1", "many": "0/3", "any": "0/1 of 3"}[name], "", "AGE", "c,d", "i,j",
            f"batch.kubernetes.io/controller-uid={uid}",
        ]  # fmt: skip


async def test_the_cells_of_nodes(server):
    """Readiness and whether it is schedulable, roles by labels, and its kubelet's node info."""
    name = server.fresh_name("node")
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": ""}
    node = {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": True}}
    assert (await server.call("POST", "/api/v1/nodes", node)).status == 201
    path = f"/api/v1/nodes?fieldSelector=metadata.name%3D{name}"
    found = (await rows(server, path.partition("?")[0], fieldSelector=f"metadata.name={name}"))[name]
    assert found[0].removesuffix(",SchedulingDisabled") in {"Unknown", "Ready"}
    assert found[0].endswith(",SchedulingDisabled")
    assert found[1:3] == ["gpu,worker", "AGE"]
    assert (await server.call("DELETE", f"/api/v1/nodes/{name}")).status == 200


async def test_the_cells_of_events(server, namespace):
    """When it was last and first seen, how often, of what and by whom; the name comes last."""
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace, "fieldPath": "spec.containers{c}"},
        "reason": "Why",
        "message": " what \n",
        "type": "Normal",
        "source": {"component": "me", "host": "here"},
        "firstTimestamp": "2020-01-01T00:00:00Z",
        "lastTimestamp": "2020-01-01T00:00:00Z",
        "count": 3,
    }
    assert (await server.call("POST", core(namespace, "events"), event)).status == 201
    answer = await server.call("GET", core(namespace, "events"), headers={"Accept": TABLE})
    (cells,) = [row["cells"] for row in answer.json["rows"]]
    seen = cells[0]
    assert re.fullmatch(r"\d+y(\d+d)?", seen)
    assert cells == [seen, "Normal", "Why", "pod/p", "spec.containers{c}", "me, here", "what", seen, 3, "e"]


async def test_the_cells_of_small_kinds(server, namespace):
    """One object each of the kinds that have little to say."""
    name = server.fresh_name("small")
    created = {}
    for path, body in (
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 7}),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}),
        (f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {"spec": {"minAvailable": "50%"}}),
        (core(namespace, "configmaps"), {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}),
        (core(namespace, "limitranges"), {"spec": {"limits": []}}),
        (LEASE.path(namespace), {"spec": {}}),
    ):
        made = await server.call("POST", path, {"metadata": {"name": name}} | body)
        assert made.status == 201, made.json
        found = await rows(server, path, fieldSelector=f"metadata.name={name}")
        created[path.rpartition("/")[2]] = found[name]
        since = made.json["metadata"]["creationTimestamp"]
        assert (await server.call("DELETE", f"{path}/{name}")).status == 200
        if path.endswith("limitranges"):
            assert found[name] == [since]
    del created["limitranges"]
    assert created == {
        "priorityclasses": [7, False, "AGE", "PreemptLowerPriority"],
        "runtimeclasses": ["h", "AGE"],
        "poddisruptionbudgets": ["50%", "N/A", 0, "AGE"],
        "configmaps": [2, "AGE"],
        "leases": ["", "AGE"],
    }


async def test_the_cells_of_custom_kinds_are_what_their_paths_find(server, namespace):
    """Absent values are null, integers stay integers, dates are ages, conditions are found by their type."""
    await LOCAL_QUEUE.create(server, namespace, "q")
    assert await rows(server, LOCAL_QUEUE.path(namespace)) == {"q": ["cq", None, None]}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": CONTAINERS}}]},
    }
    path = kueue("workloads", namespace=namespace)
    assert (await server.call("POST", path, workload)).status == 201
    assert await rows(server, path) == {"w": ["q", None, None, None, "AGE"]}
    conditions = [
        {"type": kind, "status": state, "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "R", "message": "m"}
        for kind, state in (("QuotaReserved", "True"), ("Admitted", "True"), ("Finished", "False"))
    ]
    patched = await server.call(
        "PATCH", f"{path}/w/status", {"status": {"conditions": conditions}}, content_type="application/merge-patch+json"
    )
    assert patched.status == 200, patched.json
    assert await rows(server, path) == {"w": ["q", None, "True", "False", "AGE"]}


@pytest.mark.parametrize("sample", [LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
async def test_a_row_carries_what_was_asked_for(server, namespace, sample):
    """Metadata by default, the whole object, or nothing; anything else is refused."""
    (made,) = await sample.create(server, namespace, "a")
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    for include, expected in ((None, partial), ("Metadata", partial), ("Object", made), ("None", None)):
        query = {"includeObject": include} if include else {}
        for path in (sample.path(namespace), sample.path(namespace, "a")):
            answer = await server.call("GET", path, headers={"Accept": TABLE}, **query)
            (row,) = answer.json["rows"]
            assert row["object"] == expected
    one = await server.call("GET", sample.path(namespace, "a"), headers={"Accept": TABLE})
    assert one.json["metadata"] == {"resourceVersion": made["metadata"]["resourceVersion"]}
    wrong = await server.call("GET", sample.path(namespace), headers={"Accept": TABLE}, includeObject="x")
    assert wrong.json == status(
        400,
        "BadRequest",
        "Unable to convert to Table as requested: includeObject: Invalid value: \"x\": must be 'Metadata', 'Object', "
        "'None', or empty",
    )


@pytest.mark.parametrize("sample", [LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
async def test_tables_come_in_pages(server, namespace, sample):
    """The metadata of a table is that of the list, the columns come with each page."""
    await sample.create(server, namespace, "a", "b", "c")
    first = await server.call("GET", sample.path(namespace), headers={"Accept": TABLE}, limit="2")
    meta = first.json["metadata"]
    assert meta["remainingItemCount"] == 1
    assert [row["cells"][0] for row in first.json["rows"]] == ["a", "b"]
    second = await server.call(
        "GET", sample.path(namespace), headers={"Accept": TABLE}, limit="2", **{"continue": meta["continue"]}
    )
    assert second.json["metadata"] == {"resourceVersion": meta["resourceVersion"]}
    assert second.json["columnDefinitions"] == first.json["columnDefinitions"]


@pytest.mark.parametrize("sample", [LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
async def test_a_watch_of_tables_names_its_columns_once(server, namespace, sample):
    """Each event is a table of one row; only the first has column definitions."""
    made = await sample.create(server, namespace, "a", "b")
    events = await watched(server, sample.path(namespace), headers={"Accept": TABLE}, **STREAM)
    first, second, end = events[:3]
    assert [event["type"] for event in events[:3]] == ["ADDED", "ADDED", "BOOKMARK"]
    assert first["object"]["kind"] == second["object"]["kind"] == end["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"]
    assert second["object"]["columnDefinitions"] is None
    (row,) = second["object"]["rows"]
    assert row["cells"][0] == "b"
    assert row["object"]["metadata"] == made[1]["metadata"]
    (row,) = end["object"]["rows"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize("sample", [LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
async def test_metadata_can_be_had_alone(server, namespace, sample):
    """An object as PartialObjectMetadata, a list as PartialObjectMetadataList; the one is not the other."""
    (made,) = await sample.create(server, namespace, "a")
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    one = await server.call("GET", sample.path(namespace, "a"), headers={"Accept": PARTIAL})
    assert one.json == partial
    listed = await server.call("GET", sample.path(namespace), headers={"Accept": PARTIAL_LIST})
    assert listed.json == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": listed.json["metadata"]["resourceVersion"]},
        "items": [partial],
    }
    wrong = await server.call("GET", sample.path(namespace), headers={"Accept": PARTIAL})
    assert (wrong.status, wrong.json["reason"]) == (406, "NotAcceptable")


async def test_what_cannot_be_shown_is_not_acceptable(server):
    """406 lists the supported types; a supported second choice is used."""
    for accept in ("application/json;as=Table;v=v9;g=meta.k8s.io", "application/json;as=Other;v=v1;g=meta.k8s.io"):
        answer = await server.call("GET", "/api/v1/namespaces", headers={"Accept": accept})
        assert answer.json == status(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf",
        )
    either = await server.call(
        "GET", "/api/v1/namespaces", headers={"Accept": "application/json;as=Other;v=v1;g=x,application/json"}
    )
    assert either.json["kind"] == "NamespaceList"
