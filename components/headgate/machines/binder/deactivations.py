"""
The binder's second task: set `spec.active: false` in the API server for workloads that were evicted permanently.

Kueue deactivates a workload when an admission check has rejected it or its maximum execution time is over: it is queued
again only after a user reactivates it. The queue manager decides that (`workload.evicted` with the reason Deactivated)
and keeps the workload out from then on, as long as its object has the generation that the eviction observed; this task
writes the decision into the object.

It does the same for a DeactivationTarget condition, as Kueue does: that workload's eviction follows from its spec.

Level-triggered: a workload is deactivated when its record is evicted as Deactivated and its spec, at that same
generation, is still active, or when it is such a target. Once the API server has accepted the write, the new spec
returns as a fact, and that is the only trace in the log. Until then the answer is kept in memory; after a restart the
call is repeated, which changes nothing. The uid in the call protects a Workload that was created anew under its name.
"""

from typing import Final, NamedTuple

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes import conditions
from headgate.core.machine.api_results import NOT_FOUND, is_success
from headgate.core.machine.contract import MERGE_PATCH, Call, Command, Completed
from headgate.core.queueing.eviction import is_target
from headgate.core.state.attribution import about
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.status.workload_status import workload_path
from headgate.events import facts, queueing
from headgate.events.ids import Uid, UnixMs, WorkloadKey

CALLS_MAX: Final = 256
"""The maximum number of concurrent deactivation calls."""


class _Version(NamedTuple):
    """The subject of a call. Another object, or another generation of it, is examined anew."""

    uid: Uid
    generation: int


class _Call(NamedTuple):
    workload: WorkloadKey
    version: _Version


def is_to_be_deactivated(workload: Workload) -> bool:
    """Whether an eviction or a condition has deactivated a workload, and its object does not show it yet."""
    if not workload.spec.active or workload.deleting:
        return False
    if is_target(workload):
        return True
    if workload.stage is not Stage.EVICTED and workload.stage not in PENDING:
        return False
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    return (
        evicted is not None
        and conditions.is_deactivation(evicted)
        and (evicted.observed_generation or 0) == workload.generation
    )


class Deactivations:
    """The working set of workloads to deactivate. The binder's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[WorkloadKey] = WorkQueue(CALLS_MAX)
        for key, workload in state.workloads.items():
            with about("Workload", key):
                if is_to_be_deactivated(workload):
                    self._queue.add(key)
        self._calls: dict[str, _Call] = {}
        self._done: dict[WorkloadKey, _Version] = {}

    def on_event(self, event: facts.WorkloadObserved | facts.WorkloadDeleted | queueing.WorkloadEvicted) -> None:
        """Record the two events after which a workload may have to be deactivated, and those that end it."""
        self._queue.add(event.workload)

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. A refused call is repeated with backoff; none is needed for a deleted object."""
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return
        if is_success(completed) or completed.status == NOT_FOUND:
            self._done[call.workload] = call.version
            self._queue.done(call.workload)
        else:
            self._queue.retry(call.workload)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Deactivate what is due, as far as the limit of calls permits. Returns when to check again."""
        for key in self._queue.ready(now_ms):
            with about("Workload", key):
                self._look_at(key, calls)
        return self._queue.next_at(now_ms)

    def _look_at(self, key: WorkloadKey, calls: list[Command]) -> None:
        workload = self._state.workloads.get(key)
        if workload is None or not is_to_be_deactivated(workload):
            self._done.pop(key, None)
            self._queue.forget(key)
            return
        version = _Version(workload.uid, workload.generation)
        if self._done.get(key) == version:
            return
        call_id = f"deactivate/{key}"
        self._queue.begin(key)
        self._calls[call_id] = _Call(key, version)
        calls.append(
            Call(
                id=call_id,
                method="PATCH",
                path=workload_path(key),
                body={"metadata": {"uid": workload.uid}, "spec": {"active": False}},
                content_type=MERGE_PATCH,
                lane=key,
            )
        )
