"""Where resources live."""

import pytest

from headgate.adapters.kubernetes import resources
from headgate.adapters.kubernetes.resources import JOBS, NODES, PODS, RESOURCES, WORKLOADS, Resource


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
    """Each constant of the module is found by its plural name."""
    constants = {value for value in vars(resources).values() if isinstance(value, Resource)}
    assert set(RESOURCES.values()) == constants
    assert all(RESOURCES[resource.plural] == resource for resource in constants)
