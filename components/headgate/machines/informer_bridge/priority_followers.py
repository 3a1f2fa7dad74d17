"""
The bridge's work for priority classes: Workloads follow the value of the WorkloadPriorityClass that they name.

A class that is changed, or deleted and created anew with another value, changes `spec.priority` of every unfinished
Workload that names it, whoever owns that (Kueue's workloadpriorityclass controller). Order in the queues and who
preempts whom follow from the Workload. As in Kueue a priority that somebody sets by hand stays until the class changes
or the bridge is restarted; and Workloads whose priority comes from their pods' PriorityClass follow nothing.

Level-triggered: a new machine examines every Workload. What the bridge itself writes with a value of the class is
examined again when it is observed (`expect`), for the class may have changed meanwhile. A patch tests uid and class, so
that it cannot reach a Workload that has come to name another class.
"""

from typing import Final

from headgate.core.engine.backlog import Backlog
from headgate.core.machine.contract import JSON_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.status.workload_status import workload_path
from headgate.events import effects, facts
from headgate.events.ids import WorkloadKey

CALLS_MAX: Final = 256
"""The maximum number of concurrent patches of priorities."""

_KIND: Final = "WorkloadPriorityClass"


class PriorityFollowers:
    """The Workloads to compare with their class. The bridge's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dirty: Backlog[WorkloadKey] = Backlog(state.workloads)
        self._expected: dict[WorkloadKey, None] = {}
        """Workloads that are written with the value of a class, and not observed since. At most one entry per call."""
        self._calls: dict[str, WorkloadKey] = {}

    def expect(self, key: WorkloadKey) -> None:
        """A Workload was written with the value that its class has in the state."""
        self._expected[key] = None

    def on_event(
        self,
        event: facts.WorkloadPriorityClassObserved
        | facts.WorkloadObserved
        | facts.WorkloadDeleted
        | effects.WorkloadCreateRejected,
    ) -> None:
        """Record events after which a priority may differ from its class."""
        match event:
            case facts.WorkloadPriorityClassObserved():
                workloads = self._state.workloads.items()
                self._dirty.add_all(key for key, each in workloads if _names(each, event.name))
            case facts.WorkloadObserved():
                if event.workload in self._expected:
                    del self._expected[event.workload]
                    self._dirty.add(event.workload)
            case facts.WorkloadDeleted() | effects.WorkloadCreateRejected():
                self._expected.pop(event.workload, None)

    def settle(self, calls: list[Command]) -> None:
        """Patch the priorities that differ, as far as the limit of calls permits."""
        while self._dirty and len(self._calls) < CALLS_MAX:
            key = self._dirty.take()
            workload = self._state.workloads.get(key)
            if workload is not None:
                with about("Workload", key):
                    self._look_at(workload, calls)

    def _look_at(self, workload: Workload, calls: list[Command]) -> None:
        reference = workload.spec.priority_class_ref
        if reference is None or not _names(workload, reference.name) or workload.deleting:
            return
        value = self._state.workload_priority_classes.get(reference.name)
        if value is None or value == workload.spec.priority:
            return
        call_id = f"priority/{workload.key}"
        if call_id in self._calls:
            self._expected[workload.key] = None
            return
        self._calls[call_id] = workload.key
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": workload.uid},
            {"op": "test", "path": "/spec/priorityClassRef/name", "value": reference.name},
            {"op": "add", "path": "/spec/priority", "value": value},
        ]
        path = workload_path(workload.key)
        calls.append(
            Call(id=call_id, method="PATCH", path=path, body=patch, content_type=JSON_PATCH, lane=workload.key)
        )

    def on_completed(self, completed: Completed) -> None:
        """A patch has ended. If the class has changed meanwhile, the Workload is examined again."""
        key = self._calls.pop(completed.call_id, None)
        if key is not None and key in self._expected:
            self._dirty.add(key)


def _names(workload: Workload, name: str) -> bool:
    """Whether an unfinished Workload takes its priority from the WorkloadPriorityClass of a name."""
    reference = workload.spec.priority_class_ref
    is_class = reference is not None and reference.kind == _KIND and reference.name == name
    return is_class and workload.stage is not Stage.FINISHED
