"""
What Kueue's controllers make of a workload between two cycles (pkg/controller/core/workload_controller.go).

`blocker` is why a pending workload cannot be tried, in the words of its QuotaReserved condition; `belongs_to` which
ClusterQueue's pending queue has it. The two differ: a workload of an inactive ClusterQueue stays in its heap, one in a
namespace that does not match is tried and set aside. `condition` is the condition that the workload controller writes
when it looks at a pending workload, `returned` the event of a workload that releases its quota, as if its job had
stopped at once. All follow from the state; `headgate.testing.reference.rhythm` appends them until nothing changes.
"""

from typing import NamedTuple

import msgspec

from headgate.core.api.names import GATED_BY
from headgate.core.flavors.catalog import Catalog
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.queueing import eviction
from headgate.core.queueing.enqueueing import ADMISSION_GATED, MISCONFIGURED, SUSPENDED, requeue_at
from headgate.core.state.tables import Stage, State, Workload, local_queue_of
from headgate.core.workload.owners import job_key, job_of
from headgate.core.workload.pod_requests import namespace_missing, why_written_invalid
from headgate.core.workload.unadmitted_reasons import is_explicit, is_granular, shown_reason
from headgate.events.configuration import Configuration
from headgate.events.facts import JobObserved
from headgate.events.ids import UnixMs, split_key
from headgate.events.queueing import DeadlinePassed, WorkloadFinished, WorkloadRequeued
from headgate.events.registry import Event

"""The message of a workload that was set aside with its equivalence class while it waited to be evaluated."""

_PENDING_EVALUATION = "PendingEvaluation"

_OF_THE_SCHEDULER = frozenset(
    {
        "WaitingForQuota",
        "NoMatchingFlavor",
        "ExceedsMaxQuota",
        "TopologyPlacementFailed",
        "WaitingForPreemptedWorkloads",
        "WaitingForPodsReady",
        _PENDING_EVALUATION,
    }
)
"""Reasons that a cycle gave, which are kept until the next one (schedulerSetReasons)."""

_MAY_HAVE_BEEN_BYPASSED = frozenset({conditions.DEACTIVATED, _PENDING_EVALUATION, SUSPENDED, "Pending", ""})
"""Reasons of workloads on their way into a queue, whose class may have been set aside (shouldCheckEquivalenceHash)."""


class Why(NamedTuple):
    """Reason and message of a QuotaReserved condition that is False."""

    reason: str
    message: str


def belongs_to(state: State, workload: Workload) -> str:
    """The ClusterQueue in whose pending queue a workload without reservation is, active or not; "" when in none."""
    if workload.deleting or eviction.is_deactivated(workload) or workload.annotations.get(GATED_BY):
        return ""
    queue = state.local_queues.get(local_queue_of(workload))
    if queue is None or queue.spec.stop_policy != "None" or queue.spec.cluster_queue not in state.cluster_queues:
        return ""
    return queue.spec.cluster_queue


def blocker(state: State, catalog: Catalog, workload: Workload) -> Why | None:
    """Why a pending workload cannot be tried as things are, the first reason in Kueue's order; None when it can."""
    if eviction.is_deactivated(workload):
        return Why(conditions.DEACTIVATED, eviction.deactivation_message(workload))
    name = workload.spec.queue_name
    local = state.local_queues.get(local_queue_of(workload))
    if local is None:
        return Why(MISCONFIGURED, f"LocalQueue {name} doesn't exist")
    if local.spec.stop_policy != "None":
        return Why(SUSPENDED, f"LocalQueue {name} is inactive")
    queue = catalog.queue(local.spec.cluster_queue)
    if queue is None:
        return Why(MISCONFIGURED, f"ClusterQueue {local.spec.cluster_queue} doesn't exist")
    if not queue.active.active:
        return Why(SUSPENDED, f"ClusterQueue {queue.name} is inactive")
    invalid = _invalid(state, catalog, workload, queue.name)
    if invalid:
        return Why(MISCONFIGURED, invalid)
    gate = workload.annotations.get(GATED_BY)
    return Why(ADMISSION_GATED, f"Admission is gated by: {gate}") if gate else None


