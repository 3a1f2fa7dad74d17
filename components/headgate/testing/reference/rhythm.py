"""
Kueue's rhythm: heads, cycle, reactions of the controllers, clock.

One scheduling cycle takes the head of every active ClusterQueue at once and decides them with the scheduler's own core
(`headgate.core.cycle`). At the same instant the controllers react until nothing changes: an evicted workload releases
its quota as if its job had stopped at once, enters its queue again if it may, and makes everything that was set aside
in its cohort tree due. Then the clock advances by a second, what is due goes back to the heaps, and the next cycle
begins. Admitted workloads never finish.

The pending queues are those of `queues`; the state changes by ordinary events. In it a head
stays offered after its verdict (scope "immediate"), and each workload has a shape of its own: nothing sleeps there.
"""
# Over 400 lines: one cycle with all that follows from it; each step changes the queues that the next one reads.

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.core.config import feature_gates
from headgate.core.cycle import Cycle, CycleEntry, evaluate, events_of, is_unplaced, unplaced_in
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.plan.log import PlanLog
from headgate.core.plan.parents import made_of_parents
from headgate.core.queueing import eviction
from headgate.core.queueing.enqueueing import requeue_at
from headgate.core.queueing.scheduling_hash import hash_of
from headgate.core.quota.admission_fair_sharing import due, local_queue_usage, orders_by_usage
from headgate.core.quota.cohorts import in_cycle
from headgate.core.state.tables import PENDING, Stage, State, Workload, local_queue_of
from headgate.core.workload import concurrent_admission, owners, variants
from headgate.core.workload.last_fact import last_fact
from headgate.core.workload.ordering import priority_of, queued_at
from headgate.events.base import Producer
from headgate.events.decisions import WorkloadAdmitted, WorkloadPreempted, WorkloadSkipped
from headgate.events.facts import ConfigurationObserved, InformersSynced
from headgate.events.ids import Shape, UnixMs, WorkloadKey, split_key
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    LocalQueuesSampled,
    ObjectChanged,
    PreemptionGateOpened,
    WorkloadEvicted,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)
from headgate.events.registry import Event
from headgate.testing.reference import controllers
from headgate.testing.reference.controllers import Why
from headgate.testing.reference.queues import QueueOfOne, Waiting
from headgate.testing.reference.scans import Scans
from headgate.testing.reference.telling import RecordedEvent, told

SECOND_MS: Final = 1000
_NOTHING: Final[Mapping[WorkloadKey, str]] = {}


