"""Manifests for plans: one ClusterQueue, and Workloads that wait or run."""

from typing import Any

import yaml

NOW = "2026-01-15T10:00:00Z"

OBJECTS = """\
{{apiVersion: v1, kind: Namespace, metadata: {{name: team}}}}
---
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {{name: spot}}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: spot, resources: [{{name: cpu, nominalQuota: {cpu}}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: main, namespace: team}}
spec: {{clusterQueue: cq, stopPolicy: {stop}}}
"""


def workload(name: str, cpu: str, *, priority: int = 0, at: int = 0, **more: Any) -> dict[str, Any]:
    """A pending Workload of one pod."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-15T09:00:{at:02}Z",
            "generation": 1,
        },
        "spec": {
            "queueName": "main",
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}],
            **more.pop("spec", {}),
        },
        **more,
    }


def running(name: str, cpu: str, *, priority: int = 0) -> dict[str, Any]:
    """A Workload that is admitted from the start."""
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": cpu}}
    shown = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-15T09:30:00Z"}
        for kind in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    return workload(name, cpu, priority=priority, status={"admission": admission, "conditions": shown})


def scenario(
    *workloads: dict[str, Any], cpu: int = 4, cycles: int = 20, queue: str = "", **spec: Any
) -> dict[str, Any]:
    """One ClusterQueue `cq` of one flavor with a LocalQueue `main`. `queue` is its LocalQueue's stopPolicy."""
    objects = list(yaml.safe_load_all(OBJECTS.format(cpu=cpu, stop=queue or "None")))
    objects[2]["spec"] |= spec
    return {"name": "s", "now": NOW, "config": {}, "features": {}, "cycles": cycles, "objects": [*objects, *workloads]}


LOWER = {"withinClusterQueue": "LowerPriority"}
