"""
The queue manager's machine: the place of each pending workload, the reason, its wake condition, and the next heads.

Reads: facts, the scheduler's decisions, the outcomes of jobs. Appends: the events of `headgate.events.queueing`. It has
no effect outside and makes no calls.

Everything follows from the state. `placing` and `leaving` decide for one workload, `sleeping` and `turns` for sleeping
workloads, `offering` for one ClusterQueue; each returns nothing when the state is up to date. This module only tracks
what to examine: whatever a commit touched is examined at the next `Settled`, and nothing else is. A new machine
examines everything once, so it resumes the work of one that crashed at any instant.

Nothing is appended before the informers are in sync: until then a missing LocalQueue may only not be listed yet. The
same holds for conclusions from an absent object while a later term of the informer bridge has not listed every resource
(`State.relisting`): workloads examined meanwhile are examined again when the relist is complete.

One commit carries the findings of one `Settled`, up to `EVENTS_PER_COMMIT_MAX`; the rest is kept and follows when that
commit is folded. Offers have a separate budget, so that a flood of arrivals does not starve the scheduler and offers do
not starve placing. ClusterQueues are served in the order in which they were touched.
"""
# Over 400 lines: the machine: one handler for each kind of event, over the same sets of what is to be examined.

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final

from headgate.core.fold.quarantine import about_event, is_about_aside, is_aside
from headgate.core.machine.contract import Append, Command, Committed, Settled, Stimulus, WakeAt
from headgate.core.provisioning import deciding as provisioning
from headgate.core.provisioning.configs import checks_using, is_ours
from headgate.core.queueing import second_pass
from headgate.core.queueing.enqueueing import by_verdict, steps
from headgate.core.queueing.eviction import deadline_of, eviction, finish, release
from headgate.core.queueing.wake_conditions import Sleeper, Woken
from headgate.core.quota.activeness import cluster_queue_active
from headgate.core.quota.admission_fair_sharing import due, orders_by_usage
from headgate.core.quota.cache import Forest
from headgate.core.quota.structural import QueueFact, is_structural
from headgate.core.state.attribution import about
from headgate.core.state.tables import HOLDS_QUOTA, Parked, Stage, State, Workload
from headgate.core.workload import concurrent_admission
from headgate.core.workload.pod_requests import Limits, limits_of
from headgate.core.workload.slices import is_elastic, slices_of
from headgate.core.workload.variants import is_parent, is_variant
from headgate.events import decisions, effects, extenders, facts, identity
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit, Position
from headgate.events.families import NamesWorkload, is_in_cluster_queue, is_of_workload, names_workload
from headgate.events.ids import LocalQueueKey, UnixMs, WorkloadKey, split_key
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    HeadsWithdrawn,
    LocalQueuesSampled,
    QueueEvent,
    TimePassed,
    WorkloadFinished,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)
from headgate.events.registry import Event
from headgate.machines.queue_manager.draft import Draft
from headgate.machines.queue_manager.node_failures import NodeFailures
from headgate.machines.queue_manager.offering import offer
from headgate.machines.queue_manager.retries import VAIN
from headgate.machines.queue_manager.second_passes import SecondPasses
from headgate.machines.queue_manager.sleeping import Sleeping
from headgate.machines.queue_manager.wake_policy import WakePass

EVENTS_PER_COMMIT_MAX = 2000
"""Steps of workloads in one commit. One workload's steps stay together, so a commit may hold a few more."""

SAMPLES_PER_COMMIT_MAX = 2000
"""LocalQueues whose usage one commit brings up to date. The rest follows when it is folded."""

HEADS_PER_COMMIT_MAX = 2000
"""Heads offered in one commit, in addition. One ClusterQueue's offer stays together."""

_SILENT = (effects.StatusApplied, effects.StatusRejected)
"""Events that name a workload and change nothing here except when events of other writers take effect."""

_FREQUENT = (
    facts.WorkloadObserved,
    WorkloadQueued,
    decisions.QuotaReserved,
    decisions.WorkloadAdmitted,
    decisions.WorkloadSkipped,
    WorkloadParked,
    WorkloadWoken,
    WorkloadFinished,
)
"""Events about one workload that are too frequent to be matched against all other cases."""

