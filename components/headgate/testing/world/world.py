"""
The simulated world: all six processes, the log and a Kubernetes cluster, under one virtual clock and one seed.

`World` runs the very machines that run in production (`headgate.processes.*.decide`) over an in-memory log and the
in-memory API server of `headgate.testing.cluster`. A step of the world is a step of one process: fold some commits,
take an answer or a watch event, decide, carry out a call. Which process, how many commits and what goes wrong is drawn
from the seed, so a failure is a seed, and the same seed gives the same log, byte for byte.

The snapshotter decides when snapshots are taken. They are stored as in production (`processes.snapshots`), the
stretch of the log behind each is folded again and compared, and a process starts from the newest one that the log
names.

What goes wrong (`FaultRates`): a process crashes between any two steps and starts again from a snapshot and the tail; a
second instance takes over while the first still acts as leader; calls fail and are repeated, also after
they had been carried out; watches are cut; commits and answers arrive late, in bursts, one by one.

`set_clock` sets the clock of a process or of the broker wrong; then every process keeps its clock as in production
(`headgate.core.log.log_time`), and one whose own is wrong does not lead.

With `round_ms` a round with any activity takes so much virtual time; without, a chain of reactions
happens at one instant. Some chains continue until time passes: Kueue lets two workloads preempt each other in
turn until a third one ends.

Every commit is folded by the world itself as it is appended, and the invariants are checked after each; `check` is
called with the state, so that a test can add its own.
"""
# Over 400 lines: one simulation; every step draws from the same seed and changes the same log, cluster and processes.

import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, assert_never

import msgspec

from headgate.adapters.kubernetes.errors import api_error, is_operating_error
from headgate.adapters.kubernetes.resources import watchable
from headgate.core import fold
from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.engine.driver import Driver, DriverLimits, OpenTermGate
from headgate.core.engine.outputs import (
    CommitRefused,
    CommitStored,
    MachineDropped,
    MachineMade,
    ObjectSetAside,
    Send,
    SteppedDown,
)
from headgate.core.fold.quarantine import EventFailedError, version_to_retry
from headgate.core.log import branches, reconciliation
from headgate.core.log.log_time import Clocks
from headgate.core.log.refusal import has_refused
from headgate.core.machine.api_results import NOT_FOUND
from headgate.core.machine.call_object import body_of
from headgate.core.machine.contract import (
    AskExtender,
    Call,
    Changed,
    Completed,
    Listed,
    Machine,
    Progressed,
    Resumed,
    TakeSnapshot,
    WakeAt,
)
from headgate.core.reading.decoding import CLUSTER_NAMESPACE, cluster_id_of
from headgate.core.state.attribution import ObjectFailedError
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, decode_entry, digest
from headgate.events.identity import CellFounded, CellRestored
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event
from headgate.events.signing import Signer
from headgate.events.subjects import log_subject
from headgate.machines.binder.decide import Binder
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.scheduler.decide import Scheduler
from headgate.machines.snapshotter.decide import VERIFY, Snapshotter, SnapshotVerification, StoredSnapshot
from headgate.machines.ungater.decide import Ungater
from headgate.processes.snapshots import store
from headgate.processes.snapshots.store import SnapshotMeta
from headgate.testing.cluster import BY_PLURAL, Cluster, ControllerOptions, Watch
from headgate.testing.world.containment import ContainedFold

