"""
Verdicts: a decided cycle as events for the log.

`events_of` writes `cycle.decided` and then, in processing order, the outcome of each head: its preemptions, its
reservation and admission, or its verdict. A verdict records what it parks at once (`scope`), and what has to change
before another verdict is possible (`short`, `needs`, `targets`). For a standing head, which was not offered but is
decided in every cycle, a verdict is written only when it differs from the last one.
"""

from collections.abc import Iterable

from headgate.core.api.admission_checks import checks_for
from headgate.core.config import feature_gates
from headgate.core.cycle.entries import (
    FAILED_AFTER_NOMINATION,
    NAMESPACE_MISMATCH,
    NO_CANDIDATES,
    NO_FIT,
    PREEMPTS,
    Cycle,
    CycleEntry,
    Scope,
)
from headgate.core.cycle.nominating import ANY_CHANGE, needs_of, scan_moves_on
from headgate.core.flavors import Assignment
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.flavors.placing import PENDING
from headgate.core.kubernetes.conditions import IS_ADMITTED, rfc3339, truncated
from headgate.core.kubernetes.quantities import add, canonical
from headgate.core.quota.admission_fair_sharing import entry_penalty
from headgate.core.state.attribution import about
from headgate.core.state.tables import Stage, State, Verdict, Workload
from headgate.core.topology.encoding import compressed
from headgate.core.workload import slices, variants
from headgate.events.decisions import (
    CycleDecided,
    QuotaReserved,
    SecondPassFailed,
    TopologyAssigned,
    WorkloadAdmitted,
    WorkloadMigrated,
    WorkloadPreempted,
    WorkloadReplaced,
    WorkloadSkipped,
)
from headgate.events.ids import UnixMs
from headgate.events.objects import Admission, CheckState, PodSetAssignment, PodSetRequest
from headgate.events.queueing import Head
from headgate.events.registry import Event

SECOND_PASS_BACKOFF_MS, SECOND_PASS_BACKOFF_MS_MAX = 1000, 30_000
"""After how long a workload that got no topology domains is tried again: at first, and at most (Kueue's)."""

TARGETS_MAX = 1024
"""How many targets a verdict names. With more it names none, and waits for any quota that is freed."""


def events_of(
    state: State, cycle: Cycle, admitted: Iterable[Workload] = (), *, standing_max: int | None = None
) -> tuple[Event, ...]:
    """
    The events of a cycle decided on `state`; `admitted` are reserved workloads that it admits after their checks.

    `cycle.decided` comes first and names the offered heads: those processed, in their order, then those rejected. Of
    changed verdicts on standing heads at most `standing_max` are written; the rest still differs in the next cycle.
    """
    events: list[Event] = []
    told = 0
    for entry in (*cycle.entries, *cycle.rejected):
        with about("Workload", entry.key):
            if entry.status == "assumed":
                events.extend(_placed(state, entry) if entry.second_pass else _reserved(state, entry))
                continue
            if entry.waits_on:
                continue
            events.extend((*_preempted(entry), *_migrated(entry)))
            if entry.second_pass:
                events.append(_not_placed(state, entry))
                continue
            verdict = _verdict(state, entry)
        if entry.preempts or entry.migrates is not None:
            events.append(verdict)
        elif not entry.standing:
            if not _stays_offered(state, entry, verdict):
                events.append(verdict)
        elif (standing_max is None or told < standing_max) and _is_another(verdict, entry.workload.verdict):
            events.append(verdict)
            told += 1
    events.extend(admission_of(workload) for workload in admitted)
    heads = tuple(
        Head(cluster_queue=entry.queue.name, workload=entry.key, uid=entry.workload.uid)
        for entry in (*cycle.entries, *cycle.rejected)
        if not entry.standing and not entry.second_pass
    )
    return (CycleDecided(cycle=state.cycle + 1, decided_at=state.position, heads=heads), *events)


def _is_another(verdict: WorkloadSkipped, before: Verdict | None) -> bool:
    """
    Whether a verdict differs from the one before it.

    The same wait with another message is not another one: how much more is needed changes with every workload.
    """
    return before is None or (
        (before.status, before.requeue_reason, before.scope, before.reason)
        != (verdict.status, verdict.requeue_reason, verdict.scope, verdict.reason)
        or (before.targets, before.until_ms) != (verdict.targets, verdict.until_ms)
        or (before.message != verdict.message and not verdict.until_ms)
    )