class PreemptedCondition(msgspec.Struct, frozen=True):
    """The target and its preemptor, with reason and message of its Preempted condition."""

    by: WorkloadKey
    reason: str
    message: str


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What one cycle did, and the queues after it. Lists of workloads are in the order of their keys."""

    number: int
    time_ms: UnixMs
    cycle: Cycle
    admitted: tuple[WorkloadKey, ...]
    preempted: dict[WorkloadKey, PreemptedCondition]
    evicted: dict[WorkloadKey, Why]
    pending: dict[WorkloadKey, Why]
    """QuotaReserved conditions that the cycle changed to another reason or message."""
    queued: dict[str, list[WorkloadKey]]
    inadmissible: dict[str, list[WorkloadKey]]
    events: tuple[RecordedEvent, ...]


class ReferencePlan:
    """
    One plan under way. Made from facts; `look` once, then `run_cycle` as often as `has_heads`.

    `notes_queues`: whether the record of each cycle has the queues after it, as outcomes have it.
    `victims_leave_at_once`: as in `headgate.core.cycle.evaluate`; in a plan they do. Raises nothing of its own: what
    facts cannot be folded, the fold raises.
    """

    def __init__(
        self,
        facts: Sequence[Event],
        configuration: ConfigurationObserved,
        now_ms: UnixMs,
        *,
        notes_queues: bool = True,
        victims_leave_at_once: bool = True,
    ) -> None:
        self._notes_queues = notes_queues
        self._victims_leave_at_once = victims_leave_at_once
        self.log = PlanLog(now_ms)
        self.log.append(Producer.INFORMER_BRIDGE, [configuration, *facts, InformersSynced()])
        self.log.append(Producer.INFORMER_BRIDGE, made_of_parents(self.state))
        self.catalog = Catalog(self.state)
        self.everybody = tuple(workload for _, workload in sorted(self.state.workloads.items()))
        """Every workload, in the order of their keys. A plan makes no others but families, and forgets none."""
        self.queues: dict[str, QueueOfOne] = {
            name: QueueOfOne(
                best_effort=self.state.cluster_queues[name].spec.queueing_strategy != "StrictFIFO",
                usage=self._usage if orders_by_usage(self.state, name) else None,
            )
            for name in sorted(self.state.cluster_queues)
        }
        self.initial_events: tuple[RecordedEvent, ...] = ()
        self.ran: list[Ran] = []
        self._told: list[RecordedEvent] = []
        self._due: set[str] = set()
        self._scans = Scans(
            preserves=feature_gates.enabled(self.state.configuration, feature_gates.PRESERVE_SCAN_PROGRESS)
        )
        self._asleep: set[WorkloadKey] = set()
        self._waits_for_time: set[WorkloadKey] = set()
        self._second_pass_at: dict[WorkloadKey, UnixMs] = {}
        """When workloads that hold quota are tried for topology domains."""
        self._gates_due: dict[WorkloadKey, UnixMs] = {}
        """When the next preemption gate of a family may be opened, by its parent."""

    @property
    def state(self) -> State:
        """The present state."""
        return self.log.state

    # --- steps ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Queue what waits, and let the controllers look once at every workload."""
        for workload in self.everybody:
            if workload.stage in PENDING:
                self._append(Producer.QUEUE_MANAGER, controllers.allowed_again(self.state, workload, self.log.now_ms))
                self._enter(workload)
        self._react([workload.key for workload in self.everybody])
        self.initial_events, self._told = _sorted(self._told), []

    def has_heads(self) -> bool:
        """Whether an active ClusterQueue has a workload in its heap, or one with quota is due for a second pass."""
        self._note_unplaced()
        if any(at_ms <= self.log.now_ms for at_ms in self._second_pass_at.values()):
            return True
        return any(len(queue) for name, queue in self.queues.items() if self._is_active(name))

    def skip_to_gate(self) -> bool:
        """Without a workload to try, advance the clock to the next preemption gate; False when none is left."""
        if not self._gates_due:
            return False
        self.log.now_ms = max(self.log.now_ms, min(self._gates_due.values()))
        self._open_gates()
        return True

    # Large: the steps of one cycle, and the record of what each has changed.
    def run_cycle(self) -> Ran:
        """One cycle with everything that follows from it, up to the clock's next second."""
        before = {key: _why(self.state.workloads[key]) for key in self._first_in_line()}
        waiting, heads = self._take_heads()
        number = len(self.ran) + 1
        resumes = {each.key: self._scans.resume(each.key, queue.name, number) for each, queue in heads}
        seen = {queue.name: self._scans.generation(queue.name) for _, queue in heads}
        cycle = evaluate(
            self.state,
            self.catalog,
            heads,
            second_pass=self._take_unplaced(),
            resumes=resumes,
            victims_leave_at_once=self._victims_leave_at_once,
        )
        at_ms = self.log.now_ms
        entries = (*cycle.entries, *cycle.rejected)
        decided = self._decide(cycle, entries)
        pending = {
            entry.key: why
            for entry in sorted(entries, key=lambda entry: entry.key)
            if (why := _why(self.state.workloads[entry.key])) is not None and why != before.get(entry.key)
        }
        for entry in entries:
            if entry.second_pass:
                continue
            name, told = entry.queue.name, entry.key in pending
            self._scans.stopped(entry.key, entry.last_tried, cycle=number, generation=seen[name], told=told)
            self._requeue(entry, waiting[name])
        preempted = {
            event.workload: PreemptedCondition(event.preemptor, event.reason, event.message)
            for event in decided
            if isinstance(event, WorkloadPreempted)
        }
        evicted = self._evict_unplaced(entries)
        evicted |= self._react([*sorted(entry.key for entry in entries), *sorted(preempted), *sorted(evicted)])
        self._next_second()
        ran = Ran(
            number=number,
            time_ms=at_ms,
            cycle=cycle,
            admitted=tuple(sorted(entry.key for entry in entries if entry.status == "assumed")),
            preempted=dict(sorted(preempted.items())),
            evicted=dict(sorted(evicted.items())),
            pending=pending,
            queued=self.queued() if self._notes_queues else {},
            inadmissible=self.inadmissible() if self._notes_queues else {},
            events=_sorted(self._told),
        )
        self._told = []
        self.ran.append(ran)
        return ran

    def queued(self) -> dict[str, list[WorkloadKey]]:
        """The heaps that are not empty, in queue order."""
        return {name: queue.active_in_order() for name, queue in self.queues.items() if len(queue)}

    def inadmissible(self) -> dict[str, list[WorkloadKey]]:
        """What is set aside, in queue order."""
        return {name: queue.inadmissible_in_order() for name, queue in self.queues.items() if queue.inadmissible}

    # --- a cycle ----------------------------------------------------------------------------------------------------

    def _is_active(self, cluster_queue: str) -> bool:
        queue = self.catalog.queue(cluster_queue)
        return queue is not None and queue.active.active

    def _first_in_line(self) -> list[WorkloadKey]:
        heads = (queue.head() for name, queue in self.queues.items() if self._is_active(name))
        return [head.key for head in heads if head is not None]

    def _take_unplaced(self) -> list[tuple[Workload, ClusterQueueFlavors]]:
        """The workloads that hold quota and are to be tried now for topology domains."""
        taken: list[tuple[Workload, ClusterQueueFlavors]] = []
        for key, at_ms in sorted(self._second_pass_at.items()):
            workload, queue = self.state.workloads[key], self.catalog.queue(self.state.workloads[key].cluster_queue)
            if at_ms > self.log.now_ms or queue is None or queue.node is None or queue.gates is None:
                continue
            del self._second_pass_at[key]
            if is_unplaced(self.state, key):
                taken.append((workload, queue))
        return taken

    def _note_unplaced(self) -> None:
        """Try workloads that hold quota, and need topology domains, after a second, or after their backoff."""
        for key in unplaced_in(self.state) if self.state.topologies else ():
            waits = self.state.workloads[key].second_pass
            at_ms = waits.retry_at_ms if waits is not None else self.log.now_ms + SECOND_MS
            self._second_pass_at.setdefault(key, UnixMs(at_ms))

    def _evict_unplaced(self, entries: Iterable[CycleEntry]) -> dict[WorkloadKey, Why]:
        """Evict those whose lost node nothing replaces: in Kueue that is part of the cycle."""
        evicted: dict[WorkloadKey, Why] = {}
        for entry in entries:
            if entry.status == "evicted":
                events = eviction.eviction(self.state, entry.workload, self.log.now_ms)
                self._append(Producer.QUEUE_MANAGER, list(events))
                evicted |= {
                    event.workload: Why(event.reason, event.message)
                    for event in events
                    if isinstance(event, WorkloadEvicted)
                }
        return evicted

    def _take_heads(self) -> tuple[dict[str, Waiting], list[tuple[Workload, ClusterQueueFlavors]]]:
        """The head of every active ClusterQueue, in flight from now on, and offered in the state."""
        waiting: dict[str, Waiting] = {}
        for name, pending in self.queues.items():
            if self._is_active(name):
                head = pending.pop()
                if head is not None:
                    waiting[name] = head
        events: list[Event] = []
        offered: list[Head] = []
        heads: list[tuple[Workload, ClusterQueueFlavors]] = []
        for name, head in waiting.items():
            queue, workload = self.catalog.queue(name), self.state.workloads[head.key]
            assert queue is not None
            heads.append((workload, queue))
            if workload.stage is not Stage.OFFERED:
                events += self._into_line(workload, name)
                offered.append(Head(cluster_queue=name, workload=workload.key, uid=workload.uid))
        self._append(Producer.QUEUE_MANAGER, [*events, *([HeadsOffered(heads=tuple(offered))] if offered else [])])
        assert all(workload.stage is Stage.OFFERED for workload, _ in heads), "a head could not be offered"
        return waiting, heads

    def _decide(self, cycle: Cycle, entries: Sequence[CycleEntry]) -> list[Event]:
        """Append what a cycle has decided. What it decided."""
        decided = [_stays_offered(event) for event in events_of(self.state, cycle)]
        considered = {
            entry.key: entry.assignment.considered
            for entry in entries
            if entry.status == "assumed" and entry.assignment is not None
        }
        self._append(Producer.SCHEDULER, decided, considered)
        return decided

    def _into_line(self, workload: Workload, cluster_queue: str) -> list[Event]:
        """What brings a pending workload to QUEUED, awake."""
        events: list[Event] = []
        if workload.stage is Stage.PARKED or workload.key in self._asleep:
            alone = workload.stage is Stage.PARKED
            events.append(
                WorkloadWoken(
                    workload=workload.key,
                    uid=workload.uid,
                    cluster_queue=cluster_queue,
                    by="it is the next of its ClusterQueue",
                    by_position=self.state.position,
                    scope="workload" if alone else "shape",
                    shape=Shape("") if alone else _own_shape(workload),
                )
            )
            self._asleep.discard(workload.key)
        if workload.stage is not Stage.QUEUED:
            events.append(self._queued(workload, cluster_queue))
        return events

    def _queued(self, workload: Workload, cluster_queue: str) -> WorkloadQueued:
        configuration = self.state.configuration
        return WorkloadQueued(
            workload=workload.key,
            uid=workload.uid,
            cluster_queue=cluster_queue,
            priority=priority_of(workload, configuration),
            queued_at_ms=queued_at(workload, configuration),
            shape=_own_shape(workload),
        )

    def _requeue(self, entry: CycleEntry, waiting: Waiting) -> None:
        queue = self.queues[entry.queue.name]
        if entry.status == "assumed":
            queue.delete(entry.key)
            self._scans.forget(entry.key)
            self._scans.changed(entry.queue.name)
            if entry.replaces is not None:
                self._make_due(entry.replaces.cluster_queue)
            return
        if entry.status == "preemptionGated" and variants.is_variant(entry.workload):
            # Its gate may be opened when it has been set aside.
            self._append(Producer.QUEUE_MANAGER, [_set_aside(entry.workload, Why(entry.reason, entry.message))])
        untried = any(index != -1 for indexes in entry.last_tried for index in indexes.values())
        queue.requeue(
            waiting,
            entry.requeue_reason,
            entry.reason,
            untried_flavors=untried,
            may_be_tried=controllers.backoff_is_over(entry.workload, self.log.now_ms),
        )

    # --- reactions --------------------------------------------------------------------------------------------------

    def _react(self, touched: Iterable[WorkloadKey]) -> dict[WorkloadKey, Why]:
        """Run the controllers on these workloads until nothing changes. Those that they evicted, and why."""
        evicted: dict[WorkloadKey, Why] = {}
        look_at = self._with_families(touched)
        while look_at:
            changed = [key for key in look_at if self._reconcile(self.state.workloads[key], evicted)]
            look_at = self._with_families(changed)
        return evicted

    def _with_families(self, keys: Iterable[WorkloadKey]) -> list[WorkloadKey]:
        """These workloads, and behind each the parent or the variants that it has."""
        found: dict[WorkloadKey, None] = {}
        for key in keys:
            found[key] = None
            found.update(
                (each.key, None) for each in concurrent_admission.relatives(self.state, self.state.workloads[key])
            )
        return list(found)

    def _reconcile(self, workload: Workload, evicted: dict[WorkloadKey, Why]) -> bool:
        """One look at a workload; whether it has changed."""
        now_ms = self.log.now_ms
        finished = controllers.finish(self.state, workload) if workload.stage is not Stage.FINISHED else None
        if finished is not None:
            self._left(workload, [finished])
            return True
        if workload.stage is Stage.EVICTED:
            return self._give_back(workload)
        if workload.stage is Stage.FINISHED:
            return False
        driven_out = eviction.eviction(self.state, workload, now_ms)
        if driven_out:
            for event in driven_out:
                if isinstance(event, WorkloadEvicted):
                    evicted[workload.key] = Why(event.reason, event.message)
            held_by = workload.cluster_queue
            self._append(Producer.QUEUE_MANAGER, list(driven_out))
            if workload.stage in PENDING:  # its reservation was cancelled, without an eviction
                self._gave_back(workload, held_by)
                self._enter(workload)
            return True
        if controllers.all_checks_ready(workload):
            admitted = WorkloadAdmitted(
                workload=workload.key,
                uid=workload.uid,
                cluster_queue=workload.cluster_queue,
                message=conditions.IS_ADMITTED,
            )
            self._append(Producer.SCHEDULER, [admitted])
            return True
        if variants.is_parent(workload):
            return self._reconcile_family(workload)
        return workload.stage in PENDING and self._sync_condition(workload)

    def _reconcile_family(self, parent: Workload) -> bool:
        """One look at a parent and its variants; whether it, or one of them, has changed."""
        family = concurrent_admission.family_of(self.state, parent)
        if family is None:
            return False
        switched = concurrent_admission.switches(family)
        for member, active in switched:
            spec = msgspec.structs.replace(member.spec, active=active)
            self._append(Producer.INFORMER_BRIDGE, [msgspec.structs.replace(last_fact(member), spec=spec)])
            self._enter_anew(member)
        said, again_ms = concurrent_admission.steps(self.state, parent, self.log.now_ms)
        self._gates_due.pop(parent.key, None)
        if again_ms is not None and not said:
            self._gates_due[parent.key] = again_ms
        self._append(Producer.QUEUE_MANAGER, said)
        for event in said:
            if isinstance(event, PreemptionGateOpened):
                self._enter_anew(self.state.workloads[event.workload])
        return bool(switched or said)

    def _make_families(self) -> None:
        """A workload that held quota before there were families, and has released it, gets one."""
        made = made_of_parents(self.state)
        self._append(Producer.INFORMER_BRIDGE, made)
        known = {workload.key for workload in self.everybody}
        new = [workload for key, workload in sorted(self.state.workloads.items()) if key not in known]
        self.everybody = tuple(workload for _, workload in sorted(self.state.workloads.items()))
        for workload in new:
            self._enter(workload)

    def _enter_anew(self, workload: Workload) -> None:
        """A workload that has changed goes to the place that it has now, if it waits."""
        self._out_of_queues(workload.key)
        if workload.stage in PENDING:
            self._enter(workload)

    def _open_gates(self) -> None:
        """Look at the families of which a gate is due."""
        self._react([key for key, due_ms in sorted(self._gates_due.items()) if due_ms <= self.log.now_ms])

    def _give_back(self, workload: Workload) -> bool:
        """An evicted workload gives its quota back and queues again if it may."""
        held_quota = workload.admission is not None
        self._append(Producer.INFORMER_BRIDGE, controllers.job_stopped(self.state, workload))
        of_others = not owners.is_run_here(self.state, workload)
        released = eviction.released(workload) if of_others else eviction.release(self.state, workload)
        if released is None:
            return False
        if held_quota:
            self._gave_back(workload, workload.cluster_queue)
        self._append(Producer.QUEUE_MANAGER, [released])
        self._append(Producer.QUEUE_MANAGER, controllers.allowed_again(self.state, workload, self.log.now_ms))
        self._out_of_queues(workload.key)
        self._enter(workload)
        return True

    def _left(self, workload: Workload, events: list[Event]) -> None:
        """A workload that is over: it is in no queue, and what it held is free."""
        self._gave_back(workload, workload.cluster_queue)
        self._append(Producer.QUEUE_MANAGER, events)
        self._out_of_queues(workload.key)

    def _enter(self, workload: Workload) -> None:
        """Put a pending workload into the queue that it belongs to."""
        name = controllers.belongs_to(self.state, workload)
        if not name or variants.is_parent(workload):
            return
        if concurrent_admission.never_queues(self.state, workload):
            self._make_families()
            return
        configuration = self.state.configuration
        hashed = feature_gates.enabled(configuration, feature_gates.SCHEDULING_EQUIVALENCE_HASHING)
        limits = self.catalog.limits(split_key(workload.key)[0])
        rank = (
            -priority_of(workload, configuration),
            queued_at(workload, configuration),
            str(workload.uid),
            workload.key,
        )
        shape = hash_of(workload, self.state, limits) if hashed else Shape("")
        waiting = Waiting(workload.key, rank, shape)
        may_be_tried = controllers.backoff_is_over(workload, self.log.now_ms)
        self.queues[name].push(waiting, may_be_tried=may_be_tried)
        if requeue_at(workload) is not None:
            self._waits_for_time.add(workload.key)

    def _out_of_queues(self, key: WorkloadKey) -> None:
        for queue in self.queues.values():
            queue.delete(key)

    def _sync_condition(self, workload: Workload) -> bool:
        """Write the condition that the workload controller would; whether there was anything to write."""
        name = controllers.belongs_to(self.state, workload)
        bulk_reason = self.queues[name].bulk_reason(workload.key) if name else None
        blocked = controllers.blocker(self.state, self.catalog, workload)
        why = controllers.condition(workload, blocked, bulk_reason, self.state.configuration)
        if why is not None:
            alone = workload.stage not in (Stage.QUEUED, Stage.OFFERED)
            if not alone:
                self._asleep.add(workload.key)
            parked = _set_aside(workload, why, name, alone=alone, writes_condition=True)
            self._append(Producer.QUEUE_MANAGER, [parked])
        return why is not None

    # --- the next second --------------------------------------------------------------------------------------------

    def _usage(self, key: WorkloadKey) -> float:
        return local_queue_usage(self.state, local_queue_of(self.state.workloads[key]))

    def _gave_back(self, workload: Workload, cluster_queue: str) -> None:
        """
        A workload has given quota back: what was set aside in the tree may be tried again.

        Kueue finds the tree by way of the LocalQueue, and its queue manager has none that is gone or stopped: what
        their workloads release requeues no workload (QueueAssociatedInadmissibleWorkloadsAfter of its queue manager).
        """
        local = self.state.local_queues.get(local_queue_of(workload))
        if local is not None and local.spec.stop_policy == "None":
            self._make_due(cluster_queue)
        else:
            self._scans.changed(cluster_queue)

    def _make_due(self, cluster_queue: str) -> None:
        self._scans.changed(cluster_queue)
        tree = self.state.index.trees.get(cluster_queue)
        if tree is not None:
            self._due.add(tree)

    def _next_second(self) -> None:
        """The clock advances; what was set aside in the trees concerned may be tried again."""
        self.log.now_ms = UnixMs(self.log.now_ms + SECOND_MS)
        sampled, _ = due(self.state, self.log.now_ms)
        if sampled:
            self._append(Producer.QUEUE_MANAGER, [LocalQueuesSampled(queues=sampled)])
        self._open_gates()
        for key in sorted(self._waits_for_time):
            workload = self.state.workloads[key]
            over = controllers.allowed_again(self.state, workload, self.log.now_ms)
            if over:
                self._waits_for_time.discard(key)
                self._append(Producer.QUEUE_MANAGER, over)
                self._enter(workload)
        for name, queue in self.queues.items():
            if self.state.index.trees[name] in self._due and not self._has_no_root(name):
                queue.retry(lambda key, name=name: self._may_be_retried(key, name))  # type: ignore[misc]
        self._due.clear()

    def _has_no_root(self, cluster_queue: str) -> bool:
        cohort = self.state.cluster_queues[cluster_queue].spec.cohort_name
        return bool(cohort) and in_cycle(cohort, self.state.cohorts)

    def _may_be_retried(self, key: WorkloadKey, cluster_queue: str) -> bool:
        namespace = self.state.namespaces.get(split_key(key)[0])
        selector = self.state.cluster_queues[cluster_queue].spec.namespace_selector
        return (
            namespace is not None
            and matches_labels(selector, namespace.labels)
            and controllers.backoff_is_over(self.state.workloads[key], self.log.now_ms)
        )

    def _append(
        self, producer: Producer, events: Sequence[Event], considered: Mapping[WorkloadKey, str] = _NOTHING
    ) -> None:
        """Append, and note what Kubernetes Events Kueue would have made of it."""
        for event in events:
            self._told += told(self.state, event, self.log.now_ms, considered)
        self.log.append(producer, list(events), self.state.position)


