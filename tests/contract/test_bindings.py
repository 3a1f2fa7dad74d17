"""Binding: a pod gets its node once, and not while a gate is left."""

import pytest
from tests.contract.cases import core, status
from tests.contract.running import NODE, UNKNOWN_UID, bind, conditions, create_pod

pytestmark = pytest.mark.anyio

DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def refused(why):
    """The whole refusal of a binding that the pod does not allow."""
    resource = "pods/binding"
    message = f'Operation cannot be fulfilled on {resource} "p": {why}'
    return status(409, "Conflict", message, {"name": "p", "kind": resource})


async def test_a_binding_gives_the_node_and_what_it_says(server, namespace):
    """The node, the condition, annotations and labels of the binding; the generation stays."""
    await create_pod(server, namespace)
    answer = await bind(server, namespace, "p", metadata={"name": "p", "annotations": {"x": "y"}, "labels": {"l": "m"}})
    assert (answer.status, answer.json) == (201, DONE)
    bound = (await server.call("GET", core(namespace, "pods", "p"))).json
    assert bound["spec"]["nodeName"] == NODE
    assert (bound["metadata"]["annotations"], bound["metadata"]["labels"]) == ({"x": "y"}, {"l": "m"})
    assert bound["metadata"]["generation"] == 1
    assert conditions(bound)["PodScheduled"] == ("True", "")


async def test_a_pod_is_bound_once(server, namespace):
    """Also to the same node."""
    await create_pod(server, namespace)
    await bind(server, namespace, "p")
    for node in (NODE, "other"):
        again = await bind(server, namespace, "p", node)
        assert again.json == refused(f'pod p is already assigned to node "{NODE}"')


async def test_a_gated_pod_is_not_bound(server, namespace):
    """Until its last gate is gone."""
    await create_pod(server, namespace, schedulingGates=[{"name": "g"}])
    assert (await bind(server, namespace, "p")).json == refused("pod p has non-empty .spec.schedulingGates")


async def test_a_pod_that_is_deleted_is_not_bound(server, namespace):
    """It waits for a controller, and must not start."""
    await create_pod(server, namespace, meta={"finalizers": ["example.com/hold"]})
    await server.call("DELETE", core(namespace, "pods", "p"))
    assert (await bind(server, namespace, "p")).json == refused("pod p is being deleted, cannot be assigned to a host")


async def test_a_node_need_not_exist(server, namespace):
    """The API server does not check the scheduler's choice."""
    await create_pod(server, namespace)
    assert (await bind(server, namespace, "p", "nowhere")).json == DONE


async def test_a_binding_names_its_pod_and_a_node(server, namespace):
    """Another name is 400; another target or none is 500, and without a reason; an absent pod is 404."""
    await create_pod(server, namespace)
    for metadata in ({}, {"name": "q"}):
        answer = await bind(server, namespace, "p", metadata=metadata)
        assert answer.json == status(400, "BadRequest", "name in URL does not match name in Binding object")
    answer = await bind(server, namespace, "p", target={})
    assert (answer.status, answer.json["message"]) == (500, "target.name: Required value")
    assert "reason" not in answer.json
    answer = await bind(server, namespace, "p", target={"kind": "Pod", "name": "x"})
    assert answer.json["message"] == 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'
    assert (await bind(server, namespace, "absent")).status == 404


async def test_a_binding_may_say_which_pod_it_means(server, namespace):
    """By uid or version; a wrong one is 409 in the words of the storage."""
    made = (await create_pod(server, namespace))["metadata"]
    for field, wrong, words in (("uid", UNKNOWN_UID, "UID"), ("resourceVersion", "1", "ResourceVersion")):
        answer = await bind(server, namespace, "p", metadata={"name": "p", field: wrong})
        assert answer.status == 409
        assert (
            f"Precondition failed: {words} in precondition: {wrong}, {words} in object meta: {made[field]}"
            in (answer.json["message"])
        )
    right = {"name": "p", "uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert (await bind(server, namespace, "p", metadata=right)).status == 201


async def test_a_dry_run_binds_nothing(server, namespace):
    """It is checked all the same."""
    await create_pod(server, namespace)
    path = core(namespace, "pods", "p")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": NODE}}
    assert (await server.call("POST", f"{path}/binding", binding, dryRun="All")).json == DONE
    assert "nodeName" not in (await server.call("GET", path)).json["spec"]
