"""
The Workloads of the Jobs in a plan: what the informer bridge would create for each Job that names a queue.

A Job whose Workload is among the manifests keeps it; a finished one gets none. An elastic Job whose size differs from
its Workload's gets what Headgate would give it: a Workload of that size while it waits or when it shrinks, an
additional slice when it grows.
"""

from collections.abc import Mapping, Sequence

import msgspec

from headgate.core.jobs.registry import integration_of
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.plan.log import PlanLog
from headgate.core.reading.decoding import read
from headgate.core.state.tables import State, Workload
from headgate.core.workload import prebuilt
from headgate.core.workload.job_workload import (
    NoSuchPriorityClassError,
    is_sliced,
    wanted_slice,
    workload_key,
    workload_of,
)
from headgate.core.workload.last_fact import last_fact
from headgate.core.workload.slices import SlicePlan
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved, Fact, JobObserved, WorkloadObserved
from headgate.events.ids import JobKey, Uid, UnixMs
from headgate.events.objects import Job


def workloads_of_jobs(
    facts: Sequence[Fact], jobs: Mapping[JobKey, bytes], now_ms: UnixMs, configuration: Configuration | None = None
) -> tuple[tuple[Fact, ...], dict[JobKey, str]]:
    """
    The facts of the Workloads to add, in the order of the Jobs, and the problems of Jobs that can have none.

    `jobs` has the JSON of each Job among the facts. A Job may name a priority class that does not exist. A Workload
    that needs another size gets a second fact; slices are created at `now_ms`.
    """
    log = PlanLog(UnixMs(0))
    configured = ConfigurationObserved(configuration=configuration or Configuration())
    log.append(Producer.INFORMER_BRIDGE, [configured, *facts])
    owned = {fact.owner.uid for fact in facts if isinstance(fact, WorkloadObserved) and fact.owner is not None}
    made: list[Fact] = []
    mistakes: dict[JobKey, str] = {}
    for fact in facts:
        if not isinstance(fact, JobObserved) or fact.spec.finished is not None:
            continue
        job, created_ms, uid = fact.spec, fact.spec.created_ms, fact.spec.uid
        if uid in owned:
            slices = wanted_slice(log.state, fact.job, job) if is_sliced(log.state, job) else SlicePlan()
            if slices.resize and slices.selected is not None:
                made.append(_resized(slices.selected, integration_of(fact.job).pod_counts(job)))
            if not slices.replace:
                continue
            job, created_ms = _next_generation(log.state, fact.job, job), now_ms
            uid = Uid(f"{uid}/{job.generation}")
        if job.prebuilt:
            if workload_key(log.state.configuration, fact.job, job) not in log.state.workloads:
                mistakes[fact.job] = f"{prebuilt.NOT_FOUND_MESSAGE}: give the Workload {job.prebuilt}"
            continue
        if job.problem:
            mistakes[fact.job] = f"{job.problem}: a plan knows no runtimes; give its Workload instead"
            continue
        try:
            workload = workload_of(log.state, fact.job, job, jobs[fact.job])
        except NoSuchPriorityClassError as error:
            mistakes[fact.job] = f"{error}: add the class to the manifests, or name one that is there"
            continue
        workload["metadata"] |= {"uid": uid, "creationTimestamp": rfc3339(created_ms)}
        seen = read("workloads", msgspec.json.encode(workload)).fact
        assert seen is not None, f"the Workload of Job {fact.job} does not matter"
        made.append(seen)
    return tuple(made), mistakes


def _resized(workload: Workload, counts: Mapping[str, int]) -> WorkloadObserved:
    """The fact that the pod sets of an elastic Job have other sizes."""
    pod_sets = tuple(msgspec.structs.replace(each, count=counts[each.name]) for each in workload.spec.pod_sets)
    spec = msgspec.structs.replace(workload.spec, pod_sets=pod_sets)
    return msgspec.structs.replace(last_fact(workload), spec=spec)


def _next_generation(state: State, key: JobKey, job: Job) -> Job:
    """
    A scaled Job as an API server would return it.

    Editing the size in a manifest does not change the generation, by which slices are named.
    """
    while workload_key(state.configuration, key, job) in state.workloads:
        job = msgspec.structs.replace(job, generation=job.generation + 1)
    return job