SCHEDULER_CONFIGURATION: Final[Mapping[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": SCHEDULER_NAME}],
}
"""The default profile, under the name of the pods that Headgate places beside the scheduler of the cluster."""

MACHINES: Mapping[Producer, Callable[[State], Machine]] = {
    Producer.INFORMER_BRIDGE: InformerBridge,
    Producer.QUEUE_MANAGER: QueueManager,
    Producer.SCHEDULER: Scheduler,
    Producer.BINDER: Binder,
    Producer.UNGATER: Ungater,
    Producer.SNAPSHOTTER: Snapshotter,
}
MACHINES_PLACING: Mapping[Producer, Callable[[State], Machine]] = {
    **MACHINES,
    Producer.INFORMER_BRIDGE: partial(InformerBridge, placing=SCHEDULER_CONFIGURATION),
}
"""The same with placement by SCHEDULER_CONFIGURATION."""

CONTROLLERS: Final = ControllerOptions(default_scheduler=True)
"""As most clusters, a simulated one has a scheduler of its own, for pods that name no other."""

EPOCHS_SPARE = 1_000
"""How far epochs are raised by a restore (`headgate.processes.recovery.restore`)."""
BROKER = "broker"
"""The broker's clock, beside those of the producers."""

CLOCK_RETRY_MS = 1000
"""How long a process whose clock is wrong waits until it looks again."""

SNAPSHOTS_KEPT = 4
"""As many as the snapshotter keeps by default."""

HISTORY_MAX = 1000
"""Changes that the cluster keeps per kind: the bridge polls its watches at every step and is never far behind."""


class VirtualClock:
    """Virtual time. It moves only when `World` moves it."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Now, in unix milliseconds."""
        return self.now_ms


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """
    How often what goes wrong, as probabilities per step (or per call).

    `crash` of the stepping process, which stays down for up to `down_ms_max`. `rival` starts a second instance beside a
    running one. `call_error` fails a call before it reaches the API server, `call_lost` after it was done; both are
    repeated, a call of an extender is not. `watch_cut` ends a watch; the bridge resumes it, or lists again. `forget`
    lets the history of a resource expire when the bridge starts, which then has to list what it would have resumed.
    `lag` leaves a process behind the log for a step. No faults are injected after `until_ms` of virtual time, so that
    every run can end. How often snapshots are taken is the snapshotter's `Rules`.
    """

    crash: float = 0.0
    down_ms_max: int = 3000
    rival: float = 0.0
    call_error: float = 0.0
    call_lost: float = 0.0
    watch_cut: float = 0.0
    forget: float = 0.0
    lag: float = 0.0
    append_lost: float = 0.0
    until_ms: int = 0


NO_FAULTS = FaultRates()
NO_SIGNERS: Mapping[Producer, Signer] = {}


class Packed(msgspec.Struct, frozen=True):
    """A snapshot being stored: the call, its manifest, and its bytes as of that moment."""

    call_id: str
    meta: SnapshotMeta
    blob: bytes


class DivergedError(AssertionError):
    """Raised when folding the log again gives another state than the one that a snapshot was taken of."""


class Instance:
    """One instance of one process: its driver, and the I/O that is under way for it."""

    def __init__(self, producer: Producer, name: str, epoch: Epoch, driver: Driver, folding: ContainedFold) -> None:
        self.producer = producer
        self.name = name
        self.epoch = epoch
        """The epoch of its lease, or of the one that it will get next."""
        self.driver = driver
        self.folding = folding
        self.calls: deque[Call | AskExtender] = deque()
        self.snapshots: deque[Packed] = deque()
        self.seen: Seq = driver.state.position
        self.awaits: Seq = Seq(0)
        """How far it has to fold before the result of its append is known."""
        self.clocks = Clocks(producer)
        self.down_until_ms: int | None = None
        self.watches: dict[str, Watch] = {}
        self.news: dict[str, None] = {}
        """The resources whose watches may have something new."""

    @property
    def state(self) -> State:
        """What it has folded."""
        return self.driver.state

    @property
    def machine(self) -> Machine | None:
        """Its machine, while it leads."""
        return self.driver.machine

    def watch(self, resource: str, watch: Watch) -> None:
        """Follow a watch in the place of the one before. Only one that was notified is worth a poll."""
        self.unwatch(resource)
        self.watches[resource] = watch
        self.news[resource] = None
        watch.notify(partial(self.news.__setitem__, resource, None))

    def unwatch(self, resource: str) -> None:
        """Close the watch of a resource, if there is one."""
        watch = self.watches.pop(resource, None)
        if watch is not None:
            watch.close()

    def stop(self) -> None:
        """Drop everything that is under way: its machine is gone."""
        self.calls.clear()
        self.snapshots.clear()
        for resource in list(self.watches):
            self.unwatch(resource)


class World:
    """
    A whole cell under a virtual clock. `cluster` is its Kubernetes; apply objects to it, then `run`.

    The bridge founds the cell, and the others wait for that. Without a bridge among the `machines` none waits.

    The cluster places pods of the default scheduler itself. With MACHINES_PLACING Headgate places those that name it,
    with MACHINES nobody does.

    A defect ends the run with its exception, so that it is found. With `contain` it costs one object, as in production:
    the object is set aside, and new machines are made.
    """

    # Large: the fields of the world, one line each.
    def __init__(
        self,
        *,
        seed: int = 0,
        cell: str = "sim",
        start_ms: int = 1_700_000_000_000,
        faults: FaultRates = NO_FAULTS,
        check: Callable[[State, LoggedCommit], None] | None = None,
        machines: Mapping[Producer, Callable[[State], Machine]] = MACHINES,
        sink: Callable[[int, str, int, bytes], None] | None = None,
        round_ms: int = 0,
        contain: bool = False,
        signers: Mapping[Producer, Signer] = NO_SIGNERS,
        bounds: DriverLimits = DriverLimits(),  # noqa: B008  (frozen)
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311  (a simulation has to be repeatable, not secret)
        self.faults = faults
        self.clock = VirtualClock(start_ms)
        self.cell = cell
        self.cluster = Cluster(self.clock, seed=f"world-{seed}", history_max=HISTORY_MAX, controllers=CONTROLLERS)
        self.state = fold.new_state(cell)
        self.log: list[LoggedCommit] = []
        self.blobs: dict[Seq, bytes] = {}
        """The stored snapshots by position, at most SNAPSHOTS_KEPT."""
        self.restored = 0
        """How often a process started from one."""
        self.refused = 0
        self.remade = 0
        self.contained: list[ObjectFailedError] = []
        """What machines have failed over, where that is contained."""
        self.lists = 0
        self.resumes = 0
        self.crashes = 0
        self.steps = 0
        self.events = 0
        self._check = check
        self._machines = machines
        self._api = watchable()
        self._signers = signers
        self._bounds = bounds
        self._founding = self._make_founding(seed) if Producer.INFORMER_BRIDGE in machines else None
        self._sink = sink
        self._round_ms = round_ms
        self._epochs: dict[Producer, Epoch] = {}
        self._restores = 0
        self._restoring: CellRestored | None = None
        self._contain = contain
        self._folding = self._make_folding()
        self._shared = faults == NO_FAULTS and not contain
        self.skews: dict[str, int] = {}
        """By how much a clock is wrong: a producer's, or BROKER's. Empty: clocks are not checked."""
        self.stood_down = 0
        """How often a process did not lead because its clock was wrong."""
        self.extenders: dict[str, Callable[[str, Any], tuple[int, bytes]]] = {}
        """Extenders by their `urlPrefix`: what each answers to a path and a body, as status and body."""
        self.instances: list[Instance] = []
        for producer in machines:
            self._start(producer, f"{producer.value}-0")

    def _make_founding(self, seed: int) -> CellFounded:
        kube_system = self.cluster.request("GET", f"/api/v1/namespaces/{CLUSTER_NAMESPACE}").body
        return CellFounded(
            cell=self.cell,
            cluster=cluster_id_of(kube_system),
            stream=self.cell,
            log_id=f"simulated-{seed}",
            keys={producer.value: signer.public for producer, signer in self._signers.items()},
            signing="required" if self._signers else "off",
        )

    # --- instances -------------------------------------------------------------------------------------------------

    def _start(self, producer: Producer, name: str) -> Instance:
        """A new instance with a new epoch. It opens its term when it has folded the whole log."""
        epoch = self._epochs[producer] = Epoch(self._epochs.get(producer, 0) + 1)
        folding = self._make_folding()
        instance = Instance(producer, name, epoch, self._driver(producer, self._cold_state(), folding), folding)
        self.instances.append(instance)
        return instance

    def _driver(self, producer: Producer, state: State, folding: ContainedFold) -> Driver:
        """The driver of a process that has just started: it has no term and no machine."""
        signer = self._signers.get(producer)
        return Driver(
            producer,
            state,
            partial(self._make_machine, producer),
            bounds=self._bounds,
            gate=_RestoreGate(self, producer),
            treatments=folding.treatments if self._contain else None,
            sign=None if signer is None else partial(_sign, signer),
        )

    def _make_machine(self, producer: Producer, state: State) -> Machine:
        machine = self._machines[producer](state)
        if isinstance(machine, InformerBridge):
            machine.founding = self._founding
        return machine

    def _make_folding(self) -> ContainedFold:
        return ContainedFold(self.cell, self.log, self._start_from)

    def _start_from(self, up_to: Seq) -> State:
        """The state of the newest snapshot up to a position that this version starts from."""
        for position in sorted((each for each in self.blobs if each <= up_to), reverse=True):
            state = store.unpack(self.blobs[position], self.cell)[1]
            if not version_to_retry(state):
                return state
        return fold.new_state(self.cell)

    def _apply(self, folding: ContainedFold, state: State, logged: LoggedCommit) -> State:
        """The state after a commit; without `contain` whatever fails ends the run."""
        if self._contain:
            return folding.apply(state, logged)
        fold.apply(state, logged)
        return state

    def _cold_state(self) -> State:
        if self._shared:
            return self.state
        record = self.state.snapshot
        blob = self.blobs.get(record.position) if record is not None else None
        if record is None or blob is None:
            return fold.new_state(self.cell)
        meta, state = store.unpack(blob, self.cell)
        if (meta.position, meta.state_hash, meta.log_hash) != (record.position, record.state_hash, record.log_hash):
            raise DivergedError(f"snapshot {record.name} is not the one that the log speaks of")
        if version_to_retry(state):
            return fold.new_state(self.cell)
        self.restored += 1
        return state

    def crash(self, instance: Instance) -> None:
        """Kill an instance at once: its state and what is under way are lost. It starts again after a while."""
        self.crashes += 1
        self._drop(instance, self.random.randint(0, self.faults.down_ms_max))

    def _drop(self, instance: Instance, down_ms: int) -> None:
        """End what an instance is doing, and leave it down for a while."""
        instance.stop()
        instance.driver = self._driver(instance.producer, instance.state, instance.folding)
        instance.awaits = Seq(0)
        instance.down_until_ms = self.clock.now_ms + down_ms

    def stop(self, producer: Producer, for_ms: int) -> None:
        """Kill every instance of a process that runs; it starts again after this time."""
        for instance in self.instances:
            if instance.producer is producer and instance.down_until_ms is None:
                self.crash(instance)
                instance.down_until_ms = self.clock.now_ms + for_ms

    def _revive(self, instance: Instance) -> None:
        instance.down_until_ms = None
        instance.epoch = self._epochs[instance.producer] = Epoch(self._epochs[instance.producer] + 1)
        instance.folding = self._make_folding()
        instance.driver = self._driver(instance.producer, self._cold_state(), instance.folding)
        instance.seen = instance.state.position

    def restore(self, position: Seq) -> CellRestored:
        """
        Lose the log behind a position, and start everything again as after `headgate restore`.

        The cluster keeps what it has. Only worlds with faults keep their log, so that it can be lost.
        """
        assert not self._shared, "a world without faults keeps no log"
        lost_to = self.state.position
        for instance in self.instances:
            instance.stop()
        self.instances.clear()
        del self.log[position:]
        self.blobs = {at: blob for at, blob in self.blobs.items() if at <= position}
        self.upgrade()
        self._restores += 1
        stream = f"{self.cell}-{self._restores}"
        self._restoring = CellRestored(backup="simulated", position=position, stream=stream, lost_to=lost_to)
        for producer, epoch in self._epochs.items():
            self._epochs[producer] = Epoch(epoch + EPOCHS_SPARE)
        for producer in self._machines:
            self._start(producer, f"{producer.value}-0")
        return self._restoring

    def _may_lead(self, instance: Instance) -> bool:
        """As the processes' gate: not before the cell is founded, nor while the log is older than the cluster."""
        if instance.producer is Producer.INFORMER_BRIDGE:
            return True
        if self._founding is not None and instance.state.identity is None:
            return False
        return self.unrecorded(instance.state) is None and reconciliation.is_open(instance.state, instance.producer)

    @property
    def is_reconciled(self) -> bool:
        """Whether the log has the last restore, and everything that the cluster has since."""
        return self.unrecorded(self.state) is None and not self.state.reconciling

    def unrecorded(self, state: State) -> CellRestored | None:
        """The restore that is not in the log yet; None when there is none."""
        event = self._restoring
        return event if event is not None and not branches.is_recorded(state.branches, event) else None

    # --- clocks ----------------------------------------------------------------------------------------------------

    def set_clock(self, whose: str, ahead_ms: int) -> None:
        """Set the clock of a producer, or of BROKER, so much ahead of the world's from now on; 0 sets it right."""
        self.skews[whose] = ahead_ms

    def _shows(self, whose: str) -> UnixMs:
        return UnixMs(self.clock.now_ms + self.skews.get(whose, 0))

    def _now_ms(self, instance: Instance) -> UnixMs:
        """The time that an instance decides with."""
        if not self.skews:
            return UnixMs(self.clock.now_ms)
        return instance.clocks.now_ms(self._shows(instance.producer), self.clock.now_ms)

    def _hear_clocks(self, instance: Instance, logged: LoggedCommit) -> None:
        if self.skews:
            commit = logged.commit
            instance.clocks.observe(commit.producer, commit.time_ms, logged.stored_ms, self.clock.now_ms)

    def _wakes_at_ms(self, instance: Instance) -> int | None:
        """When, by the world's clock, an instance's own will show the time that it waits for."""
        wake_at_ms = instance.driver.wake_at_ms
        return None if wake_at_ms is None else wake_at_ms - (self._now_ms(instance) - self.clock.now_ms)

    def _is_off(self, instance: Instance) -> bool:
        """Whether the instance finds that its own clock is wrong. It compares with the broker, as in production."""
        if not self.skews:
            return False
        instance.clocks.observe_broker(self._shows(BROKER), self.clock.now_ms)
        return instance.clocks.judge(self._shows(instance.producer), self.clock.now_ms).own_is_off

    # --- the log ---------------------------------------------------------------------------------------------------

    def _append(self, instance: Instance, send: Send) -> None:
        """Compare-and-set on the producer's last sequence, as the broker does."""
        commit = send.commit
        record = self.state.producers.get(commit.producer)
        last = record.last_seq if record is not None else Seq(0)
        if send.expected_last != last:
            self.refused += 1
            instance.driver.conflicted(last)
            instance.awaits = last
            return
        logged = LoggedCommit(
            seq=Seq(self.state.position + 1),
            hash=digest(send.payload),
            commit=commit,
            stored_ms=self._shows(BROKER),
            payload=send.payload if commit.producer in self._signers else b"",
        )
        if self._sink is not None:
            self._sink(logged.seq, log_subject(self.cell, commit.producer), logged.stored_ms, send.payload)
        if not self._shared:
            self.log.append(logged)
        self.state = self._apply(self._folding, self.state, logged)
        assert not has_refused(self.state, logged.seq), "what a machine has appended is never refused"
        self.events += len(commit.events)
        if self._check is not None:
            self._check(self.state, logged)
        if self._happens(self.faults.append_lost):
            instance.driver.timed_out()
        else:
            instance.driver.appended(logged.seq)
        instance.awaits = logged.seq
        if self._shared:
            self._tell_all(logged)

    def publish(self, subject: str, payload: bytes) -> bool:
        """What any user with the broker's permission can do; whether the fold accepted it as a commit of the log."""
        seq, now_ms = Seq(self.state.position + 1), self._shows(BROKER)
        logged = decode_entry(seq, subject, payload, now_ms)
        if self._sink is not None:
            self._sink(seq, subject, now_ms, payload)
        if not self._shared:
            self.log.append(logged)
        self.state = self._apply(self._folding, self.state, logged)
        taken = not has_refused(self.state, seq)
        if taken and self._shared:
            self._tell_all(logged)
        return taken

    def _tell_all(self, logged: LoggedCommit) -> None:
        """With one state for all, everybody has folded a commit as soon as it is there."""
        for instance in self.instances:
            self._hear_clocks(instance, logged)
            instance.driver.folded(logged)
            self._carry_out(instance)

    def _hear_log(self, instance: Instance) -> None:
        """Let an instance see more of the log: all of it, or less when it lags behind."""
        if self._happens(self.faults.lag):
            more = self.random.randint(0, self.state.position - instance.seen)
            instance.seen = Seq(instance.seen + more)
        else:
            instance.seen = self.state.position

    def _fold_some(self, instance: Instance) -> None:
        """Fold commits that an instance has seen: all, or a random few when there are faults."""
        start = instance.state.position
        behind = instance.seen - start
        count = self.random.randint(1, behind) if self.failing() and self.random.random() < 0.5 else behind
        for logged in self.log[start : start + count]:
            self._fold_into(instance, logged)
            self._hear_clocks(instance, logged)

    def upgrade(self) -> None:
        """Fold the log again as another version of the code would; the processes do so when they are restarted."""
        self.state, self._folding = fold.new_state(self.cell), self._make_folding()
        for logged in self.log:
            self.state = self._apply(self._folding, self.state, logged)

    @property
    def has_contained(self) -> bool:
        """Whether anything has failed that would have ended the run without `contain`."""
        return bool(self.contained or self._folding.failures)

    def _fold_into(self, instance: Instance, logged: LoggedCommit) -> None:
        try:
            instance.driver.fold(logged)
        except EventFailedError as failed:
            if not self._contain:
                raise
            instance.driver.recovered(instance.folding.recover(failed), logged)
        self._carry_out(instance)

    # --- steps -----------------------------------------------------------------------------------------------------

    def failing(self) -> bool:
        """Whether faults are still injected at this time."""
        return self.clock.now_ms < self.faults.until_ms

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self.failing() and self.random.random() < probability

    def _step(self, instance: Instance) -> bool:
        """One step of one instance. False when it had nothing to do."""
        if self._happens(self.faults.crash):
            self.crash(instance)
            return True
        if self._happens(self.faults.rival) and instance.machine is not None:
            self._rival(instance)
        self._hear_log(instance)
        if instance.state.position < instance.seen:
            self._fold_some(instance)
            return True
        if instance.state.position < instance.awaits:
            return True
        if self._is_off(instance):
            self.stood_down += 1
            self._drop(instance, CLOCK_RETRY_MS)
            return True
        if instance.driver.epoch is None:
            return self._open_term(instance)
        instance.driver.advance(self._now_ms(instance))
        return self._carry_out(instance) or self._work(instance) or instance.seen < self.state.position

    def _rival(self, instance: Instance) -> None:
        """A second instance takes over while the first still runs. The first stops when its next append is refused."""
        if sum(other.producer == instance.producer for other in self.instances) < 2:
            self._start(instance.producer, f"{instance.name.rpartition('-')[0]}-{self.random.randint(1, 9)}")

    def _open_term(self, instance: Instance) -> bool:
        """Open a term and make its machine, in one step, as soon as the process may lead."""
        if not self._may_lead(instance):
            return False
        driver, now_ms = instance.driver, self._now_ms(instance)
        driver.lead(instance.epoch, instance.name)
        driver.advance(now_ms)
        self._carry_out(instance)
        instance.seen = self.state.position
        if not self._shared:
            self._fold_all(instance)
        driver.advance(now_ms)
        self._carry_out(instance)
        return True

    def _fold_all(self, instance: Instance) -> None:
        """A new machine is made from a state that has at least its own first commit."""
        for logged in self.log[instance.state.position :]:
            self._fold_into(instance, logged)
        instance.seen = instance.state.position

    def _step_down(self, instance: Instance) -> None:
        """The last instance of a process stands for election again, under a newer epoch; a superfluous one ends."""
        if sum(other.producer == instance.producer for other in self.instances) > 1:
            instance.stop()
            self.instances.remove(instance)
            return
        instance.epoch = self._epochs[instance.producer] = Epoch(self._epochs[instance.producer] + 1)

    def _work(self, instance: Instance) -> bool:
        if instance.calls and self._call(instance):
            return True
        if instance.snapshots:
            self._store_snapshot(instance)
            return True
        if self._hear(instance):
            return True
        instance.driver.settle(self._now_ms(instance))
        return self._carry_out(instance)

    def _hear(self, instance: Instance) -> bool:
        """Take what the outside has to say: an answer, or what a watch shows."""
        if instance.producer is Producer.INFORMER_BRIDGE and instance.driver.has_room:
            self._poll(instance)
        waiting = instance.driver.stimuli_waiting
        if not waiting:
            return False
        instance.driver.deliver(self.random.randint(1, waiting) if self.failing() else waiting)
        self._carry_out(instance)
        return True

    # Large: one case for each kind of output of the driver.
    def _carry_out(self, instance: Instance) -> bool:
        """Carry out a driver's request. False when it was only the end of an append."""
        acted = False
        for output in instance.driver.take():
            acted = acted or not isinstance(output, CommitStored | CommitRefused)
            match output:
                case Send():
                    self._append(instance, output)
                case Call() | AskExtender():
                    instance.calls.append(output)
                case TakeSnapshot():
                    # The state keeps changing, so its bytes are taken at once.
                    now_ms = UnixMs(self.clock.now_ms)
                    meta, blob = store.pack(instance.state, log_identity=self.cell, taken_ms=now_ms)
                    instance.snapshots.append(Packed(output.call_id, meta, blob))
                case MachineMade():
                    if instance.producer is Producer.INFORMER_BRIDGE:
                        self._follow_all(instance)
                case MachineDropped():
                    self.remade += 1
                    instance.stop()
                case ObjectSetAside(failed=failed):
                    self.contained.append(failed)
                case SteppedDown():
                    self._step_down(instance)
                case WakeAt() | CommitStored() | CommitRefused():
                    pass
                case _:
                    assert_never(output)
        return acted

    # --- Kubernetes ------------------------------------------------------------------------------------------------

    def _call(self, instance: Instance) -> bool:
        """Carry out one call. A failed one stays and is repeated; a lost answer repeats a call that was carried out."""
        call = instance.calls[0]
        if isinstance(call, AskExtender):
            instance.calls.popleft()
            instance.driver.receive(self._asked(call))
            return True
        if self._happens(self.faults.call_error):
            return True
        try:
            body = body_of(call)
        except ObjectFailedError as failed:
            instance.driver.call_failed(failed)
            return self._carry_out(instance)
        response = self.cluster.request(
            call.method,
            call.path,
            query=call.query,
            body=body,
            content_type=call.content_type or "application/json",
            user=instance.producer.value,
        )
        error = api_error(response.status, {}, response.body) if response.status >= 400 else None
        if (error is not None and is_operating_error(error)) or self._happens(self.faults.call_lost):
            return True
        instance.calls.popleft()
        instance.driver.receive(Completed(call.id, response.status, response.body))
        return True

    def _asked(self, ask: AskExtender) -> Completed:
        """What an extender answers. It is asked once: a failed call is its answer, also where it has acted on it."""
        extender = self.extenders.get(ask.extender)
        if extender is None or self._happens(self.faults.call_error):
            return Completed(ask.id, 0, b"connection refused")
        answer = extender(ask.path, msgspec.json.decode(msgspec.json.encode(ask.body)))
        if self._happens(self.faults.call_lost):
            return Completed(ask.id, 0, b"connection reset")
        return Completed(ask.id, *answer)

    def _follow_all(self, instance: Instance) -> None:
        """Watch every resource from its mark in the log; list what has none."""
        anew = instance.machine.listed_anew() if isinstance(instance.machine, InformerBridge) else ()
        for resource in _resources(instance):
            mark = "" if resource in anew else instance.state.resource_versions.get(resource, "")
            if not mark:
                self._list(instance, resource)
                continue
            if self._happens(self.faults.forget):
                self.cluster.store.table(BY_PLURAL[self._api[resource].group, self._api[resource].plural]).compact()
            self.resumes += 1
            instance.driver.receive(Resumed(resource, mark))
            self._watch(instance, resource, mark)

    def _watch(self, instance: Instance, resource: str, version: str) -> None:
        query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        instance.watch(resource, self.cluster.watch(self._api[resource].path(), query))

    def _list(self, instance: Instance, resource: str) -> None:
        self.lists += 1
        path = self._api[resource].path()
        answer = self.cluster.request("GET", path)
        if answer.status == NOT_FOUND and self._api[resource].optional:
            # Not installed: it counts as empty.
            instance.driver.receive(Listed(resource, (), ""))
            return
        listing = answer.json()
        resource_version = listing["metadata"]["resourceVersion"]
        items = tuple(msgspec.json.encode(item) for item in listing.get("items") or ())
        instance.driver.receive(Listed(resource, items, resource_version))
        self._watch(instance, resource, resource_version)

    def _poll(self, instance: Instance) -> None:
        cutting = self.faults.watch_cut > 0 and self.failing()
        if not cutting and not instance.news:
            return
        for resource in _resources(instance):
            if cutting and self._happens(self.faults.watch_cut):
                self._cut(instance, resource)
            if resource in instance.news:
                del instance.news[resource]
                self._poll_watch(instance, resource)

    def _cut(self, instance: Instance, resource: str) -> None:
        """A watch ends. It resumes at the last version that was shown, which may have expired since."""
        if self.random.random() < 0.5:
            self._watch(instance, resource, str(instance.watches[resource].resource_version))
        else:
            self._list(instance, resource)

    def _poll_watch(self, instance: Instance, resource: str) -> None:
        for line in instance.watches[resource].poll():
            event = msgspec.json.decode(line, type=_WatchLine)
            if event.type == "ERROR":
                self._list(instance, resource)
                return
            version = msgspec.json.decode(event.object, type=_Versioned).metadata.resource_version
            if event.type == "BOOKMARK":
                instance.driver.receive(Progressed(resource, version))
            else:
                instance.driver.receive(Changed(resource, event.type, bytes(event.object), version))

    def _store_snapshot(self, instance: Instance) -> None:
        """Store a snapshot as the snapshotter's loop does, and fold the log behind it again to verify it."""
        packed = instance.snapshots.popleft()
        meta = packed.meta
        state = self._start_from(Seq(meta.position - 1))
        self.blobs[meta.position] = packed.blob
        for old in sorted(self.blobs)[:-SNAPSHOTS_KEPT]:
            del self.blobs[old]
        stored = StoredSnapshot(
            name=store.name_of(meta.position),
            position=meta.position,
            state_hash=meta.state_hash,
            log_hash=meta.log_hash,
            size_bytes=meta.size_bytes,
        )
        instance.driver.receive(Completed(packed.call_id, 200, msgspec.json.encode(stored)))
        if self._shared:
            return  # One state for all and no log: there is nothing to compare, and no process starts from it.
        folding = self._make_folding()
        for logged in self.log[state.position : meta.position]:
            state = self._apply(folding, state, logged)
        refolded = fold.state_hash(state)
        if refolded != meta.state_hash:
            raise DivergedError(f"the log folded to position {meta.position} gives {refolded}, not {meta.state_hash}")
        verified = SnapshotVerification(position=meta.position, live_hash=meta.state_hash, refolded_hash=refolded)
        instance.driver.receive(Completed(f"{VERIFY}{meta.position}", 200, msgspec.json.encode(verified)))

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self, *, until: Callable[["World"], bool] | None = None, until_ms: int | None = None) -> bool:
        """
        Run until `until` holds, or nothing will ever happen again, or virtual time passes `until_ms`.

        True when it ended, or by `until`; False when time ran out.
        """
        while True:
            if until is not None and until(self):
                return True
            if self._round():
                if self._round_ms:
                    self.advance(self.clock.now_ms + self._round_ms)
                    if until_ms is not None and self.clock.now_ms >= until_ms:
                        return False
                continue
            due_ms = self._next_due_ms()
            if due_ms is None:
                return True
            if until_ms is not None and due_ms > until_ms:
                self.clock.now_ms = until_ms
                return False
            self.advance(due_ms)

    def _round(self) -> bool:
        """Let each instance, in random order when there are faults, take a step."""
        order = list(self.instances)
        if not self._shared:
            self.random.shuffle(order)
        busy = False
        for instance in order:
            if instance not in self.instances:
                continue
            if instance.down_until_ms is not None:
                if instance.down_until_ms > self.clock.now_ms:
                    continue
                self._revive(instance)
            if self._step(instance):
                self.steps += 1
                busy = True
        return busy

    def _next_due_ms(self) -> int | None:
        due = [self.cluster.next_due_ms()]
        due += [self._wakes_at_ms(instance) for instance in self.instances]
        due += [instance.down_until_ms for instance in self.instances]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def advance(self, to_ms: int) -> None:
        """Move the virtual clock, and with it the cluster's controllers."""
        self.clock.now_ms = max(self.clock.now_ms, to_ms)
        self.cluster.step(self.clock.now_ms)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create objects in the cluster, or merge them into those that are there: leaving out removes nothing."""
        for each in objects:
            self.cluster.apply(dict(each))

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Create objects in the cluster, as `kubectl create` would: several times cheaper than to apply them."""
        for each in objects:
            self.cluster.create(dict(each))


class _RestoreGate(OpenTermGate):
    """The bridge's first append records that the log was restored."""

    def __init__(self, world: World, producer: Producer) -> None:
        self._world = world
        self._is_bridge = producer is Producer.INFORMER_BRIDGE

    def opening(self, state: State) -> tuple[Event, ...]:
        """`cell.restored`, if the log does not have it yet."""
        restored = self._world.unrecorded(state) if self._is_bridge else None
        return () if restored is None else (restored,)


def _resources(instance: Instance) -> tuple[str, ...]:
    """The resources that a bridge has to be shown; none for another process, or before it leads."""
    return instance.machine.resources if isinstance(instance.machine, InformerBridge) else ()


def _sign(signer: Signer, state: State, payload: bytes) -> bytes:  # noqa: ARG001  (a `Sign`)
    return signer.sign(payload)


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _Versioned(msgspec.Struct):
    metadata: _Metadata
