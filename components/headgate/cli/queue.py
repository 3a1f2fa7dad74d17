"""`headgate queue status`: the status of the queues, from the log's own state."""

from collections.abc import Iterator
from typing import Annotated

import anyio
import msgspec
import typer

from headgate.cli import completion, options
from headgate.cli.folding import state_at
from headgate.cli.output import CliError, Output, console, emit, print_table
from headgate.cli.source import open_source, parse_at
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.views.descriptions import format_amount, format_span
from headgate.core.views.diagnosis import standing
from headgate.core.views.visibility import QueueSummary, aside_of, line_of, summaries
from headgate.events.ids import LocalQueueKey

app = typer.Typer(
    name="queue",
    add_completion=False,
    no_args_is_help=True,
    help="Show the queues: quota, usage and pending workloads.",
)

_EPILOG = """\b
Examples:
  headgate queue status                        every ClusterQueue and LocalQueue
  headgate queue status --pending team-a       who waits in ClusterQueue team-a, in order, and for what
  headgate queue status --at -5m -o json       as it was five minutes ago
"""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Quota of one flavor-resource: used and nominal as quantities; `borrowed` is what is used beyond nominal."""

    flavor: str
    resource: str
    used: str
    nominal: str
    borrowed: str


class ClusterQueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """
    One ClusterQueue.

    Its pending workloads are awake (may be offered), asleep (wait with their shape or behind a blocked head), parked
    alone, or offered to the scheduler.
    """

    name: str
    strategy: str
    cohort: str
    active: bool
    message: str
    awake: int
    asleep: int
    parked: int
    offered: int
    reserved: int
    admitted: int
    evicted: int
    usage: tuple[Usage, ...] = ()


class LocalQueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One LocalQueue and how many of its workloads are pending, hold quota, or are admitted."""

    name: str
    cluster_queue: str
    pending: int
    reserved: int
    admitted: int


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All queues at a position."""

    position: int
    cluster_queues: tuple[ClusterQueueStatus, ...]
    local_queues: tuple[LocalQueueStatus, ...]


class PendingWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """One pending workload of a ClusterQueue, at its place in the queue (0 for one that is set aside alone)."""

    place: int
    workload: str
    priority: int
    stage: str
    waiting_ms: int
    why: str
    would_change: tuple[str, ...]


@app.callback()
def _group() -> None:
    """Show the queues: quota, usage and pending workloads."""


@app.command("status", epilog=_EPILOG)
def status(
    pending: Annotated[
        str | None,
        typer.Option(
            "--pending",
            metavar="CLUSTERQUEUE",
            help="List who waits there, in order.",
            autocompletion=completion.cluster_queues,
        ),
    ] = None,
    at: options.At = None,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Show every queue: what waits, what runs, how much quota is in use. With --pending: who waits in one."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    state = anyio.run(_state, where, at)
    if pending is None:
        answer = queue_status(state)
        emit(answer, output, lambda: _show(answer))
        return
    if pending not in state.cluster_queues and pending not in state.index.pending:
        known = ", ".join(state.cluster_queues) or "none"
        raise CliError(f"there is no ClusterQueue {pending!r} at position {state.position}; there is {known}")
    waiting = tuple(pending_in(state, pending))
    emit(waiting, output, lambda: _show_pending(waiting))


async def _state(where: options.SourceOptions, at: str | None) -> State:
    async with open_source(where) as source:
        return await state_at(source, parse_at(at))


def queue_status(state: State) -> QueueStatus:
    """The status of all queues in a state."""
    return QueueStatus(
        position=state.position,
        cluster_queues=tuple(_cluster_queue(each) for each in summaries(state)),
        local_queues=tuple(_local_queue(state, name) for name in sorted(state.local_queues)),
    )


def _cluster_queue(summary: QueueSummary) -> ClusterQueueStatus:
    return ClusterQueueStatus(
        name=summary.name,
        strategy=summary.strategy,
        cohort=summary.cohort,
        active=summary.activeness.active,
        message=summary.activeness.message,
        awake=summary.awake,
        asleep=summary.asleep,
        parked=summary.parked,
        offered=summary.offered,
        reserved=summary.reserved,
        admitted=summary.admitted,
        evicted=summary.evicted,
        usage=tuple(
            Usage(
                flavor=flavor,
                resource=resource,
                used=format_amount(resource, used),
                nominal=format_amount(resource, nominal),
                borrowed=format_amount(resource, max(0, used - nominal)),
            )
            for (flavor, resource), (used, nominal) in summary.quotas.items()
        ),
    )


def _local_queue(state: State, name: LocalQueueKey) -> LocalQueueStatus:
    record = state.local_queues[name]
    stages = [state.workloads[key].stage for key in state.index.in_local_queue.get(name, ())]
    return LocalQueueStatus(
        name=name,
        cluster_queue=record.spec.cluster_queue,
        pending=sum(stage in (Stage.NEW, Stage.QUEUED, Stage.OFFERED, Stage.SKIPPED, Stage.PARKED) for stage in stages),
        reserved=sum(stage in (Stage.RESERVED, Stage.ADMITTED, Stage.EVICTED) for stage in stages),
        admitted=stages.count(Stage.ADMITTED),
    )


def pending_in(state: State, cluster_queue: str) -> Iterator[PendingWorkload]:
    """The pending workloads of a ClusterQueue, in the order of the visibility API, and then those outside the queue."""
    for place, workload in enumerate(line_of(state, cluster_queue), 1):
        yield _pending(state, workload, place)
    for workload in aside_of(state, cluster_queue):
        if workload.stage is Stage.PARKED:
            yield _pending(state, workload, 0)


def _pending(state: State, workload: Workload, place: int) -> PendingWorkload:
    stands = standing(state, workload.key)
    since_ms = workload.queued_at_ms or workload.created_ms
    return PendingWorkload(
        place=place,
        workload=workload.key,
        priority=workload.priority,
        stage=workload.stage.value,
        waiting_ms=max(0, state.now_ms - since_ms),
        why=stands.why,
        would_change=stands.would_change,
    )


_COLUMNS = (
    "CLUSTERQUEUE", "STRATEGY", "COHORT", "ACTIVE", "AWAKE", "ASLEEP", "PARKED", "OFFERED", "RESERVED", "ADMITTED",
    "EVICTED", "IN USE",
)  # fmt: skip


def _show(answer: QueueStatus) -> None:
    print_table(
        _COLUMNS,
        (
            (
                each.name,
                each.strategy,
                each.cohort or "-",
                "yes" if each.active else "no",
                *map(str, (each.awake, each.asleep, each.parked, each.offered)),
                *map(str, (each.reserved, each.admitted, each.evicted)),
                ", ".join(f"{use.used}/{use.nominal} {use.flavor}/{use.resource}" for use in each.usage) or "-",
            )
            for each in answer.cluster_queues
        ),
        right=_COLUMNS[4:11],
    )
    out = console()
    for each in answer.cluster_queues:
        if not each.active:
            out.print(f"{each.name}: {each.message}", markup=False)
    out.print()
    print_table(
        ("LOCALQUEUE", "CLUSTERQUEUE", "PENDING", "RESERVED", "ADMITTED"),
        (
            (each.name, each.cluster_queue, str(each.pending), str(each.reserved), str(each.admitted))
            for each in answer.local_queues
        ),
        right=("PENDING", "RESERVED", "ADMITTED"),
    )


def _show_pending(waiting: tuple[PendingWorkload, ...]) -> None:
    print_table(
        ("PLACE", "WORKLOAD", "PRIORITY", "STAGE", "WAITING", "WHY", "WHAT WOULD CHANGE IT"),
        (
            (
                str(each.place or "-"),
                each.workload,
                str(each.priority),
                each.stage,
                format_span(each.waiting_ms),
                each.why,
                "; ".join(each.would_change),
            )
            for each in waiting
        ),
        right=("PLACE", "PRIORITY", "WAITING"),
    )