def _invalid(state: State, catalog: Catalog, workload: Workload, cluster_queue: str) -> str:
    """What the workload controller finds wrong: of the pods as they are written, before any default is filled in."""
    namespace = split_key(workload.key)[0]
    record = state.namespaces.get(namespace)
    if record is None:
        return namespace_missing(namespace)
    if not matches_labels(state.cluster_queues[cluster_queue].spec.namespace_selector, record.labels):
        return "workload namespace doesn't match ClusterQueue selector"
    written = (each.template.spec for each in workload.spec.pod_sets)
    return why_written_invalid(written, catalog.limits(namespace))


def condition(
    workload: Workload, blocked: Why | None, bulk_reason: str | None, configuration: Configuration
) -> Why | None:
    """
    The QuotaReserved condition that the controller writes when it looks at a pending workload; None: it leaves it.

    `bulk_reason`: why the workload's equivalence class was set aside, when it was and the workload with it.
    """
    current = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
    if blocked is not None:
        wanted = blocked
    elif not is_granular(configuration):
        return None
    elif current is None:
        if not is_explicit(configuration):
            return None
        waits = Why(_PENDING_EVALUATION, conditions.AWAITS_EVALUATION)
        wanted = waits if bulk_reason is None else Why(bulk_reason, conditions.BYPASSED)
    elif bulk_reason is not None and current.reason in _MAY_HAVE_BEEN_BYPASSED:
        wanted = Why(bulk_reason, conditions.BYPASSED)
    elif current.reason in _OF_THE_SCHEDULER:
        return None
    else:
        wanted = Why(_PENDING_EVALUATION, conditions.AWAITS_EVALUATION)
    shown = (shown_reason(configuration, wanted.reason), wanted.message)
    is_so = current is not None and current.status == "False" and (current.reason, current.message) == shown
    return None if is_so else wanted


def backoff_is_over(workload: Workload, now_ms: UnixMs) -> bool:
    """Whether a workload may be tried: it was not evicted for longer, and its time to wait has passed."""
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is not None and requeued.status == "False":
        return False
    until = requeue_at(workload)
    return until is None or now_ms >= until


def allowed_again(state: State, workload: Workload, now_ms: UnixMs) -> list[Event]:
    """What is over of that which kept an evicted workload from queueing again: its backoff, its stop."""
    until = requeue_at(workload)
    if until is not None and now_ms < until:
        return []
    said: list[Event] = []
    if until is not None:
        said.append(DeadlinePassed(workload=workload.key, uid=workload.uid, deadline="RequeueAt", at_ms=until))
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is not None and requeued.status == "False":
        why = _restarted(state, workload, requeued.reason)
        if why is not None:
            reason, message = why
            said.append(WorkloadRequeued(workload=workload.key, uid=workload.uid, reason=reason, message=message))
    return said


def _restarted(state: State, workload: Workload, reason: str) -> Why | None:
    local = state.local_queues.get(local_queue_of(workload))
    queue = state.cluster_queues.get(local.spec.cluster_queue) if local is not None else None
    if reason == conditions.DEACTIVATED and workload.spec.active:
        return Why("Reactivated", "The workload was reactivated")
    if reason in ("PodsReadyTimeout", "AdmissionCheck"):
        return Why("BackoffFinished", "The workload backoff was finished")
    if reason == "LocalQueueStopped" and local is not None and local.spec.stop_policy == "None":
        return Why("LocalQueueRestarted", "The LocalQueue was restarted after being stopped")
    if reason == "ClusterQueueStopped" and queue is not None and queue.spec.stop_policy == "None":
        return Why("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped")
    return None


def finish(state: State, workload: Workload) -> WorkloadFinished | None:
    """
    The end of a workload that is over; None while it is not.

    A Job that is not among the manifests is taken to exist: people plan with a cluster's Workloads, without its Jobs.
    """
    of_others = workload.owner is not None and job_of(state, workload) is None
    return None if of_others and workload.observed_finished is None else eviction.finish(state, workload)


def job_stopped(state: State, workload: Workload) -> list[Event]:
    """In a plan a job stops at once: the fact that the Job of an evicted workload is suspended and has no pods."""
    record = job_of(state, workload)
    if record is None or (record.job.suspended and not record.job.active):
        return []
    key = job_key(state, workload)
    assert key is not None
    return [JobObserved(job=key, spec=msgspec.structs.replace(record.job, suspended=True, active=0, ready=0))]


def all_checks_ready(workload: Workload) -> bool:
    """Whether a workload holds quota, is not admitted yet, and no admission check prevents it."""
    return workload.stage is Stage.RESERVED and all(check.state == "Ready" for check in workload.checks)
