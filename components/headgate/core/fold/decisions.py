"""
The fold of the scheduler's decisions about workloads, and of the results of their status writes.

Called by `headgate.core.fold` only.
"""

from typing import Never

import msgspec

from headgate.core.fold import usage as fold_usage
from headgate.core.fold.transitions import (
    PREEMPTING,
    become_preemptor,
    block,
    blocks,
    charge,
    enter,
    give_back,
    index_current_slice,
    merge_checks,
    move,
    moved,
    not_reserved,
    pending_of,
    reserve,
    sleep_of,
    take_back,
    unblock,
    uncharge,
)
from headgate.core.kubernetes import conditions
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.sharing import name, requests_of
from headgate.core.state.tables import REFUSED_MAX, SecondPass, Stage, State, Verdict, Workload
from headgate.core.workload.pods_ready import follow
from headgate.core.workload.shown_conditions import differing
from headgate.core.workload.unadmitted_reasons import is_granular
from headgate.events import decisions, effects
from headgate.events.commit import Commit
from headgate.events.ids import Seq

_OVER_BY_RESERVATION = frozenset({conditions.EVICTED, conditions.PREEMPTED, conditions.BLOCKED_ON_PREEMPTION_GATES})
"""Conditions that are removed when quota is reserved."""


def _cycle_decided(state: State, event: decisions.CycleDecided, commit: Commit, seq: Seq) -> None:
    state.cycle = event.cycle


def _quota_reserved(state: State, event: decisions.QuotaReserved, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    at_ms, generation = commit.time_ms, workload.generation
    reserve(state, workload, event, event.message, at_ms, end, seq)
    # It was edited while the cycle decided.
    workload.outdated = workload.shaped_at > (commit.decided_at or seq)
    workload.checks = merge_checks(event.checks, workload)
    if workload.checks and any(check.state != "Ready" for check in workload.checks):
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.ADMITTED,
            "False",
            "UnsatisfiedAdmissionChecks" if is_granular(state.configuration) else "UnsatisfiedChecks",
            conditions.UNSATISFIED_CHECKS,
            at_ms,
            generation,
        )
    workload.conditions = conditions.lifted(workload.conditions, _OVER_BY_RESERVATION, at_ms, generation)
    workload.stage = end
    workload.last_seq = seq
    follow(state, workload, at_ms)
    fold_usage.penalise(state, workload, event.entry_penalty)
    enter(state, workload)
    index_current_slice(state, workload)


def _topology_assigned(state: State, event: decisions.TopologyAssigned, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        if workload.key in state.index.usage_of:
            uncharge(state, workload, seq)
        workload.admission, workload.unhealthy_nodes, workload.second_pass = event.admission, (), None
        if not workload.followed:
            charge(state, workload)
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.QUOTA_RESERVED,
            "True",
            "QuotaReserved",
            event.message,
            commit.time_ms,
            workload.generation,
        )
        if workload.stage is Stage.ADMITTED:
            workload.conditions = conditions.put(
                workload.conditions,
                conditions.ADMITTED,
                "True",
                "Admitted",
                conditions.IS_ADMITTED,
                commit.time_ms,
                workload.generation,
            )
        workload.last_seq = seq


