"""
The binder's finalizers: sets and removes Kueue's `kueue.x-k8s.io/resource-in-use`.

- A Workload created by the bridge carries it from the start. It is removed when the workload is finished, or is being
  deleted and its Job has stopped and is restored to the user's template: restoring removes what an admission injected
  into the Job and needs the Workload for that, so the Workload must outlive it.
- A ClusterQueue gets it when it appears, and keeps it while workloads hold quota in it.
- A ResourceFlavor gets it when it appears, and keeps it while a ClusterQueue refers to it.
- A Topology gets it when it appears, unless topology-aware scheduling is off, and keeps it while a ResourceFlavor
  refers to it.

Level-triggered on the facts (`finalizer`, `deleting`); the object returns through the watch, and until then the answer
is kept in memory. The removal from a finished Workload needs no fact: `workload_statuses` records it in the log with
the last status. The finalizer is set by server-side apply, which adds to the set of finalizers, and removed by a JSON
patch that tests the list it changes: neither needs a resource version, and no finalizer of another owner is lost. If
the test fails, the object has other finalizers too, and the list is read first.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from headgate.core.api.names import FINALIZER
from headgate.core.config import feature_gates
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import is_aside, is_charged, kind_of
from headgate.core.machine.api_results import INVALID, NOT_FOUND, is_success
from headgate.core.machine.contract import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import (
    HOLDS_QUOTA,
    ClusterQueueRecord,
    FlavorRecord,
    Stage,
    State,
    TopologyObject,
    Workload,
)
from headgate.core.status.server_side_apply import API_VERSION, FIELD_MANAGER, Json, apply_query
from headgate.core.status.workload_status import workload_path
from headgate.core.workload import owners
from headgate.core.workload.injection import needs_restoring
from headgate.core.workload.pod_jobs import is_of_pods
from headgate.events import effects, facts, queueing
from headgate.events.base import Producer
from headgate.events.ids import JobKey, UnixMs, WorkloadKey
from headgate.events.objects import ResourceGroup

CALLS_MAX: Final = 256
"""The maximum number of objects whose finalizer is being set or removed at the same time."""

Held = Workload | ClusterQueueRecord | FlavorRecord | TopologyObject


class Object(NamedTuple):
    """An object that may carry the finalizer: the plural name of its kind, and its key."""

    resource: str
    key: str


class _Call(msgspec.Struct, frozen=True):
    object: Object
    uid: str
    wanted: bool
    reads: bool = False
    """The call reads the list of finalizers."""
    knows: bool = False
    """The list of finalizers from which the call was made."""


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""
    finalizers: tuple[str, ...] = ()


class _WithMetadata(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


def may_run(state: State, workload: Workload) -> bool:
    """
    Whether pods of a workload may still run, or its Job is not restored yet: the workload has to stay for a while.

    Nothing is known about a Job that is not in the state until it is listed or proved deleted. The work of an owner
    that Headgate does not run continues as long as the workload holds quota; without an owner, its end cannot be
    determined.
    """
    if owners.unknown_job(state, workload) is not None:
        return True
    record = owners.job_of(state, workload)
    if record is None:
        of_others = workload.owner is not None and not owners.is_run_here(state, workload)
        return of_others and workload.stage in HOLDS_QUOTA and workload.admission is not None
    job = record.job
    if is_of_pods(owners.job_key(state, workload)) and workload.deleting and workload.stage is not Stage.FINISHED:
        # Its pods are deleted first: otherwise they would get another Workload.
        return not job.leaving
    if job.finished is not None or job.deleting:
        return False
    if not job.suspended or job.active > 0 or record.started_for != "":
        return True
    key = owners.job_key(state, workload)
    return key is not None and needs_restoring(key, workload, job)


def _names(groups: tuple[ResourceGroup, ...], flavor: str) -> bool:
    return any(quotas.name == flavor for group in groups for quotas in group.flavors)


class Finalizers:
    """The working set of finalizers. The binder's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[Object] = WorkQueue(CALLS_MAX)
        for key, workload in state.workloads.items():
            if workload.finalizer and (workload.deleting or workload.stage is Stage.FINISHED):
                self._queue.add(Object("workloads", key))
        self._look_at_all("clusterqueues", state.cluster_queues)
        self._look_at_all("resourceflavors", state.flavors)
        self._look_at_all("topologies", state.topology_objects)
        self._calls: dict[str, _Call] = {}
        self._next_calls: list[Command] = []
        self._done: dict[Object, tuple[str, bool]] = {}
        """Changes that the API server has accepted and no fact shows yet: uid, and whether it has the finalizer."""

    def _look_at_all(self, resource: str, names: Iterable[str]) -> None:
        for name in names:
            self._queue.add(Object(resource, name))

    # --- from the log ----------------------------------------------------------------------------------------------

    # Large: one case for each event type that may concern a finalizer.
    def on_event(
        self,
        event: facts.OwnerGone
        | facts.WorkloadObserved
        | facts.WorkloadDeleted
        | effects.StatusApplied
        | queueing.WorkloadFinished
        | queueing.WorkloadReleased
        | queueing.WorkloadHeld
        | facts.JobObserved
        | facts.JobDeleted
        | effects.JobStopped
        | facts.ClusterQueueObserved
        | facts.ClusterQueueDeleted
        | facts.ResourceFlavorObserved
        | facts.ResourceFlavorDeleted
        | facts.TopologyObserved
        | facts.TopologyDeleted
        | facts.ConfigurationObserved,
    ) -> None:
        """Record the events after which a finalizer may be missing, or no longer needed."""
        match event:
            case facts.OwnerGone():
                self._queue.add(Object("workloads", event.workload))
            case facts.WorkloadObserved():
                self._shown(Object("workloads", event.workload))
            case facts.WorkloadDeleted():
                self._shown(Object("workloads", event.workload))
                self._look_at_deleted_queues()
            case effects.StatusApplied():
                if event.finalizer_removed:
                    self._shown(Object("workloads", event.workload))
            case queueing.WorkloadFinished() | queueing.WorkloadReleased() | queueing.WorkloadHeld():
                self._queue.add(Object("workloads", event.workload))
                self._look_at_deleted_queues()
            case facts.JobObserved():
                self._look_at_workload_of(event.job, event.spec.uid)
            case facts.JobDeleted():
                self._look_at_workload_of(event.job, event.uid)
            case effects.JobStopped():
                self._look_at_workload_of(event.job, event.job_uid)
            case facts.ClusterQueueObserved() | facts.ClusterQueueDeleted():
                self._shown(Object("clusterqueues", event.name))
                self._look_at_deleted_flavors()
            case facts.ResourceFlavorObserved() | facts.ResourceFlavorDeleted():
                self._shown(Object("resourceflavors", event.name))
                self._look_at_deleted_topologies()
            case facts.TopologyObserved() | facts.TopologyDeleted():
                self._shown(Object("topologies", event.name))
            case facts.ConfigurationObserved():
                self._look_at_all("topologies", self._state.topology_objects)

    def _shown(self, which: Object) -> None:
        self._done.pop(which, None)
        self._queue.add(which)

    def _look_at_workload_of(self, job: JobKey, uid: str) -> None:
        workload = owners.workload_of(self._state, job, uid)
        if workload is not None and workload.deleting:
            self._queue.add(Object("workloads", workload.key))

    def _look_at_deleted_queues(self) -> None:
        for name, record in self._state.cluster_queues.items():
            if record.deleting:
                self._queue.add(Object("clusterqueues", name))

    def _look_at_deleted_flavors(self) -> None:
        for name, record in self._state.flavors.items():
            if record.deleting:
                self._queue.add(Object("resourceflavors", name))

    def _look_at_deleted_topologies(self) -> None:
        for name, record in self._state.topology_objects.items():
            if record.deleting:
                self._queue.add(Object("topologies", name))

    # --- deciding --------------------------------------------------------------------------------------------------

    def _find(self, which: Object) -> Held | None:
        match which.resource:
            case "workloads":
                return self._state.workloads.get(WorkloadKey(which.key))
            case "clusterqueues":
                return self._state.cluster_queues.get(which.key)
            case "topologies":
                return self._state.topology_objects.get(which.key)
            case _:
                return self._state.flavors.get(which.key)

    def _wanted(self, which: Object, held: Held) -> bool:
        """Whether an object has to carry the finalizer. A Workload never gets it from here."""
        state = self._state
        match held:
            case Workload():
                if not held.finalizer or held.stage is Stage.FINISHED:
                    # Its final status is written first: calls of one lane are made in order.
                    return False
                return not held.deleting or may_run(state, held)
            case ClusterQueueRecord():
                is_used = bool(state.index.holders.get(which.key)) or is_charged(state, which.key)
                return not held.deleting or (held.finalizer and is_used)
            case FlavorRecord():
                return not held.deleting or (
                    held.finalizer
                    and any(_names(queue.spec.resource_groups, which.key) for queue in state.cluster_queues.values())
                )
            case TopologyObject():
                return self._wants_topology(which.key, held)

    def _wants_topology(self, name: str, held: TopologyObject) -> bool:
        if held.deleting:
            flavors = self._state.flavors.values()
            return held.finalizer and any(record.spec.topology_name == name for record in flavors)
        gate = feature_gates.TOPOLOGY_AWARE_SCHEDULING
        return held.finalizer or feature_gates.enabled(self._state.configuration, gate)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Set and remove what is due, as far as the limit of calls permits. Returns when to check again."""
        calls += self._next_calls
        self._next_calls.clear()
        if not self._state.synced:
            return None
        for which in self._queue.ready(now_ms):
            if not is_aside(self._state, kind_of(which.resource), which.key, Producer.BINDER):
                with about(kind_of(which.resource), which.key):
                    self._look_at(which, calls)
        return self._queue.next_at(now_ms)

    def _look_at(self, which: Object, calls: list[Command]) -> None:
        held = self._find(which)
        if held is None or not held.uid:
            self._forget(which)
            return
        wanted = self._wanted(which, held)
        if held.finalizer == wanted or self._done.get(which) == (held.uid, wanted):
            return
        call_id = _call_id(which)
        self._queue.begin(which)
        self._calls[call_id] = _Call(which, held.uid, wanted)
        calls.append(_setting(call_id, which, held.uid) if wanted else _removal(call_id, which, held.uid, [FINALIZER]))

    def _forget(self, which: Object) -> None:
        self._done.pop(which, None)
        self._queue.forget(which)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def is_busy_with(self, key: WorkloadKey) -> bool:
        """Whether a call about a Workload's finalizer is under way, so that `on_completed` will receive its outcome."""
        return _call_id(Object("workloads", key)) in self._calls

    def has_removed(self, key: WorkloadKey, uid: str) -> bool:
        """Whether a Workload's finalizer has been removed, and the log does not show it yet."""
        return self._done.get(Object("workloads", key)) == (uid, False)

    def on_completed(self, completed: Completed) -> WorkloadKey | None:
        """
        A call has ended. If others have finalizers too and it was refused, it is repeated with their list.

        Returns the Workload that it was about when no other call follows.
        """
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return None
        if completed.status == INVALID and not call.reads and not call.knows and not call.wanted:
            self._calls[completed.call_id] = msgspec.structs.replace(call, reads=True)
            self._next_calls.append(_reading(completed.call_id, call.object, call.uid))
        elif call.reads and is_success(completed):
            self._on_read(call, completed)
        elif is_success(completed) or completed.status == NOT_FOUND:
            self._done[call.object] = (call.uid, call.wanted)
            self._queue.done(call.object)
        else:
            self._queue.retry(call.object)
        is_over = completed.call_id not in self._calls and call.object.resource == "workloads"
        return WorkloadKey(call.object.key) if is_over else None

    def _on_read(self, call: _Call, completed: Completed) -> None:
        try:
            metadata = msgspec.json.decode(completed.body, type=_WithMetadata).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._queue.retry(call.object)
            return
        if metadata.uid != call.uid or FINALIZER not in metadata.finalizers:
            self._done[call.object] = (call.uid, call.wanted)
            self._queue.done(call.object)
            return
        # A refusal of this one means that the list has changed meanwhile: the object is examined again later.
        self._calls[completed.call_id] = msgspec.structs.replace(call, reads=False, knows=True)
        self._next_calls.append(_removal(completed.call_id, call.object, call.uid, list(metadata.finalizers)))


