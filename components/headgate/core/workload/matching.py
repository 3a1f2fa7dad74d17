"""
Whether a Workload is what its job asks for (Kueue's EquivalentToWorkload).

A job that is edited is to be scheduled by its new form. The informer bridge calls `is_match`: a Workload that does not
match is changed while it is pending, and replaced by another when it holds quota, because that was reserved for
something else. Only what decides about scheduling is compared: the log has no more of either.

A stopped job that still contains what an admission has injected is not compared before it is restored, nor is one whose
start or stop is under way: its fact is of another moment than its Workload's. A running job is compared by what was
admitted: its number of pods, and what each requests.

Beyond Kueue's rule, the node selectors and everything else of the template are compared while the job is stopped: a
start writes them from the Workload, so that an edit of them would be lost otherwise.
"""

from headgate.core.jobs.registry import integration_of
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.workload import slices
from headgate.core.workload.pod_jobs import is_of_pods
from headgate.events.ids import JobKey
from headgate.events.objects import PodSet


def is_to_run(workload: Workload) -> bool:
    """Whether the job of a workload is to run: it is admitted, for the pod sets that it has."""
    return workload.stage is Stage.ADMITTED and not workload.deleting and not workload.outdated


def is_match(state: State, key: JobKey, record: JobRecord, workload: Workload) -> bool:
    """Whether an unfinished Workload is one for its job as it is now. An elastic job has slices instead."""
    job, integration = record.job, integration_of(key)
    if is_of_pods(key):
        # What admission depends on cannot change in a pod; a group keeps its Workload as long as it has pods of it.
        return True
    if workload.stage is Stage.EVICTED or slices.is_elastic(state.configuration, workload.annotations):
        return True
    if workload.outdated:
        return False
    wanted = integration.observed_pod_sets(job)
    if not wanted:
        # The kind compares its pods itself.
        return True
    if not job.suspended:
        return workload.stage is not Stage.ADMITTED or _runs_as_admitted(wanted, workload)
    if record.started_for or integration.carries_injection(job) or job.active > 0:
        return True
    limit_s = workload.spec.maximum_execution_time_seconds
    its_own = tuple(map(_without_topology, workload.spec.pod_sets))
    return (its_own, limit_s) == (tuple(map(_without_topology, wanted)), job.max_execution_time_seconds)


def is_in_sync(record: JobRecord, wanted: tuple[PodSet, ...], workload: Workload) -> bool:
    """
    Whether a prebuilt Workload is still one for its job, whose pod sets are `wanted` (Kueue's EquivalentToWorkload).

    Compared is what Kueue compares, as far as the log has it: counts, containers and tolerations, and the execution
    time. While the job is started, stopped or restored it is not compared.
    """
    job = record.job
    if job.max_execution_time_seconds != workload.spec.maximum_execution_time_seconds:
        return False
    if not wanted or workload.stage is Stage.EVICTED:
        return True
    if not job.suspended:
        return workload.stage is not Stage.ADMITTED or _runs_as_admitted(wanted, workload)
    if record.started_for or job.active > 0:
        return True
    its_own = workload.spec.pod_sets
    return len(wanted) == len(its_own) and all(map(_is_same_form, wanted, its_own))


def _is_same_form(wanted: PodSet, its_own: PodSet) -> bool:
    is_, was = wanted.template.spec, its_own.template.spec
    return (wanted.count, wanted.min_count) == (its_own.count, its_own.min_count) and (
        is_.containers,
        is_.init_containers,
        is_.tolerations,
    ) == (was.containers, was.init_containers, was.tolerations)


def _without_topology(pod_set: PodSet) -> PodSet:
    """A pod set without its topology request, which follows from the annotations of its template."""
    return PodSet(name=pod_set.name, count=pod_set.count, min_count=pod_set.min_count, template=pod_set.template)


def _runs_as_admitted(running: tuple[PodSet, ...], workload: Workload) -> bool:
    """Whether the pod sets of a running job are those that were admitted, with what was injected."""
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    admitted = {each.name: each.count for each in assignments}
    return len(running) == len(workload.spec.pod_sets) and all(
        is_.name == was.name
        and is_.count == (was.count if was.min_count is None else admitted.get(was.name, was.count))
        and is_.template.spec.containers == was.template.spec.containers
        and is_.template.spec.init_containers == was.template.spec.init_containers
        for is_, was in zip(running, workload.spec.pod_sets, strict=True)
    )
