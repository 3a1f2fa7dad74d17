"""
Pods as jobs: which job a pod belongs to, and what the job of some pods is.

The job of a plain pod has the pod's name and uid. The job of a pod group has the name of the group's Workload; the API
has no such object, so its uid is made of its key: a group is identified by its name, as in Kueue. The log gets a
`job.observed` of both, by which everything else treats them like any other job.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headgate.core.api.names import POD_GROUP_KIND
from headgate.core.config.frameworks import POD_FRAMEWORK
from headgate.core.jobs.pods import POD_SET
from headgate.core.state.grouping import Groups
from headgate.core.state.tables import PodRecord, State, Workload
from headgate.core.workload import pod_groups, prebuilt
from headgate.core.workload.pod_groups import Members, managed
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, JobRef, PodKey, UnixMs, WorkloadKey, split_key
from headgate.events.objects import Job, Pod, PodSet, PodSpec, PodTemplate

POD_KIND: Final = "Pod"
_PREFIXES: Final = (f"/{POD_KIND}/", f"/{POD_GROUP_KIND}/")


def is_of_pods(job: JobKey | None) -> bool:
    """Whether a job is a plain pod or a pod group."""
    return job is not None and job.startswith(_PREFIXES)


def is_group(job: JobKey | None) -> bool:
    """Whether a job is a pod group."""
    return job is not None and job.startswith(_PREFIXES[1])


def group_of(workload: WorkloadKey) -> JobKey:
    """The pod group that a Workload is of, if it is of one."""
    return JobRef("", POD_GROUP_KIND, *split_key(workload)).key


def group_uid(job: JobKey) -> str:
    """The uid of the job of a pod group."""
    return job.removeprefix("/")


def is_run(configuration: Configuration, members: Members) -> bool:
    """Whether a cell queues these pods: all that are managed, or only those of owners that its configuration names."""
    frameworks = configuration.integrations.frameworks
    return POD_FRAMEWORK in frameworks or all(managed(each.pod).parent in frameworks for each in members.values())


def uid_of(job: JobKey, first: Pod) -> str:
    """The uid of a job by its first pod."""
    return group_uid(job) if is_group(job) else first.uid


def job_of(key: PodKey, pod: Pod) -> JobKey | None:
    """The job of a pod; None for one that is not queued itself, or whose group is not known yet."""
    if pod.managed is None:
        return None
    namespace, name = split_key(key)
    if pod.managed.group:
        return JobRef("", POD_GROUP_KIND, namespace, pod.managed.group).key
    # The pods of a StatefulSet or LeaderWorkerSet are given their group by the ungater.
    return JobRef("", POD_KIND, namespace, name).key if pod.managed.parent in {"", "deployment"} else None


class JobPods:
    """
    The managed pods of each job: an index that a machine keeps for itself, by the facts that it passes to `see`.

    Bounded by the number of such pods.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: Groups[PodKey, JobKey] = Groups()
        for key in state.pods:
            self.see(key)

    def see(self, key: PodKey) -> tuple[JobKey, ...]:
        """A pod may have appeared, changed or gone. Returns the jobs that this concerns."""
        record = self._state.pods.get(key)
        after = job_of(key, record.pod) if record is not None else None
        before = self._jobs.put(key, after)
        return tuple(dict.fromkeys(job for job in (before, after) if job is not None))

    def jobs(self) -> Iterable[JobKey]:
        """The jobs that have pods."""
        return self._jobs.groups()

    def job(self, key: PodKey) -> JobKey | None:
        """The job of a pod."""
        return self._jobs.group_of(key)

    def of(self, job: JobKey) -> Members:
        """The pods of a job, in order."""
        records = ((key, self._state.pods.get(key)) for key in self._jobs.of(job))
        return pod_groups.in_order((key, record) for key, record in records if record is not None)


def kept(job: JobKey, members: Members, workload: Workload | None) -> pod_groups.GroupView:
    """What the pods of a job are to it. A group that names its Workload keeps all of its pods, as in Kueue."""
    if is_group(job) and not named_by(members):
        return pod_groups.view_of(members, workload)
    return pod_groups.GroupView(members, (), (), 0)


