"""
The Workload of a Job: what Kueue's batch/v1 Job integration makes of a Job that asks for a queue.

`workload_of` composes the object that the informer bridge posts. It follows Kueue's job framework
(pkg/controller/jobframework: ConstructWorkload, prepareWorkload), so that clients that look a Workload up by name,
label or owner find it. Its pod template is the Job's, whole: images, environment and all. The log keeps only what
scheduling depends on, so the Job is given as the API server has it.
"""

import hashlib
from typing import Any

import msgspec

from headgate.core import gates, slices
from headgate.core.gates import enabled
from headgate.core.ingest import ELASTIC_JOB, FINALIZER, GATED_BY, KUEUE, WORKLOAD_ANNOTATION
from headgate.core.jobs import kinds
from headgate.core.state import PENDING, State, Workload
from headgate.events.ids import JobKey, JobRef, WorkloadKey, split_key
from headgate.events.objects import Job, Labels, PriorityClassRef

PODSET_LABEL = KUEUE + "podset"
CLUSTER_QUEUE_LABEL = KUEUE + "cluster-queue-name"
LOCAL_QUEUE_LABEL = KUEUE + "local-queue-name"
"""The labels that an admission puts into a pod template."""

_MARKS = (WORKLOAD_ANNOTATION, PODSET_LABEL, CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL)
_MANAGED_LABELS = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid")
_PROVISIONING_PREFIX = "provreq.kueue.x-k8s.io/"
"""Annotations of a Job that its Workload carries on, for the ProvisioningRequest check."""

_NAME_LEN_MAX = 253
_HASH_LEN = 5


class NoSuchPriorityClassError(Exception):
    """Raised when a Job names a priority class that does not exist; the Workload can be made once it does."""

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(f'{resource} "{name}" not found')
        self.resource = resource
        self.name = name


def workload_name(job: JobRef, job_uid: str, generation: int = 0) -> str:
    """
    The name of a job's Workload, as Kueue's GetWorkloadNameForOwnerWithGVK gives it.

    `<kind in lower case>-<name>-<hash>`, the hash being the first five hex digits of the SHA-1 of kind, group, name and
    uid, one a line.
    An elastic Job has several in its life: the generation that each was made of comes behind.
    """
    parts = [job.kind, job.group, job.name, job_uid, *([str(generation)] if generation else [])]
    hashed = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()
    prefix = f"{job.kind.lower()}-{job.name}"[: _NAME_LEN_MAX - 1 - _HASH_LEN]
    return f"{prefix}-{hashed[:_HASH_LEN]}"


def workload_key(key: JobKey, job: Job) -> WorkloadKey:
    """The key of a Job's Workload; of an elastic one, that which its present generation would get."""
    return WorkloadKey(f"{JobRef.parse(key).namespace}/{workload_name(JobRef.parse(key), job.uid, job.generation)}")


def pods_count(job: Job) -> int:
    """How many pods a Job runs at most at a time."""
    return job.parallelism if job.completions is None else min(job.parallelism, job.completions)


class _JobTemplate(msgspec.Struct, frozen=True):
    template: dict[str, Any] = {}


class _JobMeta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _RawJob(msgspec.Struct, frozen=True):
    metadata: _JobMeta = _JobMeta()
    spec: _JobTemplate = _JobTemplate()


def workload_of(state: State, key: JobKey, job: Job, raw: bytes) -> dict[str, Any]:
    """
    The Workload object of a Job, ready to be posted. `raw` is the JSON of the Job that `job` was read from.

    Raises NoSuchPriorityClassError.
    """
    ref, kind = JobRef.parse(key), kinds.kind_of(key)
    priority, reference = _priority(state, job)
    whole = msgspec.json.decode(raw, type=_RawJob)
    pod_set: dict[str, Any] = {
        "name": "main",
        "count": pods_count(job),
        "template": _as_given(whole.spec.template),
        "topologyRequest": topology_request(job.template.metadata.annotations),
    }
    if job.min_parallelism is not None:
        pod_set["minCount"] = job.min_parallelism
    spec: dict[str, Any] = {"queueName": job.queue_name, "podSets": [pod_set], "priority": priority}
    if reference is not None:
        spec["priorityClassRef"] = msgspec.to_builtins(reference)
    if job.max_execution_time_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = job.max_execution_time_seconds
    annotations = {KUEUE + "job-owner-gvk": kind.gvk, KUEUE + "job-owner-name": ref.name}
    given = whole.metadata.annotations or {}
    annotations |= {key: value for key, value in given.items() if key.startswith(_PROVISIONING_PREFIX)}
    if job.gated_by:
        annotations[GATED_BY] = job.gated_by
    if is_sliced(state, job):
        annotations |= _slice_annotations(state, key, job)
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(ref, job.uid, job.generation),
            "namespace": ref.namespace,
            "labels": {KUEUE + "job-uid": job.uid},
            "annotations": annotations,
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "name": ref.name,
                    "uid": job.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def is_sliced(state: State, job: Job) -> bool:
    """Whether a Job that is scaled gets workload slices."""
    return job.elastic and enabled(state.configuration, gates.ELASTIC_JOBS)