def _stays_offered(state: State, entry: CycleEntry, verdict: WorkloadSkipped) -> bool:
    """Whether an offered head has its verdict already: it lost to others of the cycle again, and is in the next one."""
    before = entry.workload.verdict
    if before is None or verdict.scope != "immediate" or not state.configuration.preemption_waits:
        return False
    if entry.last_tried or entry.workload.last_tried_flavors:
        return False
    return (before.short, before.needs, before.claims) == (verdict.short, verdict.needs, verdict.claims) and (
        not _is_another(verdict, before)
    )


# --- reservations ----------------------------------------------------------------------------------------------------


def _reserved(state: State, entry: CycleEntry) -> list[Event]:
    workload, queue, assignment = entry.workload, entry.queue, entry.assignment
    assert assignment is not None
    checks = _checks(state, workload, queue, {flavor for flavor, _ in assignment.usage})
    events: list[Event] = [
        QuotaReserved(
            workload=workload.key,
            uid=workload.uid,
            cluster_queue=queue.name,
            admission=_admission(state, queue.name, assignment),
            message=f"Quota reserved in ClusterQueue {queue.name}",
            checks=checks,
            entry_penalty=entry_penalty(state.configuration, queue.spec, _total(entry)),
        )
    ]
    if entry.replaces is not None:
        events.append(
            WorkloadReplaced(
                workload=entry.replaces.key,
                uid=entry.replaces.uid,
                cluster_queue=entry.replaces.cluster_queue,
                by=workload.key,
                by_uid=workload.uid,
                message=slices.replaced_message(workload),
            )
        )
    delayed = any(pod_set.delayed == PENDING for pod_set in assignment.pod_sets)
    if not delayed and all(check.state == "Ready" for check in checks):
        events.append(admission_of(workload, queue.name))
    return events


def _total(entry: CycleEntry) -> dict[str, int]:
    """All that a workload requests, summed over its pod sets."""
    total: dict[str, int] = {}
    for requests in entry.requests:
        for resource, value in requests.total().items():
            total[resource] = add(total.get(resource, 0), value)
    return total


def _admission(state: State, cluster_queue: str, assignment: Assignment) -> Admission:
    by_prefix = feature_gates.enabled(state.configuration, feature_gates.TAS_HOSTNAME_PREFIX_ENCODING)
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=tuple(
            PodSetAssignment(
                name=pod_set.name,
                count=pod_set.count,
                flavors={resource: choice.flavor for resource, choice in sorted(pod_set.flavors.items())},
                resource_usage={
                    resource: canonical(resource, pod_set.requests.get(resource, 0))
                    for resource in sorted(pod_set.flavors)
                },
                topology_assignment=(
                    compressed(pod_set.placement, by_hostname_prefix=by_prefix)
                    if pod_set.placement is not None
                    else None
                ),
                delayed_topology_request=pod_set.delayed,
            )
            for pod_set in assignment.pod_sets
        ),
    )


def _checks(state: State, workload: Workload, queue: ClusterQueueFlavors, flavors: set[str]) -> tuple[CheckState, ...]:
    """
    The admission checks of these flavors, sorted; Pending, or in the state that their controllers have written before.

    States from before the last eviction are ignored: they were about the former reservation.
    """
    if queue.spec.admission_checks_strategy is None:
        return ()
    observed = (check for check in workload.observed_checks if check not in workload.stale_checks)
    before = {check.name: check for check in (*observed, *workload.checks)}
    return checks_for(queue.spec, flavors, before, rfc3339(state.now_ms))


def admission_of(workload: Workload, cluster_queue: str = "") -> WorkloadAdmitted:
    """The admission of a workload that holds quota, or gets it in the same cycle."""
    return WorkloadAdmitted(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=cluster_queue or workload.cluster_queue,
        message=IS_ADMITTED,
    )


# --- second passes ---------------------------------------------------------------------------------------------------


def _placed(state: State, entry: CycleEntry) -> list[Event]:
    """The topology domains of a workload that holds quota, and its admission if it lacked nothing else."""
    workload, assignment = entry.workload, entry.assignment
    assert assignment is not None
    events: list[Event] = [
        TopologyAssigned(
            workload=workload.key,
            uid=workload.uid,
            cluster_queue=workload.cluster_queue,
            admission=_admission(state, workload.cluster_queue, assignment),
            message=f"Quota reserved in ClusterQueue {workload.cluster_queue}",
        )
    ]
    if workload.stage is Stage.RESERVED and all(check.state == "Ready" for check in workload.checks):
        events.append(admission_of(workload))
    return events


