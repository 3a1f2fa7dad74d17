"""
The loads of Kueue's own scheduler benchmark (`test/performance/scheduler/configs`, baseline and tas), as manifests.

15,000 Workloads without jobs behind them in 30 ClusterQueues of 5 cohorts, created by one loop for each queue and
class. The labels of a Workload are its class and how long it runs once it is admitted. In the load `tas` each size has
three classes: all pods in one rack required, preferred, and in slices that need a rack each, on 640 nodes in 10 racks.
"""

from typing import Final, Literal

import msgspec
from tests.benchmarks.manifests import KUEUE, Manifest, kueue

COHORTS: Final = 5
QUEUES_IN_COHORT: Final = 6
NOMINAL_CPU: Final = 20
BORROWING_CPU: Final = 100
FLAVOR: Final = "rf"

CLASS_LABEL: Final = "kueue.x-k8s.io/benchmark-class"
RUNTIME_LABEL: Final = "kueue.x-k8s.io/benchmark-running-ms"


LoadName = Literal["baseline", "tas"]

RACK: Final = "cloud.provider.com/topology-rack"
LEVELS: Final = ("cloud.provider.com/topology-block", RACK, "kubernetes.io/hostname")
RACKS: Final = 10
HOSTS_IN_RACK: Final = 64
TOPOLOGY: Final = "default-topology"
NODE_LABELS: Final = {"tas-node-group": "tas"}


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """
    A class of workloads: how many of it each queue gets, one each `every_ms`.

    `size` is what its waits are reported by, `cpu` the request of each of its `pods`, `topology` its topology request.
    """

    name: str
    size: str
    count: int
    cpu: str
    pods: int = 1
    priority: int
    run_ms: int
    every_ms: int
    topology: dict[str, str | int] = {}


SIZES: Final = ("large", "medium", "small")


def _baseline() -> tuple[Class, ...]:
    return (
        Class(name="small", size="small", count=350, cpu="1", priority=50, run_ms=200, every_ms=100),
        Class(name="medium", size="medium", count=100, cpu="5", priority=100, run_ms=500, every_ms=500),
        Class(name="large", size="large", count=50, cpu="20", priority=200, run_ms=1_000, every_ms=1_200),
    )


def _tas() -> tuple[Class, ...]:
    counts = {"small": (120, 120, 110), "medium": (34, 33, 33), "large": (17, 17, 16)}
    shapes = {"small": (2, "500m", 1), "medium": (4, "1250m", 2), "large": (8, "2500m", 4)}
    found = []
    for each in _baseline():
        pods, cpu, slice_size = shapes[each.size]
        requests: dict[str, dict[str, str | int]] = {
            "required": {"required": RACK},
            "preferred": {"preferred": RACK},
            "balanced": {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": slice_size},
        }
        for (kind, topology), count in zip(requests.items(), counts[each.size], strict=True):
            name = f"{each.size}-{kind}"
            found.append(msgspec.structs.replace(each, name=name, count=count, cpu=cpu, pods=pods, topology=topology))
    return tuple(found)


CLASSES: Final[dict[LoadName, tuple[Class, ...]]] = {"baseline": _baseline(), "tas": _tas()}


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """What the ClusterQueues say of preemption, in Kueue's words; "Never" is no preemption."""

    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"


def classes(scale: float, load: LoadName = "baseline") -> tuple[Class, ...]:
    """The classes of a load with so large a share of their workloads, at least one of each."""
    return tuple(msgspec.structs.replace(each, count=max(1, round(each.count * scale))) for each in CLASSES[load])


def queue_names() -> list[str]:
    """The ClusterQueues; each has a namespace and a LocalQueue of its name."""
    return [f"cq-{queue}-cohort-{cohort}" for cohort in range(COHORTS) for queue in range(QUEUES_IN_COHORT)]


def total(of: tuple[Class, ...]) -> int:
    """How many workloads there are of all classes in all queues."""
    return COHORTS * QUEUES_IN_COHORT * sum(each.count for each in of)


def nodes() -> list[Manifest]:
    """The nodes of the load `tas`: one block, 10 racks, 64 hosts in each."""
    allocatable = {"cpu": "96", "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    manifests = []
    for rack in range(RACKS):
        for host in range(HOSTS_IN_RACK):
            name = f"node-b0-r{rack}-n{host}"
            values = ("block-0", f"rack-{rack}", name)
            manifests.append(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": dict(zip(LEVELS, values, strict=True)) | NODE_LABELS},
                    "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]},
                }
            )
    return manifests


def queues(
    preemption: Preemption = Preemption(),  # noqa: B008  (frozen)
    load: LoadName = "baseline",
) -> list[Manifest]:
    """The flavor, with its topology and nodes, and for each queue its namespace, ClusterQueue and LocalQueue."""
    if load == "tas":
        topology = kueue("Topology", TOPOLOGY, {"levels": [{"nodeLabel": level} for level in LEVELS]})
        flavor = kueue("ResourceFlavor", FLAVOR, {"nodeLabels": NODE_LABELS, "topologyName": TOPOLOGY})
        manifests = [*nodes(), topology, flavor]
    else:
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
    """The `number`th workload of a class in a queue: pods with one container, as Kueue's generator makes it."""
    container = {"name": "c", "resources": {"requests": {"cpu": of.cpu}}}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set: Manifest = {"name": "main", "count": of.pods, "template": template}
    if of.topology:
        pod_set["topologyRequest"] = of.topology
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
            "podSets": [pod_set],
        },
    }
