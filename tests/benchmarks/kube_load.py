"""
The load of Kueue's own scheduler benchmark (`test/performance/scheduler/configs/baseline`), as manifests.

15,000 Workloads without jobs behind them in 30 ClusterQueues of 5 cohorts: three classes, created by one loop for each
queue and class. The labels of a Workload are its class and how long it runs once it is admitted.
"""

from typing import Final

import msgspec
from tests.benchmarks.manifests import KUEUE, Manifest, kueue

COHORTS: Final = 5
QUEUES_IN_COHORT: Final = 6
NOMINAL_CPU: Final = 20
BORROWING_CPU: Final = 100
FLAVOR: Final = "rf"

CLASS_LABEL: Final = "kueue.x-k8s.io/benchmark-class"
RUNTIME_LABEL: Final = "kueue.x-k8s.io/benchmark-running-ms"


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """A class of workloads: how many of it each queue gets, one each `every_ms`."""

    name: str
    count: int
    cpu: int
    priority: int
    run_ms: int
    every_ms: int


CLASSES: Final = (
    Class(name="small", count=350, cpu=1, priority=50, run_ms=200, every_ms=100),
    Class(name="medium", count=100, cpu=5, priority=100, run_ms=500, every_ms=500),
    Class(name="large", count=50, cpu=20, priority=200, run_ms=1_000, every_ms=1_200),
)


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """What the ClusterQueues say of preemption, in Kueue's words; "Never" is no preemption."""

    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"


def classes(scale: float) -> tuple[Class, ...]:
    """The classes with so large a share of their workloads, at least one of each."""
    return tuple(msgspec.structs.replace(each, count=max(1, round(each.count * scale))) for each in CLASSES)


def queue_names() -> list[str]:
    """The ClusterQueues; each has a namespace and a LocalQueue of its name."""
    return [f"cq-{queue}-cohort-{cohort}" for cohort in range(COHORTS) for queue in range(QUEUES_IN_COHORT)]


def total(of: tuple[Class, ...]) -> int:
    """How many workloads there are of all classes in all queues."""
    return COHORTS * QUEUES_IN_COHORT * sum(each.count for each in of)


def queues(preemption: Preemption = Preemption()) -> list[Manifest]:  # noqa: B008  (frozen)
    """The flavor, and for each queue its namespace, ClusterQueue and LocalQueue."""
    manifests = [kueue("ResourceFlavor", FLAVOR, {})]
    quota = {"name": "cpu", "nominalQuota": str(NOMINAL_CPU), "borrowingLimit": str(BORROWING_CPU)}
    for name in queue_names():
        spec: Manifest = {
            "cohortName": name.partition("-cohort-")[2].join(("cohort-", "")),
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}],
            "preemption": {
                "withinClusterQueue": preemption.within_cluster_queue,
                "reclaimWithinCohort": preemption.reclaim_within_cohort,
            },
        }
        manifests.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        manifests.append(kueue("ClusterQueue", name, spec))
        manifests.append(kueue("LocalQueue", name, {"clusterQueue": name}, name))
    return manifests


def workload(queue: str, of: Class, number: int) -> Manifest:
    """The `number`th workload of a class in a queue: one pod with one container, as Kueue's generator makes it."""
    container = {"name": "c", "resources": {"requests": {"cpu": str(of.cpu)}}}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": f"{of.name}-{number}",
            "namespace": queue,
            "labels": {CLASS_LABEL: of.name, RUNTIME_LABEL: str(of.run_ms)},
        },
        "spec": {
            "queueName": queue,
            "priority": of.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
