"""
Answers of the read side about a state: queues, pending workloads and pods, tables. Pure: a state in, plain data out.

Rows are in the order in which the scheduler would take them; every list that may be long has a limit.
"""

import heapq
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from headgate.core.fold import TABLES
from headgate.core.fold.placement import nomination
from headgate.core.state import sharing
from headgate.core.state.tables import Stage, State, Tables, Workload
from headgate.core.views.descriptions import describe_wake, format_amount, sleep_of
from headgate.core.views.diagnosis import standing
from headgate.core.views.visibility import aside_of, is_in_line, line_of, summaries
from headgate.events.decisions import PluginRefusal
from headgate.events.ids import LocalQueueKey, WorkloadKey

KEYED: Final = tuple(name for name in TABLES if isinstance(getattr(Tables(), name), dict))
"""The tables of the state that have rows by key."""
PLAIN: Final = tuple(name for name in TABLES if name not in KEYED)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One pending workload. `place` counts from 1 in its ClusterQueue; 0 when it is set aside."""

    workload: str
    stage: str
    cluster_queue: str
    local_queue: str
    place: int
    priority: int
    queued_at_ms: int
    reason: str
    message: str
    wakes: tuple[str, ...] = ()


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ClusterQueue: how many wait (`asleep` of them until something changes), how many hold quota, and how much."""

    cluster_queue: str
    active: bool
    message: str
    cohort: str
    pending: int
    asleep: int
    reserved: int
    admitted: int
    usage: dict[str, str]


class PodRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One pod that was tried and has no node: why, and since when it has been so.

    `nominated` is the node that it is to get when those that it preempts are gone.
    """

    pod: str
    reason: str
    message: str
    since_ms: int
    nominated: str = ""
    refusals: tuple[PluginRefusal, ...] = ()


class NoSuchTableError(LookupError):
    """Raised when the state has no table of this name; the message lists the existing ones."""


class NoSuchQueueError(LookupError):
    """Raised when the requested queue is unknown."""


def overview(state: State) -> dict[str, Any]:
    """What a state is, without its rows: the plain fields and the size of each table."""
    return {
        "cell": state.cell,
        **{name: msgspec.to_builtins(getattr(state, name), enc_hook=sharing.plain) for name in PLAIN},
        "tables": {name: len(getattr(state, name)) for name in KEYED},
    }


def table(state: State, name: str, *, limit: int, after: str = "", namespaces: tuple[str, ...] = ()) -> dict[str, Any]:
    """
    Rows of a table in the order of their keys: at most `limit`, those behind the key `after`, of some namespaces.

    `next` is there when more follow: the key to go on after.

    Raises NoSuchTableError.
    """
    if name not in KEYED:
        raise NoSuchTableError(f"there is no table {name!r}; there is {', '.join(KEYED)}")
    rows = getattr(state, name)
    # Of some namespaces: what is in none may have a name that is a namespace's.
    among = tuple(f"{namespace}/" for namespace in namespaces) or ("",)
    keys = sorted(key for key in rows if key > after and key.startswith(among))
    shown = keys[:limit]
    answer: dict[str, Any] = {
        "position": state.position,
        "table": name,
        "rows": {key: msgspec.to_builtins(rows[key], enc_hook=sharing.plain) for key in shown},
    }
    if len(keys) > limit:
        answer["next"] = shown[-1]
    return answer


def queues(state: State) -> list[QueueRow]:
    """Every ClusterQueue in the order of names."""
    return [
        QueueRow(
            cluster_queue=each.name,
            active=each.activeness.active,
            message=each.activeness.message,
            cohort=each.cohort,
            pending=each.awake + each.asleep + each.offered,
            asleep=each.asleep,
            reserved=each.reserved + each.admitted + each.evicted,
            admitted=each.admitted,
            usage={
                f"{flavor}/{resource}": f"{format_amount(resource, used)} of {format_amount(resource, nominal)}"
                for (flavor, resource), (used, nominal) in each.quotas.items()
            },
        )
        for each in summaries(state)
    ]


def pending(
    state: State, *, cluster_queue: str = "", local_queue: str = "", namespaces: tuple[str, ...] = (), limit: int
) -> list[Row]:
    """
    The pending workloads of a ClusterQueue, or of a LocalQueue (`<namespace>/<name>`), next first, at most `limit`.

    With `namespaces` only those in one of them; places count all.

    Raises NoSuchQueueError.
    """
    if local_queue:
        record = state.local_queues.get(LocalQueueKey(local_queue))
        if record is None:
            raise NoSuchQueueError(f"there is no LocalQueue {local_queue!r}")
        mine = state.index.in_local_queue.get(LocalQueueKey(local_queue), {})
        cluster_queue = cluster_queue or record.spec.cluster_queue
    elif cluster_queue not in state.cluster_queues and cluster_queue not in state.index.pending:
        raise NoSuchQueueError(f"there is no ClusterQueue {cluster_queue!r}")
    rows: list[Row] = []
    for place, key in _line(state, cluster_queue, local_queue):
        if (local_queue and key not in mine) or (namespaces and key.partition("/")[0] not in namespaces):
            continue
        rows.append(_row(state, state.workloads[key], place))
        if len(rows) >= limit:
            break
    return rows


def unplaced_pods(state: State, *, namespaces: tuple[str, ...] = (), limit: int) -> list[PodRow]:
    """
    The pods that were tried and have no node, the one that has been so for the longest time first, at most `limit`.

    With `namespaces` only those in one of them. There are none where Headgate places no pods.
    """
    verdicts = (
        (key, record.verdict)
        for key, record in state.placements.items()
        if record.verdict is not None and not record.node
        if not namespaces or key.partition("/")[0] in namespaces
    )
    return [
        PodRow(
            pod=key,
            reason=verdict.reason,
            message=verdict.message,
            since_ms=verdict.at_ms,
            nominated=nomination(state, key),
            refusals=verdict.refusals,
        )
        for key, verdict in heapq.nsmallest(limit, verdicts, key=lambda each: (each[1].at_ms, each[0]))
    ]


def _line(state: State, cluster_queue: str, local_queue: str) -> Iterator[tuple[int, WorkloadKey]]:
    """Places and workloads: the queue, then those outside it."""
    for place, workload in enumerate(line_of(state, cluster_queue), 1):
        yield place, workload.key
    if not local_queue:
        for workload in aside_of(state, cluster_queue):
            yield 0, workload.key
        return
    for key in state.index.in_local_queue.get(LocalQueueKey(local_queue), {}):
        workload = state.workloads[key]
        if workload.stage in (Stage.NEW, Stage.PARKED) and not is_in_line(workload):
            yield 0, key


def _row(state: State, workload: Workload, place: int) -> Row:
    reason, message, wakes = _why(state, workload, place)
    namespace = workload.key.partition("/")[0]
    return Row(
        workload=workload.key,
        stage=workload.stage.value,
        cluster_queue=workload.cluster_queue,
        local_queue=f"{namespace}/{workload.spec.queue_name}",
        place=place,
        priority=workload.priority,
        queued_at_ms=workload.queued_at_ms,
        reason=reason,
        message=message,
        wakes=wakes,
    )


def _why(state: State, workload: Workload, place: int) -> tuple[str, str, tuple[str, ...]]:
    match workload.stage:
        case Stage.QUEUED:
            asleep = sleep_of(state, workload)
            if asleep is not None:
                wakes = tuple(describe_wake(wake, state, workload.cluster_queue) for wake in asleep.wake)
                return asleep.reason, asleep.message, wakes
            return "InLine", f"at place {place}", ("its turn",)
        case Stage.OFFERED:
            verdict = workload.verdict
            return "Offered", verdict.message if verdict is not None else "", ("the scheduler's next cycles",)
        case _:
            said = standing(state, workload.key)
            reason = workload.parked.reason if workload.parked is not None else said.stage
            return reason, said.why, said.would_change
