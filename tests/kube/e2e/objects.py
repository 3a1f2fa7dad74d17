"""Manifests of the end-to-end tests, and what is read off the objects."""

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tests.kube.e2e.cells import KUEUE, Json

from headgate.core.kubernetes.quantities import parse_quantity


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def flavor(name: str, **spec: Any) -> Json:
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def cluster_queue(name: str, flavor: str, cpu: str = "2", **spec: Any) -> Json:
    quota = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
    }


def local_queue(namespace: str, cluster_queue: str, name: str = "main") -> Json:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }


def furnished(name: str, **spec: Any) -> list[Json]:
    """A namespace, a flavor, a ClusterQueue of 2 CPU and a LocalQueue, all but the last called `name`."""
    return [namespace(name), flavor(name), cluster_queue(name, name, **spec), local_queue(name, name)]


def job(
    namespace: str,
    name: str,
    *,
    run_ms: int = 200,
    exit_code: int = 0,
    pods: int = 1,
    suspend: bool = True,
    cpu: str = "1",
    queue: str = "main",
    start_ms: int = 0,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    played = {"run-ms": run_ms, "exit-code": exit_code, "start-ms": start_ms}
    plays = {f"headgate.dev/{key}": str(value) for key, value in played.items() if value or key == "run-ms"}
    container = {"name": "main", "image": "registry/train:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": queue, **labels},
            "annotations": dict(annotations),
        },
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": plays},
                "spec": {"restartPolicy": "Never", "schedulerName": "headgate", "containers": [container]},
            },
        },
    }


def condition(found: Json, kind: str) -> tuple[str, str]:
    """A condition's status and reason; two empty strings when the object has none of this type."""
    for each in found.get("status", {}).get("conditions") or ():
        if each["type"] == kind:
            return each["status"], each["reason"]
    return "", ""


def is_true(found: Json, kind: str) -> bool:
    return condition(found, kind)[0] == "True"


def cpu_of(pod: Json) -> Fraction:
    """What the containers of a pod request, in CPUs."""
    requests = (each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum((parse_quantity(each.get("cpu", 0)) for each in requests), Fraction())