def wanted_slice(state: State, job: Job) -> slices.Wanted:
    """What an elastic Job of its present size needs of its slices."""
    return slices.wanted(slices.slices_of(state, job.uid), {"main": pods_count(job)})


def _slice_annotations(state: State, key: JobKey, job: Job) -> dict[str, str]:
    """The marks of a slice: whose place it takes, and the first of its chain (Kueue's prepareWorkloadSlice)."""
    replaced = wanted_slice(state, job).selected
    if replaced is None:
        return {ELASTIC_JOB: "true", slices.SLICE_NAME: split_key(workload_key(key, job))[1]}
    return {
        ELASTIC_JOB: "true",
        slices.SLICE_NAME: slices.slice_name(replaced),
        slices.REPLACEMENT_FOR: replaced.key,
    }


def resize_patch(workload: Workload, job: Job) -> list[dict[str, Any]]:
    """The JSON patch that gives an elastic Job's Workload the Job's size, and nothing else."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": workload.uid},
        {"op": "test", "path": "/spec/podSets/0/name", "value": "main"},
        {"op": "replace", "path": "/spec/podSets/0/count", "value": pods_count(job)},
    ]


def topology_request(annotations: Labels) -> dict[str, Any]:
    """A Job's topologyRequest by the annotations of its pod template (Kueue's NewPodSetTopologyRequest)."""
    request: dict[str, Any] = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
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


def workload_changes(state: State, job: Job, workload: Workload) -> dict[str, Any]:
    """
    What of an unfinished Workload has to change to follow its Job, as a merge patch without the uid; empty: nothing.

    The class that the Job's label names (once that exists); and while it is pending its queue, and what holds the Job
    back. A Workload whose priority comes from its pods' class does not follow the label, and one that has reserved
    quota without a class gets none any more (Kueue's UpdateWorkloadPriority). A class whose value changes is no news.
    """
    is_pending = workload.stage in PENDING
    spec: dict[str, Any] = {}
    if is_pending and job.queue_name != workload.spec.queue_name:
        spec["queueName"] = job.queue_name
    before = workload.spec.priority_class_ref
    follows = is_pending if before is None else before.kind == "WorkloadPriorityClass"
    if follows and job.priority_class != (before.name if before is not None else ""):
        try:
            priority, reference = _priority(state, job)
        except NoSuchPriorityClassError:
            priority, reference = workload.spec.priority or 0, before
        if reference != before:
            spec |= {"priority": priority, "priorityClassRef": msgspec.to_builtins(reference)}
    changes = {"spec": spec} if spec else {}
    if is_pending and job.gated_by != workload.annotations.get(GATED_BY, ""):
        changes["metadata"] = {"annotations": {GATED_BY: job.gated_by or None}}
    return changes


def _as_given(template: dict[str, Any]) -> dict[str, Any]:
    """
    A template without what the Job controller has put into it (Kueue's cleanLabels), but for the Job's name.

    And without the marks of an admission, should its Job's last Workload have gone while it ran.
    """
    metadata = template.get("metadata") or {}
    cleaned: dict[str, Any] = {key: value for key, value in metadata.items() if value is not None}
    for field, unwanted in (("labels", (*_MANAGED_LABELS, *_MARKS)), ("annotations", _MARKS)):
        kept = {key: value for key, value in (metadata.get(field) or {}).items() if key not in unwanted}
        cleaned.pop(field, None)
        if kept:
            cleaned[field] = kept
    return {**template, "metadata": cleaned} if cleaned or metadata else template


def _priority(state: State, job: Job) -> tuple[int, PriorityClassRef | None]:
    """The Job's WorkloadPriorityClass, else its pods' PriorityClass, else the cluster's default one, else 0."""
    if job.priority_class:
        value = state.workload_priority_classes.get(job.priority_class)
        if value is None:
            raise NoSuchPriorityClassError("workloadpriorityclasses.kueue.x-k8s.io", job.priority_class)
        reference = PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=job.priority_class)
        return value, reference
    name = job.template.spec.priority_class_name
    if not name:
        defaults = [(record.value, each) for each, record in state.priority_classes.items() if record.global_default]
        if not defaults:
            return 0, None
        # Of several defaults Kubernetes takes the one with the lowest value.
        value, name = min(defaults)
    elif name in state.priority_classes:
        value = state.priority_classes[name].value
    else:
        raise NoSuchPriorityClassError("priorityclasses.scheduling.k8s.io", name)
    return value, PriorityClassRef(group="scheduling.k8s.io", kind="PriorityClass", name=name)
