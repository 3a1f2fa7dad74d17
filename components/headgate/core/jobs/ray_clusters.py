"""
The integrations of RayCluster, RayJob and RayService (ray.io/v1; Kueue's pkg/controller/jobs/ray*).

All three contain the specification of a Ray cluster: a head pod, and groups of workers. KubeRay adds containers to the
head that are in no template, and they count: the autoscaler, and the submitter of a RayJob in SidecarMode. A head whose
cluster cleans up its Redis when it goes has to have room for that, too. A RayJob in K8sJobMode has a pod more, its
submitter, whose template it may leave to KubeRay. RayClusters and RayServices never end by themselves; a RayJob that
selects an existing cluster is none of Headgate's.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

from headgate.core.api.job_kinds import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from headgate.core.jobs.integration import Json, PodSetState
from headgate.core.jobs.suspendable import (
    JobStatus,
    PodSetSource,
    Suspendable,
    at,
    condition_at,
    items_at,
    number_at,
)
from headgate.core.kubernetes.quantities import parse_quantity

_HEAD: Final = "head"
_SUBMITTER: Final = "submitter"
_SUBMITTER_RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
"""What KubeRay gives the container that submits a RayJob."""
_AUTOSCALER_RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
"""What KubeRay gives the autoscaler of a cluster that does not say."""
_CLEANUP_REQUESTS: Final = {"cpu": "200m", "memory": "256Mi"}
"""What the Job requests that cleans up Redis."""
_SUBMITTER_CONTAINER: Final = "ray-job-submitter"
_READY: Final = "ready"


class RayCluster(Suspendable):
    """The integration of RayCluster."""

    kind = RAY_CLUSTER

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        return cluster_sources(obj, "spec")

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`."""
        is_ready = at(obj, "status", "state") == _READY
        return JobStatus(active=is_ready, pods_ready=is_ready)


class RayService(Suspendable):
    """The integration of RayService."""

    kind = RAY_SERVICE
    suspend_at = ("spec", "rayClusterConfig", "suspend")

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        return cluster_sources(obj, "spec", "rayClusterConfig")

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`."""
        is_ready = condition_at(obj, "Ready", "status", "conditions") is not None
        return JobStatus(active=is_ready, pods_ready=is_ready)


class RayJob(Suspendable):
    """The integration of RayJob."""

    kind = RAY_JOB

    def is_skipped(self, obj: Json) -> bool:
        """See `Suspendable`."""
        return bool(at(obj, "spec", "clusterSelector"))

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        found = cluster_sources(obj, "spec", "rayClusterSpec")
        match at(obj, "spec", "submissionMode"):
            case "K8sJobMode":
                template = at(obj, "spec", "submitterPodTemplate") or _default_submitter(obj)
                found.append(PodSetSource(name=_SUBMITTER, count=1, template=template, at="spec.submitterPodTemplate"))
            case "SidecarMode":
                sidecar = {"name": _SUBMITTER_CONTAINER, "resources": _SUBMITTER_RESOURCES}
                found[0].seen = _with_container(found[0].seen or found[0].template, sidecar)
            case _:
                pass
        return found

    def edit(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`. A submitter's template that was left to KubeRay is written out."""
        if at(obj, "spec", "submissionMode") == "K8sJobMode" and not at(obj, "spec", "submitterPodTemplate"):
            obj["spec"]["submitterPodTemplate"] = _default_submitter(obj)
        super().edit(obj, pod_sets)

    def undo(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`. A submitter's template that was left to KubeRay is left to it again."""
        super().undo(obj, pod_sets)
        if at(obj, "spec", "submitterPodTemplate") == _default_submitter(obj):
            del obj["spec"]["submitterPodTemplate"]

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. A RayJob without a status, and one that is suspended, has no pods."""
        said = at(obj, "status", "jobDeploymentStatus") or ""
        has_ended = said in ("Complete", "Failed")
        has_succeeded = has_ended and at(obj, "status", "jobStatus") == "SUCCEEDED"
        return JobStatus(
            active=said not in ("", "Suspended"),
            pods_ready=at(obj, "status", "rayClusterStatus", "state") == _READY,
            succeeded=has_succeeded,
            failed=has_ended and not has_succeeded,
            message=str(at(obj, "status", "message") or ""),
        )


def cluster_sources(obj: Json, *path: str) -> list[PodSetSource]:
    """The pod sets of the Ray cluster that is specified at a path of an object: its head, and its groups of workers."""
    spec, shown = at(obj, *path) or {}, ".".join(path)
    head = spec.setdefault("headGroupSpec", {}).setdefault("template", {})
    found = [
        PodSetSource(
            name=_HEAD,
            count=1,
            template=head,
            at=f"{shown}.headGroupSpec.template",
            seen=_head_as_it_runs(obj, spec, head),
        )
    ]
    for number, group in enumerate(items_at(spec, "workerGroupSpecs")):
        hosts = max(number_at(group, 1, "numOfHosts"), 1)
        found.append(
            PodSetSource(
                name=str(group.get("groupName", "")).lower(),
                count=number_at(group, 1, "replicas") * hosts,
                template=group.setdefault("template", {}),
                at=f"{shown}.workerGroupSpecs[{number}].template",
            )
        )
    return found


def _head_as_it_runs(obj: Json, spec: Json, head: Json) -> Json | None:
    """The head's template with what KubeRay adds to it; None where that is nothing."""
    seen: Json | None = None
    annotations = at(obj, "metadata", "annotations") or {}
    is_tolerant = str(annotations.get("ray.io/ft-enabled", "")).lower() == "true"
    if is_tolerant or spec.get("gcsFaultToleranceOptions") is not None:
        seen = _with_room(head, _CLEANUP_REQUESTS)
    if spec.get("enableInTreeAutoscaling"):
        resources = at(spec, "autoscalerOptions", "resources") or _AUTOSCALER_RESOURCES
        seen = _with_container(seen or head, {"name": "autoscaler", "resources": resources})
    return seen


def _with_container(template: Json, container: Json) -> Json:
    spec = template.get("spec") or {}
    return {**template, "spec": {**spec, "containers": [*(spec.get("containers") or ()), container]}}


def _with_room(template: Json, least: dict[str, str]) -> Json:
    """A template whose first container requests at least so much."""
    made = copy.deepcopy(template)
    containers = at(made, "spec", "containers")
    if containers:
        resources = containers[0].setdefault("resources", {})
        requests: dict[str, Any] = resources.setdefault("requests", {})
        for name, quantity in least.items():
            if name not in requests or parse_quantity(requests[name]) < parse_quantity(quantity):
                requests[name] = quantity
    return made


def _default_submitter(obj: Json) -> Json:
    """The template that KubeRay gives the submitter of a RayJob that has none: the head's image submits it."""
    image = at(obj, "spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "image")
    container = {"name": _SUBMITTER_CONTAINER, **({"image": image} if image else {})}
    return {
        "spec": {
            "containers": [{**container, "resources": copy.deepcopy(_SUBMITTER_RESOURCES)}],
            "restartPolicy": "Never",
        }
    }
