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

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.core.jobs.registry import integration_of
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.workload import slices
from headgate.core.workload.pod_jobs import is_group, is_of_pods
from headgate.events.ids import JobKey
from headgate.events.objects import Container, Job, PodSet, Resources


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


def are_pods_in_sync(key: JobKey, job: Job, pods: tuple[PodSet, ...], workload: Workload) -> bool:
    """
    Whether a prebuilt Workload is still one for its plain pod or pod group (Kueue's EquivalentToWorkload of Pod).

    `pods` is what is compared of them (`headgate.core.workload.pod_jobs.compared`).

    A plain pod is compared like any job, but that quantities are compared by value; once it is admitted without its
    tolerations, to which the flavor's are added. Of a group the roles count: each is a pod set, which may be of more
    pods, and the pod sets are in the order of the roles' names.
    """
    if not pods or workload.stage is Stage.EVICTED:
        return is_group(key) or _has_its_limit(job, workload)
    its_own = workload.spec.pod_sets
    if not is_group(key):
        is_one = _has_its_limit(job, workload) and len(its_own) == 1
        return is_one and _is_pod(pods[0], its_own[0], is_admitted=workload.stage is Stage.ADMITTED)
    left = iter(its_own)
    found = [next((each for each in left if each.name == role.name), None) for role in pods]
    return all(each is not None and each.count >= role.count for each, role in zip(found, pods, strict=True))


def _has_its_limit(job: Job, workload: Workload) -> bool:
    return job.max_execution_time_seconds == workload.spec.maximum_execution_time_seconds


def _is_pod(pod: PodSet, its_own: PodSet, *, is_admitted: bool) -> bool:
    """Whether a pod set is that of a plain pod."""
    is_, was = pod.template.spec, its_own.template.spec
    return (
        (its_own.count, its_own.min_count) == (1, None)
        and _by_value(is_.containers) == _by_value(was.containers)
        and _by_value(is_.init_containers) == _by_value(was.init_containers)
        and (is_admitted or is_.tolerations == was.tolerations)
    )


def _by_value(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """Containers with their quantities as numbers, as Kubernetes compares them."""
    return tuple(replace(each, resources=_amounts_of(each.resources)) for each in containers)


def _amounts_of(given: Resources) -> Resources:
    return Resources(requests=_amounts(given.requests), limits=_amounts(given.limits))


def _amounts(quantities: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    return {resource: amount(resource, value) for resource, value in quantities.items()}


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
