"""Manifests for plans: one ClusterQueue, and Workloads that wait or run; and what the log of a plan gives again."""

from collections.abc import Sequence
from typing import Any

import yaml

from headgate.core import fold
from headgate.core.fold import new_state
from headgate.core.state.tables import State
from headgate.core.views.explain import Explainer
from headgate.core.views.lookup import Lookup
from headgate.events.commit import LoggedCommit

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


def read_again(commits: Sequence[LoggedCommit], name: str) -> tuple[State, list[str]]:
    """The state that the log of a plan folds to, and the types of the events in the story of one of its workloads."""
    state, lookup = new_state("plan"), Lookup()
    for logged in commits:
        fold.apply(state, logged)
        lookup.feed(logged)
    explainer = Explainer(new_state("plan"), lookup.find(name, "team"))
    for logged in commits:
        explainer.feed(logged)
    return state, [line.event for line in explainer.story().lines]