def observed(
    job: JobKey, members: Members, workload: Workload | None, now_ms: UnixMs, made: Job | None = None
) -> Job | None:
    """
    The job of these pods; None when there is none any more. `made` is that of a group of a set, as its set says.

    That is when none of its pods is left; a plain pod counts as gone as soon as it is being deleted, as in Kueue: it is
    never started again.
    """
    if not members:
        return made
    group = is_group(job)
    first = next(iter(members.values())).pod
    if not group and first.deleting:
        return None
    view = kept(job, members, workload)
    pods = view.kept
    shown = managed(first)
    end = pod_groups.finish_of(pods, is_group=group) if pods else None
    holds_ms = pod_groups.holds_until_ms(pods) if group else None
    told = made or Job(
        uid=uid_of(job, first),
        created_ms=first.created_ms,
        queue_name=shown.queue_name,
        priority_class=shown.priority_class,
        pod_priority_class=_priority_class(pods),
        max_execution_time_seconds=shown.max_execution_time_seconds,
        gated_by=shown.gated_by,
        problem=_problem(job, members, workload) if group else "",
        prebuilt=shown.prebuilt,
        pod_sets=compared(job, pods) if shown.prebuilt and end is None else (),
    )
    return msgspec.structs.replace(
        told,
        suspended=not any(pod_groups.runs(record.pod) for record in pods.values()),
        active=1 if holds_ms is not None and holds_ms > now_ms else 0,
        pods_ready=bool(pods) and pod_groups.are_ready(pods, is_group=group),
        reclaimable=_reclaimable(pods, workload) if group and pods else {},
        finished=("Complete" if end.succeeded else "Failed") if end is not None else None,
        message=end.message if end is not None else "",
        absent_pods=view.absent,
        # New pods of a set come as the former go; those that wait behind their gate can wait for another Workload.
        leaving=all(each.pod.deleting or (made and pod_groups.is_gated(each.pod)) for each in members.values()),
    )


def _reclaimable(pods: Members, workload: Workload | None) -> dict[str, int]:
    """How many pods of each pod set have succeeded, in the order of the Workload."""
    done = pod_groups.done_pods(pods)
    names = [each.name for each in workload.spec.pod_sets] if workload is not None and done else []
    return {name: done.get(name, 0) for name in names}


def _problem(job: JobKey, members: Members, workload: Workload | None) -> str:
    group, named = JobRef.parse(job).name, named_by(members)
    if named:
        return prebuilt.OTHER_NAME_MESSAGE if named != group else ""
    return pod_groups.problem_of(group, members) if workload is None else ""


def named_by(members: Members) -> str:
    """The Workload that these pods name; "" for none."""
    return managed(next(iter(members.values())).pod).prebuilt if members else ""


def compared(job: JobKey, pods: Members) -> tuple[PodSet, ...]:
    """What is compared with the Workload that pods name: of a group no more than how many pods each role has."""
    if is_group(job):
        return tuple(PodSet(name=role.name, count=role.count) for role in pod_groups.roles_of(pods))
    spec = next(iter(pods.values())).pod.spec
    compared = PodSpec(containers=spec.containers, init_containers=spec.init_containers, tolerations=spec.tolerations)
    return (PodSet(name=POD_SET, count=1, template=PodTemplate(spec=compared)),)


def _priority_class(members: Mapping[PodKey, PodRecord]) -> str:
    """Of several pod sets the first that names a PriorityClass counts."""
    roles = pod_groups.roles_of(members) if members else ()
    named = (managed(members[role.sample].pod).pod_priority_class for role in roles)
    return next((each for each in named if each), "")


def misfits(job: JobKey, members: Members, workload: Workload) -> bool:
    """
    Whether a pod group needs another Workload than it has: none of its pods is of it, or its execution time differs.

    Those of a plain pod never change, and one that its pods name is never replaced.
    """
    if not is_group(job) or not members or named_by(members):
        return False
    first = managed(next(iter(members.values())).pod)
    if first.max_execution_time_seconds != workload.spec.maximum_execution_time_seconds and not first.parent:
        return True
    return not pod_groups.view_of(members, workload).kept
