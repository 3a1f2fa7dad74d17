"""
The fold of what the scheduler decides about workloads, and of what became of their statuses.

Called by `headgate.core.fold` only.
"""

from headgate.core import conditions
from headgate.core.fold_objects import Apply
from headgate.core.places import (
    enter,
    give_back,
    leave,
    merge_checks,
    move,
    moved,
    not_reserved,
    pending_of,
    rank_of,
    sleep_of,
    take_back,
    unblock,
)
from headgate.core.state import REFUSED_MAX, State, Verdict
from headgate.events import decisions, effects
from headgate.events.commit import Commit
from headgate.events.ids import Seq


def _cycle_decided(state: State, event: decisions.CycleDecided, commit: Commit, seq: Seq) -> None:
    state.cycle = event.cycle


def _quota_reserved(state: State, event: decisions.QuotaReserved, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    put, at_ms, generation = conditions.put, commit.time_ms, workload.generation
    unblock(state, workload)
    leave(state, workload, end, seq)
    workload.cluster_queue = event.cluster_queue
    workload.admission = event.admission
    workload.reserved_at_ms = at_ms
    workload.checks = merge_checks(event.checks, workload)
    workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
    workload.conditions = put(
        workload.conditions, conditions.QUOTA_RESERVED, "True", "QuotaReserved", event.message, at_ms, generation
    )
    if any(check.state != "Ready" for check in workload.checks):
        workload.conditions = put(
            workload.conditions,
            conditions.ADMITTED,
            "False",
            "UnsatisfiedAdmissionChecks",
            conditions.UNSATISFIED_CHECKS,
            at_ms,
            generation,
        )
    for kind in (conditions.EVICTED, conditions.PREEMPTED):
        old = conditions.find(workload.conditions, kind)
        if old is not None and old.status == "True":
            message = f"Previously: {old.message}"
            workload.conditions = put(workload.conditions, kind, "False", "QuotaReserved", message, at_ms, generation)
    workload.stage = end
    workload.last_seq = seq
    enter(state, workload)


def _admitted(state: State, event: decisions.WorkloadAdmitted, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, end = found
        workload.admitted_at_ms = commit.time_ms
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.ADMITTED,
            "True",
            "Admitted",
            event.message,
            commit.time_ms,
            workload.generation,
        )
        move(state, workload, end, seq)


def _skipped(state: State, event: decisions.WorkloadSkipped, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    workload.resource_requests = event.resource_requests
    workload.last_tried_flavors = event.last_tried_flavors
    not_reserved(workload, event.reason, event.message, commit.time_ms)
    before = workload.verdict
    workload.verdict = Verdict(
        status=event.status,
        requeue_reason=event.requeue_reason,
        scope=event.scope,
        reason=event.reason,
        message=event.message,
        decided_at=commit.decided_at,
        at=seq,
        since=before.since if before is not None and before.scope == "immediate" else commit.decided_at,
        short=event.short,
        needs=event.needs,
    )
    match event.scope:
        case "immediate":
            workload.last_seq = seq
        case "workload":
            move(state, workload, end, seq)
        case "shape":
            move(state, workload, end, seq)
            sleep_of(state, workload.cluster_queue).shapes.setdefault(workload.shape, None)
            pending_of(state, workload.cluster_queue).sleep(workload.shape)
            offered, shape = state.index.offered.get(workload.cluster_queue, ()), workload.shape
            alike = [key for key in offered if state.workloads[key].shape == shape]
            give_back(state, workload.cluster_queue, alike, seq)
        case "queue":
            move(state, workload, end, seq)
            take_back(state, workload.cluster_queue, seq)
            sleep = sleep_of(state, workload.cluster_queue)
            sleep.blocked_by, sleep.blocked = workload.key, None
            pending_of(state, workload.cluster_queue).blocked = rank_of(workload)


def _status_applied(state: State, event: effects.StatusApplied, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid == event.uid:
        workload.applied, workload.refused, workload.refused_code = event.digest, (), 0
        workload.finalizer = workload.finalizer and not event.finalizer_removed


def _status_rejected(state: State, event: effects.StatusRejected, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid == event.uid:
        workload.refused = (*workload.refused, event.digest)[-REFUSED_MAX:]
        workload.refused_code = event.code


APPLY: dict[type, Apply] = {
    decisions.CycleDecided: _cycle_decided,
    decisions.QuotaReserved: _quota_reserved,
    decisions.WorkloadAdmitted: _admitted,
    decisions.WorkloadSkipped: _skipped,
    effects.StatusApplied: _status_applied,
    effects.StatusRejected: _status_rejected,
}