_Unheard = (
    facts.SchedulerConfigurationObserved
    | facts.ObjectObserved
    | facts.ObjectDeleted
    | facts.NamespaceObserved
    | facts.NamespaceDeleted
    | facts.NodeUsageObserved
    | facts.WorkloadPriorityClassObserved
    | facts.WorkloadPriorityClassDeleted
    | facts.PriorityClassObserved
    | facts.PriorityClassDeleted
    | identity.CellFounded
    | identity.CellKeysChanged
    | identity.CellRestored
    | decisions.CycleDecided
    | decisions.PodPlaced
    | decisions.PodPrepared
    | decisions.PodWithdrawn
    | decisions.PodUnschedulable
    | decisions.PodTried
    | decisions.PodNominated
    | decisions.PodGroupTried
    | effects.LeaderElected
    | effects.PodBound
    | effects.PodBindRejected
    | effects.PodPreempted
    | effects.PodPreemptionRejected
    | effects.PodWriteRejected
    | effects.PodRemoved
    | effects.PodFailed
    | extenders.ExtenderAnswered
    | facts.PodTemplateObserved
    | facts.PodTemplateDeleted
    | effects.VariantChanged
    | effects.SnapshotTaken
    | effects.DivergenceFound
    | effects.ObjectQuarantined
    | effects.ObjectReleased
)
"""Events after which nothing has to be examined here. The rest of the events is noted."""

_PASSED_OVER: Final[frozenset[type[EventBase]]] = frozenset(
    {facts.ObjectObserved, facts.ObjectDeleted, decisions.PodPlaced, decisions.PodUnschedulable, effects.PodBound}
)
"""Those of them of which there are several for every pod that is placed."""

Standing = tuple[bool, str]
"""Whether a ClusterQueue is active, and its stop policy."""


def _cluster_queue_of(event: Event) -> str | None:
    return event.cluster_queue if is_in_cluster_queue(event) else None


