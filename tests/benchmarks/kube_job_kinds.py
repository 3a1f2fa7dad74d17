"""
The kinds of jobs that `kube_jobs` can run: their manifests, where they are watched, and when one has started and ended.

A job of each kind has the pods that its kind is made for: a Job one, a JobSet a driver and two workers, a pod group
two pods. The pods of a group are created as the rules of admission leave them, with gate and finalizer.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from tests.benchmarks.kube_driver import Metadata, Status
from tests.benchmarks.manifests import Manifest, job

K: Final = "kueue.x-k8s.io/"
GROUP: Final = f"{K}pod-group-name"
PODS_OF_GROUP: Final = 2


class _Gate(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    suspend: bool = False
    scheduling_gates: list[_Gate] = []


class _Status(Status):
    phase: str = ""


class Seen(msgspec.Struct):
    """The parts of a watched object that say how far it is."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def has(self, condition: str) -> bool:
        """Whether a condition is True."""
        return any(each.type == condition and each.status == "True" for each in self.status.conditions)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """
    One kind of jobs to run.

    `collection` is where its objects are created, with {} for the namespace, and `watched` where all of them are
    watched; `objects` is how many a job has. `operator` is the one that runs the kind, "" for the controller manager.
    """

    title: str
    framework: str
    collection: str
    watched: str
    manifests: Callable[[int, str, int], list[Manifest]]
    resumed: Callable[[Seen], bool]
    succeeded: Callable[[Seen], bool]
    failed: Callable[[Seen], bool]
    objects: int = 1
    operator: str = ""


def _template(run_ms: int) -> dict[str, Any]:
    template: dict[str, Any] = job("", "", cpu="10m", run_ms=run_ms)["spec"]["template"]
    return template


def _jobs(number: int, team: str, run_ms: int) -> list[Manifest]:
    return [job(f"job-{number}", team, cpu="10m", run_ms=run_ms)]


def _job_set(number: int, team: str, run_ms: int) -> list[Manifest]:
    def replicated(name: str, replicas: int) -> Manifest:
        spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": _template(run_ms)}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    metadata = {"name": f"set-{number}", "namespace": team, "labels": {f"{K}queue-name": "main"}}
    spec = {"suspend": True, "replicatedJobs": [replicated("driver", 1), replicated("workers", 2)]}
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}]


def _pod_group(number: int, team: str, run_ms: int) -> list[Manifest]:
    template = _template(run_ms)
    labels = {f"{K}queue-name": "main", f"{K}managed": "true", GROUP: f"group-{number}"}
    annotations = {**template["metadata"]["annotations"], f"{K}pod-group-total-count": str(PODS_OF_GROUP)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"group-{number}-{index}",
                "namespace": team,
                "labels": labels,
                "annotations": annotations,
                "finalizers": [f"{K}managed"],
            },
            "spec": {**template["spec"], "schedulingGates": [{"name": f"{K}admission"}]},
        }
        for index in range(PODS_OF_GROUP)
    ]


def _not_suspended(seen: Seen) -> bool:
    return not seen.spec.suspend


LOADS: Final = {
    "job": Load(
        title="Jobs",
        framework="batch/job",
        collection="/apis/batch/v1/namespaces/{}/jobs",
        watched="/apis/batch/v1/jobs",
        manifests=_jobs,
        resumed=_not_suspended,
        succeeded=lambda seen: seen.has("Complete"),
        failed=lambda seen: seen.has("Failed"),
    ),
    "jobset": Load(
        title="JobSets",
        framework="jobset.x-k8s.io/jobset",
        collection="/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
        watched="/apis/jobset.x-k8s.io/v1alpha2/jobsets",
        manifests=_job_set,
        resumed=_not_suspended,
        succeeded=lambda seen: seen.has("Completed"),
        failed=lambda seen: seen.has("Failed"),
        operator="jobset",
    ),
    "podgroup": Load(
        title="pod groups",
        framework="pod",
        collection="/api/v1/namespaces/{}/pods",
        watched="/api/v1/pods",
        manifests=_pod_group,
        resumed=lambda seen: not seen.spec.scheduling_gates,
        succeeded=lambda seen: seen.status.phase == "Succeeded",
        failed=lambda seen: seen.status.phase == "Failed",
        objects=PODS_OF_GROUP,
    ),
}
