"""
What changes of the cluster mean for the scheduling queue.

The owner of the cluster calls these after it has told the cluster the change. Each answers, in order, the events that
the change amounts to and which pods they have moved. Source: pkg/scheduler/eventhandlers.go of the kube-scheduler.
"""

from typing import Any, NamedTuple

from headgate.core.placement.framework.events import UPDATE, ActionType, EventResource
from headgate.core.placement.groups import group_of
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue import Move, Queue
from headgate.core.placement.queue_events import (
    ASSIGNED_POD_GONE,
    POD_APPEARED,
    POD_ASSIGNED,
    ClusterEvent,
    node_updates,
    pod_updates,
)
from headgate.events.ids import UnixMs


class Noticed(NamedTuple):
    """An event, None for one that only the pod itself is asked by, and what it has moved."""

    event: ClusterEvent | None
    moves: list[Move]


def pod_changed(
    queue: Queue, old: PodInfo | None, new: PodInfo | None, now_ms: UnixMs, *, assumed: PodInfo | None = None
) -> list[Noticed]:
    """
    A pod is new (`old` None), has changed, or is gone (`new` None).

    A pod that is over counts as gone, and pods of other schedulers matter once they have a node. `assumed` is the pod
    with its node while it is being bound: then it is not in the queue, and only its end frees something.
    """
    old = None if old is None or old.is_over else old
    new = None if new is None or new.is_over else new
    if old is not None and new is not None and old.uid != new.uid:
        return [
            *pod_changed(queue, old, None, now_ms, assumed=assumed),
            *pod_changed(queue, None, new, now_ms),
        ]
    if new is None:
        return _gone(queue, old, assumed, now_ms) if old is not None else []
    if old is None or (new.node_name and not old.node_name):
        return _come(queue, old, new, now_ms)
    if new.node_name:
        return [_notice(queue, event, old, new, now_ms) for event in pod_updates(old, new)]
    if not queue.is_ours(new):
        return []
    if assumed is not None:
        if new.is_terminating and not old.is_terminating:
            return [_notice(queue, ASSIGNED_POD_GONE, assumed, None, now_ms)]
        return [Noticed(event, []) for event in pod_updates(old, new)]
    return _pending_changed(queue, old, new, now_ms)


def node_changed(queue: Queue, old: NodeObject | None, new: NodeObject | None, now_ms: UnixMs) -> list[Noticed]:
    """A node is new (`old` None), has changed, or is gone (`new` None)."""
    if old is not None and new is not None:
        return [_notice(queue, event, old, new, now_ms) for event in node_updates(old, new)]
    return object_changed(queue, EventResource.NODE, old, new, now_ms)


def object_changed(queue: Queue, resource: EventResource, old: Any, new: Any, now_ms: UnixMs) -> list[Noticed]:
    """An object of another kind is new (`old` None), has changed, or is gone (`new` None)."""
    action = UPDATE if old is not None and new is not None else ActionType.ADD if old is None else ActionType.DELETE
    return [_notice(queue, ClusterEvent(resource, action), old, new, now_ms)]


def _come(queue: Queue, old: PodInfo | None, new: PodInfo, now_ms: UnixMs) -> list[Noticed]:
    if not new.node_name:
        if not queue.is_ours(new):
            return []
        noticed = [Noticed(None, queue.add(new, now_ms))]
        waiting = queue.get(new.key)
        if group_of(new) and (waiting is None or waiting.gated_by != GANG_SCHEDULING):
            # It may be the one that the others of its group wait for. If it is kept out itself, they are too.
            noticed.append(_notice(queue, POD_APPEARED, None, new, now_ms))
        return noticed
    noticed = [_notice(queue, POD_ASSIGNED, None, new, now_ms)]
    if old is not None and queue.is_ours(old):
        noticed.append(Noticed(None, queue.remove(old)))
    return noticed


def _gone(queue: Queue, old: PodInfo, assumed: PodInfo | None, now_ms: UnixMs) -> list[Noticed]:
    if old.node_name:
        return [_notice(queue, ASSIGNED_POD_GONE, old, None, now_ms)]
    if not queue.is_ours(old):
        return []
    noticed = [Noticed(None, queue.remove(old))]
    if assumed is not None:
        noticed.append(_notice(queue, ASSIGNED_POD_GONE, assumed, None, now_ms))
    elif old.nominated_node_name:
        noticed.append(_freed_nomination(queue, old, now_ms))
    return noticed


def _pending_changed(queue: Queue, old: PodInfo, new: PodInfo, now_ms: UnixMs) -> list[Noticed]:
    moves = queue.update(old, new, now_ms)
    noticed = [Noticed(event, []) for event in pod_updates(old, new)]
    noticed[0] = Noticed(noticed[0].event, moves)
    if old.nominated_node_name and old.nominated_node_name != new.nominated_node_name:
        noticed.append(_freed_nomination(queue, old, now_ms))
    return noticed


def _freed_nomination(queue: Queue, old: PodInfo, now_ms: UnixMs) -> Noticed:
    """A pod has given up the node that it was nominated to: others of no higher priority had made way for it."""
    moves = queue.notify(ASSIGNED_POD_GONE, old, None, now_ms, only=lambda pod: pod.priority <= old.priority)
    return Noticed(ASSIGNED_POD_GONE, moves)


def _notice(queue: Queue, event: ClusterEvent, old: Any, new: Any, now_ms: UnixMs) -> Noticed:
    return Noticed(event, queue.notify(event, old, new, now_ms))
