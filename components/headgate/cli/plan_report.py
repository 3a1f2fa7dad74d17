"""The result of a plan, for people and for programs: admitted, preempted and waiting workloads."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from headgate.cli.output import console, print_table
from headgate.core.api.job_kinds import shown_name
from headgate.core.api.names import ELASTIC_JOB
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.quantities import amount, canonical
from headgate.core.plan.dry_run import DryRun, Stop, state_of
from headgate.core.state.tables import HOLDS_QUOTA, Stage, State, Workload
from headgate.core.views.descriptions import describe_needs, sleep_of
from headgate.core.views.visibility import line_of
from headgate.core.workload.concurrent_admission import family_of
from headgate.core.workload.owners import job_key
from headgate.core.workload.variants import flavor_of, is_parent, parent_key
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import PodSetAssignment

_STOPPED: Final[Mapping[Stop, str]] = {
    "stable": "a cycle changes nothing",
    "loop": "the same placements come back again and again",
    "limit": "stopped there: --cycles takes more",
}


class PodSetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A pod set of an admitted workload: how many pods, and the flavor of each resource."""

    name: str
    count: int
    flavors: dict[str, str]
    usage: dict[str, str | int | float]


class Admitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload with quota. `cycle` is the one that admitted it, 0 when it was before. `checks` are still awaited."""

    workload: WorkloadKey
    job: str
    cluster_queue: str
    priority: int
    cycle: int
    pod_sets: tuple[PodSetPlan, ...]
    checks: tuple[str, ...] = ()


class PreemptedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A preempted workload. `state` is its state at the end."""

    workload: WorkloadKey
    job: str
    by: WorkloadKey
    cycle: int
    reason: str
    message: str
    state: str


class PlannedWait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A workload without quota.

    `queue` is active (it would be tried), inadmissible (set aside until something changes) or none. `position` counts
    from 1 in its ClusterQueue, active ones first. `needs` is what must be available at the same time, `preempts` the
    workloads that it waits for.
    """

    workload: WorkloadKey
    job: str
    cluster_queue: str
    queue: str
    reason: str
    message: str
    position: int = 0
    priority: int = 0
    needs: str = ""
    preempts: tuple[WorkloadKey, ...] = ()


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole plan. Admitted workloads never finish in a plan."""

    all_admitted: bool
    cycles_run: int
    stop: Stop
    stopped_because: str
    admitted: tuple[Admitted, ...]
    preempted: tuple[PreemptedWorkload, ...]
    waiting: tuple[PlannedWait, ...]


class _Place(NamedTuple):
    """Where a workload waits: `queue` and `position` as in `PlannedWait`."""

    cluster_queue: str = ""
    queue: str = "none"
    position: int = 0


def report_of(dry_run: DryRun, stop: Stop) -> PlanReport:
    """The report of a plan that has stopped."""
    state = dry_run.state
    admitted_in = dict(dry_run.reserved_in)
    workloads = [
        workload
        for _, workload in sorted(state.workloads.items())
        if workload.stage is not Stage.FINISHED and parent_key(workload) not in state.workloads
    ]
    holders = [each for each in workloads if each.stage in HOLDS_QUOTA and each.admission is not None]
    for key in [key for key in admitted_in if parent_key(state.workloads[key])]:
        admitted_in[parent_key(state.workloads[key]) or key] = admitted_in[key]
    admitted = tuple(_admitted(state, each, admitted_in.get(each.key, 0)) for each in holders)
    places = _places(state)
    waiting = tuple(
        _waits_in_each_flavor(state, places, each) if is_parent(each) else _waits(state, places, each)
        for each in workloads
        if each not in holders
    )
    preempted = tuple(
        PreemptedWorkload(
            workload=each.workload,
            job=_job(state, _stands_for(state, each.workload)),
            by=_stands_for(state, each.by).key,
            cycle=each.cycle,
            reason=each.reason,
            message=each.message,
            state=state_of(state.workloads[each.workload]),
        )
        for each in dry_run.preempted
    )
    return PlanReport(
        all_admitted=not waiting and not any(each.checks for each in admitted),
        cycles_run=dry_run.cycles,
        stop=stop,
        stopped_because=_STOPPED[stop],
        admitted=tuple(sorted(admitted, key=lambda each: (each.cluster_queue, each.cycle, each.workload))),
        preempted=preempted,
        waiting=tuple(sorted(waiting, key=lambda each: (each.cluster_queue, each.position, each.workload))),
    )


