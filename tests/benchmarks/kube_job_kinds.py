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

from headgate.adapters.kubernetes.resources import Resource, of_kind
from headgate.core.api.job_kinds import BATCH_JOB, JOB_SET, POD, JobKind

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

    @property
    def is_resumed(self) -> bool:
        """Whether it waits for no admission any more."""
        return not self.spec.suspend and not self.spec.scheduling_gates

    def has(self, said: str) -> bool:
        """Whether this is its phase, or a condition of it that is True."""
        true = (each.type for each in self.status.conditions if each.status == "True")
        return said in (self.status.phase, *true)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """
    One kind of jobs to run.

    `succeeded` is the condition or phase of an object that has; one that has not is Failed. `objects` is how many a job
    has. `operator` is the one that runs the kind, "" for the controller manager.
    """

    title: str
    kind: JobKind
    manifests: Callable[[int, str, int], list[Manifest]]
    succeeded: str
    objects: int = 1
    operator: str = ""

    @property
    def resource(self) -> Resource:
        """Where its objects are."""
        return of_kind(self.kind)


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
    return [{"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind, "metadata": metadata, "spec": spec}]


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


LOADS: Final = {
    "job": Load(title="Jobs", kind=BATCH_JOB, manifests=_jobs, succeeded="Complete"),
    "jobset": Load(title="JobSets", kind=JOB_SET, manifests=_job_set, succeeded="Completed", operator="jobset"),
    "podgroup": Load(title="pod groups", kind=POD, manifests=_pod_group, succeeded="Succeeded", objects=PODS_OF_GROUP),
}
