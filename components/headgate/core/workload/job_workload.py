"""
The Workload of a Job: what Kueue's batch/v1 Job integration creates for a Job with a queue name.

`workload_of` composes the object that the informer bridge posts. It follows Kueue's job framework
(pkg/controller/jobframework: ConstructWorkload, prepareWorkload), so that clients that look a Workload up by name,
label or owner find it. Its pod template is the Job's complete one, with images, environment and everything else, and
its labels are those that the configuration has copied. The log keeps only what scheduling depends on, so the Job is
passed as the API server has it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core.api import job_kinds
from headgate.core.api.conversion import V1BETA2
from headgate.core.api.metadata_keys import NO_KEYS, MetadataKeys, copied, picked
from headgate.core.api.names import (
    DEFAULT_QUEUE,
    ELASTIC_JOB,
    FINALIZER,
    GATED_BY,
    IS_GROUP_WORKLOAD,
    JOB_UID,
    KUEUE,
    OWNER_GVK,
    OWNER_NAME,
    REPLACEMENT_FOR,
    SLICE_NAME,
)
from headgate.core.api.owner_references import controlling, of_pod
from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.core.jobs.pods import group_pods
from headgate.core.jobs.registry import integration_of
from headgate.core.state.tables import PENDING, State, Workload
from headgate.core.workload import prebuilt, slices
from headgate.core.workload.names import name_len_max, workload_name
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, JobRef, LocalQueueKey, WorkloadKey, split_key
from headgate.events.objects import Job, PriorityClassRef

_PROVISIONING_PREFIX = "provreq.kueue.x-k8s.io/"
"""Annotations of a Job that are copied to its Workload, for the ProvisioningRequest check."""


class NoSuchPriorityClassError(Exception):
    """Raised when a Job names a priority class that does not exist; the Workload can be created once it does."""

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(f'{resource} "{name}" not found')
        self.resource = resource
        self.name = name


def workload_key(configuration: Configuration, key: JobKey, job: Job) -> WorkloadKey:
    """The key of a Job's Workload: the one that it names; of an elastic one, that for its current generation."""
    named = prebuilt.key_of(key, job)
    if named is not None:
        return named
    ref = JobRef.parse(key)
    name = workload_name(ref, job.uid, job.generation, len_max=name_len_max(configuration))
    return WorkloadKey(f"{ref.namespace}/{name}")


