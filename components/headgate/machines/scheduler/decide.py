"""
The scheduler's machine: one commit per cycle.

Reads: heads that the queue manager has offered, reserved workloads whose admission checks have become Ready, workloads
that hold quota and need topology domains, and the whole state of queues, quota and nodes. Appends: `cycle.decided` with
its `workload.quota_reserved`, `workload.admitted`, `workload.topology_assigned`, `workload.second_pass_failed` and
`workload.skipped`. It has no effect outside; its only calls are those of scheduler extenders.

The decision itself is `headgate.core.cycle.decide_cycle`, a function of the state alone; the commit names the position
of that state. Everything else that the machine holds is a cache that changes no answer: the catalog derived from specs,
and the reserved workloads that may have become ready. A machine that starts on a folded state examines all of them
once, so it resumes where a crashed one stopped.

Pods are placed on nodes beside that (`headgate.machines.scheduler.placement`): when there is no cycle to decide, the
next decisions about pods are one commit. Extenders that have to be asked first are called from there.

It decides on every `Settled`, so cycles follow each other as fast as commits are acknowledged, and stop when no active
ClusterQueue has an offered head: the queue manager offers only workloads whose chances may have changed.
"""

from headgate.core.cycle import decide_cycle, is_ready, is_unplaced, unplaced_in
from headgate.core.flavors.catalog import Catalog
from headgate.core.fold.quarantine import about_event, is_about_aside
from headgate.core.machine.contract import Append, Command, Committed, Completed, Settled, Stimulus, WakeAt
from headgate.core.placement.configuration.profiles import Registry
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.quota.structural import is_structural
from headgate.core.state.tables import Stage, State
from headgate.events.base import Producer
from headgate.events.decisions import QuotaReserved
from headgate.events.facts import ClusterQueueObserved, NodeDeleted, NodeObserved, WorkloadObserved
from headgate.events.families import is_of_workload
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.queueing import CheckUpdated
from headgate.events.registry import Event
from headgate.machines.scheduler.placement import PlacementReport, PodPlacements


class Scheduler:
    """
    Decides cycles, and places pods by the plugins of `registry`.

    `state` is read only; the host folds commits into it before it delivers a stimulus.
    """

    def __init__(self, state: State, registry: Registry = REGISTRY) -> None:
        self.state = state
        self._catalog: Catalog | None = None
        self._reserved: dict[WorkloadKey, None] = dict.fromkeys(state.index.reserved)
        """Reserved workloads that may be ready for admission; at most those that hold quota."""
        self._unplaced: dict[WorkloadKey, None] = dict.fromkeys(unplaced_in(state))
        """Workloads that hold quota and need topology domains."""
        self._placement = PodPlacements(state, registry)

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """At most one `Append`, a `WakeAt` for pods that wait, and calls of extenders; only on `Settled`."""
        match stimulus:
            case Committed(logged):
                for event in logged.commit.events:
                    if not is_about_aside(self.state, event, Producer.SCHEDULER):
                        with about_event(event):
                            self._note(event)
                return []
            case Settled(now_ms):
                return self._cycle() or self._place(now_ms)
            case Completed():
                self._placement.ended(stimulus)
                return []
            case _:
                raise AssertionError(f"the scheduler asks for nothing that could bring {type(stimulus).__name__}")

    def placement_report(self) -> PlacementReport | None:
        """What is to be seen of the placement of pods and is not in the log; None while no pods are placed."""
        return self._placement.report()

    def _note(self, event: Event) -> None:
        """Record what a commit makes necessary to examine; drop what it makes obsolete."""
        if is_structural(event):
            if self._catalog is not None:
                self._catalog.change(event)
            if isinstance(event, ClusterQueueObserved):
                # Its list of admission checks may have become shorter.
                self._reserved |= self.state.index.reserved
                self._unplaced |= dict.fromkeys(unplaced_in(self.state))
        elif isinstance(event, NodeObserved | NodeDeleted):
            if self._catalog is not None:
                self._catalog.note_node(event)
        elif is_of_workload(event):
            if isinstance(event, QuotaReserved | WorkloadObserved | CheckUpdated):
                workload = self.state.workloads.get(event.workload)
                if workload is not None and workload.stage is Stage.RESERVED:
                    self._reserved[event.workload] = None
            self._note_unplaced(event.workload)
        else:
            self._placement.listeners.on_event(event)

    def _note_unplaced(self, key: WorkloadKey) -> None:
        if is_unplaced(self.state, key):
            self._unplaced[key] = None

    def _cycle(self) -> list[Command]:
        state = self.state
        if not state.synced:
            return []
        self._reserved = {key: None for key in self._reserved if is_ready(state, key)}
        self._unplaced = {key: None for key in self._unplaced if is_unplaced(state, key)}
        if not self._reserved and not self._unplaced and not any(state.index.offered.values()):
            return []
        if self._catalog is None:
            self._catalog = Catalog(state)
        events = decide_cycle(state, self._catalog, self._reserved, self._unplaced)
        return [Append(events=events, decided_at=state.position)] if events else []

    def _place(self, now_ms: UnixMs) -> list[Command]:
        """The next decisions about pods."""
        step = self._placement.decide(now_ms)
        commands: list[Command] = []
        if step.wake_ms is not None:
            commands.append(WakeAt(step.wake_ms))
        if step.events:
            commands.append(Append(events=step.events, decided_at=self.state.position))
        return [*commands, *step.calls]
