"""
News: facts that the log does not have yet.

The informer bridge appends a fact only when it differs from the state. `news` makes that comparison; `deleted` is the
fact that an object of the state is gone.

Two kinds of change are no news. What Headgate itself has written comes back through the watch, and is in the log
already by the effect's event. And counters that change without any consequence (a Job's third pod becoming ready) are
recorded together with the next change that has one, so that a burst of pods is not a burst of facts.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import JobKind
from headgate.core.fold import quarantine
from headgate.core.fold.nodes import as_topology
from headgate.core.fold.objects import as_check, as_cluster_queue, as_cohort, as_flavor, as_local_queue
from headgate.core.fold.transitions import not_decided
from headgate.core.jobs.registry import integration_of
from headgate.core.state.tables import (
    NamespaceRecord,
    PodRecord,
    PriorityClassRecord,
    Stage,
    State,
    Workload,
)
from headgate.core.status.workload_status import is_known
from headgate.core.workload import owners
from headgate.core.workload.last_fact import last_fact
from headgate.core.workload.shown_conditions import differing
from headgate.events import facts
from headgate.events.facts import Fact
from headgate.events.ids import JobKey, LocalQueueKey, PodKey, RequestKey, TemplateKey, Uid, WorkloadKey, split_key
from headgate.events.objects import Pod, ShownConditions


def news(state: State, fact: Fact) -> Fact | None:
    """The fact as it is to be appended; None when the state has it already."""
    if state.quarantine:
        record = quarantine.find(state, quarantine.subject_of(fact))
        if record is not None and record.fact is not None:
            return None if _plain(fact) == _plain(record.fact) else fact
        if record is not None and record.workload is not None and isinstance(fact, facts.WorkloadObserved):
            return _workload(state, record.workload, fact)
    match fact:
        case facts.WorkloadObserved():
            return _workload(state, state.workloads.get(fact.workload), fact)
        case facts.JobObserved():
            job = state.jobs.get(fact.job)
            matters = integration_of(fact.job).what_matters
            known = job is not None and matters(job.job) == matters(fact.spec)
        case facts.PodObserved():
            pod = state.pods.get(fact.pod)
            known = pod is not None and _as_folded(pod) == fact.spec
        case facts.NodeObserved():
            known = state.nodes.get(fact.name) == fact.node
        case facts.ClusterQueueObserved():
            queue = state.cluster_queues.get(fact.name)
            known = queue == as_cluster_queue(fact)
        case facts.LocalQueueObserved():
            known = state.local_queues.get(fact.queue) == as_local_queue(fact)
        case _:
            known = _is_known(state, fact)
    return None if known else fact


def _plain(fact: Fact) -> Fact:
    return replace(fact, taken_over=None) if isinstance(fact, facts.WorkloadObserved) else fact


# Large: one case for each kind of object.
def _is_known(state: State, fact: Fact) -> bool:
    """As `news`, for the kinds that the state keeps as they are."""
    match fact:
        case facts.NamespaceObserved():
            known = NamespaceRecord(labels=fact.labels, terminating=fact.terminating)
            return state.namespaces.get(fact.name) == known
        case facts.ResourceFlavorObserved():
            return state.flavors.get(fact.name) == as_flavor(fact)
        case facts.TopologyObserved():
            same = state.topology_objects.get(fact.name) == as_topology(fact)
            return same and state.topologies.get(fact.name) == fact.spec
        case facts.CohortObserved():
            return state.cohorts.get(fact.name) == as_cohort(fact)
        case facts.AdmissionCheckObserved():
            return state.admission_checks.get(fact.name) == as_check(fact)
        case facts.ProvisioningConfigObserved():
            return state.provisioning_configs.get(fact.name) == fact.spec
        case facts.ProvisioningRequestObserved():
            request = state.provisioning_requests.get(fact.request)
            return request is not None and (request.workload, request.request) == (fact.owner, fact.spec)
        case facts.PodTemplateObserved():
            return state.request_templates.get(fact.template) == fact.spec
        case facts.WorkloadPriorityClassObserved():
            return state.workload_priority_classes.get(fact.name) == fact.value
        case facts.PriorityClassObserved():
            expected = PriorityClassRecord(value=fact.value, global_default=fact.global_default)
            return state.priority_classes.get(fact.name) == expected
        case facts.LimitRangeObserved():
            return state.limit_ranges.get(fact.limit_range) == fact.limits
        case facts.RuntimeClassObserved():
            return state.runtime_classes.get(fact.name) == fact.overhead
        case _:
            raise TypeError(f"{type(fact).__name__} is not a fact about an object that is there")


def _workload(state: State, workload: Workload | None, fact: facts.WorkloadObserved) -> Fact | None:
    """A Workload's status from before it was observed, or before a restore, counts once; later what others write."""
    if workload is None or workload.uid != fact.uid or fact.workload in state.unconfirmed:
        seen_at = ShownConditions(version=fact.shown.version) if fact.shown is not None and fact.taken_over else None
        if workload is None or workload.uid != fact.uid:
            return replace(fact, shown=seen_at)
        return replace(fact, shown=seen_at, known=is_known(state, workload, fact.taken_over))
    fact = replace(
        fact, taken_over=None, shown=differing(workload, fact.shown), checks=not_decided(workload, fact.checks)
    )
    if fact.preemption_gates == workload.preemption_gates:
        # Ours, or one that the fold has taken over.
        fact = replace(fact, preemption_gates=workload.observed_gates)
    if workload.stage is not Stage.FINISHED:
        return None if fact == last_fact(workload) else fact
    fact = replace(fact, finished=workload.observed_finished)
    known = last_fact(workload)
    if known.finished is None and not fact.finalizer:
        # The binder has removed it, and records that with the status that it has written.
        known = replace(known, finalizer=False)
    return None if fact == known else fact


