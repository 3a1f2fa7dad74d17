"""
The objects of the demo: three teams that share a cohort, nodes of two flavors, and jobs of many sizes.

Everything is plain manifests, as a user would write them; `headgate demo --print` shows them. Jobs follow from the seed
alone, so a demo can be repeated.
"""

import random
from typing import Any, Final

Manifest = dict[str, Any]

COHORT: Final = "research"
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
TEAMS: Final = {"vision": 0.5, "speech": 0.3, "genomics": 0.2}
"""Teams, with their share of the jobs. Each has the same quota, so the busy ones borrow from the idle."""
PRIORITIES: Final = {"low": 10, "normal": 100, "urgent": 1000}
NODES_PER_FLAVOR: Final = 4
NODE_CPU: Final = 8
TEAM_CPU: Final = 8
"""Nominal quota of each team in each flavor: three of them make 24 of 32 cpu, so placement is never the bottleneck."""
SPOT_TAINT: Final = {"key": "tier", "value": "spot", "effect": "NoSchedule"}
RUN_MS: Final = (1000, 6000)


def cluster_objects() -> list[Manifest]:
    """Nodes, flavors, priorities, queues and namespaces, in the order in which to create them."""
    objects = [_node(flavor, index) for flavor in ("on-demand", "spot") for index in range(NODES_PER_FLAVOR)]
    objects += [
        _kueue("ResourceFlavor", "on-demand", {"nodeLabels": {"tier": "on-demand"}}),
        _kueue("ResourceFlavor", "spot", {"nodeLabels": {"tier": "spot"}, "nodeTaints": [SPOT_TAINT]}),
    ]
    objects += [
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in PRIORITIES.items()
    ]
    for team in TEAMS:
        objects += [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}},
            _cluster_queue(team),
            _kueue("LocalQueue", "main", {"clusterQueue": team}, namespace=team),
        ]
    return objects


def job_objects(count: int, seed: int) -> list[Manifest]:
    """So many Jobs, in the order in which to submit them."""
    rng = random.Random(seed)  # noqa: S311 - the same demo for the same seed, nothing secret
    teams = rng.choices(list(TEAMS), weights=list(TEAMS.values()), k=count)
    return [_job(team, f"{team}-{number:03}", rng) for number, team in enumerate(teams, 1)]


def _kueue(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def _node(flavor: str, index: int) -> Manifest:
    capacity = {"cpu": str(NODE_CPU), "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"{flavor}-{index}", "labels": {"tier": flavor}},
        "spec": {"taints": [SPOT_TAINT]} if flavor == "spot" else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _cluster_queue(team: str) -> Manifest:
    flavors = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": TEAM_CPU}]} for flavor in ("on-demand", "spot")
    ]
    spec = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    }
    return _kueue("ClusterQueue", team, spec)


def _job(team: str, name: str, rng: random.Random) -> Manifest:
    pods = rng.choices((1, 2, 4), weights=(6, 3, 1))[0]
    cpu = rng.choices((1, 2, 4), weights=(5, 3, 1))[0]
    priority = rng.choices(tuple(PRIORITIES), weights=(3, 6, 1))[0]
    spec: Manifest = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}],
    }
    if rng.random() < 0.6:  # these may run where they can be interrupted
        spec["tolerations"] = [{"key": "tier", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": team,
            "labels": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": priority},
        },
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {"headgate.dev/run-ms": str(rng.randint(*RUN_MS))}},
                "spec": spec,
            },
        },
    }
