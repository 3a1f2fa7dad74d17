"""
The integration of batch/v1 Job (Kueue's pkg/controller/jobs/job).

A Job has one pod set, `main`, with as many pods as run at a time, and `spec.suspend` controls whether it may run. The
API server accepts changes of its template only while it is suspended and has no start time; a Job that has run still
has one and is reopened first. Patches are JSON merge patches: maps are merged key by key, a key to remove is null,
lists are replaced. Each sets every required key, and null for every other that an admission may have left behind,
because the Job in the log may be older than the Job that is patched.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.api.names import KUEUE, PODSET_LABEL, WORKLOAD_ANNOTATION
from headgate.core.jobs.integration import Json, PodSetState
from headgate.core.jobs.marks import CLUSTER_QUEUE_LABEL, INJECTED_GATES, LOCAL_QUEUE_LABEL
from headgate.events.objects import Job, Labels, PodSet

_POD_SET: Final = "main"
_MARKS: Final = (WORKLOAD_ANNOTATION, PODSET_LABEL, CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL)
_MANAGED_LABELS: Final = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid")
_POD_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"


class _Spec(msgspec.Struct, frozen=True):
    template: dict[str, Any] = {}


class _Raw(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class BatchJob:
    """The integration of batch/v1 Job. See the module docstring."""

    kind = BATCH_JOB

    def pod_counts(self, job: Job) -> dict[str, int]:
        """See `Integration`."""
        return {_POD_SET: job.parallelism if job.completions is None else min(job.parallelism, job.completions)}

    def observed_pod_sets(self, job: Job) -> tuple[PodSet, ...]:
        """See `Integration`."""
        count = self.pod_counts(job)[_POD_SET]
        return (PodSet(name=_POD_SET, count=count, min_count=job.min_parallelism, template=job.template),)

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """See `Integration`."""
        pod_set: Json = {
            "name": _POD_SET,
            "count": self.pod_counts(job)[_POD_SET],
            "template": _as_given(msgspec.json.decode(raw, type=_Raw).spec.template),
            "topologyRequest": _topology_request(job.template.metadata.annotations),
        }
        if job.min_parallelism is not None:
            pod_set["minCount"] = job.min_parallelism
        return [pod_set]

    def reclaimable(self, job: Job) -> dict[str, int]:
        """
        See `Integration`.

        A Job with fewer completions left than parallel pods will not start all of them again.
        """
        done = job.succeeded if job.done_indexes is None else job.done_indexes
        if job.parallelism == 1 or done == 0:
            return {_POD_SET: 0}
        left = (job.parallelism if job.completions is None else job.completions) - done
        return {_POD_SET: max(0, job.parallelism - max(0, left))}

    def what_matters(self, job: Job) -> Job:
        """See `Integration`."""
        active, done = min(job.active, 1), self.reclaimable(job)[_POD_SET]
        return replace(job, active=active, ready=0, failed=0, succeeded=done, done_indexes=None)

    def start_patch(self, job: Job, pod_sets: Sequence[PodSetState]) -> Json:
        """See `Integration`."""
        (pod_set,) = pod_sets
        return _patch(job, {"suspend": False, **_parallelism(job, pod_set.count)}, pod_set)

    def stop_patch(self, job: Job) -> Json:
        """See `Integration`. The template is immutable until the Job has stopped; `restore_patch` follows then."""
        return {"metadata": {"uid": job.uid}, "spec": {"suspend": True}}

    def restore_patch(self, job: Job, pod_sets: Sequence[PodSetState]) -> Json:
        """See `Integration`."""
        (pod_set,) = pod_sets
        return _patch(job, _parallelism(job, pod_set.count), pod_set)

    def reopen_patch(self, job_uid: str) -> Json:
        """See `Integration`."""
        return {"metadata": {"uid": job_uid}, "status": {"startTime": None}}

    def carries_injection(self, job: Job) -> bool:
        """See `Integration`."""
        return WORKLOAD_ANNOTATION in job.template.metadata.annotations


def _parallelism(job: Job, count: int) -> Json:
    """Parallelism is set only for Jobs that accept partial admission."""
    if job.min_parallelism is None:
        return {}
    return {"parallelism": count} | ({"completions": count} if job.completions_equal_parallelism else {})


def _patch(job: Job, spec: Json, pod_set: PodSetState) -> Json:
    template, wanted, left = job.template, pod_set.directives, pod_set.left_behind
    metadata = {
        "labels": _merged([*template.metadata.labels, *left.labels], wanted.labels),
        "annotations": _merged([*template.metadata.annotations, *left.annotations], wanted.annotations),
    }
    selector = _merged([*template.spec.node_selector, *left.node_selector], wanted.node_selector)
    changes: Json = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": {}}
    if selector:
        changes["spec"]["nodeSelector"] = selector
    # Lists are replaced as a whole, and null for a missing one has no effect.
    changes["spec"]["tolerations"] = [msgspec.to_builtins(each) for each in wanted.tolerations] or None
    changes["spec"]["schedulingGates"] = [{"name": name} for name in wanted.scheduling_gates] or None
    return {"metadata": {"uid": job.uid}, "spec": {**spec, "template": changes}}


def _merged(have: Iterable[str], want: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch that turns a map which may have certain keys into another map."""
    return dict(want) | {key: None for key in have if key not in want}


def _as_given(template: dict[str, Any]) -> dict[str, Any]:
    """
    A template without what the Job controller has added (Kueue's cleanLabels), but for the Job's name.

    Also without the marks of an admission, in case its Job's last Workload was deleted while it ran.
    """
    metadata = template.get("metadata") or {}
    cleaned: dict[str, Any] = {key: value for key, value in metadata.items() if value is not None}
    for field, unwanted in (("labels", (*_MANAGED_LABELS, *_MARKS)), ("annotations", _MARKS)):
        kept = {key: value for key, value in (metadata.get(field) or {}).items() if key not in unwanted}
        cleaned.pop(field, None)
        if kept:
            cleaned[field] = kept
    if WORKLOAD_ANNOTATION in (metadata.get("annotations") or {}):
        template = {**template, "spec": _without_gates(template.get("spec") or {})}
    return {**template, "metadata": cleaned} if cleaned or metadata else template


def _without_gates(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod without the scheduling gates of an admission."""
    gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") not in INJECTED_GATES]
    kept = {key: value for key, value in spec.items() if key != "schedulingGates"}
    return {**kept, "schedulingGates": gates} if gates else kept


def _topology_request(annotations: Labels) -> dict[str, Any]:
    """A Job's topologyRequest from the annotations of its pod template (Kueue's NewPodSetTopologyRequest)."""
    request: dict[str, Any] = {"podIndexLabel": _POD_INDEX_LABEL}
    for field in ("required", "preferred", "unconstrained"):
        value = annotations.get(f"{KUEUE}podset-{field}-topology")
        if value is not None:
            request[field] = value.lower() in {"1", "t", "true"} if field == "unconstrained" else value
            break
    slice_topology = annotations.get(KUEUE + "podset-slice-required-topology")
    slice_size = annotations.get(KUEUE + "podset-slice-size", "")
    if slice_topology is not None and slice_size.isdigit():
        request |= {"podSetSliceRequiredTopology": slice_topology, "podSetSliceSize": int(slice_size)}
    group = annotations.get(KUEUE + "podset-group-name")
    if group is not None and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = group
    return request