def _not_placed(state: State, entry: CycleEntry) -> SecondPassFailed:
    """Why there are no topology domains for a workload that holds quota, and when it is tried again."""
    failures = (entry.workload.second_pass.failures if entry.workload.second_pass is not None else 0) + 1
    evict = entry.status == "evicted"
    backoff_ms = min(SECOND_PASS_BACKOFF_MS << min(failures - 1, 10), SECOND_PASS_BACKOFF_MS_MAX)
    return SecondPassFailed(
        workload=entry.key,
        uid=entry.workload.uid,
        cluster_queue=entry.workload.cluster_queue,
        message=truncated(entry.message),
        failures=failures,
        retry_at_ms=UnixMs(0) if evict else UnixMs(state.now_ms + backoff_ms),
        evict=evict,
    )


# --- preemptions -----------------------------------------------------------------------------------------------------


def _preempted(entry: CycleEntry) -> list[Event]:
    return [
        WorkloadPreempted(
            workload=target.workload,
            uid=target.uid,
            cluster_queue=target.cluster_queue,
            preemptor=entry.key,
            preemptor_uid=entry.workload.uid,
            reason=target.reason,
            message=message,
        )
        for target, message in entry.preempts
    ]


def _migrated(entry: CycleEntry) -> list[Event]:
    victim = entry.migrates
    if victim is None or victim.stage is Stage.EVICTED:
        return []
    return [
        WorkloadMigrated(
            workload=victim.key,
            uid=victim.uid,
            cluster_queue=victim.cluster_queue,
            by=entry.key,
            by_uid=entry.workload.uid,
            message=variants.migration_message(entry.workload),
        )
    ]


# --- verdicts ------------------------------------------------------------------------------------------------------


def _verdict(state: State, entry: CycleEntry) -> WorkloadSkipped:
    assigned = entry.assignment is not None
    waits_for = entry.targets if entry.requeue_reason in PREEMPTS else ()
    named = len(waits_for) <= TARGETS_MAX
    return WorkloadSkipped(
        workload=entry.key,
        uid=entry.workload.uid,
        cluster_queue=entry.queue.name,
        status=entry.status if entry.status in ("skipped", "preemptionGated") else "notNominated",
        requeue_reason=entry.requeue_reason,
        scope=_scope(state, entry),
        reason=entry.reason,
        message=truncated(entry.message),
        short=() if not named else entry.short if assigned else (ANY_CHANGE,),
        resource_requests=tuple(
            PodSetRequest(
                name=each.name,
                resources={resource: canonical(resource, value) for resource, value in sorted(each.total().items())},
            )
            for each in entry.requests
        ),
        last_tried_flavors=entry.last_tried,
        needs=needs_of(entry) if named else (),
        targets=tuple(target.workload for target in waits_for) if named else (),
        until_ms=entry.until_ms,
        claims=entry.claims or entry.status != "skipped" or not state.configuration.preemption_waits,
    )


def _scope(state: State, entry: CycleEntry) -> Scope:
    """
    What a verdict parks (`kueue-semantics` section 2, Requeue).

    Kueue requeues a head that may still be admitted at once, and so retries it in every cycle while nothing of its
    ClusterQueue passes it. Here it blocks its ClusterQueue ("queue"), and each cycle of its tree decides it too; only
    where the very next cycle can decide otherwise without any change it stays offered ("immediate"; see the package).
    In a BestEffortFIFO queue all other verdicts park the head and let the workloads behind it pass: it alone is parked
    ("workload"), or all of its shape.
    """
    reason, strict = entry.requeue_reason, entry.queue.spec.queueing_strategy == "StrictFIFO"
    if reason == NAMESPACE_MISMATCH:
        return "workload"
    if (reason == FAILED_AFTER_NOMINATION and entry.contested) or entry.goes_on:
        return "immediate"
    if not entry.scans_all and scan_moves_on(entry.resumed_from, entry.last_tried):
        return "immediate"
    if strict and entry.outdated:
        return "immediate"
    if strict or reason == FAILED_AFTER_NOMINATION or reason in PREEMPTS or entry.last_tried or entry.until_ms:
        return "queue"
    alike = reason in (NO_FIT, NO_CANDIDATES)
    return (
        "shape"
        if alike and feature_gates.enabled(state.configuration, feature_gates.SCHEDULING_EQUIVALENCE_HASHING)
        else "workload"
    )