def _second_pass_failed(state: State, event: decisions.SecondPassFailed, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        workload.second_pass = SecondPass(event.failures, event.message, event.retry_at_ms, event.evict)
        workload.last_seq = seq


def _admitted(state: State, event: decisions.WorkloadAdmitted, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, end = found
        workload.admitted_at_ms = commit.time_ms
        workload.injected = (
            tuple(update for check in workload.checks for update in check.pod_set_updates) if workload.checks else ()
        )
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
        fold_usage.count(state, workload, state.index.usage_of[workload.key])
        fold_usage.settle(state, workload)
        follow(state, workload, commit.time_ms)


# Large: one verdict and its effects, in the order in which they have to change the state.
def _skipped(state: State, event: decisions.WorkloadSkipped, commit: Commit, seq: Seq) -> None:
    """
    Apply a verdict, and its effect on the ClusterQueue.

    Among workloads that are not offered only the head that blocks its ClusterQueue is decided: each cycle of its tree
    decides it too, and records a verdict that differs. That one replaces the old one; but when only the message
    differs, the wake conditions and the reservation stay as they are.
    """
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    stands = workload.stage is not Stage.OFFERED
    if stands:
        if not blocks(state, workload):
            state.overtaken += 1
            return
        if _only_in_words(workload.verdict, event):
            _reword(state, workload, event, commit)
            return
        unblock(state, workload)
    may_go_on = bool(workload.last_tried_flavors)
    workload.resource_requests = requests_of(event.resource_requests)
    workload.last_tried_flavors = event.last_tried_flavors
    not_reserved(state, workload, event.reason, event.message, commit.time_ms)
    if event.status == "preemptionGated":
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.BLOCKED_ON_PREEMPTION_GATES,
            "True",
            "PreemptionGated",
            event.message,
            commit.time_ms,
            workload.generation,
        )
    before = workload.verdict
    # A resumed scan saw the flavors that it tried in earlier cycles as they were then.
    goes_on = may_go_on and before is not None and before.scope == "immediate"
    since = before.since if goes_on and before is not None else commit.decided_at
    workload.verdict = _verdict(state, event, commit, seq, since)
    if event.requeue_reason in PREEMPTING:
        become_preemptor(state, workload)
    match event.scope:
        case "immediate" if stands:
            move(state, workload, Stage.QUEUED, seq)
        case "immediate":
            workload.last_seq = seq
        case "workload":
            move(state, workload, end, seq)
        case "shape":
            move(state, workload, end, seq)
            sleep_of(state, workload.cluster_queue).shapes[workload.shape] = None
            pending_of(state, workload.cluster_queue).sleep(workload.shape)
            offered, shape = state.index.offered.get(workload.cluster_queue, ()), workload.shape
            alike = [key for key in offered if state.workloads[key].shape == shape]
            give_back(state, workload.cluster_queue, alike, seq)
        case "queue":
            move(state, workload, end, seq)
            take_back(state, workload.cluster_queue, seq)
            block(state, workload, None)


def _verdict(state: State, event: decisions.WorkloadSkipped, commit: Commit, seq: Seq, since: Seq) -> Verdict:
    return Verdict(
        status=name(event.status),
        requeue_reason=name(event.requeue_reason),
        scope=name(event.scope),
        reason=name(event.reason),
        message=name(event.message),
        decided_at=commit.decided_at,
        at=seq,
        since=since,
        short=state.shared.names(event.short),
        needs=state.shared.needs(event.needs),
        targets=event.targets,
        until_ms=event.until_ms,
        claims=event.claims,
    )


def _only_in_words(before: Verdict | None, event: decisions.WorkloadSkipped) -> bool:
    """Whether a verdict parks and waits for the same as the one before it."""
    return before is not None and (
        (before.requeue_reason, before.scope, before.short, before.needs, before.targets, before.until_ms)
        == (event.requeue_reason, event.scope, event.short, event.needs, event.targets, event.until_ms)
    )


def _reword(state: State, workload: Workload, event: decisions.WorkloadSkipped, commit: Commit) -> None:
    """A standing head's verdict with another message: it keeps waiting, for what is freed after this cycle."""
    workload.resource_requests, workload.last_tried_flavors = event.resource_requests, event.last_tried_flavors
    not_reserved(state, workload, event.reason, event.message, commit.time_ms)
    workload.verdict = _verdict(state, event, commit, state.position, commit.decided_at)
    sleep = state.sleeps[workload.cluster_queue]
    if sleep.blocked is not None:
        sleep.blocked = msgspec.structs.replace(
            sleep.blocked, reason=event.reason, message=event.message, decided_at=commit.decided_at
        )


def _status_applied(state: State, event: effects.StatusApplied, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid == event.uid:
        workload.applied, workload.taken_over = event.digest, None
        workload.refused, workload.refused_code = (), 0
        workload.finalizer = workload.finalizer and not event.finalizer_removed
        workload.applied_version = max(workload.applied_version, event.version)
        workload.shown = differing(workload, workload.shown)


def _status_rejected(state: State, event: effects.StatusRejected, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid == event.uid:
        workload.refused = (*workload.refused, event.digest)[-REFUSED_MAX:]
        workload.refused_code = event.code


HANDLERS = (
    EventHandlers[Never]()
    .on(decisions.CycleDecided, _cycle_decided)
    .on(decisions.QuotaReserved, _quota_reserved)
    .on(decisions.TopologyAssigned, _topology_assigned)
    .on(decisions.SecondPassFailed, _second_pass_failed)
    .on(decisions.WorkloadAdmitted, _admitted)
    .on(decisions.WorkloadSkipped, _skipped)
    .on(effects.StatusApplied, _status_applied)
    .on(effects.StatusRejected, _status_rejected)
)
