"""
The informer bridge's machine: turns objects of the API server into facts, and creates Workloads for queued Jobs.

Watch events arrive in bursts, and most of them contain no relevant change. So the newest object of each key waits, raw,
in `_waiting` (one entry per key: its bound is the number of objects) until the machine is settled; then it is parsed,
compared with the state, and the changes go into one commit of at most FACTS_MAX facts, configuration first, then
Workloads, then Jobs and pods. The result of an own effect returns as an object that the state already describes.

A list represents a whole resource: whatever the state has and the list lacks is deleted. When every resource was listed
since the start, or its watch resumed, and all of it is in the log, `informers.synced` follows in the same commit as the
last fact.

The first event in a log is `cell.founded`, with what the process has found out about cell, cluster and stream; a log
that lacks it gets it with the next commit.

`informers.synced` also marks the progress of each resource (`headgate.machines.informer_bridge.marks`).

Effects. A Job with a queue and without a Workload gets one (POST; the name follows from the Job's uid, so that a
repeated POST is answered 409 and does no harm). It carries the Job's whole pod template, which the log does not have:
the Job's JSON is kept from its observation until its Workload is created, and read if it was not observed since the
start. A Workload follows its Job when that is edited (`workload_updates`), and the value of its priority class
(`priority_followers`). Variants are created by `variant_maker`. All of this follows from the state and the observed
objects, and is found again after a crash.

The pod sets of a TrainJob follow from its runtime, too (`training_runtimes`).

Once a flavor has a topology, pods that are none of ours are summed up by node (`foreign_pods`). While Headgate places
pods, what that is decided by is appended too (`placement_objects`), and nothing else of pods that are none of ours.

Objects that cannot be parsed are kept in `problems` for the process to log; they count as absent.
"""
# Over 400 lines: the machine: one handler for each kind of stimulus and event, over the same tables of what waits.

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.api import job_kinds
from headgate.core.api.names import DEFAULT_QUEUE, ELASTIC_JOB, KUEUE, SCHEDULER_NAME
from headgate.core.config.reader import ConfigurationError, read_document
from headgate.core.engine.backlog import Backlog
from headgate.core.fold import quarantine
from headgate.core.fold.quarantine import about_event, has_workload_aside, is_about_aside, is_aside, kind_of, retry_of
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.log.reconciliation import releases_first
from headgate.core.machine.api_results import CONFLICT, INVALID, NOT_FOUND, is_success, refusal
from headgate.core.machine.contract import (
    Append,
    Call,
    Changed,
    Command,
    Committed,
    Completed,
    Listed,
    Progressed,
    Resumed,
    Settled,
    Stimulus,
)
from headgate.core.machine.listeners import Listeners
from headgate.core.reading.decoding import (
    CLUSTER_NAMESPACE,
    UnreadableObjectError,
    cluster_id_of,
    key_of,
    read,
    version_of,
    watched,
)
from headgate.core.reading.rules import read_otherwise, rules_of
from headgate.core.state.attribution import about
from headgate.core.state.tables import JobRecord, State
from headgate.core.workload import owners, pod_jobs, prebuilt
from headgate.core.workload.job_workload import (
    NoSuchPriorityClassError,
    is_sliced,
    wanted_slice,
    workload_key,
    workload_of,
)
from headgate.core.workload.served import is_set
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.identity import CellFounded
from headgate.events.ids import JobKey, JobRef, PodKey, Uid, UnixMs, WorkloadKey, split_key
from headgate.events.objects import Job, Pod, ResourceFlavorSpec
from headgate.events.registry import Event
from headgate.machines.informer_bridge import diff
from headgate.machines.informer_bridge.absent_owners import AbsentOwners
from headgate.machines.informer_bridge.foreign_pods import PODS, ForeignPods, is_foreign
from headgate.machines.informer_bridge.marks import ObservedVersions
from headgate.machines.informer_bridge.parents import Parents
from headgate.machines.informer_bridge.placement_objects import SCHEDULER_CONFIGURATIONS, PlacementObjects
from headgate.machines.informer_bridge.pod_echoes import PodEchoes
from headgate.machines.informer_bridge.pod_jobs import PodJobs
from headgate.machines.informer_bridge.prebuilt_workloads import PrebuiltWorkloads
from headgate.machines.informer_bridge.priority_followers import PriorityFollowers
from headgate.machines.informer_bridge.reconfiguring import CONFIGURATIONS, changed_configuration
from headgate.machines.informer_bridge.stray_jobs import must_stop, running_below
from headgate.machines.informer_bridge.training_runtimes import TRAIN_JOBS, UNMARKED, TrainingRuntimes
from headgate.machines.informer_bridge.variant_maker import VariantMaker
from headgate.machines.informer_bridge.workload_updates import WorkloadUpdates

FACTS_MAX: Final = 2000
"""The maximum number of facts in one commit. The rest follows in the next."""

CALLS_MAX: Final = 256
"""The maximum number of concurrent calls."""

PROBLEMS_MAX: Final = 1000
"""The maximum number of unreadable objects that are kept for the process to log; beyond it the oldest are dropped."""

_TO_COMPOSE: Final = ("namespaces", "workloadpriorityclasses", "priorityclasses", "workloads")
"""The resources, beside those of jobs, that must be known before a Workload can be made from a Job."""

_GONE: Final = b""
_MAY_BE_OURS: Final = (KUEUE.rstrip("/").encode(), f'"{SCHEDULER_NAME}"'.encode())
"""What the JSON of a pod has in it that is not foreign: a label, an annotation or a gate, or the scheduler's name."""
_COMPOSE_ERROR: Final = "ErrWorkloadCompose"
_NAME_CONFLICT: Final = "WorkloadNameConflict"
_RETRIED: Final = (_COMPOSE_ERROR, _NAME_CONFLICT, prebuilt.NOT_FOUND)
"""Why a Job may get its Workload later: it is examined again when that may be over."""


class _Creation(msgspec.Struct, frozen=True):
    """A POST under way: its Job and its Workload."""

    job: JobKey
    job_uid: Uid
    workload: WorkloadKey


