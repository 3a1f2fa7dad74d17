"""
The pod groups of sets: of StatefulSets and LeaderWorkerSets, whose pods serve (Kueue's pkg/controller/jobs).

A set that is run has pod groups by its size, whether their pods are there or not: a StatefulSet one, a LeaderWorkerSet
one for each of its replicas. A group is named like the Workload that Kueue makes for it, and its job (`group_job`)
follows the set: queue, priority, what holds it back. The informer bridge makes the Workload from the set; the ungater
writes into each pod which group it is of, because its owner does not know.

A set that a managed parent controls is run by that one: it has no groups.
"""

from typing import Final

from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import LEADER_WORKER_SET, STATEFUL_SET
from headgate.core.api.names import JOB_UID, OWNER_GVK, OWNER_NAME, POD_GROUP_KIND
from headgate.core.state.tables import State, Workload
from headgate.core.workload import owners
from headgate.core.workload.names import name_len_max, workload_name
from headgate.core.workload.pod_jobs import group_uid
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, JobRef, PodKey, split_key
from headgate.events.objects import Job, Pod

FRAMEWORKS: Final = (STATEFUL_SET.framework, LEADER_WORKER_SET.framework)
"""The frameworks whose pods are given their group by the ungater."""

_KINDS: Final = {kind.framework: kind for kind in (STATEFUL_SET, LEADER_WORKER_SET)}


def is_set(key: JobKey) -> bool:
    """Whether a job is a set of pod groups."""
    kind = job_kinds.of_key(key)
    return kind is not None and kind.serves


def set_of(key: PodKey, pod: Pod) -> JobKey | None:
    """The set that a pod is of, by its own word; None for one that is of none, or does not say."""
    managed = pod.managed
    if managed is None or not managed.set_name or managed.parent not in _KINDS:
        return None
    return _KINDS[managed.parent].key(split_key(key)[0], managed.set_name)


def set_of_workload(workload: Workload) -> tuple[JobKey, str] | None:
    """Key and uid of the set that a Workload was made for; None for any other Workload."""
    kind = job_kinds.of_gvk(workload.annotations.get(OWNER_GVK, ""))
    name, uid = workload.annotations.get(OWNER_NAME, ""), workload.labels.get(JOB_UID, "")
    if kind is None or not kind.serves or not name or not uid:
        return None
    return kind.key(split_key(workload.key)[0], name), uid


def group_name(configuration: Configuration, key: JobKey, uid: str, index: int) -> str:
    """The name of a set's group and of its Workload: Kueue's GetWorkloadName of either kind."""
    ref = JobRef.parse(key)
    is_one = job_kinds.of_key(key) is STATEFUL_SET
    named = ref if is_one else JobRef(ref.group, ref.kind, ref.namespace, f"{ref.name}-{index}")
    return workload_name(named, uid, len_max=name_len_max(configuration))


def groups_of(state: State, key: JobKey) -> dict[JobKey, int]:
    """The groups that a set has now, with their numbers."""
    record = state.jobs.get(key)
    if record is None or owners.runs_above(state, key, record.job) is not None:
        return {}
    namespace = JobRef.parse(key).namespace
    made: dict[JobKey, int] = {}
    for index in range(record.job.groups):
        name = group_name(state.configuration, key, record.job.uid, index)
        made[JobRef("", POD_GROUP_KIND, namespace, name).key] = index
    return made


def group_job(group: JobKey, key: JobKey, job: Job, index: int) -> Job:
    """The job of a group of a set as long as it has no pods."""
    classes = (each.template.spec.priority_class_name for each in job.pod_sets)
    return Job(
        uid=group_uid(group),
        created_ms=job.created_ms,
        queue_name=job.queue_name,
        priority_class=job.priority_class,
        pod_priority_class=job.pod_priority_class or next(filter(None, classes), ""),
        max_execution_time_seconds=job.max_execution_time_seconds,
        gated_by=job.gated_by,
        suspended=True,
        made_for=key,
        group_index=index,
        on_hold=job.on_hold,
        leaving=True,
    )


class SetGroups:
    """
    The groups of all sets: an index that a machine keeps for itself, by the facts about sets that it passes to `see`.

    Bounded by the number of groups.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._set_of: dict[JobKey, tuple[JobKey, int]] = {}
        self._of: dict[JobKey, dict[JobKey, int]] = {}
        for key in state.jobs:
            self.see(key)

    def see(self, key: JobKey) -> tuple[JobKey, ...]:
        """A job may have appeared, changed or gone. Returns the groups that this concerns; none unless it is a set."""
        if not is_set(key):
            return ()
        before, after = self._of.pop(key, {}), groups_of(self._state, key)
        for group in before:
            self._set_of.pop(group, None)
        for group, index in after.items():
            self._set_of[group] = key, index
        if after:
            self._of[key] = after
        return tuple(dict.fromkeys((*before, *after)))

    def sets(self) -> tuple[JobKey, ...]:
        """The sets that have groups."""
        return tuple(self._of)

    def of(self, key: JobKey) -> tuple[JobKey, ...]:
        """The groups of a set."""
        return tuple(self._of.get(key, ()))

    def has(self, group: JobKey) -> bool:
        """Whether a set has a group."""
        return group in self._set_of

    def made(self, group: JobKey) -> Job | None:
        """The job of a group of a set, without what its pods say; None where no set has it."""
        found = self._set_of.get(group)
        record = self._state.jobs.get(found[0]) if found is not None else None
        return group_job(group, found[0], record.job, found[1]) if found is not None and record is not None else None
