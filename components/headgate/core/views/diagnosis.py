"""
Diagnosis: the status of a workload at one position, the reason for it, and what would change it.

Derived from a State alone, so it works at any position of the log. The history of a workload ends with it
(`headgate.core.views.explain`); the list of a queue's pending workloads (`headgate queue status --pending`) shows it
for each.
"""

from typing import Final, assert_never

import msgspec

from headgate.core.fold.objects import ANY as FREED_ANY
from headgate.core.fold.quarantine import FOLD, retried_by
from headgate.core.state.tables import QuarantineRecord, Stage, State, Workload
from headgate.core.views.descriptions import (
    SPEC_CHANGE,
    describe_needs,
    describe_wake,
    format_amount,
    place_in_line,
    sleep_of,
)
from headgate.core.views.explain_provisioning import awaited_requests
from headgate.core.workload.owners import is_run_here, job_of, unknown_job
from headgate.events.ids import JobKey, UnixMs, WorkloadKey


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The status of a workload at the end of the log that was read: since when, why, and what would change it.

    `places` is where its pods could go in a topology, and what keeps them away; only in explanations of one workload.
    """

    stage: str
    why: str
    since: int = 0
    since_ms: UnixMs | None = None
    would_change: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def standing(state: State, key: WorkloadKey, job: JobKey = JobKey("")) -> Standing:  # noqa: B008 - a NewType is a str
    """
    The status of a workload in a state, the reason, and what would change it.

    `job` is used when there is no Workload.
    """
    workload = state.workloads.get(key)
    if workload is None:
        aside = state.quarantine.get(f"Workload/{key}") or state.quarantine.get(f"Job/{job}")
        return _aside(aside) if aside is not None else _without_workload(state, job)
    why, changes = _said_of(state, workload)
    return Standing(
        stage=workload.stage.value,
        why=why,
        since=workload.last_seq,
        since_ms=_since_ms(workload),
        would_change=tuple(changes),
    )


def _said_of(state: State, workload: Workload) -> "_Said":
    match workload.stage:
        case Stage.NEW:
            return _new()
        case Stage.QUEUED:
            return _queued(state, workload)
        case Stage.OFFERED:
            return _offered(state, workload)
        case Stage.SKIPPED:
            return _skipped(state, workload)
        case Stage.PARKED:
            return _parked(state, workload)
        case Stage.RESERVED:
            return _reserved(state, workload)
        case Stage.ADMITTED:
            return _admitted(state, workload)
        case Stage.EVICTED:
            return _evicted(state, workload)
        case Stage.FINISHED:
            return _finished(workload)
        case _:
            assert_never(workload.stage)


def _since_ms(workload: Workload) -> UnixMs | None:
    match workload.stage:
        case Stage.RESERVED:
            return workload.reserved_at_ms
        case Stage.ADMITTED:
            return workload.admitted_at_ms
        case Stage.PARKED:
            return workload.parked.since_ms if workload.parked is not None else None
        case Stage.QUEUED | Stage.OFFERED | Stage.SKIPPED:
            return workload.queued_at_ms
        case _:
            return None


def _aside(record: QuarantineRecord) -> Standing:
    """In quarantine: what failed, and how to retry it."""
    failed = f"its {record.event} could not be folded" if record.process == FOLD else f"the {record.process} failed"
    holds = f"; it holds quota of ClusterQueue {record.cluster_queue}" if record.charged else ""
    return Standing(
        stage="Quarantined",
        why=f"it is in quarantine, because {failed}: {record.error} ({record.where}, Headgate {record.version}){holds}",
        since=record.position,
        since_ms=record.since_ms,
        would_change=(retried_by(record),),
    )


def _without_workload(state: State, job: JobKey) -> Standing:
    record = state.jobs.get(job)
    if record is None:
        return Standing(stage="Gone", why="its Workload and its Job are deleted")
    if record.refused:
        return Standing(
            stage="Refused",
            why=f"no Workload could be made for the Job: {record.refused}",
            would_change=("a change of the Job that removes the reason",),
        )
    return Standing(
        stage="NoWorkload",
        why="the Job has no Workload yet",
        would_change=("the informer bridge making the Workload; it does so as soon as it runs",),
    )


_Said = tuple[str, list[str]]

_UNRECORDED: Final = "the queue manager recording what would make it admissible, as soon as it runs"


def _new() -> _Said:
    return "it is not in a queue yet", ["the queue manager's next decision, as soon as it runs"]


def _queued(state: State, workload: Workload) -> _Said:
    asleep = sleep_of(state, workload)
    if asleep is not None:
        by = "" if asleep.by in ("", workload.key) else f" (decided for {asleep.by})"
        wakes = [describe_wake(wake, state, workload.cluster_queue) for wake in asleep.wake]
        changes = _leaving(state, workload) + wakes
        return f"{asleep.reason}: {asleep.message}{by}", changes or [_UNRECORDED]
    place, of = place_in_line(state, workload)
    queue = state.cluster_queues.get(workload.cluster_queue)
    if queue is None:
        return f"ClusterQueue {workload.cluster_queue} does not exist", ["its creation"]
    if queue.spec.stop_policy != "None":
        return f"ClusterQueue {workload.cluster_queue} is stopped ({queue.spec.stop_policy})", ["its stopPolicy: None"]
    return f"it is at position {place} of {of} in ClusterQueue {workload.cluster_queue}", [
        "its turn: each cycle decides the head of each ClusterQueue"
    ]


def _offered(state: State, workload: Workload) -> _Said:
    place, of = place_in_line(state, workload)
    why = f"it is offered to the scheduler, at position {place} of {of} in ClusterQueue {workload.cluster_queue}"
    verdict = workload.verdict
    if verdict is not None:
        why += f"; in the last cycle: {verdict.reason}: {verdict.message}"
    return why, [*_leaving(state, workload), "the scheduler's next cycles"]


def _leaving(state: State, workload: Workload) -> list[str]:
    """The victims that a workload waits for and that still hold their quota."""
    targets = workload.verdict.targets if workload.verdict is not None else ()
    records = [state.workloads.get(target) for target in targets]
    return [f"{each.key} releasing its quota" for each in records if each is not None and each.stage is Stage.EVICTED]


def _skipped(state: State, workload: Workload) -> _Said:
    verdict = workload.verdict
    why = f"{verdict.reason}: {verdict.message}" if verdict is not None else "a cycle did not admit it"
    leaving = _leaving(state, workload)
    if leaving:
        return why, leaving
    if verdict is not None and FREED_ANY in verdict.short:
        return why, [SPEC_CHANGE]
    if verdict is not None and verdict.needs:
        return why, [f"unused quota: {describe_needs(verdict.needs, state, workload.cluster_queue)}"]
    short = [f"more quota of {name}" for name in verdict.short] if verdict is not None else []
    return why, short or [_UNRECORDED]


def _parked(state: State, workload: Workload) -> _Said:
    parked = workload.parked
    if parked is None:
        return "it is inadmissible", [_UNRECORDED]
    return f"{parked.reason}: {parked.message}", [
        describe_wake(wake, state, workload.cluster_queue) for wake in parked.wake
    ]


def _reserved(state: State, workload: Workload) -> _Said:
    waiting = [
        f"{check.name} is {check.state}{f' ({check.message})' if check.message else ''}"
        for check in workload.checks
        if check.state != "Ready"
    ]
    if not waiting:
        return f"its quota is reserved and every check is Ready{_unplaced(workload)}", ["the scheduler's next cycle"]
    requests = "".join(f"; {each}" for each in awaited_requests(state, workload))
    return f"its quota is reserved; admission checks: {', '.join(waiting)}{requests}", [
        f"check {check.name} becoming Ready" for check in workload.checks if check.state != "Ready"
    ]


def _unplaced(workload: Workload) -> str:
    """What is missing of its topology assignment, as the end of a sentence."""
    failed = f"; failed under it: {', '.join(workload.unhealthy_nodes)}" if workload.unhealthy_nodes else ""
    second = workload.second_pass
    return f"{failed}; no topology domains were found: {second.message}" if second is not None else failed


def _admitted(state: State, workload: Workload) -> _Said:
    held = ", ".join(
        f"{format_amount(resource, value)} {resource} of {flavor}"
        for (flavor, resource), value in state.index.usage_of.get(workload.key, {}).items()
    )
    why = f"it holds {held or 'no quota'} of ClusterQueue {workload.cluster_queue}{_unplaced(workload)}"
    record = job_of(state, workload)
    if record is None:
        return why, ["its owner finishing, deleting or deactivating it"]
    if record.action_refused:
        return f"{why}; the API server refused to resume its Job: {record.action_refused}", ["a change of the Job"]
    if record.job.suspended:
        return f"{why}; its Job is not resumed yet", ["the ungater resuming the Job, as soon as it runs"]
    job = record.job
    why += f"; its Job runs: {job.active} active, {job.ready} ready, {job.succeeded} succeeded, {job.failed} failed"
    return why, ["the end of its Job, or its eviction"]


def _evicted(state: State, workload: Workload) -> _Said:
    last = next((each for each in workload.conditions if each.type == "Evicted"), None)
    why = f"{last.reason}: {last.message}" if last is not None else "it has to give its quota back"
    if unknown_job(state, workload) is not None:
        return why, ["its Job being observed, or its deletion being confirmed"]
    if not is_run_here(state, workload):
        return why, ["its owner setting QuotaReserved to False, its end, or its deletion"]
    return why, ["its Job stopping: suspended, with no active pods"]


def _finished(workload: Workload) -> _Said:
    last = next((each for each in workload.conditions if each.type == "Finished"), None)
    return (f"{last.reason}: {last.message}" if last is not None else "it is over"), []