class _JobMeta(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _RawJob(msgspec.Struct, frozen=True):
    metadata: _JobMeta = _JobMeta()


def workload_of(state: State, key: JobKey, job: Job, raw: bytes) -> dict[str, Any]:
    """
    The Workload object of a Job, ready to be posted.

    `raw` is the JSON of the Job from which `job` was read; that of its set, if it is a group of one.

    Raises NoSuchPriorityClassError.
    """
    ref = JobRef.parse(key)
    priority, reference = _priority(state, job)
    pod_sets = integration_of(JobKey(job.made_for) if job.made_for else key).pod_sets(job, raw)
    queue = queue_of(state, key, job)
    spec: dict[str, Any] = {**({"queueName": queue} if queue else {}), "podSets": pod_sets, "priority": priority}
    if reference is not None:
        spec["priorityClassRef"] = msgspec.to_builtins(reference)
    if job.max_execution_time_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = job.max_execution_time_seconds
    return {
        "apiVersion": V1BETA2,
        "kind": "Workload",
        "metadata": {
            "name": split_key(workload_key(state.configuration, key, job))[1],
            "namespace": ref.namespace,
            **_metadata(state, key, job, raw),
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }


def queue_of(state: State, key: JobKey, job: Job) -> str:
    """
    The LocalQueue of a job's Workload: the one that it names, else `default`, where the namespace has that one.

    A job is labelled with the default one when it is created, by the rules of admission. One that was not is given no
    label here: its Workload alone is queued there.
    """
    if job.queue_name:
        return job.queue_name
    default = LocalQueueKey(f"{JobRef.parse(key).namespace}/{DEFAULT_QUEUE}")
    return DEFAULT_QUEUE if default in state.local_queues else ""


def _metadata(state: State, key: JobKey, job: Job, raw: bytes) -> dict[str, Any]:
    """The labels, annotations and owners of a Job's Workload. That of a pod group is owned by all of its pods."""
    ref, kind = JobRef.parse(key), job_kinds.kind_of(key)
    if job.made_for:
        return _metadata_of_group(state, JobKey(job.made_for), job, raw)
    if kind is job_kinds.POD_GROUP:
        group = group_pods(raw)
        annotations = _annotations(group.roles[0].pod, job) | {IS_GROUP_WORKLOAD: "true"} | group.annotations
        owned_by = [of_pod(name, uid) for name, uid in group.pods]
        made = {"annotations": annotations, "ownerReferences": owned_by}
        return {"labels": group.labels, **made} if group.labels else made
    keys = copied(state.configuration)
    annotations = {OWNER_GVK: kind.gvk, OWNER_NAME: ref.name}
    annotations |= _annotations(raw, job, keys)
    if is_sliced(state, job):
        annotations |= _slice_annotations(state, key, job)
    owner = controlling(kind.api_version, kind.kind, ref.name, job.uid)
    labels = _labels(raw, keys) | {JOB_UID: job.uid}
    return {"labels": labels, "annotations": annotations, "ownerReferences": [owner]}


def _metadata_of_group(state: State, key: JobKey, job: Job, raw: bytes) -> dict[str, Any]:
    """
    The same of a group of a set, which the set owns; its pods are added as they appear.

    Kueue copies the labels of a LeaderWorkerSet, and not those of a StatefulSet.
    """
    ref, kind, uid = JobRef.parse(key), job_kinds.kind_of(key), state.jobs[key].job.uid
    keys = copied(state.configuration) if kind is not job_kinds.STATEFUL_SET else NO_KEYS
    annotations = _annotations(raw, job, keys)
    annotations |= {OWNER_GVK: kind.gvk, OWNER_NAME: ref.name, IS_GROUP_WORKLOAD: "true"}
    if kind is not job_kinds.STATEFUL_SET:
        annotations[KUEUE + "component-workload-index"] = str(job.group_index)
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": ref.name, "uid": uid}
    return {
        "labels": _labels(raw, keys) | {JOB_UID: uid},
        "annotations": annotations,
        "ownerReferences": [owner],
    }


def _labels(raw: bytes, keys: MetadataKeys) -> dict[str, str]:
    """The labels of a Job that its Workload gets too."""
    return picked(msgspec.json.decode(raw, type=_RawJob).metadata.labels, keys.labels)


def _annotations(raw: bytes | msgspec.Raw, job: Job, keys: MetadataKeys = NO_KEYS) -> dict[str, str]:
    """The annotations of a Job that its Workload gets too."""
    given = msgspec.json.decode(raw, type=_RawJob).metadata.annotations or {}
    own = {key: value for key, value in given.items() if key.startswith(_PROVISIONING_PREFIX)}
    return own | picked(given, keys.annotations) | ({GATED_BY: job.gated_by} if job.gated_by else {})


def is_sliced(state: State, job: Job) -> bool:
    """Whether a scaled Job gets workload slices."""
    return job.elastic and not job.prebuilt and enabled(state.configuration, feature_gates.ELASTIC_JOBS)


def wanted_slice(state: State, key: JobKey, job: Job) -> slices.SlicePlan:
    """What an elastic Job of its current size needs of its slices."""
    return slices.wanted(slices.slices_of(state, job.uid), integration_of(key).pod_counts(job))


def _slice_annotations(state: State, key: JobKey, job: Job) -> dict[str, str]:
    """The annotations of a slice: the one it replaces, and the first of its chain (Kueue's prepareWorkloadSlice)."""
    replaced = wanted_slice(state, key, job).selected
    if replaced is None:
        return {ELASTIC_JOB: "true", SLICE_NAME: split_key(workload_key(state.configuration, key, job))[1]}
    return {
        ELASTIC_JOB: "true",
        SLICE_NAME: slices.slice_name(replaced),
        REPLACEMENT_FOR: replaced.key,
    }


def resize_patch(workload: Workload, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The JSON patch that gives an elastic Job's Workload these pod counts, and changes nothing else."""
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": workload.uid}]
    for number, pod_set in enumerate(workload.spec.pod_sets):
        path = f"/spec/podSets/{number}"
        patch.append({"op": "test", "path": f"{path}/name", "value": pod_set.name})
        patch.append({"op": "replace", "path": f"{path}/count", "value": counts[pod_set.name]})
    return patch


def workload_changes(state: State, key: JobKey, job: Job, workload: Workload) -> dict[str, Any]:
    """
    The changes that make an unfinished Workload follow its Job, as a merge patch without the uid; empty: none.

    The class in the Job's label (once that exists); and while it is pending its queue, and what holds the Job back. A
    Workload whose priority comes from its pods' class does not follow the label, and one that has reserved quota
    without a class gets none any more (Kueue's UpdateWorkloadPriority). A prebuilt one follows by its queue only.
    """
    is_pending = workload.stage in PENDING
    spec: dict[str, Any] = {}
    queue = queue_of(state, key, job)
    if is_pending and queue != workload.spec.queue_name:
        spec["queueName"] = queue or None
    if job.prebuilt:
        return {"spec": spec} if spec else {}
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


def _priority(state: State, job: Job) -> tuple[int, PriorityClassRef | None]:
    """The Job's WorkloadPriorityClass, else its pods' PriorityClass, else the cluster's default one, else 0."""
    if job.priority_class:
        value = state.workload_priority_classes.get(job.priority_class)
        if value is None:
            raise NoSuchPriorityClassError("workloadpriorityclasses.kueue.x-k8s.io", job.priority_class)
        reference = PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=job.priority_class)
        return value, reference
    name = pod_priority_class(job)
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


def pod_priority_class(job: Job) -> str:
    """The PriorityClass of a job's pods: what its kind names, else the first that a template names."""
    templates = (*(each.template for each in job.pod_sets), job.template)
    return job.pod_priority_class or next(
        (each.spec.priority_class_name for each in templates if each.spec.priority_class_name), ""
    )
