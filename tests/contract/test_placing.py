"""What the binder asks for pods that Headgate places: status patches, and removals that are for one uid."""

import json

import pytest
from tests.contract.cases import STRATEGIC_PATCH, core
from tests.contract.running import UNKNOWN_UID, conditions, create_pod

from headgate.core.machine.api_results import is_about_another
from headgate.core.machine.contract import Completed, deletion_of

pytestmark = pytest.mark.anyio

SCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available.",
    "observedGeneration": 1,
    "lastProbeTime": None,
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


async def say(server, namespace, status, uid):
    """Patch the status of the pod `p`, if it has this uid."""
    path = core(namespace, "pods", "p", "status")
    return await server.call("PATCH", path, {"metadata": {"uid": uid}, "status": status}, content_type=STRATEGIC_PATCH)


async def the_pod(server, namespace):
    return (await server.call("GET", core(namespace, "pods", "p"))).json


async def test_a_condition_joins_those_of_other_types(server, namespace):
    """And is replaced by the next of its type, whose time stays where none is given."""
    uid = (await create_pod(server, namespace))["metadata"]["uid"]
    await say(server, namespace, {"conditions": [{"type": "example.com/Other", "status": "True"}]}, uid)
    assert (await say(server, namespace, {"conditions": [SCHEDULED], "nominatedNodeName": "n1"}, uid)).status == 200
    shown = (await the_pod(server, namespace))["status"]
    assert shown["nominatedNodeName"] == "n1"
    assert next(each for each in shown["conditions"] if each["type"] == "PodScheduled") == SCHEDULED
    changed = {name: value for name, value in SCHEDULED.items() if name != "lastTransitionTime"}
    await say(server, namespace, {"conditions": [{**changed, "reason": "SchedulerError"}]}, uid)
    found = await the_pod(server, namespace)
    assert conditions(found) == {"example.com/Other": ("True", ""), "PodScheduled": ("False", "SchedulerError")}
    (last,) = [each for each in found["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert last["lastTransitionTime"] == SCHEDULED["lastTransitionTime"]
    assert last["message"] == SCHEDULED["message"]


async def test_a_nomination_is_cleared_by_null(server, namespace):
    """The conditions stay."""
    uid = (await create_pod(server, namespace))["metadata"]["uid"]
    await say(server, namespace, {"conditions": [SCHEDULED], "nominatedNodeName": "n1"}, uid)
    assert (await say(server, namespace, {"nominatedNodeName": None}, uid)).status == 200
    found = await the_pod(server, namespace)
    assert "nominatedNodeName" not in found["status"]
    assert conditions(found) == {"PodScheduled": ("False", "Unschedulable")}


@pytest.mark.parametrize("how", ["status", "delete", "evict"])
async def test_a_pod_of_another_uid_is_left_alone(server, namespace, how):
    """Each refusal tells that the pod of this name is another one."""
    made = await create_pod(server, namespace)
    options = deletion_of(UNKNOWN_UID)
    match how:
        case "status":
            answer = await say(server, namespace, {"conditions": [SCHEDULED]}, UNKNOWN_UID)
        case "delete":
            answer = await server.call("DELETE", core(namespace, "pods", "p"), options)
        case _:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
            path = core(namespace, "pods", "p", "eviction")
            answer = await server.call("POST", path, {**eviction, "deleteOptions": options})
    assert is_about_another(Completed("c", answer.status, json.dumps(answer.json).encode()))
    left = await the_pod(server, namespace)
    assert left["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_claim_gets_its_node_at_the_version_that_was_read(server, namespace):
    """Beside what others have annotated; at an older version it is refused."""
    path = core(namespace, "persistentvolumeclaims", "c")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    claim = {"metadata": {"name": "c", "annotations": {"theirs": "x"}}, "spec": spec}
    assert (await server.call("POST", core(namespace, "persistentvolumeclaims"), claim)).status == 201
    patch = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
    for version, status in (("1", 409), ("", 200)):
        read = (await server.call("GET", path)).json["metadata"]["resourceVersion"]
        body = {"metadata": {**patch, "resourceVersion": version or read}}
        assert (await server.call("PATCH", path, body, content_type=STRATEGIC_PATCH)).status == status
    found = (await server.call("GET", path)).json["metadata"]["annotations"]
    assert (found["theirs"], found["volume.kubernetes.io/selected-node"]) == ("x", "n1")
