"""Pods: admission, gates, binding, eviction."""

from typing import Any

import pytest

BINDING = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}
POD = "/api/v1/namespaces/default/pods/p"


def bind(client, target="n1", **metadata):
    body = {**BINDING, "metadata": {"name": "p", **metadata}, "target": {"name": target}}
    return client.call("POST", f"{POD}/binding", body)


def test_a_new_pod_is_pending_and_defaulted(client, pod):
    """Phase, quality of service, scheduler, priority; a status given on creation is ignored."""
    created = client.create({**pod, "status": {"phase": "Running"}})
    assert created["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert created["spec"]["schedulerName"] == "default-scheduler"
    assert created["spec"]["priority"] == 0
    assert created["spec"]["terminationGracePeriodSeconds"] == 30


def test_binding_gives_a_node_once(client, pod):
    """NodeName and PodScheduled; the second binding is 409."""
    client.create(pod)
    assert bind(client)["status"] == "Success"
    assert client.status == 201
    bound = client.get(pod)
    assert bound["spec"]["nodeName"] == "n1"
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    refusal = bind(client, "n2")
    assert (client.status, refusal["reason"]) == (409, "Conflict")
    assert 'pod p is already assigned to node "n1"' in refusal["message"]


def test_binding_has_preconditions(client, pod):
    """Another uid is 409, no target is 500, an absent pod 404."""
    assert bind(client)["reason"] == "NotFound"
    client.create(pod)
    assert bind(client, uid="other")["reason"] == "Conflict"
    assert bind(client, "")["message"] == "target.name: Required value"
    assert client.status == 500


def test_only_binding_gives_a_node(client, pod):
    """A patch of nodeName is a change of the spec, which is fixed."""
    client.create(pod)
    refusal = client.patch(pod, "merge", {"spec": {"nodeName": "n1"}})
    assert client.status == 422
    assert "pod updates may not change fields other than" in refusal["message"]
    image = client.patch(pod, "strategic", {"spec": {"containers": [{"name": "main", "image": "new"}]}})
    assert image["spec"]["containers"][0]["image"] == "new"


def test_gates_only_go_and_hold_the_pod(client, pod):
    """Gated: the condition reports it, binding is 409, constraints may tighten; gates never come back."""
    pod["spec"]["schedulingGates"] = [{"name": "a"}, {"name": "b"}]
    created = client.create(pod)
    assert created["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert "has non-empty .spec.schedulingGates" in bind(client)["message"]
    tightened = client.patch(pod, "merge", {"spec": {"nodeSelector": {"zone": "x"}}})
    assert tightened["spec"]["nodeSelector"] == {"zone": "x"}
    refusal = client.patch(pod, "merge", {"spec": {"nodeSelector": {"zone": "y"}}})
    assert "only additions to spec.nodeSelector are allowed" in refusal["message"]
    one = [{"op": "test", "path": "/spec/schedulingGates/0/name", "value": "a"}]
    one.append({"op": "remove", "path": "/spec/schedulingGates/0"})
    assert client.patch(pod, "json", one)["spec"]["schedulingGates"] == [{"name": "b"}]
    refusal = client.patch(pod, "merge", {"spec": {"schedulingGates": [{"name": "b"}, {"name": "c"}]}})
    assert "only deletion is allowed, but found new scheduling gate 'c'" in refusal["message"]
    client.patch(pod, "merge", {"spec": {"schedulingGates": []}})
    assert bind(client)["status"] == "Success"
    refusal = client.patch(pod, "merge", {"spec": {"nodeSelector": {"zone": "x", "more": "y"}}})
    assert client.status == 422


def test_a_gated_pod_cannot_be_created_on_a_node(client, pod):
    """The two exclude each other."""
    pod["spec"] |= {"schedulingGates": [{"name": "a"}], "nodeName": "n1"}
    assert client.create(pod)["details"]["causes"][0]["field"] == "spec.nodeName"


def test_priority_comes_from_the_class(client, pod):
    """An absent class is 403; the default class is taken without a name."""
    pod["spec"]["priorityClassName"] = "high"
    assert "no PriorityClass with name high was found" in client.create(pod)["message"]
    assert client.status == 403
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
        "globalDefault": True,
    }
    client.create(high)
    assert client.create(pod)["spec"]["priority"] == 100
    del pod["spec"]["priorityClassName"]
    pod["metadata"]["name"] = "q"
    assert client.create(pod)["spec"]["priorityClassName"] == "high"
    assert "may not be changed" in client.patch(high, "merge", {"value": 5})["message"]


def test_a_limit_range_defaults_and_bounds_containers(client, pod):
    """Defaults are filled in, a maximum is 403."""
    limits = [{"type": "Container", "defaultRequest": {"memory": "1Gi"}, "max": {"cpu": "2"}}]
    client.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}})
    resources = client.create(pod)["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    pod["metadata"]["name"] = "big"
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "3"}}
    assert "maximum cpu usage per Container is 2, but limit is 3" in client.create(pod)["message"]
    assert client.status == 403


def test_a_runtime_class_adds_its_overhead(client, pod):
    """PodFixed is copied into the pod."""
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}}
    client.create({**runtime, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}})
    pod["spec"]["runtimeClassName"] = "kata"
    assert client.create(pod)["spec"]["overhead"] == {"cpu": "250m"}


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "spec.containers[0].resources.requests"),
        ({"requests": {"cpu": "-1"}}, "spec.containers[0].resources.requests[cpu]"),
    ],
)
def test_resources_make_sense(client, pod, resources, field):
    """Requests within limits and not negative."""
    pod["spec"]["containers"][0]["resources"] = resources
    assert client.create(pod)["details"]["causes"][0]["field"] == field


def test_limits_are_requests_when_none_are_given(client, pod):
    """And then the pod is Guaranteed."""
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    created = client.create(pod)
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Guaranteed"


def test_eviction_asks_the_disruption_budgets(client, pod, node):
    """429 while the budget is spent, success when it is not."""
    client.create(node)
    pod["metadata"]["labels"] = {"app": "x"}
    pod["spec"]["restartPolicy"] = "Always"
    for name in ("p", "q"):
        client.create({**pod, "metadata": {**pod["metadata"], "name": name}})
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    client.create({**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}})
    client.settle(until_ms=0)
    assert client.get(budget)["status"]["disruptionsAllowed"] == 1
    eviction: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    client.call("POST", f"{POD}/eviction", eviction)
    assert client.status == 201
    client.settle(until_ms=0)
    client.get(pod)
    assert client.status == 404
    eviction["metadata"]["name"] = "q"
    refusal = client.call("POST", "/api/v1/namespaces/default/pods/q/eviction", eviction)
    assert client.status == 429
    assert refusal["details"]["causes"][0]["reason"] == "DisruptionBudget"


def test_a_budget_is_a_count_or_a_percentage(client):
    """Not a word, not below zero, not both at once."""
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    for spec in ({"minAvailable": "some"}, {"maxUnavailable": -1}, {"minAvailable": 1, "maxUnavailable": 1}):
        client.create({**budget, "spec": spec})
        assert client.status == 422
    client.create({**budget, "spec": {"minAvailable": "50%"}})
    assert client.status == 201
