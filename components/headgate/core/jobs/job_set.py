"""
The integration of JobSet (jobset.x-k8s.io/v1alpha2; Kueue's pkg/controller/jobs/jobset).

A JobSet has a pod set for each of its replicated jobs: as many pods as its Jobs run at a time together. Its controller
takes over changes of the templates while it is suspended, before it resumes the Jobs.
"""

from collections.abc import Sequence
from typing import Final

from headgate.core.api.job_kinds import JOB_SET
from headgate.core.api.names import JOB_COMPLETION_INDEX
from headgate.core.jobs.integration import Json
from headgate.core.jobs.suspendable import (
    JobStatus,
    PodSetSource,
    Suspendable,
    condition_at,
    items_at,
    number_at,
)

JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"


class JobSet(Suspendable):
    """The integration of JobSet. See the module docstring."""

    kind = JOB_SET

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        statuses = {each.get("name"): each for each in items_at(obj, "status", "replicatedJobsStatus")}
        return [
            replicated_source(number, each, statuses.get(each.get("name"), {}))
            for number, each in enumerate(items_at(obj, "spec", "replicatedJobs"))
        ]

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. Its Jobs, and not their pods, are counted as ready (Kueue's PodsReady of a JobSet)."""
        statuses = items_at(obj, "status", "replicatedJobsStatus")
        wanted = sum(source.sub_group_count or 0 for source in sources)
        ready = sum(number_at(each, 0, "ready") + number_at(each, 0, "succeeded") for each in statuses)
        completed = condition_at(obj, "Completed", "status", "conditions")
        failed = condition_at(obj, "Failed", "status", "conditions") if completed is None else None
        ended = completed or failed or {}
        return JobStatus(
            active=any(number_at(each, 0, "active") > 0 for each in statuses),
            pods_ready=ready == wanted,
            succeeded=completed is not None,
            failed=failed is not None,
            message=str(ended.get("message", "")),
        )


def pods_of_one(job_template: Json) -> int:
    """How many pods a Job with this template runs at a time."""
    parallelism = number_at(job_template, 1, "spec", "parallelism")
    return min(parallelism, number_at(job_template, parallelism, "spec", "completions"))


def replicated_source(number: int, replicated: Json, status: Json) -> PodSetSource:
    """The pod set of a replicated job, with what its status says of it."""
    job = replicated.setdefault("template", {})
    template = job.setdefault("spec", {}).setdefault("template", {})
    replicas, each = number_at(replicated, 1, "replicas"), pods_of_one(job)
    succeeded = number_at(status, 0, "succeeded")
    return PodSetSource(
        name=str(replicated.get("name", "")).lower(),
        count=replicas * each,
        template=template,
        at=f"spec.replicatedJobs[{number}].template.spec.template",
        pod_index_label=JOB_COMPLETION_INDEX,
        sub_group_index_label=JOB_INDEX_LABEL,
        sub_group_count=replicas,
        reclaimable=succeeded * each if 0 < succeeded <= replicas else 0,
    )
