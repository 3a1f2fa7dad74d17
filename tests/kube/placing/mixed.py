"""
A cluster and pods of all sorts, from a seed: the same for whoever places the pods.

Most pods fit somewhere, and no pod may preempt another: what an attempt is decided on then follows from the order of
the attempts alone.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

NAMESPACE: Final = "mixed"
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
PRIORITIES: Final = {"low": -10, "middle": 100, "high": 1_000}
_APPS: Final = ("api", "batch", "cache", "web")
_TAINT: Final = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
_AVOIDED: Final = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}


def nodes(seed: int, count: int) -> Iterator[Json]:
    """Nodes of four zones and three sizes; some are tainted, some have a fast disk."""
    drawn = random.Random(f"nodes-{seed}")
    for number in range(count):
        name = f"n{number:03}"
        cpu = drawn.choice((4, 8, 16))
        resources = {"cpu": str(cpu), "memory": f"{cpu * drawn.choice((2, 4))}Gi", "pods": str(drawn.choice((4, 8)))}
        labels = {HOSTNAME: name, ZONE: f"zone-{number % 4}", "disk": drawn.choice(("fast", "slow"))}
        taints = [each for each, share in ((_TAINT, 0.15), (_AVOIDED, 0.25)) if drawn.random() < share]
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints} if taints else {},
            "status": {"capacity": resources, "allocatable": resources},
        }


def priority_classes() -> Iterator[Json]:
    """The priorities of the pods."""
    for name, value in PRIORITIES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
        }


def pods(seed: int, count: int) -> Iterator[Json]:
    """Pods: each has up to three of the things that placement reads."""
    drawn = random.Random(f"pods-{seed}")
    for number in range(count):
        app = drawn.choice(_APPS)
        spec: Json = {
            "containers": [_container(drawn)],
            "terminationGracePeriodSeconds": 0,
            "affinity": {},
            "topologySpreadConstraints": [],
        }
        for add in drawn.sample(_SORTS, drawn.choice((0, 1, 1, 2, 3))):
            add(drawn, spec, app)
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number:03}", "namespace": NAMESPACE, "labels": {"app": app}},
            "spec": spec,
        }


def _container(drawn: random.Random) -> Json:
    requests = {
        "cpu": drawn.choice(("100m", "250m", "500m", "1", "2")),
        "memory": drawn.choice(("64Mi", "512Mi", "2Gi")),
    }
    return {"name": "c", "image": "i", "resources": {"requests": requests if drawn.random() < 0.9 else {}}}


def _priority(drawn: random.Random, spec: Json, _: str) -> None:
    spec["priorityClassName"] = drawn.choice(sorted(PRIORITIES))


def _selector(drawn: random.Random, spec: Json, _: str) -> None:
    spec["nodeSelector"] = drawn.choice(({"disk": "fast"}, {ZONE: f"zone-{drawn.randrange(4)}"}))


def _node_affinity(drawn: random.Random, spec: Json, _: str) -> None:
    zones = drawn.sample([f"zone-{number}" for number in range(4)], 2)
    term = {"matchExpressions": [{"key": ZONE, "operator": drawn.choice(("In", "NotIn")), "values": zones}]}
    preferred = {"weight": drawn.randint(1, 100), "preference": {"matchExpressions": [_fast()]}}
    spec["affinity"]["nodeAffinity"] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [preferred, {"weight": 10, "preference": term}]
    }
    if drawn.random() < 0.5:
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required


def _fast() -> Json:
    return {"key": "disk", "operator": "In", "values": ["fast"]}


def _near(drawn: random.Random, spec: Json, app: str) -> None:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": drawn.choice((ZONE, HOSTNAME))}
    weighted = [{"weight": drawn.randint(1, 100), "podAffinityTerm": term}]
    spec["affinity"]["podAffinity"] = (
        {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        if drawn.random() < 0.7
        else {"requiredDuringSchedulingIgnoredDuringExecution": [term | {"topologyKey": ZONE}]}
    )


def _apart(drawn: random.Random, spec: Json, app: str) -> None:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOSTNAME}
    weighted = [{"weight": drawn.randint(1, 100), "podAffinityTerm": term}]
    spec["affinity"]["podAntiAffinity"] = (
        {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        if drawn.random() < 0.7
        else {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    )


def _spread(drawn: random.Random, spec: Json, app: str) -> None:
    spec["topologySpreadConstraints"].append(
        {
            "maxSkew": drawn.choice((1, 2)),
            "topologyKey": drawn.choice((ZONE, HOSTNAME)),
            "whenUnsatisfiable": drawn.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"app": app}},
        }
    )


def _tolerations(drawn: random.Random, spec: Json, _: str) -> None:
    of = drawn.choice((_TAINT, _AVOIDED))
    spec["tolerations"] = [{"key": of["key"], "operator": "Equal", "value": of["value"], "effect": of["effect"]}]


def _port(drawn: random.Random, spec: Json, _: str) -> None:
    port = drawn.choice((8080, 9090))
    spec["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]


_SORTS: Final = (_priority, _selector, _node_affinity, _near, _apart, _spread, _tolerations, _port)