class QueueManager:
    """Decides queue life. `state` is read only; the host folds commits into it before it delivers a stimulus."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._look: OrderedDict[WorkloadKey, None] = OrderedDict(
            (key, None) for key, workload in state.workloads.items() if workload.stage is not Stage.FINISHED
        )
        """
        Workloads to examine, oldest entry first. An OrderedDict, because removing from the front of a plain dict is
        slow.
        """
        self._touched: dict[str, None] = dict.fromkeys((*state.index.pending, *state.index.offered, *state.sleeps))
        """ClusterQueues whose offers are to be examined."""
        self._sleeping = self._new_sleeping()
        self._forest: Forest | None = None
        """The quota trees, cached until a spec changes."""
        self._standings: dict[str, Standing] = {}
        self._queues_changed = True
        self._unproven: dict[WorkloadKey, None] = {}
        """Workloads that were examined while an absent object may only not have been listed yet."""
        self._stood_in: dict[WorkloadKey, str] = {}
        """
        The ClusterQueue in which a workload was last offered; a deletion does not contain it. One entry per workload.
        """
        self._limits: dict[str, Limits] = {}
        self._deadlines: list[tuple[UnixMs, WorkloadKey]] = []
        """A heap; may contain obsolete times."""
        self._deadline_of: dict[WorkloadKey, UnixMs] = {}
        """The latest time in the heap of each workload."""
        self._sample_at: UnixMs | None = None
        """The earliest time of the next sample of a LocalQueue's usage; None when it is not computed yet."""
        self._cause: Position | None = None
        self._look.update(dict.fromkeys(state.index.requests_of))
        self._node_failures = NodeFailures(state)
        self._second_passes = SecondPasses(state)
        self._start()

    def _new_sleeping(self) -> Sleeping:
        """The tracker of sleepers, with the wake policy of the configuration."""
        return Sleeping(self.state)

    def _start(self) -> None:
        for workload in self.state.workloads.values():
            if workload.parked is not None:
                with about("Workload", workload.key):
                    self._remember(workload.key, workload.cluster_queue, workload.parked)
        for cluster_queue, offered in self.state.index.offered.items():
            self._stood_in.update(dict.fromkeys(offered, cluster_queue))
        for workload in self.state.workloads.values():
            if workload.stage is Stage.SKIPPED:
                self._stood_in[workload.key] = workload.cluster_queue
        for cluster_queue, sleep in self.state.sleeps.items():
            if sleep.blocked_by:
                self._stood_in[sleep.blocked_by] = cluster_queue

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """At most one `Append` and one `WakeAt`, and only on `Settled`."""
        match stimulus:
            case Committed(logged):
                self._note_commit(logged)
                return []
            case Settled(now_ms):
                return self._settle(now_ms)
            case _:
                raise AssertionError(f"the queue manager asks for nothing that could bring {type(stimulus).__name__}")

    # --- noting ----------------------------------------------------------------------------------------------------

    def _note_commit(self, logged: LoggedCommit) -> None:
        self._cause = Position(logged.seq, 0)
        concerned: dict[str, None] = {}
        for event in logged.commit.events:
            if type(event) in _PASSED_OVER:
                continue
            if is_about_aside(self.state, event, Producer.QUEUE_MANAGER):
                continue
            with about_event(event):
                if not isinstance(event, VAIN):
                    concerned.update(dict.fromkeys(self._concerned(event)))
                if self._forest is not None and is_structural(event):
                    self._forest.change(event)
                self._note(event)
                if is_of_workload(event):
                    self._node_failures.on_workload(event.workload)
        self._look.update(dict.fromkeys(self._second_passes.note(logged)))
        self._sleeping.note_commit(logged.commit, concerned)

    def _concerned(self, event: Event) -> Iterable[str]:
        """The ClusterQueues in which the workload of an event was or is queued."""
        if names_workload(event) and event.workload:
            workload = self.state.workloads.get(event.workload)
            stands_in = workload.cluster_queue if workload is not None else ""
            queues = (self._stood_in.get(event.workload, ""), _cluster_queue_of(event), stands_in)
            yield from filter(None, queues)

    # Large: one case for each event type after which something is to be examined.
    def _note(self, event: Event) -> None:
        """Record what an event makes necessary to examine."""
        match event:
            case _ if isinstance(event, _FREQUENT):
                self._note_workload(event.workload, event)
            case _ if isinstance(event, _SILENT):
                if (workload := self.state.workloads.get(event.workload)) is not None and workload.shown is not None:
                    # Events of other writers take effect when none of ours is left to be written.
                    self._look[event.workload] = None
            case _ if isinstance(event, QueueFact):
                self._queues_changed = True
                if isinstance(event, facts.ClusterQueueObserved):
                    # Its ordering may have changed, and the admission checks of its workloads.
                    self._touched[event.name] = None
                    self._look_at_unchecked(event.name)
                elif isinstance(event, facts.AdmissionCheckObserved) and is_ours(self.state, event.name):
                    self._look_at_checked((event.name,))
            case facts.PodObserved() | facts.PodDeleted():
                self._look.update(dict.fromkeys(self._node_failures.on_pod(event.pod)))
            case facts.NodeObserved() | facts.NodeDeleted():
                self._look.update(dict.fromkeys(self._node_failures.on_node(event.name)))
            case LocalQueuesSampled():
                self._sample_at = None
                for queue in event.queues:
                    self._touch_usage_of(queue)
            case facts.ConfigurationObserved():
                self._sample_at = None
                if self._sleeping.policy_name != self.state.configuration.wake_policy:
                    self._sleeping = self._new_sleeping()
                    self._start()
                self._touched.update(dict.fromkeys(self.state.index.offered))
                # Deadlines may have changed, and with them everything that a workload's place follows from.
                self._look.update(
                    (key, None) for key, each in self.state.workloads.items() if each.stage is not Stage.FINISHED
                )
            case facts.LocalQueueObserved() | facts.LocalQueueDeleted():
                self._look_at_local_queue(event.queue)
                self._touch_usage_of(event.queue)
            case facts.JobObserved():
                self._look_at_owned(event.spec.uid)
            case facts.JobDeleted():
                self._look_at_owned(event.uid)
            case effects.JobStarted() | effects.JobStopped():
                self._look_at_owned(event.job_uid)
            case facts.LimitRangeObserved() | facts.LimitRangeDeleted():
                self._look_at_namespace(split_key(event.limit_range)[0])
            case facts.RuntimeClassObserved() | facts.RuntimeClassDeleted():
                self._look_at_runtime_class(event.name)
            case HeadsOffered():
                for head in event.heads:
                    self._stood_in[head.workload] = head.cluster_queue
                    self._touched[head.cluster_queue] = None
            case HeadsWithdrawn():
                self._touched.update(dict.fromkeys(event.cluster_queues))
                self._sleeping.note_moves(event.cluster_queues)
            case facts.InformersSynced():
                if not self.state.relisting:
                    self._look.update(self._unproven)
                    self._unproven.clear()
            case _ if names_workload(event):
                if event.workload and not isinstance(event, decisions.PodsAssigned):
                    self._note_workload(event.workload, event)
            case facts.ProvisioningConfigObserved() | facts.ProvisioningConfigDeleted():
                self._look_at_checked(checks_using(self.state, event.name))
            case facts.ProvisioningRequestObserved() | facts.ProvisioningRequestDeleted():
                self._look[event.owner] = None
            case _:
                # An event type that is neither noted above nor listed is a type error.
                _unheard: _Unheard = event

    def _note_workload(self, key: WorkloadKey, event: NamesWorkload) -> None:
        workload = self.state.workloads.get(key)
        if workload is not None and (is_parent(workload) or is_variant(workload)):
            self._look.update((each.key, None) for each in concurrent_admission.relatives(self.state, workload))
        if workload is not None and workload.owner is not None:
            self._look_at_slices(workload.owner.uid)
        if workload is not None and workload.stage is Stage.FINISHED:
            if key in self.state.index.requests_of:
                self._look[key] = None
        elif workload is not None and not self._has_been_placed(workload, event):
            self._look[key] = None
        stood_in, stands_in = self._stood_in.get(key, ""), workload.cluster_queue if workload is not None else ""
        if isinstance(event, facts.WorkloadDeleted):
            self._stood_in.pop(key, None)
        concerned = tuple(filter(None, (stood_in, _cluster_queue_of(event), stands_in)))
        self._touched.update(dict.fromkeys(concerned))
        self._sleeping.note(event, workload, concerned)
        if isinstance(event, WorkloadParked) and workload is not None and workload.parked is not None:
            self._remember(workload.key, workload.cluster_queue, workload.parked)

    def _has_been_placed(self, workload: Workload, event: Event) -> bool:
        """
        Whether our latest event put a workload where it belongs, so that another examination would find no change.

        Changes in between are recorded on their own. Other workloads of its family or its owner may depend on its
        place.
        """
        if workload.stage is not Stage.QUEUED or is_parent(workload) or is_variant(workload):
            return False
        if workload.owner is not None and len(self.state.index.owned(workload.owner.uid)) > 1:
            return False
        match event:
            case WorkloadQueued():
                return workload.shape == event.shape and workload.cluster_queue == event.cluster_queue
            case WorkloadParked() | WorkloadWoken():
                return event.scope != "workload"
            case _:
                return False

    def _remember(self, key: WorkloadKey, cluster_queue: str, parked: Parked) -> None:
        """Register the wake condition of a workload that is parked alone."""
        for wake in parked.wake:
            if isinstance(wake, TimePassed):
                self._await(key, wake.at_ms)
        if by_verdict(parked):
            self._sleeping.add(Sleeper(cluster_queue, workload=key), parked)

    def _await(self, key: WorkloadKey, at_ms: UnixMs) -> None:
        if self._deadline_of.get(key) != at_ms:
            self._deadline_of[key] = at_ms
            heapq.heappush(self._deadlines, (at_ms, key))

    def _look_at_local_queue(self, queue: LocalQueueKey) -> None:
        self._look.update(self.state.index.in_local_queue.get(queue, {}))

    def _look_at_checked(self, checks: Collection[str]) -> None:
        """The workloads that hold quota and have one of these admission checks."""
        for holders in self.state.index.holders.values() if checks else ():
            self._look.update(
                (key, None) for key in holders if any(each.name in checks for each in self.state.workloads[key].checks)
            )

    def _look_at_unchecked(self, cluster_queue: str) -> None:
        """The workloads of a ClusterQueue whose checks for ProvisioningRequests may have become others."""
        self._look.update(
            (key, None)
            for key in self.state.index.holders.get(cluster_queue, ())
            if key in self.state.index.requests_of
            or any(is_ours(self.state, each.name) for each in self.state.workloads[key].checks)
        )

    def _look_at_owned(self, uid: str) -> None:
        """All Workloads of a job, including a second one beside the Workload that represents the job."""
        self._look.update(dict.fromkeys(self.state.index.owned(uid)))

    def _look_at_slices(self, uid: str) -> None:
        """The slices of an elastic Job: whether one is still needed follows from the Job's other Workloads."""
        if len(self.state.index.owned(uid)) > 1:
            slices = slices_of(self.state, uid)
            self._look.update(
                (each.key, None) for each in slices if is_elastic(self.state.configuration, each.annotations)
            )

    def _look_at_namespace(self, namespace: str) -> None:
        self._limits.pop(namespace, None)
        for queue in self.state.index.in_local_queue:
            if split_key(queue)[0] == namespace:
                self._look_at_local_queue(queue)

    def _look_at_runtime_class(self, name: str) -> None:
        for key, workload in self.state.workloads.items():
            if any(pod_set.template.spec.runtime_class_name == name for pod_set in workload.spec.pod_sets):
                self._look[key] = None

    # --- deciding --------------------------------------------------------------------------------------------------

    def _settle(self, now_ms: UnixMs) -> list[Command]:
        if not self.state.synced:
            return []
        draft = Draft(self.state)
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, key = heapq.heappop(self._deadlines)
            self._deadline_of.pop(key, None)
            self._look[key] = None
        if self._queues_changed:
            self._queues_changed = False
            self._look_at_queues()
        withdrawn = self._inactive_with_offers()
        if withdrawn:
            draft.say(HeadsWithdrawn(cluster_queues=withdrawn, reason="the ClusterQueue is not active"))
        wake_pass = self._sleeping.begin(now_ms, self._trees)
        awake = self._sleeping.wake(draft, now_ms, wake_pass, EVENTS_PER_COMMIT_MAX)
        self._touched.update(dict.fromkeys(awake.cluster_queues))
        self._look.update((key, None) for key in awake.parked)
        self._look_at_workloads(draft, now_ms, wake_pass)
        self._sample(draft, now_ms)
        if not self._look:
            self._touched.update(dict.fromkeys(self._sleeping.say_unsaid(draft)))
        self._offer(draft)
        commands: list[Command] = []
        if draft.events:
            events = tuple(draft.events)
            commands.append(Append(events=events, decided_at=self.state.position, cause=self._cause))
        wake = [at_ms for at_ms, _ in self._deadlines[:1]]
        if self._sample_at is not None:
            wake.append(self._sample_at)
        if self._sleeping.wake_at_ms is not None:
            wake.append(self._sleeping.wake_at_ms)
        if wake:
            commands.append(WakeAt(min(wake)))
        return commands

    def _sample(self, draft: Draft, now_ms: UnixMs) -> None:
        """Bring the usage of LocalQueues up to date whose sampling interval is over."""
        if not self.state.local_queue_usage:
            self._sample_at = None
            return
        if self._sample_at is not None and now_ms < self._sample_at:
            return
        queues, self._sample_at = due(self.state, now_ms)
        if queues:
            draft.say(LocalQueuesSampled(queues=queues[:SAMPLES_PER_COMMIT_MAX]))

    def _touch_usage_of(self, queue: LocalQueueKey) -> None:
        """The order of its ClusterQueue may have changed."""
        record = self.state.local_queues.get(queue)
        if record is not None and orders_by_usage(self.state, record.spec.cluster_queue):
            self._touched[record.spec.cluster_queue] = None

    def _look_at_queues(self) -> None:
        """Examine the workloads of ClusterQueues that were created, deleted, or became active or inactive."""
        standings: dict[str, Standing] = {}
        for name, record in self.state.cluster_queues.items():
            with about("ClusterQueue", name):
                standings[name] = cluster_queue_active(self.state, name).active, record.spec.stop_policy
        changed = {
            name: None
            for name in dict.fromkeys((*self._standings, *standings))
            if self._standings.get(name) != standings.get(name)
        }
        self._standings = standings
        if not changed:
            return
        self._touched.update(changed)
        self._sleeping.note_moves(changed)
        self._sleeping.note_unsaid(changed)
        for queue, local in self.state.local_queues.items():
            if local.spec.cluster_queue in changed:
                self._look_at_local_queue(queue)
        for name in changed:
            self._look.update(self.state.index.holders.get(name, {}))

    def _is_active(self, cluster_queue: str) -> bool:
        return self._standings.get(cluster_queue, (False, ""))[0]

    def _is_aside(self, kind: str, key: str) -> bool:
        return is_aside(self.state, kind, key, Producer.QUEUE_MANAGER)

    def _inactive_with_offers(self) -> tuple[str, ...]:
        offered = self.state.index.offered
        return tuple(name for name in self._touched if offered.get(name) and not self._is_active(name))

    def _trees(self) -> Forest:
        if self._forest is None:
            self._forest = Forest(self.state)
        return self._forest

    def _look_at_workloads(self, draft: Draft, now_ms: UnixMs, wake_pass: WakePass) -> None:
        while self._look and len(draft) < EVENTS_PER_COMMIT_MAX:
            key, _ = self._look.popitem(last=False)
            workload = self.state.workloads.get(key)
            if workload is None:
                continue
            with about("Workload", key):
                for withdrawn in provisioning.withdrawals(self.state, workload):
                    draft.say(withdrawn)
                if workload.stage is Stage.FINISHED:
                    continue
                for event in self._step(workload, now_ms, wake_pass):
                    draft.say(event)
                    self._touch(event, workload)

    def _touch(self, event: QueueEvent, workload: Workload) -> None:
        for cluster_queue in (workload.cluster_queue, _cluster_queue_of(event)):
            if cluster_queue:
                self._touched[cluster_queue] = None

    # Large: one exit for each thing that a workload may need, the most urgent first.
    def _step(self, workload: Workload, now_ms: UnixMs, wake_pass: WakePass) -> Iterable[QueueEvent]:
        """The events that a workload needs now."""
        state = self.state
        if state.relisting:
            self._unproven[workload.key] = None
        finished = finish(state, workload)
        if finished is not None:
            return (finished,)
        if is_parent(workload):
            said, again_ms = concurrent_admission.steps(state, workload, now_ms)
            if again_ms is not None:
                self._await(workload.key, again_ms)
            if said:
                return said
        if workload.stage is Stage.EVICTED:
            released = release(state, workload)
            return (released,) if released is not None else ()
        driven_out = eviction(state, workload, now_ms)
        if driven_out:
            return driven_out
        provisioned = provisioning.steps(state, workload)
        if provisioned:
            return provisioned
        of_nodes, again_ms = self._node_failures.step(workload, now_ms)
        if again_ms is not None:
            self._await(workload.key, again_ms)
        if of_nodes:
            return of_nodes
        if workload.stage in HOLDS_QUOTA:
            again = self._second_passes.due(workload, now_ms)
            if again is not None:
                return (again,)
            deadline, retry_ms = deadline_of(workload, state.configuration), second_pass.retry_at_ms(workload)
            if deadline is not None:
                self._await(workload.key, deadline)
            if retry_ms is not None and retry_ms > now_ms:
                self._await(workload.key, retry_ms)
            return ()
        limits = self._limits_of(workload)

        def may_go_on(workload: Workload, woken: Woken) -> bool:
            return self._sleeping.may_go_on(workload, woken, wake_pass)

        return steps(state, workload, now_ms, limits, self._is_active, wake_pass.came_true, may_go_on)

    def _limits_of(self, workload: Workload) -> Limits:
        if not self.state.limit_ranges:
            return {}
        namespace = split_key(workload.key)[0]
        limits = self._limits.get(namespace)
        if limits is None:
            limits = self._limits[namespace] = limits_of(self.state, namespace)
        return limits

    # --- offering --------------------------------------------------------------------------------------------------

    def _offer(self, draft: Draft) -> None:
        withdrawn: list[str] = []
        heads: list[Head] = []
        done = 0
        for cluster_queue in self._touched:
            if len(heads) >= HEADS_PER_COMMIT_MAX:
                break
            done += 1
            if self._is_active(cluster_queue) and not self._is_aside("ClusterQueue", cluster_queue):
                with about("ClusterQueue", cluster_queue):
                    made = offer(draft, cluster_queue)
                heads.extend(made.heads)
                if made.withdrawn:
                    withdrawn.append(cluster_queue)
        self._touched = dict.fromkeys(list(self._touched)[done:])
        self._sleeping.note_moves(self._touched)
        if withdrawn:
            draft.say(HeadsWithdrawn(cluster_queues=tuple(withdrawn), reason="a workload of higher rank may go first"))
        if heads:
            draft.say(HeadsOffered(heads=tuple(heads)))


__all__ = ["EVENTS_PER_COMMIT_MAX", "HEADS_PER_COMMIT_MAX", "QueueManager"]