class InformerBridge:
    """
    The machine of the informer bridge. See the module's docstring.

    `problems` are the unreadable objects since it was last emptied; `synced` is set when everything was listed and
    appended since the start.

    `founding` is appended first where the log does not name its cell yet.

    `resources` are those that it has to be shown: what is needed always, and those of the kinds of jobs that the
    configuration enables. Jobs of a kind that is enabled no longer are dropped from the log.

    A `configuration` that differs from the log's is appended first, and a changed one as soon as it is shown. Without
    one the file in the log counts: a restart without the file changes nothing, and a version with other defaults
    appends the configuration in effect. `unread` is the reason why this version cannot read that file; the
    configuration in the log stays then. A log without a file keeps its configuration; a file that contains only
    apiVersion and kind gives it Kueue's defaults. A log in which nothing was ever observed gets `new_log`.

    `placing` is the KubeSchedulerConfiguration to place pods by, {} to place none; without one that in the log counts.
    """

    # Large: the fields of the machine, one line each with what it holds.
    def __init__(
        self,
        state: State,
        configuration: facts.ConfigurationObserved | None = None,
        *,
        new_log: facts.ConfigurationObserved | None = None,
        founding: CellFounded | None = None,
        placing: Mapping[str, Any] | None = None,
    ) -> None:
        self.state = state
        self.founding = founding
        self.unread = ""
        if configuration is None and state.configuration_document:
            try:
                configuration = read_document(state.configuration_document)
            except ConfigurationError as error:
                self.unread = str(error)
        elif configuration is None and not state.synced and state.configuration == Configuration():
            configuration = new_log
        self._configuration = configuration
        effective = self._in_effect()
        self._rules = rules_of(effective)
        self.at_start = effective
        """The configuration that the kinds of jobs and the resources of this term follow from."""
        self._objects = PlacementObjects(state, placing)
        waiting = (key for key, each in state.pods.items() if self._waits_for_placement(each.pod))
        self.unplaced = next(waiting, PodKey(""))
        """A pod for Headgate to place while no profile says how; "": none."""
        self._of_queueing = watched(effective)
        self.resources = self._watched()
        self._kinds = job_kinds.enabled(effective)
        self._jobs_at = job_kinds.resources_of(self._kinds)
        self._not_run = OrderedDict.fromkeys(key for key in state.jobs if job_kinds.of_key(key) not in self._kinds)
        """Jobs of kinds that are enabled no longer: they are dropped from the log."""
        self.synced = False
        self.problems: deque[UnreadableObjectError] = deque(maxlen=PROBLEMS_MAX)
        self._waiting: dict[str, OrderedDict[str, bytes]] = {resource: OrderedDict() for resource in self.resources}
        self._followed: dict[str, None] = {}
        self._unswept: dict[str, None] = {}
        self._to_list: dict[str, None] = {}
        """Resources that are read otherwise by a configuration that has changed: a list is to come."""
        self._foreign = ForeignPods(state)
        self._echoes = PodEchoes(state)
        self._marks = ObservedVersions(state, self._has_waiting)
        self._runtimes = TrainingRuntimes(state)
        self._marks.unmarked.update(dict.fromkeys(each for each in UNMARKED if each in self.resources))
        self._raw: dict[JobKey, bytes] = {}
        """The JSON of Jobs that have no Workload yet, as last observed. At most one per Job."""
        self._effects: list[Event] = []
        self._jobs: Backlog[JobKey] = Backlog(state.jobs)
        self._creating: dict[str, _Creation] = {}
        self._created: dict[Uid, None] = {}
        self._variants = VariantMaker(state)
        self._priorities = PriorityFollowers(state)
        self._parents = Parents(state)
        self._held: dict[JobKey, bytes] = {}
        """The JSON of jobs without a queue that run, as long as it is not known what is above them."""
        self._released: list[JobKey] = []
        """Those of them that need not wait any more."""
        self._prebuilt = PrebuiltWorkloads(state)
        self._updates = WorkloadUpdates(state, self._whole, self._priorities.expect)
        self._pod_jobs = PodJobs(state, effective)
        self._absent_owners = AbsentOwners(state, self._pod_jobs.is_there)
        self._unshown: dict[str, None] = dict.fromkeys(self.resources)
        """The resources whose objects at the start of this term are not all in the log yet."""
        self._reading: dict[str, _Creation] = {}
        """GETs of Jobs under way, for the Workload that is to be created."""
        self._listeners = Listeners(
            self._variants.on_event,
            self._priorities.on_event,
            self._updates.on_event,
            self._absent_owners.on_event,
            self._pod_jobs.on_event,
            self._on_event,
        )

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """The commands that follow from a stimulus."""
        match stimulus:
            case Listed():
                self._on_listed(stimulus)
                return []
            case Changed():
                self._on_changed(stimulus)
                return []
            case Resumed():
                self._on_resumed(stimulus)
                return []
            case Progressed():
                self._marks.reached(stimulus.resource, stimulus.resource_version)
                return []
            case Committed():
                for event in stimulus.logged.commit.events:
                    if self._listeners.are_for(event) and not is_about_aside(
                        self.state, event, Producer.INFORMER_BRIDGE
                    ):
                        with about_event(event):
                            self._listeners.on_event(event)
                return []
            case Completed():
                self._on_completed(stimulus)
                return []
            case Settled():
                return self._settle(stimulus.now_ms)

    # --- from the API server ---------------------------------------------------------------------------------------

    def _on_listed(self, listed: Listed) -> None:
        """The list replaces whatever of its resource was waiting: the watch before it is older."""
        if listed.resource not in self._waiting:
            # Watched no longer.
            return
        waiting: OrderedDict[str, bytes] = OrderedDict()
        for raw in _by_version(listed) if listed.resource in (*self._jobs_at, "workloads") else listed.objects:
            key = self._key_of(listed.resource, raw)
            if key is not None:
                waiting[key] = raw
        self._waiting[listed.resource] = waiting
        if listed.resource == PODS:
            self._echoes.clear()
        self._unswept[listed.resource] = None
        self._to_list.pop(listed.resource, None)
        self._followed[listed.resource] = None
        self._marks.listed(listed.resource, listed.resource_version)
        if job_kinds.of_resource(listed.resource) is not None:
            self._look_at(self.state.jobs)
            self._absent_owners.on_list()
        if listed.resource == "workloads":
            # A Workload that was created and deleted before it was observed never shows: its Job may need a new one.
            self._created.clear()
            self._look_at(self.state.jobs)

    def _on_resumed(self, resumed: Resumed) -> None:
        if resumed.resource in self._to_list or resumed.resource not in self._waiting:
            return
        self._followed[resumed.resource] = None
        self._marks.resumed(resumed.resource, resumed.resource_version)
        if job_kinds.of_resource(resumed.resource) is not None:
            self._look_at(self.state.jobs)

    def _on_changed(self, changed: Changed) -> None:
        if changed.resource == CONFIGURATIONS:
            self._reconfigure(changed.object)
            return
        if changed.resource == SCHEDULER_CONFIGURATIONS:
            self._place_by(msgspec.json.decode(changed.object))
            return
        if changed.resource not in self._waiting:
            return
        self._marks.changed(changed.resource, changed.resource_version, changed.kind, changed.object)
        key = self._key_of(changed.resource, changed.object)
        if key is None:
            return
        # An object that changes again keeps its place: facts are appended in the order of first observation.
        self._waiting[changed.resource][key] = _GONE if changed.kind == "DELETED" else changed.object
        if job_kinds.of_resource(changed.resource) is not None and changed.kind == "DELETED":
            self._absent_owners.on_deletion(JobKey(key))

    def _reconfigure(self, raw: bytes) -> None:
        """Decide by a changed configuration. What is read otherwise by it is not known until it is listed again."""
        changed = changed_configuration(raw, self.at_start)
        if changed is None:
            return
        self._expect_lists(read_otherwise(self._in_effect(), changed.configuration))
        self._configuration = changed
        self._rules = rules_of(changed.configuration)

    def _expect_lists(self, resources: Iterable[str]) -> None:
        """What is read otherwise from now on is not known until it is listed again."""
        for resource in resources:
            self._to_list[resource] = None
            self._followed.pop(resource, None)
            self._unshown[resource] = None
            self._marks.forget(resource)

    def _place_by(self, document: Mapping[str, Any]) -> None:
        """
        Place pods by a changed configuration, or place none any more.

        What is watched for placement only is listed as soon as it is watched.
        """
        before = self._objects.watched
        self._objects.configure(document)
        if not self._objects.watched:
            self._echoes.clear()
        self.resources = self._watched()
        for resource in before:
            if resource not in self.resources:
                del self._waiting[resource]
                for table in (self._followed, self._unswept, self._to_list, self._unshown):
                    table.pop(resource, None)
                self._marks.forget(resource)
        if before and not self._objects.watched:
            # Foreign pods had no facts.
            self._expect_lists((PODS,))
        added = [each for each in self._objects.watched if each not in before]
        for resource in added:
            self._waiting.setdefault(resource, OrderedDict())
        self._expect_lists(added)

    def _watched(self) -> tuple[str, ...]:
        """What is watched, in the order of its facts in a commit. Pods come last, after what they refer to."""
        return (*self._of_queueing[:-1], *self._objects.own, *self._of_queueing[-1:])

    def _key_of(self, resource: str, raw: bytes) -> str | None:
        try:
            key = key_of(resource, raw)
            if key == CLUSTER_NAMESPACE and resource == "namespaces":
                self._marks.meet_cluster(cluster_id_of(raw))
        except UnreadableObjectError as error:
            self.problems.append(error)
            return None
        return key

    # --- facts -----------------------------------------------------------------------------------------------------

    # Large: one step after the other, in the order of the events of a commit.
    def _settle(self, now_ms: UnixMs) -> list[Command]:
        rewound = self._marks.rewound()
        self._echoes.begin(now_ms, holds=not self._marks.is_due(now_ms))
        self._note_shown()
        self._sweep()
        calls: list[Command] = []
        if self._may_create():
            self._create_workloads(calls)
            self._variants.settle(calls)
            self._priorities.settle(calls)
            self._pod_jobs.settle(calls)
        events: list[Event] = []
        self._take_beginnings(events)
        known = len(events)
        self._sum_foreign_pods()
        self._take_facts(events)
        events += self._echoes.take(max(0, FACTS_MAX - len(events)))
        if self._jobs and self._may_create():
            # Facts have shown that some need not wait for their parents.
            self._create_workloads(calls)
        self._take_placing(events)
        self._take_pod_jobs(events, now_ms)
        self._take_sums(events, now_ms)
        if self._has_shown(*self._jobs_at, PODS) and len(events) == known:
            # All observed Jobs are in the state; otherwise they will be when these facts are folded.
            self._absent_owners.settle(calls)
        if self._has_shown(*self._jobs_at):
            self._parents.settle(calls)
        self._take_effects(events)
        resources: tuple[str, ...] = ()
        if not self.synced and self._all_is_appended():
            self.synced = True
            resources = self.resources
            self._look_at(self.state.jobs)
        mark = self._marks.mark(now_ms, is_synced=self.synced, resources=resources, rewound=rewound)
        if mark is not None and not any(isinstance(each, effects.ObjectReleased) for each in events):
            # It comes last: a commit that is too large is appended in parts, in order.
            events.append(mark)
        elif self.synced:
            calls += self._marks.wake(now_ms, self._wake_ms())
        if not events:
            return calls
        return [Append(events=tuple(events), decided_at=self.state.position), *calls]

    def _has_waiting(self, resource: str) -> bool:
        """Whether an object of a resource was observed that is in no commit yet."""
        return bool(self._waiting[resource]) or (resource == PODS and bool(self._echoes))

    def _may_create(self) -> bool:
        """Whether all was shown that a Workload depends on: before, one or its class may exist outside of the state."""
        return self.state.synced and self._has_shown(*_TO_COMPOSE, *self._jobs_at)

    def _take_beginnings(self, events: list[Event]) -> None:
        """Append what a log lacks of its cell and of the configuration before all that depends on them."""
        if self.founding is not None and self.state.identity is None:
            events.append(self.founding)
        if self._configuration is not None and self._is_news(self._configuration):
            events.append(self._configuration)
            marked = self.state.resource_versions
            events += (quarantine.shown_again(each) for each in self._read_otherwise() if each in marked)
        placing = self._objects.beginning()
        if placing is not None:
            events.append(placing)
        self._take_effects(events)

    def _take_placing(self, events: list[Event]) -> None:
        """Append the configuration to place pods by, once the log has all that is decided by: its marks begin anew."""
        if not self._objects.is_starting:
            return
        if any(each not in self._followed or self._waiting[each] for each in self._objects.watched):
            return
        placing = self._objects.start()
        if placing is not None:
            events.append(placing)
            marked = self.state.resource_versions
            events += (quarantine.shown_again(each) for each in self._objects.watched if each in marked)

    def _take_effects(self, events: list[Event]) -> None:
        """Append what has become of calls, and what was found out, as far as there is room."""
        taken = self._effects[: max(0, FACTS_MAX - len(events))]
        del self._effects[: len(taken)]
        events += taken

    def _wake_ms(self) -> UnixMs | None:
        """When something about pods is due that is not yet; None when there is nothing."""
        times = (self._foreign.wake_ms(), self._pod_jobs.wake_ms(), self._echoes.wake_ms())
        return min((each for each in times if each is not None), default=None)

    def _sum_foreign_pods(self, *flavors: ResourceFlavorSpec) -> None:
        """Sum up foreign pods from now on when a flavor has a topology, one of the state or one of these."""
        if self._foreign.is_summing:
            return
        known = (record.spec for record in self.state.flavors.values())
        if self._foreign.start_if_needed((*flavors, *known), self._in_effect()):
            self._marks.unmarked[PODS] = None

    def _take_pod_jobs(self, events: list[Event], now_ms: UnixMs) -> None:
        """Append what pods that are queued themselves are as jobs, when all of them have been seen."""
        if self._has_shown(PODS):
            for fact in self._pod_jobs.take_facts(now_ms, max(0, FACTS_MAX - len(events))):
                events.append(self._numbered(fact, len(events) + 1))

    def _take_sums(self, events: list[Event], now_ms: UnixMs) -> None:
        """Append what foreign pods use of nodes, when all of them have been seen."""
        if not self._foreign.is_summing or PODS not in self._followed or self._waiting[PODS]:
            return
        if self._foreign.voids_mark():
            events.append(quarantine.shown_again(PODS))
        events += self._foreign.take_facts(now_ms, max(0, FACTS_MAX - len(events)))

    def _note_shown(self) -> None:
        """Only when a decision is requested does the state contain everything that was appended."""
        for resource in list(self._unshown):
            if resource in self._followed and not self._waiting[resource] and resource not in self._unswept:
                del self._unshown[resource]

    def _has_shown(self, *resources: str) -> bool:
        return self._unshown.keys().isdisjoint(resources)

    def listed_anew(self) -> tuple[str, ...]:
        """The resources that are read otherwise by the configurations than by those in the log."""
        if self._objects.is_starting:
            return (*self._read_otherwise(), *self._objects.watched)
        return (*self._read_otherwise(), *((PODS,) if self._objects.is_ending else ()))

    def _read_otherwise(self) -> tuple[str, ...]:
        return read_otherwise(self.state.configuration, self._in_effect())

    def _in_effect(self) -> Configuration:
        """The configuration that is, or is about to be, in the log."""
        return self._configuration.configuration if self._configuration is not None else self.state.configuration

    def _is_news(self, observed: facts.ConfigurationObserved) -> bool:
        """Whether the log has another configuration, and has not recorded before that it cannot be folded."""
        state = self.state
        if (observed.configuration, observed.document) == (state.configuration, state.configuration_document):
            return False
        record = state.quarantine.get(quarantine.CONFIGURATION)
        return record is None or record.fact != observed

    def _sweep(self) -> None:
        """
        Find what a list lacks.

        Only now does the state contain everything that was appended, and nothing of the list, or of what came after it,
        has been taken yet.
        """
        for resource in self._unswept:
            waiting = self._waiting[resource]
            for key in () if resource in self._objects.own else diff.known_keys(self.state, resource):
                waiting.setdefault(key, _GONE)
            for key in self._objects.known_keys(resource):
                waiting.setdefault(key, _GONE)
            if resource == PODS:
                for pod in self._foreign.pods():
                    waiting.setdefault(pod, _GONE)
            elif resource in job_kinds.OF_TRAIN_JOBS:
                for runtime in self._runtimes.keys(resource):
                    waiting.setdefault(runtime, _GONE)
        if self._unswept and self.state.unconfirmed:
            self._waiting["workloads"] = releases_first(self._waiting["workloads"])
        self._unswept.clear()

    def _take_facts(self, events: list[Event]) -> None:
        """Move changes from the waiting objects into a commit, until it is full. Earlier effects count as well."""
        self._take_not_run(events)
        # Of one object there may be two facts.
        facts_max = FACTS_MAX - 1 if self._objects.watched else FACTS_MAX
        for resource in self.resources:
            waiting = self._waiting[resource]
            if not waiting:
                continue
            if resource == TRAIN_JOBS and not all(each in self._followed for each in job_kinds.OF_TRAIN_JOBS):
                continue
            is_placed_by = resource in self._objects.watched
            while waiting and len(events) < facts_max:
                key, raw = waiting.popitem(last=False)
                with about(kind_of(resource), key):
                    fact = self._fact(resource, key, raw)
                    shown = self._shown(resource, key, raw) if is_placed_by else None
                if shown is not None:
                    events.append(shown)
                if isinstance(fact, facts.ResourceFlavorObserved):
                    self._sum_foreign_pods(fact.spec)
                if fact is not None:
                    events.append(self._numbered(fact, len(events) + 1))
            if waiting:
                return
        if self._release_held():
            self._take_facts(events)

    def _take_not_run(self, events: list[Event]) -> None:
        """Drop the jobs of kinds that are enabled no longer."""
        while self._not_run and len(events) < FACTS_MAX:
            dropped = self._not_run.popitem(last=False)[0]
            if dropped in self.state.jobs:
                events.append(facts.JobDeleted(job=dropped, uid=Uid(self.state.jobs[dropped].job.uid)))

    def _numbered(self, fact: facts.Fact, place: int) -> facts.Fact:
        """A fact about a Job or a Workload that appears contains its place in the commit."""
        match fact:
            case facts.JobObserved():
                job = self.state.jobs.get(fact.job)
                is_new = job is None or job.job.uid != fact.spec.uid
            case facts.WorkloadObserved():
                workload = self.state.workloads.get(fact.workload)
                is_new = workload is None or workload.uid != fact.uid or fact.workload in self.state.unconfirmed
            case _:
                return fact
        return msgspec.structs.replace(fact, arrival=place) if is_new else fact

    def _fact(self, resource: str, key: str, raw: bytes) -> facts.Fact | None:
        if resource in job_kinds.OF_TRAIN_JOBS:
            for job, again in self._runtimes.observe(resource, key, raw).items():
                self._waiting[TRAIN_JOBS].setdefault(job, again)
            return None
        self._held.pop(JobKey(key), None)
        if self.state.quarantine and self._is_left_alone(resource, key, raw):
            return None
        if resource in self._objects.own or (resource == PODS and self._is_placed_only(PodKey(key), raw)):
            return None
        if raw == _GONE:
            self._raw.pop(JobKey(key), None)
            self._forget(resource, key)
            return diff.deleted(self.state, resource, key, gone=True)
        whole = self._runtimes.whole(resource, key, raw)
        try:
            seen = read(resource, whole, self._rules)
        except UnreadableObjectError as error:
            self.problems.append(error)
            self._forget(resource, key)
            return diff.deleted(self.state, resource, key)
        if isinstance(seen.fact, facts.JobObserved):
            self._keep(seen.fact, whole)
            self._runtimes.keep(resource, seen.fact, raw)
        if resource == PODS:
            return self._pod_fact(seen.fact, PodKey(key), raw)
        if seen.fact is None:
            self._go_on(self._parents.passed_over(seen.uid, raw))
            self._forget(resource, key)
            return self._stray_fact(resource, key, raw) or diff.deleted(self.state, resource, key)
        return diff.news(self.state, self._as_logged(seen.fact))

    def _shown(self, resource: str, key: str, raw: bytes) -> facts.Fact | None:
        """The fact about what placement reads of an object. The object of another fact, too, was reported by that."""
        try:
            shown = self._objects.fact(resource, key, raw) if raw != _GONE else self._objects.deleted(resource, key)
        except UnreadableObjectError as error:
            if not self.problems or str(self.problems[-1]) != str(error):
                self.problems.append(error)
            shown = self._objects.deleted(resource, key)
        if resource != PODS:
            return shown
        if isinstance(shown, facts.ObjectObserved) and self.synced:
            return None if self._echoes.holds(shown) else shown
        self._echoes.drop(PodKey(key))
        return shown

    def _stray_fact(self, resource: str, key: str, raw: bytes) -> facts.Fact | None:
        """The fact about a job without a queue, if it must not run and the log does not have it like that."""
        fact = running_below(self.state, resource, raw)
        if fact is None:
            return None
        above = self._parents.above(fact.job, fact.spec)
        if above is None:
            self._held[JobKey(key)] = raw
            return None
        fact = msgspec.structs.replace(fact, spec=msgspec.structs.replace(fact.spec, ancestors=above))
        return diff.news(self.state, fact) if must_stop(self.state, fact) else None

    def _forget(self, resource: str, key: str) -> None:
        """Drop what is kept beside the log of an object that is gone, unreadable or irrelevant."""
        if resource == PODS:
            self._foreign.forget(PodKey(key))
        self._runtimes.forget(resource, JobKey(key))

    def _pod_fact(self, fact: facts.Fact | None, key: PodKey, raw: bytes) -> facts.Fact | None:
        if isinstance(fact, facts.PodObserved) and self._waits_for_placement(fact.spec):
            self.unplaced = key
        if isinstance(fact, facts.PodObserved) and fact.spec.managed is not None:
            fact = self._pod_jobs.relevant(fact, raw)
        if self._foreign.is_summing:
            if isinstance(fact, facts.PodObserved) and is_foreign(fact.spec):
                # A fact that the log has of it goes when its sum is there.
                self._foreign.observe(fact.pod, fact.spec)
                return None
            self._foreign.forget(key)
        return diff.deleted(self.state, PODS, key) if fact is None else diff.news(self.state, fact)

    def _is_placed_only(self, key: PodKey, raw: bytes) -> bool:
        """
        Whether the log has of a pod what placement reads of it, and nothing else.

        Such a pod is foreign (`foreign_pods`). What it uses of its node is read by topologies alone.
        """
        if not self._objects.watched or self._foreign.is_summing or key in self.state.pods:
            return False
        return raw != _GONE and not any(each in raw for each in _MAY_BE_OURS)

    def _waits_for_placement(self, pod: Pod) -> bool:
        """Whether a pod is for Headgate to place, and no profile says how."""
        waits = pod.spec.scheduler_name == SCHEDULER_NAME and not pod.spec.node_name
        return waits and not self._objects.has_profile

    def _as_logged(self, fact: facts.Fact) -> facts.Fact:
        """
        A fact as the log gets it.

        Without what is written here: the PodsReady condition of the Workload of a job that is run here. A TrainJob has
        the pod sets that it runs with, and a job what was found above its owner.
        """
        if isinstance(fact, facts.JobObserved):
            record = self.state.jobs.get(fact.job)
            if record is not None and (record.job.uid, record.job.owner) == (fact.spec.uid, fact.spec.owner):
                spec = msgspec.structs.replace(fact.spec, ancestors=record.job.ancestors)
                fact = msgspec.structs.replace(fact, spec=spec)
            return self._runtimes.as_started(fact)
        if isinstance(fact, facts.WorkloadObserved) and job_kinds.of_owner(fact.owner) in self._kinds:
            return msgspec.structs.replace(fact, pods_ready=None)
        return fact

    def _is_left_alone(self, resource: str, key: str, raw: bytes) -> bool:
        """
        Whether an object is in quarantine because it is unreadable. It is released when its annotation requests it.

        The resource is listed then.
        """
        record = self.state.quarantine.get(f"{kind_of(resource)}/{key}")
        if record is None:
            return False
        ours = record.process == Producer.INFORMER_BRIDGE.value
        request = "" if raw == _GONE else retry_of(raw) or ""
        deleted = (
            self._objects.deleted(resource, key)
            if resource in self._objects.own
            else diff.deleted(self.state, resource, key)
        )
        is_gone = ours and raw == _GONE and deleted is None
        if is_gone or (request and request != self.state.retried.get(f"{record.kind}/{key}", "")):
            why = "it is gone" if is_gone else "somebody has asked for it"
            released = effects.ObjectReleased(kind=record.kind, name=key, uid=record.uid, why=why, request=request)
            self._effects += (released, quarantine.shown_again(resource))
        return ours and raw != _GONE

    def _keep(self, fact: facts.JobObserved, raw: bytes) -> None:
        """Keep the JSON of a Job as long as a Workload may have to be created from it."""
        has_workload = owners.workload_of(self.state, fact.job, fact.spec.uid) is not None
        if fact.spec.finished is None and (fact.spec.elastic or not has_workload):
            self._raw[fact.job] = raw
        else:
            self._raw.pop(fact.job, None)

    def _all_is_appended(self) -> bool:
        """Whether everything that was observed is in this commit or in the log."""
        seen = len(self._followed) == len(self.resources) and not any(self._waiting.values())
        return seen and not self._not_run and not self._foreign.is_behind()

    # --- from the log ----------------------------------------------------------------------------------------------

    # Large: one case for each event type after which a Job or Workload is to be looked at.
    def _on_event(
        self,
        event: facts.JobObserved
        | facts.JobDeleted
        | facts.PodObserved
        | facts.PodDeleted
        | facts.WorkloadObserved
        | facts.WorkloadDeleted
        | facts.WorkloadPriorityClassObserved
        | facts.PriorityClassObserved
        | facts.NamespaceObserved
        | facts.ConfigurationObserved
        | facts.LocalQueueObserved
        | facts.LocalQueueDeleted
        | queueing.WorkloadReleased
        | decisions.QuotaReserved
        | effects.WorkloadCreated
        | effects.WorkloadCreateRejected,
    ) -> None:
        match event:
            case facts.JobObserved():
                self._go_on(self._parents.shown(event.spec.uid))
                self._look_at((event.job,))
            case facts.JobDeleted():
                # A pod group of the same name has the same uid.
                self._created.pop(event.uid, None)
            case facts.PodObserved():
                self._pod_jobs.on_pod(event)
            case facts.PodDeleted():
                for job in self._pod_jobs.on_pod(event):
                    self._absent_owners.on_deletion(job)
            case queueing.WorkloadReleased():
                self._look_at(self._job_of(event.workload))
            case facts.WorkloadObserved():
                self._look_at(self._prebuilt.changed(event.workload))
                if event.owner is not None:
                    if ELASTIC_JOB in event.annotations:
                        # Its Job may need another one when it is scaled again.
                        self._created.pop(Uid(event.owner.uid), None)
                    self._raw.pop(job_kinds.owner_key(split_key(event.workload)[0], event.owner), None)
                    self._look_at(self._job_of(event.workload))
            case decisions.QuotaReserved():
                workload = self.state.workloads.get(event.workload)
                if workload is not None and workload.outdated:
                    self._look_at(self._job_of(event.workload))
            case facts.WorkloadDeleted():
                self._look_at(self._prebuilt.changed(event.workload))
                self._look_at(key for key in (pod_jobs.group_of(event.workload),) if key in self.state.jobs)
                record = self.state.jobs.get(event.job)
                if record is not None:
                    self._created.pop(Uid(record.job.uid), None)
                    self._look_at((event.job,))
            case effects.WorkloadCreated() | effects.WorkloadCreateRejected():
                self._creating.pop(_creation_id(event.job, event.job_uid), None)
            case facts.WorkloadPriorityClassObserved():
                # Those that could not get a Workload, or whose Workload could not follow their label, without it.
                jobs = self.state.jobs.items()
                self._look_at(key for key, record in jobs if record.job.priority_class == event.name)
            case facts.PriorityClassObserved():
                self._look_at(key for key, record in self.state.jobs.items() if _COMPOSE_ERROR in record.refused)
            case facts.NamespaceObserved():
                if self.state.configuration.managed_jobs_namespace_selector is not None:
                    self._look_at(key for key in self.state.jobs if JobRef.parse(key).namespace == event.name)
            case facts.ConfigurationObserved():
                self._look_at(self.state.jobs)
            case facts.LocalQueueObserved() | facts.LocalQueueDeleted():
                namespace, name = split_key(event.queue)
                if name == DEFAULT_QUEUE and self.state.configuration.manage_jobs_without_queue_name:
                    self._look_at(key for key in self.state.jobs if JobRef.parse(key).namespace == namespace)

    def _job_of(self, key: WorkloadKey) -> tuple[JobKey, ...]:
        """The job that a Workload was created for, if the state has both."""
        workload = self.state.workloads.get(key)
        job = owners.job_key(self.state, workload) if workload is not None else None
        return (job,) if job is not None and job in self.state.jobs else ()

    def _look_at(self, jobs: Iterable[JobKey]) -> None:
        self._jobs.add_all(jobs)

    def _go_on(self, jobs: Mapping[JobKey, None]) -> None:
        """Have jobs examined that need not wait for their parents any more, those without a queue by their objects."""
        self._look_at(jobs)
        self._released += (key for key in jobs if key in self._held)

    def _release_held(self) -> bool:
        """Read the objects of jobs again that need not wait any more, unless newer ones wait; whether there are any."""
        released, self._released = self._released, []
        for key in released:
            raw = self._held.pop(key, None)
            if raw is not None:
                self._waiting[job_kinds.kind_of(key).resource].setdefault(key, raw)
        return bool(released)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _create_workloads(self, calls: list[Command]) -> None:
        self._look_at(self._pod_jobs.take_found())
        while self._jobs and not self._is_full():
            key = self._jobs.take()
            record = self.state.jobs.get(key)
            if is_aside(self.state, "Job", key, Producer.INFORMER_BRIDGE):
                continue
            if record is not None and has_workload_aside(self.state, record.job.uid):
                continue
            with about("Job", key):
                self._create(key, calls)
                if record is not None and self._updates.needs_whole(key, record, calls):
                    self._ask_for_job(_Creation(key, Uid(record.job.uid), WorkloadKey("")), calls)

    def _is_full(self) -> bool:
        return len(self._creating) + len(self._reading) + self._updates.in_flight >= CALLS_MAX

    def _create(self, key: JobKey, calls: list[Command]) -> None:
        """Create a Job's Workload if it needs one. A set has none; its groups may."""
        record = self.state.jobs.get(key)
        if is_set(key):
            self._look_at(each for each in self._pod_jobs.groups_of(key) if self._lacks_workload(each))
            return
        if record is None or not self._needs_workload(key, record) or not self._knows_parents(key, record.job):
            return
        creation = _Creation(key, Uid(record.job.uid), workload_key(self.state.configuration, key, record.job))
        call_id = _creation_id(creation.job, creation.job_uid)
        problem = self._problem(key, record, creation.workload)
        if problem is not None:
            refused = _rejected(creation, INVALID, *problem)
            if record.refused != f"{refused.code} {refused.reason}: {refused.message}":
                self._creating[call_id] = creation
                self._effects.append(refused)
            return
        if record.job.prebuilt:
            self._prebuilt.claim(key, record.job, self._pod_jobs.of(key), calls)
            return
        job, raw = self._whole(key, record)
        if job is None:
            self._ask_for_job(creation, calls)
            return
        try:
            body = workload_of(self.state, key, job, raw)
        except NoSuchPriorityClassError as error:
            if not record.refused:
                self._creating[call_id] = creation
                self._effects.append(_rejected(creation, 404, _COMPOSE_ERROR, str(error)))
            return
        self._creating[call_id] = creation
        self._priorities.expect(creation.workload)
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{JobRef.parse(key).namespace}/workloads"
        calls.append(Call(id=call_id, method="POST", path=path, body=body, lane=key))

    def _knows_parents(self, key: JobKey, job: Job) -> bool:
        """Whether the state has the owners above a job, or above the set of a group. They are a part of its fact."""
        if job.made_for:
            made_for = self.state.jobs.get(JobKey(job.made_for))
            return made_for is not None and self._knows_parents(JobKey(job.made_for), made_for.job)
        above = self._parents.above(key, job)
        if above is not None and above != job.ancestors:
            self._effects.append(facts.JobObserved(job=key, spec=msgspec.structs.replace(job, ancestors=above)))
        return above == job.ancestors

    def _lacks_workload(self, group: JobKey) -> bool:
        return owners.workload_of(self.state, group, pod_jobs.group_uid(group)) is None

    def _problem(self, key: JobKey, record: JobRecord, workload: WorkloadKey) -> tuple[str, str] | None:
        """Reason and message where a Job cannot get a Workload as it is: a pod group that is not complete, for one."""
        if owners.is_nested_too_deep(self.state, key, record.job):
            return owners.TOO_DEEP, owners.TOO_DEEP_MESSAGE
        if record.job.problem:
            return _COMPOSE_ERROR, record.job.problem
        if self._prebuilt.is_missing(key, record.job):
            return prebuilt.NOT_FOUND, prebuilt.NOT_FOUND_MESSAGE
        if pod_jobs.is_group(key) and not record.job.prebuilt and workload in self.state.workloads:
            name = split_key(workload)[1]
            return _NAME_CONFLICT, (
                f'A Workload named "{name}" already exists but is not a pod group workload; '
                "this pod group cannot be admitted"
            )
        return None

    def _whole(self, key: JobKey, record: JobRecord) -> tuple[Job | None, bytes]:
        """A Job as last observed, parsed and as JSON, that of its set for a group; None when it is not available."""
        if record.job.made_for:
            made_for = self.state.jobs.get(JobKey(record.job.made_for))
            found, raw = self._whole(JobKey(record.job.made_for), made_for) if made_for is not None else (None, _GONE)
            return (record.job if found is not None else None), raw
        if pod_jobs.is_of_pods(key):
            whole = self._pod_jobs.whole(key)
            return (record.job if whole else None), whole
        resource = job_kinds.kind_of(key).resource
        raw = self._raw.get(key) or (self._waiting[resource].get(key, _GONE) if resource in self._waiting else _GONE)
        if raw == _GONE:
            return None, raw
        raw = self._runtimes.whole(resource, key, raw)
        try:
            fact = read(resource, raw, self._rules).fact
        except UnreadableObjectError as error:
            self.problems.append(error)
            return None, raw
        if not isinstance(fact, facts.JobObserved) or fact.spec.uid != record.job.uid:
            return None, raw
        return fact.spec, raw

    def _ask_for_job(self, creation: _Creation, calls: list[Command]) -> None:
        """After a resume, a Job that does not change is not shown. One that is to be listed will be."""
        record = self.state.jobs.get(creation.job)
        made_for = self.state.jobs.get(JobKey(record.job.made_for)) if record is not None else None
        if record is not None and made_for is not None:
            creation = _Creation(JobKey(record.job.made_for), Uid(made_for.job.uid), WorkloadKey(""))
        if pod_jobs.is_of_pods(creation.job):
            self._pod_jobs.ask(creation.job, calls)
            return
        call_id = f"read/{creation.job}/{creation.job_uid}"
        if call_id in self._reading or job_kinds.kind_of(creation.job).resource not in self._followed:
            return
        self._reading[call_id] = creation
        calls.append(Call(id=call_id, method="GET", path=job_kinds.path_of(creation.job), lane=creation.job))

    def _on_job_read(self, creation: _Creation, completed: Completed) -> None:
        """An observation by the watch meanwhile takes precedence. The watch reports a deleted or replaced Job."""
        record = self.state.jobs.get(creation.job)
        if record is None or record.job.uid != creation.job_uid or completed.status == NOT_FOUND:
            return
        if not is_success(completed):
            if not creation.workload:
                return
            said = refusal(completed)
            self._creating[_creation_id(creation.job, creation.job_uid)] = creation
            self._effects.append(_rejected(creation, said.code, said.reason, said.message))
            return
        self._raw.setdefault(creation.job, completed.body)
        if self._whole(creation.job, record)[0] is not None:
            self._look_at((creation.job,))
        else:
            self._raw.pop(creation.job, None)

    def _needs_workload(self, key: JobKey, record: JobRecord) -> bool:
        job, uid = record.job, Uid(record.job.uid)
        if not job.queue_name and not self.state.configuration.manage_jobs_without_queue_name:
            # It is in the log because it runs below another one that is not admitted.
            return False
        if not self._is_managed(JobRef.parse(key).namespace):
            return False
        if owners.runs_above(self.state, key, job) and not owners.is_nested_too_deep(self.state, key, job):
            return False
        if job.finished is not None or job.deleting or uid in self._created:
            return False
        if job.on_hold or is_set(key) or self._pod_jobs.is_left_over(key) or self._goes_with_its_set(job):
            return False
        if owners.workload_of(self.state, key, uid) is not None and not self._needs_slice(key, job):
            return False
        if _creation_id(key, uid) in self._creating:
            return False
        if record.workload and (not self.synced or record.workload in self._waiting["workloads"]):
            # It was created before, and may be among the objects that are not parsed yet.
            return False
        if pod_jobs.is_of_pods(key) and not self._has_shown(PODS):
            return False
        return not record.refused or any(reason in record.refused for reason in _RETRIED)

    def _goes_with_its_set(self, job: Job) -> bool:
        made_for = self.state.jobs.get(JobKey(job.made_for)) if job.made_for else None
        return made_for is not None and made_for.job.deleting

    def _needs_slice(self, key: JobKey, job: Job) -> bool:
        """Whether a Job that has a Workload was scaled up while that holds quota."""
        if not is_sliced(self.state, job):
            return False
        if workload_key(self.state.configuration, key, job) in self.state.workloads:
            return False
        return wanted_slice(self.state, key, job).replace

    def _is_managed(self, namespace: str) -> bool:
        """Whether Jobs of a namespace get Workloads. When an unknown namespace appears, its Jobs are examined again."""
        selector = self.state.configuration.managed_jobs_namespace_selector
        record = self.state.namespaces.get(namespace)
        return selector is None or (record is not None and matches_labels(selector, record.labels))

    # --- outcomes --------------------------------------------------------------------------------------------------

    def _on_completed(self, completed: Completed) -> None:
        self._variants.on_completed(completed)
        self._priorities.on_completed(completed)
        self._effects += self._variants.effects
        self._variants.effects.clear()
        self._absent_owners.on_completed(completed)
        self._effects += self._absent_owners.effects
        self._absent_owners.effects.clear()
        self._pod_jobs.on_completed(completed)
        creation = self._creating.get(completed.call_id)
        if creation is not None:
            self._on_created(creation, completed)
        self._updates.on_completed(completed)
        refused = self._prebuilt.on_completed(completed)
        if refused is not None:
            self._refuse_claim(*refused, completed)
        self._go_on(self._parents.on_completed(completed))
        reading = self._reading.pop(completed.call_id, None)
        if reading is not None:
            self._on_job_read(reading, completed)

    def _refuse_claim(self, key: JobKey, job_uid: str, completed: Completed) -> None:
        """The API server does not let a Job own the Workload that it names."""
        record = self.state.jobs.get(key)
        if record is not None and record.job.uid == job_uid and record.job.prebuilt:
            named = workload_key(self.state.configuration, key, record.job)
            said = refusal(completed)
            self._effects.append(_rejected(_Creation(key, Uid(job_uid), named), said.code, said.reason, said.message))

    def _on_created(self, creation: _Creation, completed: Completed) -> None:
        """The outcome stays among the calls under way until its event is folded."""
        record = self.state.jobs.get(creation.job)
        if record is None or record.job.uid != creation.job_uid:
            del self._creating[completed.call_id]
            return
        if is_success(completed) or completed.status == CONFLICT:
            seen = self.state.workloads.get(creation.workload)
            if seen is None or seen.owner is None or seen.owner.uid != creation.job_uid:
                # Until it is observed. A watch may be faster than the answer to the POST.
                self._created[creation.job_uid] = None
            self._effects.append(
                effects.WorkloadCreated(workload=creation.workload, job=creation.job, job_uid=creation.job_uid)
            )
            return
        said = refusal(completed)
        self._effects.append(_rejected(creation, said.code, said.reason, said.message))


def _by_version(listed: Listed) -> list[bytes]:
    """The names in a list, in the order of the objects' last changes: nothing else shows the order of arrival."""
    return sorted(listed.objects, key=version_of)


def _creation_id(job: JobKey, uid: Uid) -> str:
    return f"create/{job}/{uid}"


def _rejected(creation: _Creation, code: int, reason: str, message: str) -> effects.WorkloadCreateRejected:
    return effects.WorkloadCreateRejected(
        workload=creation.workload,
        job=creation.job,
        job_uid=creation.job_uid,
        code=code,
        reason=reason,
        message=message,
    )


__all__ = ["CALLS_MAX", "FACTS_MAX", "PROBLEMS_MAX", "InformerBridge"]
