"""
Jobs (batch/v1) as facts: how they are queued, their pod template and their counters; and what all kinds have in common.

Other kinds are read by their integrations (`headgate.core.jobs`); `queued_job` is what they have in common.
"""

from typing import Literal

from msgspec.structs import replace

from headgate.core.api.names import (
    COMPLETIONS_EQUAL_PARALLELISM,
    ELASTIC_JOB,
    GATED_BY,
    MAX_EXEC_TIME_LABEL,
    MIN_PARALLELISM,
    PREBUILT,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
)
from headgate.core.api.watched_objects import (
    Metadata,
    WatchedObject,
    check_requests,
    controller_of,
    created_ms,
    decode,
    trimmed,
)
from headgate.core.kubernetes.numbers import decimal, is_true, positive
from headgate.events.objects import ApiBranch, ApiObject, Job, PodTemplate


class _JobSpec(ApiBranch, frozen=True):
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    template: PodTemplate = PodTemplate()


class _JobCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class _UncountedPods(ApiBranch, frozen=True):
    succeeded: tuple[str, ...] = ()


class _JobStatus(ApiBranch, frozen=True):
    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: _UncountedPods | None = None
    conditions: tuple[_JobCondition, ...] = ()


class _Job(WatchedObject, frozen=True):
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


def read_job(raw: bytes) -> tuple[Metadata, Job | None]:
    """The metadata and the facts of one Job."""
    seen = decode(_Job, raw)
    meta, spec, status = seen.metadata, seen.spec, seen.status
    annotations = meta.annotations or {}
    check_requests("spec.template.spec", spec.template.spec)
    finished, message = _finish(status)
    return meta, replace(
        queued_job(meta),
        suspended=bool(spec.suspend),
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        min_parallelism=positive(annotations.get(MIN_PARALLELISM)),
        completions_equal_parallelism=is_true(annotations.get(COMPLETIONS_EQUAL_PARALLELISM)),
        template=trimmed(spec.template),
        active=status.active,
        ready=status.ready or 0,
        succeeded=status.succeeded,
        failed=status.failed,
        done_indexes=_done_indexes(spec, status),
        pods_ready=_are_pods_ready(spec, status),
        finished=finished,
        message=message,
    )


def queued_job(meta: Metadata) -> Job:
    """What the metadata of a job of any kind says about it. Its queue name may be empty."""
    labels, annotations = meta.labels or {}, meta.annotations or {}
    queue = labels.get(QUEUE_LABEL) or annotations.get(QUEUE_LABEL, "")
    is_elastic = annotations.get(ELASTIC_JOB) == "true"
    return Job(
        uid=meta.uid,
        created_ms=created_ms(meta),
        queue_name=queue,
        priority_class=labels.get(PRIORITY_CLASS_LABEL, ""),
        max_execution_time_seconds=positive(labels.get(MAX_EXEC_TIME_LABEL)),
        gated_by=annotations.get(GATED_BY, ""),
        elastic=is_elastic,
        generation=meta.generation if is_elastic else 0,
        deleting=meta.deletion_timestamp is not None,
        owner=controller_of(meta),
        prebuilt=annotations.get(PREBUILT) or labels.get(PREBUILT, ""),
    )


def _are_pods_ready(spec: _JobSpec, status: _JobStatus) -> bool:
    """Whether as many pods of a Job as run at a time are ready or have succeeded (Kueue's PodsReady of a Job)."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    wanted = parallelism if spec.completions is None else min(parallelism, spec.completions)
    uncounted = status.uncounted_terminated_pods
    succeeded = status.succeeded + (len(uncounted.succeeded) if uncounted is not None else 0)
    return succeeded + (status.ready or 0) >= wanted


def _done_indexes(spec: _JobSpec, status: _JobStatus) -> int | None:
    """
    How many indexes of an Indexed Job are completed or have failed for good (Kueue's terminalIndexesCount).

    Those beyond the completions, and those of invalid intervals, do not count.
    """
    if spec.completion_mode != "Indexed":
        return None
    completions = spec.completions if spec.completions is not None else spec.parallelism or 1
    intervals = []
    for interval in f"{status.completed_indexes},{status.failed_indexes}".split(","):
        first, dash, last = interval.partition("-")
        start, end = decimal(first), decimal(last if dash else first)
        if start is not None and end is not None:
            intervals.append((start, min(end, completions - 1)))
    # They may overlap, and be too long to be expanded.
    done, counted = 0, -1
    for start, end in sorted(intervals):
        done += max(0, end - max(start, counted + 1) + 1)
        counted = max(counted, end)
    return done


def _finish(status: _JobStatus) -> tuple[Literal["Complete", "Failed"] | None, str]:
    for condition in status.conditions:
        if condition.status == "True":
            if condition.type == "Complete":
                return "Complete", condition.message
            if condition.type == "Failed":
                return "Failed", condition.message
    return None, ""