def _setting(call_id: str, which: Object, uid: str) -> Call:
    """The server-side apply that adds the finalizer to the existing finalizers."""
    body = {
        "apiVersion": API_VERSION,
        "kind": kind_of(which.resource),
        "metadata": {"name": which.key, "uid": uid, "finalizers": [FINALIZER]},
    }
    return Call(
        id=call_id,
        method="PATCH",
        path=_path(which),
        query=apply_query(force=True),
        body=body,
        content_type=APPLY_PATCH,
        lane=_lane(which),
    )


def _reading(call_id: str, which: Object, uid: str) -> Call:
    """A patch that changes nothing: the response is the object, and it needs no permission beyond the removal's."""
    return Call(
        id=call_id,
        method="PATCH",
        path=_path(which),
        query={"fieldManager": FIELD_MANAGER},
        body={"metadata": {"uid": uid}},
        content_type=MERGE_PATCH,
        lane=_lane(which),
    )


def _removal(call_id: str, which: Object, uid: str, before: list[str]) -> Call:
    """The JSON patch that removes the finalizer from exactly this list of exactly this object."""
    at = "/metadata/finalizers"
    after = [each for each in before if each != FINALIZER]
    operations: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": at, "value": before},
        {"op": "replace", "path": at, "value": after} if after else {"op": "remove", "path": at},
    ]
    return Call(
        id=call_id,
        method="PATCH",
        path=_path(which),
        query={"fieldManager": FIELD_MANAGER},
        body=operations,
        content_type=JSON_PATCH,
        lane=_lane(which),
    )


def removal_of(key: WorkloadKey, uid: str) -> Call:
    """The call that removes a Workload's finalizer, where it is the only one."""
    which = Object("workloads", key)
    return _removal(f"quarantine-{_call_id(which)}", which, uid, [FINALIZER])


def _call_id(which: Object) -> str:
    return f"finalizer/{which.resource}/{which.key}"


def _path(which: Object) -> str:
    if which.resource == "workloads":
        return workload_path(WorkloadKey(which.key))
    return f"/apis/{API_VERSION}/{which.resource}/{which.key}"


def _lane(which: Object) -> str:
    return which.key if which.resource == "workloads" else f"{which.resource}/{which.key}"
