"""
The Workload of a Job: what Kueue's batch/v1 Job integration makes of a Job that asks for a queue.

`workload_of` composes the object that the informer bridge posts. It follows Kueue's job framework
(pkg/controller/jobframework), so that clients that look a Workload up by name, label or owner find it. Its pod template
holds what the log knows of the Job's: all that scheduling depends on, and no more.
"""

import hashlib
from typing import Any

import msgspec

from headgate.core.ingest import KUEUE, WORKLOAD_ANNOTATION
from headgate.core.state import State
from headgate.events.ids import JobKey, WorkloadKey, split_key
from headgate.events.objects import (
    Job,
    PodSet,
    PodTemplate,
    PriorityClassRef,
    TemplateMeta,
    WorkloadSpec,
)

JOB_API_VERSION = "batch/v1"
FINALIZER = KUEUE + "resource-in-use"
"""Keeps a deleted Workload, and the quota that it holds, until its Job has stopped."""

PODSET_LABEL = KUEUE + "podset"
CLUSTER_QUEUE_LABEL = KUEUE + "cluster-queue-name"
LOCAL_QUEUE_LABEL = KUEUE + "local-queue-name"
"""The labels that an admission puts into a pod template."""

_NAME_LEN_MAX = 253
_HASH_LEN = 5


class NoSuchPriorityClassError(Exception):
    """Raised when a Job names a priority class that does not exist; the Workload can be made once it does."""

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(f'{resource} "{name}" not found')
        self.resource = resource
        self.name = name


def workload_name(job_name: str, job_uid: str) -> str:
    """
    The name of a Job's Workload, as Kueue's GetWorkloadNameForOwnerWithGVK gives it.

    `job-<name>-<hash>`, the hash being the first five hex digits of the SHA-1 of kind, group, name and uid, one a line.
    """
    hashed = hashlib.sha1("\n".join(("Job", "batch", job_name, job_uid)).encode(), usedforsecurity=False).hexdigest()
    prefix = f"job-{job_name}"[: _NAME_LEN_MAX - 1 - _HASH_LEN]
    return f"{prefix}-{hashed[:_HASH_LEN]}"


def workload_key(key: JobKey, job: Job) -> WorkloadKey:
    """The key of a Job's Workload."""
    namespace, name = split_key(key)
    return WorkloadKey(f"{namespace}/{workload_name(name, job.uid)}")


def pods_count(job: Job) -> int:
    """How many pods a Job runs at most at a time."""
    return job.parallelism if job.completions is None else min(job.parallelism, job.completions)


def workload_of(state: State, key: JobKey, job: Job) -> dict[str, Any]:
    """
    The Workload object of a Job, ready to be posted.

    Raises NoSuchPriorityClassError.
    """
    namespace, name = split_key(key)
    priority, reference = _priority(state, job)
    spec = WorkloadSpec(
        queue_name=job.queue_name,
        pod_sets=(
            PodSet(name="main", count=pods_count(job), min_count=job.min_parallelism, template=_as_given(job.template)),
        ),
        priority=priority,
        priority_class_ref=reference,
        maximum_execution_time_seconds=job.max_execution_time_seconds,
    )
    body: dict[str, Any] = msgspec.to_builtins(spec)
    pod_set = body["podSets"][0]
    pod_set.setdefault("name", "main")
    pod_set.setdefault("count", pods_count(job))
    pod_set.setdefault("template", {}).setdefault("spec", {}).setdefault("containers", [])
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(name, job.uid),
            "namespace": namespace,
            "labels": {KUEUE + "job-uid": job.uid},
            "annotations": {KUEUE + "job-owner-gvk": "batch/v1, Kind=Job", KUEUE + "job-owner-name": name},
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": JOB_API_VERSION,
                    "kind": "Job",
                    "name": name,
                    "uid": job.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": body,
    }


def workload_changes(state: State, job: Job, spec: WorkloadSpec) -> dict[str, Any]:
    """
    What of a pending Workload's spec has to change to follow its Job: its queue, and the class that its label names.

    Empty when nothing has to, or when the class does not exist (yet).
    """
    changes: dict[str, Any] = {}
    if job.queue_name != spec.queue_name:
        changes["queueName"] = job.queue_name
    if job.priority_class:
        try:
            priority, reference = _priority(state, job)
        except NoSuchPriorityClassError:
            return changes
        if reference != spec.priority_class_ref:
            changes |= {"priority": priority, "priorityClassRef": msgspec.to_builtins(reference)}
    return changes


def _as_given(template: PodTemplate) -> PodTemplate:
    """A template without the marks of an admission, should its Job's last Workload have gone while it ran."""
    marks = (WORKLOAD_ANNOTATION, PODSET_LABEL, CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL)
    metadata = template.metadata
    if not any(mark in metadata.labels or mark in metadata.annotations for mark in marks):
        return template
    return msgspec.structs.replace(
        template,
        metadata=TemplateMeta(
            labels={key: value for key, value in metadata.labels.items() if key not in marks},
            annotations={key: value for key, value in metadata.annotations.items() if key not in marks},
        ),
    )


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
