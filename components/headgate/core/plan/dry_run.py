"""
A dry run of a cell: its queue manager and its scheduler over an in-memory log, under a virtual clock.

`headgate plan -f` starts it with the facts of manifests. The machines are those of the processes, each run by the same
driver (`headgate.core.engine`); the caller passes them, because this package must not import the processes. The reports
of the other processes and the cluster are reduced to what decisions depend on (`reactions`): the work of evicted
workloads stops, variants are created and switched on and off. No pod is started, and admitted workloads never finish;
so their maximum execution times are ignored.

One step is: reactions and the queue manager until neither appends anything, then one decision of the scheduler. A step
takes `step_ms`. When nothing is appended, the clock advances to the next requested time of a machine.

Pure: the clock is an argument, and two runs of one input are equal byte for byte.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from headgate.core.engine.driver import Driver
from headgate.core.engine.outputs import CommitStored, MachineDropped, MachineMade, ObjectSetAside, Send
from headgate.core.kubernetes import conditions
from headgate.core.machine.contract import Machine, WakeAt
from headgate.core.plan.log import EPOCH, PlanLog
from headgate.core.plan.reactions import reactions, stopped
from headgate.core.state.tables import HOLDS_QUOTA, Stage, State, Workload
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, digest
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadMigrated, WorkloadPreempted
from headgate.events.facts import ConfigurationObserved, InformersSynced, WorkloadObserved
from headgate.events.families import names_workload
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.queueing import LocalQueuesSampled, WorkloadEvicted
from headgate.events.registry import Event

STEP_MS: Final = 10
"""How long one step takes: about as long as a cycle of a running cell."""

HORIZON_MS: Final = 365 * 86_400_000
"""How far the clock advances at most. What is due later does not happen in a plan."""

QUIET_MS: Final = 3_600_000
"""How long the clock advances while nothing happens but samples of the usage of LocalQueues."""

LOOP_AFTER: Final = 5
"""How often the same workloads may hold the same quota before it counts as a loop."""

Stop = Literal["stable", "loop", "limit"]

MakeMachine = Callable[[State], Machine]


class PlannedPreemption(msgspec.Struct, frozen=True):
    """One preemption: the cycle, the victim, the preemptor, and the message of its condition."""

    cycle: int
    workload: WorkloadKey
    by: WorkloadKey
    reason: str
    message: str


class DryRun:
    """
    See the module docstring. `run` once; then `state` is the final state of the cell, and `log` its history.

    `step_ms` is how long one step takes, `stops_after_ms` how long the work of an evicted workload takes to stop.
    Raises what the fold raises when the facts cannot be folded.
    """

    def __init__(
        self,
        facts: Sequence[Event],
        configuration: ConfigurationObserved,
        now_ms: UnixMs,
        machines: Mapping[Producer, MakeMachine],
        *,
        step_ms: int = STEP_MS,
        stops_after_ms: int = 0,
    ) -> None:
        self.log = PlanLog(now_ms)
        self._horizon_ms = now_ms + HORIZON_MS
        self._step_ms, self._stops_after_ms = step_ms, stops_after_ms
        self._stopping: list[tuple[UnixMs, WorkloadKey]] = []
        """Evicted workloads whose work has not stopped yet, and when it will; first one first."""
        self.cycles = 0
        self.reserved_in: dict[WorkloadKey, int] = {}
        """The last cycle that reserved quota for a workload."""
        self.preempted: list[PlannedPreemption] = []
        self._drivers = {producer: Driver(producer, self.log.state, make) for producer, make in machines.items()}
        for driver in self._drivers.values():
            driver.resume_term(EPOCH)
        self._wake_at: dict[Producer, UnixMs] = {}
        self._changed: dict[WorkloadKey, None] = {}
        """Workloads with events since the last reactions."""
        self._has_evicted = False
        """Whether a workload was evicted in this step: only then can a run return to a former situation."""
        self._append(Producer.INFORMER_BRIDGE, (configuration, *map(_without_end, facts), InformersSynced()))

    @property
    def state(self) -> State:
        """The current state."""
        return self.log.state

    def run(self, cycles_max: int) -> Stop:
        """
        Let the machines decide until nothing changes any more; returns why it ended.

        `stable`: nothing is left to decide, now or later. `loop`: after an eviction the same workloads hold the same
        quota for the fifth time. `limit`: there was more to decide after `cycles_max` cycles.
        """
        quiet_since_ms = self.log.now_ms
        seen: Counter[str] = Counter()
        while True:
            said = self._react()
            if self.cycles >= cycles_max and any(self.state.index.offered.values()):
                return "limit"
            said |= self._settle(Producer.SCHEDULER)
            if self._has_evicted:
                self._has_evicted = False
                holding = self._holding()
                seen[holding] += 1
                if seen[holding] >= LOOP_AFTER:
                    return "loop"
            self.log.now_ms = UnixMs(self.log.now_ms + self._step_ms)
            if said:
                quiet_since_ms = self.log.now_ms
            elif not self._skip_to_next(quiet_since_ms):
                return "stable"

    def _holding(self) -> str:
        """A digest of which workloads hold how much of which quota. It costs a pass over them."""
        holders = sorted(key for of_queue in self.state.index.holders.values() for key in of_queue)
        used = [(key, sorted(self.state.index.usage_of.get(key, {}).items())) for key in holders]
        return digest(msgspec.json.encode(used))

    def _react(self) -> bool:
        """Reactions and queue manager until neither appends anything; returns whether they did."""
        has_said = False
        while True:
            self._append_reactions()
            if not self._settle(Producer.QUEUE_MANAGER):
                return has_said
            has_said = True

    def _append_reactions(self) -> None:
        while self._changed or (self._stopping and self._stopping[0][0] <= self.log.now_ms):
            changed, self._changed = self._changed, {}
            for producer, events in reactions(self.state, changed):
                self._append(producer, events)
            self._stopping += [
                (UnixMs(self.log.now_ms + self._stops_after_ms), key)
                for key in changed
                if key in self.state.workloads and self.state.workloads[key].stage is Stage.EVICTED
            ]
            while self._stopping and self._stopping[0][0] <= self.log.now_ms:
                _, key = self._stopping.pop(0)
                for producer, events in stopped(self.state, key):
                    self._append(producer, events)

    def _skip_to_next(self, quiet_since_ms: UnixMs) -> bool:
        """Advance the clock to the next requested time of a machine; False when there is none within the horizon."""
        times = [*self._wake_at.values(), *(at_ms for at_ms, _ in self._stopping[:1])]
        next_ms = min(times, default=None)
        if next_ms is None or next_ms > self._horizon_ms or self.log.now_ms - quiet_since_ms > QUIET_MS:
            return False
        self.log.now_ms = max(self.log.now_ms, next_ms)
        return True

    def _settle(self, producer: Producer) -> bool:
        """Let one machine decide if there is a reason; returns whether it appended anything but samples of usage."""
        driver, said = self._drivers[producer], False
        if self._wake_at.get(producer, self.log.now_ms + 1) <= self.log.now_ms:
            del self._wake_at[producer]
        driver.advance(self.log.now_ms)
        driver.settle(self.log.now_ms)
        for output in driver.take():
            match output:
                case Send():
                    said = not all(isinstance(event, LocalQueuesSampled) for event in output.commit.events)
                    logged = self.log.store(producer, output.payload)
                    self._folded(logged)
                    driver.appended(logged.seq)
                case WakeAt():
                    self._wake_at[producer] = output.at_ms
                case ObjectSetAside():
                    said = True
                case CommitStored() | MachineMade() | MachineDropped():
                    pass
                case _:
                    raise AssertionError(f"no machine of a dry run asks for {type(output).__name__}")
        return said

    def _append(self, producer: Producer, events: Sequence[Event]) -> None:
        """Append what another process would append, or this one in answer to it."""
        logged = self.log.append(producer, list(events))
        if logged is not None:
            self._folded(logged)

    def _folded(self, logged: LoggedCommit) -> None:
        for driver in self._drivers.values():
            driver.folded(logged)
        for event in logged.commit.events:
            match event:
                case CycleDecided():
                    self.cycles = event.cycle
                case QuotaReserved():
                    self.reserved_in[event.workload] = self.cycles
                case WorkloadPreempted():
                    said = PlannedPreemption(self.cycles, event.workload, event.preemptor, event.reason, event.message)
                    self.preempted.append(said)
                    self._has_evicted = True
                case WorkloadEvicted() | WorkloadMigrated():
                    self._has_evicted = True
                case _:
                    pass
            if names_workload(event) and event.workload:
                self._changed[event.workload] = None


def _without_end(fact: Event) -> Event:
    """A fact for the dry run: without maximum execution times."""
    if not isinstance(fact, WorkloadObserved) or fact.spec.maximum_execution_time_seconds is None:
        return fact
    return replace(fact, spec=replace(fact.spec, maximum_execution_time_seconds=None))


def state_of(workload: Workload) -> str:
    """The status of a workload, in a word: Admitted, QuotaReserved, Finished, Inactive or Pending."""
    if workload.stage is Stage.FINISHED:
        return "Finished"
    if workload.stage in HOLDS_QUOTA and workload.admission is not None:
        return "Admitted" if conditions.is_true(workload.conditions, conditions.ADMITTED) else "QuotaReserved"
    return "Pending" if workload.spec.active else "Inactive"


__all__ = ["DryRun", "MakeMachine", "PlannedPreemption", "Stop", "state_of"]
