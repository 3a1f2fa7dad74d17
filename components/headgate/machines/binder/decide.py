"""
The binder's machine: writes decisions to the API server.

It has nine tasks, each in its own module: Workload statuses (`workload_statuses`), `spec.active: false` for workloads
that were evicted permanently (`deactivations`), the statuses of ClusterQueues and LocalQueues (`queue_statuses`),
finalizers (`finalizers`), deletion after the retention period (`retention`), what the scheduler has decided about pods
(`pod_decisions`), ProvisioningRequests (`provisioning`), the admission checks for these (`check_statuses`), and
Kubernetes Events (`events`). In addition, `set_aside` reports objects in quarantine. This module passes stimuli to them
and collects their results into one commit.

All but the Events follow from the folded state, so a restarted binder finds the remaining work; every call is
idempotent. Events report what happens while the binder leads, and nothing from before.
"""

from typing import Final

from headgate.core.engine.budget import Load
from headgate.core.fold.quarantine import about_event, is_about_aside
from headgate.core.machine.contract import (
    Append,
    Changed,
    Command,
    Committed,
    Completed,
    Listed,
    Progressed,
    Resumed,
    Settled,
    Stimulus,
    WakeAt,
)
from headgate.core.machine.listeners import Listeners
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import Position
from headgate.events.ids import UnixMs
from headgate.events.registry import Event
from headgate.machines.binder.check_statuses import CheckStatuses
from headgate.machines.binder.deactivations import Deactivations
from headgate.machines.binder.events import EventDetail, Events
from headgate.machines.binder.finalizers import Finalizers
from headgate.machines.binder.pod_decisions import PodDecisions
from headgate.machines.binder.provisioning import Provisioning
from headgate.machines.binder.queue_statuses import QueueStatuses
from headgate.machines.binder.retention import Retention
from headgate.machines.binder.set_aside import QuarantineReports
from headgate.machines.binder.workload_statuses import WorkloadStatuses

EVENTS_MAX: Final = 2000
"""The maximum number of events in one commit. The rest follows in the next."""


class Binder:
    """The machine of the binder. See the module's docstring."""

    def __init__(self, state: State, told: EventDetail = "summary") -> None:
        self.state = state
        self._effects: list[Event] = []
        load = Load()
        self._finalizers = Finalizers(state)
        self._workloads = WorkloadStatuses(state, load, self._finalizers)
        self._deactivations = Deactivations(state)
        self._queues = QueueStatuses(state, load)
        self._retention = Retention(state)
        self._decisions = PodDecisions(state, load)
        self._provisioning = Provisioning(state)
        self._checks = CheckStatuses(state)
        self.events = Events(state, load, told)
        self._set_aside = QuarantineReports(state, told)
        self._listeners = Listeners(
            self._workloads.on_urgent,
            self._workloads.on_patient,
            self._workloads.on_event,
            self._deactivations.on_event,
            self._queues.on_workload,
            self._queues.on_event,
            self._finalizers.on_event,
            self._retention.on_event,
            self._decisions.on_configuration,
            self._decisions.on_object,
            self._decisions.on_event,
            self._provisioning.on_event,
            self._checks.on_event,
            self._set_aside.on_event,
        )
        self._listeners_aside = Listeners(self._set_aside.on_event)

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """The commands that follow from a stimulus."""
        match stimulus:
            case Committed():
                commit = stimulus.logged.commit
                for index, event in enumerate(commit.events):
                    if is_about_aside(self.state, event, Producer.BINDER):
                        # It may have left quarantine, or be deletable by its finalizer alone.
                        self._listeners_aside.on_event(event)
                        continue
                    with about_event(event):
                        self._listeners.on_event(event)
                        self.events.on_event(event, Position(stimulus.logged.seq, index), commit.time_ms)
                return []
            case Completed():
                done_with = self._finalizers.on_completed(stimulus)
                if done_with is not None:
                    self._workloads.on_finalizer(done_with, self._effects)
                self._workloads.on_completed(stimulus, self._effects)
                self._deactivations.on_completed(stimulus)
                self._queues.on_completed(stimulus)
                self._retention.on_completed(stimulus)
                self.events.on_completed(stimulus)
                self._set_aside.on_completed(stimulus)
                self._decisions.on_completed(stimulus, self._effects)
                self._provisioning.on_completed(stimulus, self._effects)
                self._checks.on_completed(stimulus)
                return []
            case Settled():
                return self._settle(stimulus.now_ms)
            case Listed() | Changed() | Resumed() | Progressed():
                return []

    def _settle(self, now_ms: UnixMs) -> list[Command]:
        calls: list[Command] = []
        placed_at = self._decisions.settle(now_ms, calls, self._effects)
        events = self._effects[:EVENTS_MAX]
        del self._effects[:EVENTS_MAX]
        wakes = (
            self._workloads.settle(now_ms, calls),
            self._deactivations.settle(now_ms, calls),
            self._finalizers.settle(now_ms, calls),
            self._queues.settle(now_ms, calls),
            self._retention.settle(now_ms, calls),
            self._provisioning.settle(now_ms, calls),
            self._checks.settle(now_ms, calls),
            placed_at,
            self._tell(now_ms, calls),
        )
        self._set_aside.settle(calls)
        commands: list[Command] = []
        if events:
            commands.append(Append(events=tuple(events), decided_at=self.state.position))
        commands.extend(calls)
        due = [wake for wake in wakes if wake is not None]
        if due:
            commands.append(WakeAt(min(due)))
        return commands

    def _tell(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        for deleted in self._retention.deleted:
            self.events.on_deleted(deleted, now_ms)
        self._retention.deleted.clear()
        return self.events.settle(now_ms, calls)
