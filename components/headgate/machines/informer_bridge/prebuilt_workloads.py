"""
The bridge's work for jobs that name the Workload by which they run (`headgate.core.workload.prebuilt`).

A job becomes the controlling owner of that Workload by a server-side apply, which keeps other owners. While there is no
such Workload, or another object controls it, the job waits: it is looked at again when the Workload changes.

All pods of a pod group become owners that do not control it. The Workload is marked as one of a group, by which it is
known again (Kueue takes the mark where the author has set it, and does without otherwise).

Level-triggered. Owned by the bridge's machine, and equally pure.
"""

from typing import Any

from headgate.core.api import job_kinds
from headgate.core.api.names import IS_GROUP_WORKLOAD, JOB_UID
from headgate.core.api.owner_references import controlling, of_pod
from headgate.core.machine.api_results import CONFLICT, NOT_FOUND, is_success
from headgate.core.machine.contract import APPLY_PATCH, Call, Command, Completed
from headgate.core.state.tables import State, Workload
from headgate.core.status.server_side_apply import API_VERSION, apply_query
from headgate.core.status.workload_status import workload_path
from headgate.core.workload import prebuilt
from headgate.core.workload.pod_groups import Members
from headgate.core.workload.pod_jobs import is_group
from headgate.events.ids import JobKey, JobRef, Uid, WorkloadKey, split_key
from headgate.events.objects import Job


class PrebuiltWorkloads:
    """See the module docstring. The bridge's machine passes on what concerns jobs with prebuilt Workloads."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[WorkloadKey, dict[JobKey, None]] = {}
        self._asked: dict[WorkloadKey, tuple[Uid, str]] = {}
        """By Workload: its uid, and that of the job that was to own it, since it has changed last."""
        self._calls: dict[str, tuple[JobKey, str]] = {}

    def is_missing(self, key: JobKey, job: Job) -> bool:
        """Whether a job lacks the Workload that it names; it waits for that then."""
        named = prebuilt.key_of(key, job)
        if named is None:
            return False
        self._waiting.setdefault(named, {})[key] = None
        return prebuilt.claimable(self._state, key, job) is None

    def claim(self, key: JobKey, job: Job, pods: Members, calls: list[Command]) -> None:
        """Make a job the owner of the Workload that it names; of a pod group all `pods`."""
        workload = prebuilt.claimable(self._state, key, job)
        if workload is None or self._asked.get(workload.key) == (workload.uid, job.uid):
            return
        self._asked[workload.key] = workload.uid, job.uid
        call = _owning(workload, key, job, pods)
        self._calls[call.id] = key, job.uid
        calls.append(call)

    def changed(self, workload: WorkloadKey) -> dict[JobKey, None]:
        """A Workload has appeared, changed or gone. Returns the jobs that name it, to look at them again."""
        self._asked.pop(workload, None)
        return self._waiting.pop(workload, {})

    def on_completed(self, completed: Completed) -> tuple[JobKey, str] | None:
        """The job, and its uid, that could not become the owner; a change of the Workload shows everything else."""
        asked = self._calls.pop(completed.call_id, None)
        is_answered = is_success(completed) or completed.status in (CONFLICT, NOT_FOUND)
        return None if is_answered else asked


def _owning(workload: Workload, key: JobKey, job: Job, pods: Members) -> Call:
    kind, ref = job_kinds.kind_of(key), JobRef.parse(key)
    namespace, name = split_key(workload.key)
    owner: dict[str, Any] = {
        "labels": {JOB_UID: job.uid},
        "ownerReferences": [controlling(kind.api_version, kind.kind, ref.name, job.uid)],
    }
    if is_group(key):
        owned_by = [of_pod(split_key(pod)[1], record.pod.uid) for pod, record in pods.items()]
        owner = {"annotations": {IS_GROUP_WORKLOAD: "true"}, "ownerReferences": owned_by}
    body = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace, "uid": workload.uid, **owner},
    }
    return Call(
        id=f"own/{workload.key}",
        method="PATCH",
        path=workload_path(workload.key),
        query=apply_query(force=True, manager="headgate-owner"),
        body=body,
        content_type=APPLY_PATCH,
        lane=key,
    )
