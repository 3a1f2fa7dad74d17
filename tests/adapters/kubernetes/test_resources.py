"""Where resources live."""

import pytest

from headgate.adapters.kubernetes import resources
from headgate.adapters.kubernetes.resources import JOBS, NODES, OF_JOBS, PODS, RESOURCES, WORKLOADS, Resource, asked_for


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path(namespace="a"), "/api/v1/namespaces/a/pods"),
        (PODS.path(namespace="a", name="p", subresource="binding"), "/api/v1/namespaces/a/pods/p/binding"),
        (NODES.path(name="n"), "/api/v1/nodes/n"),
        (JOBS.path(namespace="a", name="j"), "/apis/batch/v1/namespaces/a/jobs/j"),
        (
            WORKLOADS.path(namespace="a", name="w", subresource="status"),
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/w/status",
        ),
        (NODES.path(name="../../etc?x"), "/api/v1/nodes/..%2F..%2Fetc%3Fx"),
    ],
)
def test_paths_are_those_of_the_kubernetes_api(path, expected):
    """Collections, objects and subresources, core group and others; a name never escapes its place."""
    assert path == expected


@pytest.mark.parametrize(
    ("resource", "arguments"),
    [(NODES, {"namespace": "a"}), (PODS, {"name": "p"}), (PODS, {"namespace": "a", "subresource": "status"})],
)
def test_mixed_up_arguments_are_refused(resource, arguments):
    """A path that means something else than its caller thought is never made."""
    with pytest.raises(ValueError, match=r"namespace|namespaced|subresource"):
        resource.path(**arguments)


def test_the_table_holds_every_resource_once():
    """Each constant of the module is found by its plural name; other kinds of jobs have none."""
    constants = {value for value in vars(resources).values() if isinstance(value, Resource)}
    assert constants <= set(RESOURCES.values()) <= constants | set(OF_JOBS.values())
    assert all(RESOURCES[resource.plural] == resource for resource in constants)


@pytest.mark.parametrize(
    ("request_line", "asked"),
    [
        ("GET /api/v1/pods", "list pods"),
        ("GET /api/v1/namespaces/a/pods/p", "get pods in namespace a"),
        ("GET /api/v1/namespaces/kube-system", "get namespaces"),
        ("watch /apis/batch/v1/jobs", "watch jobs.batch"),
        ("POST /apis/batch/v1/namespaces/a/jobs", "create jobs.batch in namespace a"),
        ("POST /api/v1/namespaces/a/pods/p/eviction", "create pods/eviction in namespace a"),
        ("PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues/q/status", "patch clusterqueues/status.kueue.x-k8s.io"),
        ("GET /readyz", "None"),
    ],
)
def test_a_request_is_told_in_the_words_of_rbac(request_line, asked):
    """Verb, resource, subresource, group and namespace, as a rule would name them."""
    assert str(asked_for(request_line)) == asked