def _stands_for(state: State, key: WorkloadKey) -> Workload:
    """The workload that users know: the parent of a variant."""
    workload = state.workloads[key]
    return state.workloads.get(parent_key(workload) or key) or workload


def _job(state: State, workload: Workload) -> str:
    """The Job of a workload, as `<namespace>/<name>`; "" when it has none."""
    job = job_key(state, workload)
    return shown_name(job) if job is not None and workload.owner is not None else ""


def _pod_set(workload: Workload, assigned: PodSetAssignment) -> PodSetPlan:
    """What a pod set holds: of an elastic Job that was scaled down less than it was admitted with."""
    left = next((each.count for each in workload.spec.pod_sets if each.name == assigned.name), assigned.count)
    if ELASTIC_JOB not in workload.annotations or left >= assigned.count:
        usage = assigned.resource_usage
        return PodSetPlan(name=assigned.name, count=assigned.count, flavors=assigned.flavors, usage=usage)
    usage = {
        resource: canonical(resource, amount(resource, total) // assigned.count * left)
        for resource, total in assigned.resource_usage.items()
    }
    return PodSetPlan(name=assigned.name, count=left, flavors=assigned.flavors, usage=usage)


def _admitted(state: State, workload: Workload, cycle: int) -> Admitted:
    assert workload.admission is not None
    return Admitted(
        workload=workload.key,
        job=_job(state, workload),
        cluster_queue=workload.admission.cluster_queue,
        priority=workload.spec.priority or 0,
        cycle=cycle,
        pod_sets=tuple(_pod_set(workload, each) for each in workload.admission.pod_set_assignments),
        checks=tuple(check.name for check in workload.checks if check.state != "Ready"),
    )


def _waits_in_each_flavor(state: State, places: Mapping[WorkloadKey, _Place], parent: Workload) -> PlannedWait:
    """A parent waits where its variants do: at the position of the first of them, with the reasons of all."""
    family = family_of(state, parent)
    members = family.members if family is not None else ()
    its_own = _waits(state, places, parent)
    waiting = [(flavor_of(each), _waits(state, places, each)) for each in members]
    in_line = sorted((each for _, each in waiting if each.position), key=lambda each: (each.position, each.workload))
    if not in_line:
        return its_own
    first = in_line[0]
    targets = tuple(target for _, each in waiting for target in each.preempts)
    return msgspec.structs.replace(
        its_own,
        cluster_queue=first.cluster_queue,
        queue=first.queue,
        position=first.position,
        reason=first.reason,
        message="; ".join(f"{flavor}: {_message(each)}" for flavor, each in waiting),
        preempts=targets,
    )


def _waits(state: State, places: Mapping[WorkloadKey, _Place], workload: Workload) -> PlannedWait:
    place = places.get(workload.key, _Place())
    verdict = workload.verdict
    reason, message = _why(state, workload)
    return PlannedWait(
        workload=workload.key,
        job=_job(state, workload),
        cluster_queue=place.cluster_queue or _named(state, workload),
        queue=place.queue,
        position=place.position,
        priority=workload.spec.priority or 0,
        reason=reason,
        message=message,
        needs=describe_needs(verdict.needs, state, place.cluster_queue) if verdict is not None else "",
        preempts=verdict.targets if verdict is not None else (),
    )


def _why(state: State, workload: Workload) -> tuple[str, str]:
    """Reason and message: of its condition, else of the wake condition of its shape or its ClusterQueue."""
    reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
    if reserved is not None:
        return reserved.reason, reserved.message
    asleep = sleep_of(state, workload)
    if asleep is not None:
        return asleep.reason, asleep.message
    return "PendingEvaluation", "it was not its turn yet"


def _places(state: State) -> dict[WorkloadKey, _Place]:
    """The place of each workload that waits in a ClusterQueue."""
    found: dict[WorkloadKey, _Place] = {}
    for name in sorted(state.cluster_queues):
        line = line_of(state, name)
        active = [each.key for each in line if not _is_set_aside(state, each)]
        inadmissible = [each.key for each in line if _is_set_aside(state, each)]
        for position, key in enumerate((*active, *inadmissible), 1):
            queue = "active" if position <= len(active) else "inadmissible"
            found[key] = _Place(name, queue, position)
    return found


def _is_set_aside(state: State, workload: Workload) -> bool:
    """Whether a workload waits until something changes, alone or with its shape. The head of a queue never does."""
    sleep = state.sleeps.get(workload.cluster_queue)
    if sleep is not None and sleep.blocked_by == workload.key:
        return False
    asleep = sleep is not None and workload.shape in sleep.shapes and workload.stage is not Stage.OFFERED
    return asleep or workload.stage is Stage.PARKED


def _named(state: State, workload: Workload) -> str:
    """The ClusterQueue of a workload according to its LocalQueue."""
    namespace, _ = split_key(workload.key)
    for key, queue in state.local_queues.items():
        if key == f"{namespace}/{workload.spec.queue_name}":
            return queue.spec.cluster_queue
    return ""


# --- for people ----------------------------------------------------------------------------------------------------


def print_report(report: PlanReport) -> None:
    """Tables of the three groups, and the answer in one line."""
    out = console()
    if report.admitted:
        rows = [
            (each.job or each.workload, each.cluster_queue, _pods(each), str(each.cycle or "before"), _checks(each))
            for each in report.admitted
        ]
        print_table(("ADMITTED", "CLUSTERQUEUE", "PODS AND FLAVORS", "IN CYCLE", ""), rows)
        out.print("")
    if report.preempted:
        shown = {each.workload: each.job or each.workload for each in report.admitted}
        shown |= {each.workload: each.job or each.workload for each in report.waiting}
        gone = [
            (each.job or each.workload, shown.get(each.by, each.by), str(each.cycle), each.reason, each.state)
            for each in report.preempted
        ]
        print_table(("PREEMPTED", "BY", "IN CYCLE", "REASON", "AND THEN"), gone)
        out.print("")
    if report.waiting:
        waiting = [
            (
                each.job or each.workload,
                each.cluster_queue or "-",
                str(each.position or "-"),
                each.reason,
                _message(each),
            )
            for each in report.waiting
        ]
        print_table(("WAITING", "CLUSTERQUEUE", "PLACE", "REASON", "WHY"), waiting)
        out.print("")
    preempted = f", {len(report.preempted)} preempted on the way" if report.preempted else ""
    cycles = "1 cycle" if report.cycles_run == 1 else f"{report.cycles_run} cycles"
    out.print(
        f"{len(report.admitted)} admitted, {len(report.waiting)} waiting{preempted}; after {cycles} "
        f"{report.stopped_because}. Admitted workloads do not finish in a plan.",
        markup=False,
    )


def _pods(admitted: Admitted) -> str:
    return "; ".join(f"{each.count} {each.name} on {_flavors(each)}" for each in admitted.pod_sets)


def _flavors(pod_set: PodSetPlan) -> str:
    by_flavor: dict[str, list[str]] = {}
    for resource, flavor in sorted(pod_set.flavors.items()):
        by_flavor.setdefault(flavor, []).append(f"{pod_set.usage.get(resource, '?')} {resource}")
    return ", ".join(f"{flavor} ({', '.join(resources)})" for flavor, resources in sorted(by_flavor.items())) or "-"


def _checks(admitted: Admitted) -> str:
    return f"quota reserved, waits for checks: {', '.join(admitted.checks)}" if admitted.checks else ""


def _message(waits: PlannedWait) -> str:
    return f"{waits.message} (it needs {waits.needs})" if waits.needs else waits.message
