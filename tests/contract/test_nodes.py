"""Nodes, leases and Events: what a scheduler reads of the first, and writes of the others."""

import pytest
from tests.contract.cases import MERGE_PATCH, core
from tests.contract.running import NODE, causes, conditions, patch

pytestmark = pytest.mark.anyio

NODES = "/api/v1/nodes"
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def leases(namespace, *rest):
    return "/".join(["/apis/coordination.k8s.io/v1/namespaces", namespace, "leases", *rest])


async def test_a_node_is_ready_with_its_labels_and_capacity(server):
    """As its kubelet has completed it."""
    found = (await server.call("GET", f"{NODES}/{NODE}")).json
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == NODE
    assert (labels["kubernetes.io/os"], labels["kubernetes.io/arch"]) == ("linux", "amd64")
    assert found["status"]["capacity"] == {"cpu": "4", "memory": "16Gi", "pods": "110"}
    assert found["status"]["allocatable"] == found["status"]["capacity"]
    assert conditions(found)["Ready"] == ("True", "KubeletReady")
    assert not found["spec"].get("taints")


async def test_a_nodes_amounts_have_one_spelling(server):
    """A status may be given with a new node."""
    given = {"metadata": {"name": server.fresh_name("node")}, "status": {"capacity": {"cpu": "4000m"}}}
    made = (await server.call("POST", NODES, given, dryRun="All")).json
    assert made["status"]["capacity"] == {"cpu": "4"}


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_node_has_no_negative_amounts(server, subresource):
    """Neither by its object nor by its status; only the latter keeps the amounts."""
    status = {"status": {"capacity": {"cpu": "-1"}}}
    answer = await patch(server, f"{NODES}/{NODE}{subresource}", status, MERGE_PATCH, dryRun="All")
    if subresource:
        assert causes(answer) == ["status.capacity.cpu: must be greater than or equal to 0"]
    else:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        (
            [{"key": "a", "effect": "X"}],
            [
                'metadata.taints[0].effect: Unsupported value: "X": supported values: '
                '"NoSchedule", "PreferNoSchedule", "NoExecute"'
            ],
        ),
        ([{"key": "b c", "effect": "NoSchedule"}], [f"metadata.taints[0].key: {QUALIFIED}"]),
    ],
)
async def test_a_taint_has_a_key_and_an_effect(server, taints, expected):
    """Named under metadata, where no taint is, and twice, as the API server does."""
    answer = await patch(server, f"{NODES}/{NODE}", {"spec": {"taints": taints}}, MERGE_PATCH, dryRun="All")
    assert causes(answer) == expected * 2


async def test_a_lease_is_a_lock(server, namespace):
    """A writer with the version that it read succeeds; a later one gets a conflict."""
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2024-01-01T00:00:00.123456Z"}
    made = await server.call("POST", leases(namespace), {"metadata": {"name": "l"}, "spec": spec})
    assert made.json["spec"] == spec
    assert (await server.call("POST", leases(namespace), {"metadata": {"name": "l"}, "spec": spec})).status == 409
    taken = {**made.json, "spec": {**spec, "holderIdentity": "b"}}
    assert (await server.call("PUT", leases(namespace, "l"), taken)).status == 200
    late = await server.call("PUT", leases(namespace, "l"), {**made.json, "spec": {**spec, "holderIdentity": "c"}})
    assert (late.status, late.json["reason"]) == (409, "Conflict")
    assert (await server.call("GET", leases(namespace, "l"))).json["spec"]["holderIdentity"] == "b"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: must be greater than 0"]),
        ({"leaseTransitions": -1}, ["spec.leaseTransitions: must be greater than or equal to 0"]),
    ],
)
async def test_a_lease_lasts_a_while(server, namespace, spec, expected):
    """Not no time at all, and it has not changed hands less than never."""
    answer = await server.call("POST", leases(namespace), {"metadata": {"name": "l"}, "spec": spec}, dryRun="All")
    assert causes(answer) == expected


async def test_an_event_is_written_and_read(server, namespace):
    """By the core version; a client's own value stays."""
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p"},
        "reason": "Queued",
        "message": "waits",
        "type": "Normal",
        "source": {"component": "headgate"},
        "firstTimestamp": "2024-01-01T00:00:00Z",
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "count": 1,
    }
    made = await server.call("POST", core(namespace, "events"), event)
    assert made.status == 201
    found = (await server.call("GET", core(namespace, "events", "e"))).json
    assert {field: found[field] for field in event if field != "metadata"} == {
        field: value for field, value in event.items() if field != "metadata"
    }