def _set_aside(
    workload: Workload, why: Why, cluster_queue: str = "", *, alone: bool = True, writes_condition: bool = False
) -> WorkloadParked:
    return WorkloadParked(
        workload=workload.key,
        uid=workload.uid,
        reason=why.reason,
        message=why.message,
        wake=(ObjectChanged(kind="Workload", name=workload.key),),
        cluster_queue=cluster_queue or workload.cluster_queue,
        scope="workload" if alone else "shape",
        writes_condition=writes_condition,
    )


def _own_shape(workload: Workload) -> Shape:
    return Shape(f"{workload.key}")


def _stays_offered(event: Event) -> Event:
    """A verdict as an event for the state of a plan: what it sets aside is in the plan's own queues."""
    if isinstance(event, WorkloadSkipped):
        return msgspec.structs.replace(event, scope="immediate")
    return event


def _why(workload: Workload) -> Why | None:
    """Why a workload has no quota, as in its condition; None when it has some or was not evaluated yet."""
    reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
    if reserved is None or reserved.status != "False":
        return None
    return Why(reserved.reason, reserved.message)


def _sorted(events: Iterable[RecordedEvent]) -> tuple[RecordedEvent, ...]:
    return tuple(sorted(events, key=lambda told: (told.message, told.object, told.reason, told.type)))
