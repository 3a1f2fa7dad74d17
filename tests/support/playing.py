"""Manifests of a small cluster, and a queue manager and a scheduler that let everything in, played by the test."""

from typing import Any

from tests.support.cell import MANAGER, SCHEDULER, Cell

from headgate.core.state.tables import Stage, State
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import Shape
from headgate.events.objects import Admission, PodSetAssignment
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished, WorkloadQueued, WorkloadReleased

Json = dict[str, Any]


def namespace(name: str = "team-a") -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(name: str, cpu: str = "4", pods: str = "10", **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "tier": "spot"}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": pods},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def flavor(name: str = "spot", **spec: Any) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": {"tier": name}, "tolerations": [{"key": name, "operator": "Exists"}], **spec},
    }


def cluster_queue(name: str = "cq", nominal: str = "8", flavors: tuple[str, ...] = ("spot",), **spec: Any) -> Json:
    quotas = [{"name": each, "resources": [{"name": "cpu", "nominalQuota": nominal}]} for each in flavors]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
            **spec,
        },
    }


def local_queue(name: str = "main", namespace: str = "team-a", cluster_queue: str = "cq") -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }


def job(
    name: str = "train",
    parallelism: int = 2,
    *,
    suspend: bool = True,
    cpu: str = "1",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **pod: Any,
) -> Json:
    container = {"name": "main", "image": "registry/train:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "main", **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [container],
                    **pod,
                }
            },
        },
    }


def furnish(cell: Cell, *more: Json) -> None:
    """A namespace, two nodes, a flavor, a ClusterQueue and a LocalQueue; and what the test adds."""
    for manifest in (namespace(), node("n1"), node("n2"), flavor(), cluster_queue(), local_queue(), *more):
        cell.cluster.apply(manifest)


def admit(cell: Cell, key: str, flavor: str = "spot", count: int | None = None) -> None:
    """Queue, reserve and admit a workload, as the queue manager and the scheduler would."""
    workload = cell.state.workloads[key]  # type: ignore[index]
    queued = WorkloadQueued(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue="cq",
        priority=0,
        queued_at_ms=workload.created_ms,
        shape=Shape("s"),
    )
    cell.say(MANAGER, queued)
    pods = workload.spec.pod_sets[0].count if count is None else count
    assignment = PodSetAssignment(name="main", flavors={"cpu": flavor}, resource_usage={"cpu": str(pods)}, count=pods)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    reserved = QuotaReserved(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue="cq",
        admission=admission,
        message="Quota reserved in ClusterQueue cq",
    )
    admitted = WorkloadAdmitted(
        workload=workload.key, uid=workload.uid, cluster_queue="cq", message="The workload is admitted"
    )
    cell.say(SCHEDULER, reserved, admitted)


def evict(cell: Cell, key: str) -> None:
    """Evict a workload, as the queue manager does when its ClusterQueue is drained."""
    workload = cell.state.workloads[key]  # type: ignore[index]
    cell.say(
        MANAGER,
        WorkloadEvicted(
            workload=workload.key, uid=workload.uid, reason="ClusterQueueStopped", message="The ClusterQueue is stopped"
        ),
    )


def play(cell: Cell) -> bool:
    """What queue manager and scheduler have to do now, all let in. False when there is nothing."""
    done = False
    for workload in list(cell.state.workloads.values()):
        record = cell.state.jobs.get(f"batch/Job/team-a/{workload.owner.name}") if workload.owner else None
        if workload.stage is Stage.NEW:
            admit(cell, workload.key)
        elif workload.stage is Stage.EVICTED and record is not None and _has_stopped(cell.state, workload.key):
            cell.say(
                MANAGER,
                WorkloadReleased(
                    workload=workload.key,
                    uid=workload.uid,
                    requeued=False,
                    reason="ClusterQueueStopped",
                    message="The ClusterQueue is stopped",
                ),
            )
        elif workload.stage is Stage.ADMITTED and record is not None and record.job.finished:
            cell.say(
                MANAGER,
                WorkloadFinished(
                    workload=workload.key, uid=workload.uid, reason="Succeeded", message="Job finished successfully"
                ),
            )
        else:
            continue
        done = True
    return done


def _has_stopped(state: State, key: str) -> bool:
    owner = state.workloads[key].owner  # type: ignore[index]
    assert owner is not None
    record = state.jobs[f"batch/Job/team-a/{owner.name}"]  # type: ignore[index]
    return record.job.suspended and record.job.active == 0 and record.started_for == ""


def to_the_end(cell: Cell, seconds: int = 12) -> None:
    """Let time pass, second by second, with everything let in."""
    for _ in range(seconds):
        cell.run()
        while play(cell):
            cell.run()
        cell.wait(1000)