def _as_folded(record: PodRecord) -> Pod:
    """The pod as the state has it: bound to its node, whether by a fact or by our own effect."""
    if not record.bound or record.pod.spec.node_name:
        return record.pod
    return replace(record.pod, spec=replace(record.pod.spec, node_name=record.placed))


# --- deletions -----------------------------------------------------------------------------------------------------


def _workloads(state: State) -> dict[str, Uid]:
    """The Workloads that are in the cluster according to the log, including those in quarantine; each with its uid."""
    found: dict[str, Uid] = {key: workload.uid for key, workload in state.workloads.items()}
    found.update((each.key, each.uid) for each in state.quarantine.values() if each.kind == "Workload")
    return found


def known_keys(state: State, resource: str) -> Iterable[str]:
    """The keys of a resource's objects that the state has, in its order."""
    kind = job_kinds.of_resource(resource)
    table: Iterable[str] = _TABLES[resource](state) if kind is None else _jobs(state, kind)
    return table


def _shown_requests(state: State) -> list[RequestKey]:
    """Those that the API server has shown; one that is to be created may still be on its way there."""
    return [key for key, record in state.provisioning_requests.items() if record.request is not None]


_TABLES: dict[str, Callable[[State], Any]] = {
    "namespaces": lambda state: state.namespaces,
    "nodes": lambda state: state.nodes,
    "resourceflavors": lambda state: state.flavors,
    "topologies": lambda state: state.topologies,
    "admissionchecks": lambda state: state.admission_checks,
    "cohorts": lambda state: state.cohorts,
    "clusterqueues": lambda state: state.cluster_queues,
    "localqueues": lambda state: state.local_queues,
    "workloadpriorityclasses": lambda state: state.workload_priority_classes,
    "priorityclasses": lambda state: state.priority_classes,
    "limitranges": lambda state: state.limit_ranges,
    "runtimeclasses": lambda state: state.runtime_classes,
    **dict.fromkeys(job_kinds.OF_TRAIN_JOBS, lambda _state: ()),
    "provisioningrequestconfigs": lambda state: state.provisioning_configs,
    "workloads": lambda state: _workloads(state),
    "provisioningrequests": _shown_requests,
    "podtemplates": lambda state: state.request_templates,
    "pods": lambda state: state.pods,
}


def _jobs(state: State, kind: JobKind) -> list[JobKey]:
    prefix = kind.key("", "").removesuffix("/")
    return [key for key in state.jobs if key.startswith(prefix)]


_DELETED_BY_NAME: dict[str, Callable[[str], Fact]] = {
    "namespaces": lambda key: facts.NamespaceDeleted(name=key),
    "nodes": lambda key: facts.NodeDeleted(name=key),
    "resourceflavors": lambda key: facts.ResourceFlavorDeleted(name=key),
    "topologies": lambda key: facts.TopologyDeleted(name=key),
    "admissionchecks": lambda key: facts.AdmissionCheckDeleted(name=key),
    "cohorts": lambda key: facts.CohortDeleted(name=key),
    "clusterqueues": lambda key: facts.ClusterQueueDeleted(name=key),
    "localqueues": lambda key: facts.LocalQueueDeleted(queue=LocalQueueKey(key)),
    "workloadpriorityclasses": lambda key: facts.WorkloadPriorityClassDeleted(name=key),
    "priorityclasses": lambda key: facts.PriorityClassDeleted(name=key),
    "limitranges": lambda key: facts.LimitRangeDeleted(limit_range=key),
    "runtimeclasses": lambda key: facts.RuntimeClassDeleted(name=key),
    "provisioningrequestconfigs": lambda key: facts.ProvisioningConfigDeleted(name=key),
    "podtemplates": lambda key: facts.PodTemplateDeleted(template=TemplateKey(key)),
}


def _workload_deleted(state: State, key: WorkloadKey) -> Fact | None:
    workload = state.workloads.get(key)
    if workload is not None:
        return facts.WorkloadDeleted(workload=key, uid=workload.uid, job=owners.job_key(state, workload) or JobKey(""))
    record = state.quarantine.get(f"Workload/{key}")
    if record is None:
        return None
    owner = quarantine.owner_of(record)
    job = (
        job_kinds.owner_key(split_key(key)[0], owner)
        if owner is not None and owners.is_job(state, owner)
        else JobKey("")
    )
    return facts.WorkloadDeleted(workload=key, uid=record.uid, job=job)


def deleted(state: State, resource: str, key: str, *, gone: bool = False) -> Fact | None:
    """The fact that an object is gone, or no longer relevant (not `gone`); None when the state does not have it."""
    if resource == "workloads":
        return _workload_deleted(state, WorkloadKey(key))
    if job_kinds.of_resource(resource) is not None:
        record = state.jobs.get(JobKey(key))
        return facts.JobDeleted(job=JobKey(key), uid=Uid(record.job.uid), gone=gone) if record is not None else None
    if key not in _TABLES[resource](state):
        return None
    match resource:
        case "pods":
            return facts.PodDeleted(pod=PodKey(key), uid=Uid(state.pods[PodKey(key)].pod.uid))
        case "provisioningrequests":
            found = state.provisioning_requests[RequestKey(key)]
            uid = Uid(found.request.uid if found.request is not None else "")
            return facts.ProvisioningRequestDeleted(request=RequestKey(key), owner=found.workload, uid=uid)
        case _:
            return _DELETED_BY_NAME[resource](key)
