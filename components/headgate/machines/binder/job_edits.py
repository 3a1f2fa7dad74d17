"""
What the bridge has done to the Workload of an edited job or pod group, for Kubernetes Events, as Kueue reports it.

Both are seen in the facts that follow: a Workload that has other pod sets, another priority class or other admission
gates than before was given those of its job; one that begins to be deleted, and is none for its job, was deleted to be
made anew, or was one too many. Kueue reports neither of pods, nor of the slices of elastic jobs; of the Workload of a
pod group it reports how many pods have become its owners since it was made.
"""

from typing import Final, NamedTuple

from headgate.core.api.names import GATED_BY
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.workload.matching import is_match
from headgate.core.workload.owners import job_key, job_of, workload_of
from headgate.core.workload.pod_jobs import is_of_pods
from headgate.core.workload.slices import is_elastic
from headgate.events.ids import JobKey, Seq, Uid, WorkloadKey
from headgate.events.objects import PodSet, PriorityClassRef, WorkloadSpec

UPDATED: Final = "UpdatedWorkload"
DELETED: Final = "DeletedWorkload"
OWNERS_ADDED: Final = "OwnerReferencesAdded"


class JobEdit(NamedTuple):
    """What is to be reported of a job: the reason of the Event, and its note."""

    job: JobKey
    job_uid: Uid
    reason: str
    note: str


class _Seen(NamedTuple):
    """What a Workload has of its job."""

    pod_sets: tuple[PodSet, ...]
    priority_class: PriorityClassRef | None
    gates: str
    deleting: bool
    owners: tuple[str, ...]


class JobEdits:
    """The Workloads of jobs as they were seen last."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen = {key: _kept(workload) for key, workload in state.workloads.items()}
        self._seq = state.position
        self._appeared: dict[Uid, None] = {}
        """The Workloads that have appeared at this position: their keys may have been others' before."""

    def look_at(self, workload: Workload, seq: Seq) -> tuple[JobEdit | None, int]:
        """
        What a Workload shows that has just been observed at a position, if it is the first time.

        Beside what is to be reported of its job, how many pods have become its owners since it was seen last.
        """
        if seq != self._seq:
            self._seq, self._appeared = seq, {}
        kept = self._seen.get(workload.key)
        self._seen[workload.key] = _kept(workload)
        if workload.first_seq == seq and workload.uid not in self._appeared:
            self._appeared[workload.uid] = None
            return None, 0
        if kept is None:
            return None, 0
        before = _of_spec(kept) if isinstance(kept, WorkloadSpec) else kept
        now = _seen(workload)
        if before == now:
            return None, 0
        return self._edit(workload, before, now), len(frozenset(now.owners) - frozenset(before.owners))

    def forget(self, key: WorkloadKey) -> None:
        """A Workload was deleted, and the state has none of its name."""
        self._seen.pop(key, None)

    def _edit(self, workload: Workload, before: _Seen, now: _Seen) -> JobEdit | None:
        key, record = job_key(self._state, workload), job_of(self._state, workload)
        if key is None or record is None or is_of_pods(key) or workload.stage is Stage.FINISHED:
            return None
        if is_elastic(self._state.configuration, workload.annotations):
            return None
        uid = Uid(record.job.uid)
        if now.deleting:
            if before.deleting or not self._is_one_too_many(key, record, workload):
                return None
            return JobEdit(key, uid, DELETED, f"Deleted not matching Workload: {workload.key}")
        if now.pod_sets != before.pod_sets:
            return JobEdit(key, uid, UPDATED, f"Updated not matching Workload for suspended job: {workload.key}")
        if now.priority_class != before.priority_class:
            return JobEdit(key, uid, UPDATED, f"Updated workload priority class: {workload.key}")
        return JobEdit(key, uid, UPDATED, f'Updated workload AdmissionGatedBy to "{now.gates}"')

    def _is_one_too_many(self, key: JobKey, record: JobRecord, workload: Workload) -> bool:
        if record.job.finished is not None or record.job.deleting:
            return False
        return workload_of(self._state, key, record.job.uid) is not workload or not is_match(
            self._state, key, record, workload
        )


def _seen(workload: Workload) -> _Seen:
    return _Seen(
        workload.spec.pod_sets,
        workload.spec.priority_class_ref,
        workload.annotations.get(GATED_BY, ""),
        workload.deleting,
        workload.group_owners,
    )


def _of_spec(spec: WorkloadSpec) -> _Seen:
    return _Seen(spec.pod_sets, spec.priority_class_ref, "", deleting=False, owners=())


def _kept(workload: Workload) -> _Seen | WorkloadSpec:
    """What is remembered: of most Workloads there is no more to see than the spec, which the state has too."""
    seen = _seen(workload)
    return seen if seen.gates or seen.deleting or seen.owners else workload.spec
