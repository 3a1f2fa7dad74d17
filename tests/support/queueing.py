"""A cell with a queue manager and hand-made facts and decisions, for tests of queue life."""

from collections.abc import Iterable
from typing import Any

from tests.support.driven import Driven
from tests.support.logs import START_MS, TestLog
from tests.support.owning import applied, gives_back

from headgate.core import fold
from headgate.core.engine.outputs import Send
from headgate.core.machine.contract import WakeAt
from headgate.core.state.tables import Stage, State, Workload
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Commit, LoggedCommit
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadAdmitted, WorkloadSkipped
from headgate.events.effects import JobStarted
from headgate.events.ids import JobKey, LocalQueueKey, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    CheckState,
    ClusterQueueSpec,
    Container,
    FlavorQuotas,
    Job,
    LocalQueueSpec,
    OwnerReference,
    PodSet,
    PodSetAssignment,
    PodSpec,
    PodTemplate,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Resources,
    WorkloadSpec,
)
from headgate.events.queueing import Needs
from headgate.machines.queue_manager.decide import QueueManager

BRIDGE, QM, SCHEDULER, UNGATER = (
    Producer.INFORMER_BRIDGE,
    Producer.QUEUE_MANAGER,
    Producer.SCHEDULER,
    Producer.UNGATER,
)
COMMITS_MAX = 200
"""A queue manager that has not come to rest by then never will."""


def queue_spec(
    *, strategy: str = "BestEffortFIFO", stop: str = "None", cohort: str = "", flavor: str = "default", **more: Any
) -> ClusterQueueSpec:
    quota = ResourceQuota(name="cpu", nominal_quota="4")
    groups = (ResourceGroup(covered_resources=("cpu",), flavors=(FlavorQuotas(name=flavor, resources=(quota,)),)),)
    return ClusterQueueSpec(
        resource_groups=groups, queueing_strategy=strategy, stop_policy=stop, cohort_name=cohort, **more
    )


def workload_spec(*, cpu: str = "1", queue: str = "main", **more: Any) -> WorkloadSpec:
    pod = PodSpec(containers=(Container(name="main", resources=Resources(requests={"cpu": cpu})),))
    return WorkloadSpec(queue_name=queue, pod_sets=(PodSet(count=1, template=PodTemplate(spec=pod)),), **more)


class QueueCell:
    """
    A log, its state and a queue manager over it.

    With `crashes`, the queue manager is recreated from the encoded state before each of its decisions.
    """

    def __init__(self, *, crashes: bool = False) -> None:
        self.log = TestLog()
        self.crashes = crashes
        self._driven = Driven(self.log, QM, QueueManager)
        self._sent: Send | None = None
        self.wake_at: UnixMs | None = None
        self.cycle = 0
        self.generations: dict[str, int] = {}

    # --- the log ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.log.state

    @property
    def now_ms(self) -> UnixMs:
        return self.log.now_ms

    @property
    def manager(self) -> QueueManager:
        assert isinstance(self._driven.machine, QueueManager)
        return self._driven.machine

    def pass_s(self, seconds: float) -> None:
        self.log.now_ms = UnixMs(self.log.now_ms + int(seconds * 1000))

    def put(self, producer: Producer, *events: EventBase, decided_at: int = 0) -> LoggedCommit:
        logged = self.log.append(producer, *events, decided_at=decided_at)
        self._driven.folded(logged)
        return logged

    def see(self, *events: EventBase) -> LoggedCommit:
        """Facts."""
        return self.put(BRIDGE, *events)

    # --- the queue manager -----------------------------------------------------------------------------------------

    def decide(self) -> Commit | None:
        """The queue manager's next append; not appended yet."""
        if self.crashes:
            self.restart()
        self._sent = None
        for output in self._driven.settle():
            match output:
                case Send():
                    assert self._sent is None, "two appends from one Settled"
                    self._sent = output
                case WakeAt(at_ms):
                    self.wake_at = at_ms
                case _:
                    raise AssertionError(f"the queue manager does not {output}")
        return self._sent.commit if self._sent is not None else None

    def restart(self) -> None:
        """A new queue manager on the state as it is restored from its bytes."""
        self.log.state = fold.restore(self.log.cell, fold.encode(self.state))
        self._driven = Driven(self.log, QM, QueueManager)

    def land(self, commit: Commit) -> tuple[EventBase, ...]:
        """What was decided is appended."""
        assert self._sent is not None
        assert self._sent.commit is commit
        self._driven.folded(self._driven.store(self._sent))
        return commit.events

    def settle(self) -> list[EventBase]:
        """Let the queue manager append until it has nothing to say. Its events."""
        said: list[EventBase] = []
        for _ in range(COMMITS_MAX):
            commit = self.decide()
            if commit is None:
                return said
            said.extend(self.land(commit))
        raise AssertionError(f"the queue manager does not come to rest; last it said {said[-3:]}")

    def until_rest(self, commit: Commit | None) -> list[EventBase]:
        """As `settle`, after an append that was decided before."""
        return [*(self.land(commit) if commit is not None else ()), *self.settle()]

    # --- facts -----------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        self.see(facts.InformersSynced())

    def flavor(self, name: str = "default") -> None:
        self.see(facts.ResourceFlavorObserved(name=name, spec=ResourceFlavorSpec()))

    def cluster_queue(self, name: str = "cq", **spec: Any) -> None:
        self.see(facts.ClusterQueueObserved(name=name, spec=queue_spec(**spec)))

    def local_queue(
        self, name: str = "main", cluster_queue: str = "cq", *, namespace: str = "team", stop: str = "None"
    ) -> None:
        spec = LocalQueueSpec(cluster_queue=cluster_queue, stop_policy=stop)
        self.see(facts.LocalQueueObserved(queue=LocalQueueKey(f"{namespace}/{name}"), spec=spec))

    def ready(self, **spec: Any) -> "QueueCell":
        """One flavor, one ClusterQueue, one LocalQueue, informers in sync, at rest."""
        self.flavor()
        self.cluster_queue(**spec)
        self.local_queue()
        self.sync()
        self.settle()
        return self

    def observed(
        self,
        name: str,
        *,
        namespace: str = "team",
        created_s: float = 0,
        uid: str = "",
        generation: int | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        checks: tuple[CheckState, ...] = (),
        job: str = "",
        deleting: bool = False,
        finished: Any = None,
        reclaimable: Any = (),
        deactivation_target: Any = None,
        **spec: Any,
    ) -> facts.WorkloadObserved:
        """The fact that a workload looks like this. Each call is one generation."""
        key = WorkloadKey(f"{namespace}/{name}")
        self.generations[key] = self.generations.get(key, 0) + 1
        owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, uid=f"job-{job}") if job else None
        return facts.WorkloadObserved(
            workload=key,
            uid=Uid(uid or f"uid-{name}"),
            created_ms=UnixMs(START_MS + int(created_s * 1000)),
            spec=workload_spec(**spec),
            generation=self.generations[key] if generation is None else generation,
            labels={"kueue.x-k8s.io/job-uid": f"job-{job}", **(labels or {})} if job else (labels or {}),
            annotations=annotations or {},
            owner=owner,
            checks=checks,
            deleting=deleting,
            finished=finished,
            reclaimable_pods=reclaimable,
            deactivation_target=deactivation_target,
        )

    def submit(self, name: str, **more: Any) -> WorkloadKey:
        event = self.observed(name, **more)
        self.see(event)
        return event.workload

    def delete(self, key: WorkloadKey) -> None:
        self.see(facts.WorkloadDeleted(workload=key, uid=self[key].uid))

    def job(self, name: str, **job: Any) -> None:
        spec = Job(uid=f"job-{name}", created_ms=START_MS, queue_name="main", **job)
        self.see(facts.JobObserved(job=JobKey(f"batch/Job/team/{name}"), spec=spec))

    def owner_stops(self, key: WorkloadKey) -> None:
        """The owner of a workload without a Job sees that it is evicted, stops its work and gives its quota back."""
        self.put(Producer.BINDER, applied(self.state, self[key]))
        self.see(gives_back(self[key]))

    def run(self, name: str) -> WorkloadKey:
        """A workload of the Job `j<name>` that was admitted and resumed; its pod is active and not ready."""
        self.job(f"j{name}", suspended=True)
        key = self.submit(name, job=f"j{name}")
        self.settle()
        self.admit(key)
        job, uid = JobKey(f"batch/Job/team/j{name}"), Uid(f"job-j{name}")
        self.put(UNGATER, JobStarted(job=job, job_uid=uid, workload=key, workload_uid=self[key].uid))
        self.job(f"j{name}", active=1)
        self.settle()
        return key

    # --- the scheduler ---------------------------------------------------------------------------------------------

    def cycle_of(self, *decisions: EventBase, decided_at: int | None = None) -> None:
        self.cycle += 1
        at = self.state.position if decided_at is None else Seq(decided_at)
        self.put(SCHEDULER, CycleDecided(cycle=self.cycle, decided_at=at), *decisions, decided_at=at)

    def skipped(
        self,
        key: WorkloadKey,
        scope: str,
        *,
        short: Iterable[str] = ("default/cpu",),
        requeue_reason: str = "NoFit",
        reason: str = "WaitingForQuota",
        needs: Needs = (),
    ) -> WorkloadSkipped:
        return WorkloadSkipped(
            workload=key,
            uid=self[key].uid,
            cluster_queue=self[key].cluster_queue,
            status="notNominated",
            requeue_reason=requeue_reason,
            scope=scope,  # type: ignore[arg-type]
            reason=reason,
            message="insufficient quota",
            short=tuple(short),
            needs=needs,
        )

    def skip(self, key: WorkloadKey, scope: str, *, decided_at: int | None = None, **more: Any) -> None:
        self.cycle_of(self.skipped(key, scope, **more), decided_at=decided_at)

    def reserved(self, key: WorkloadKey, *, checks: tuple[str, ...] = (), cpu: str = "1") -> list[EventBase]:
        workload = self[key]
        assignment = PodSetAssignment(flavors={"cpu": "default"}, resource_usage={"cpu": cpu}, count=1)
        admission = Admission(cluster_queue=workload.cluster_queue, pod_set_assignments=(assignment,))
        reserved = QuotaReserved(
            workload=key,
            uid=workload.uid,
            cluster_queue=workload.cluster_queue,
            admission=admission,
            message=f"Quota reserved in ClusterQueue {workload.cluster_queue}",
            checks=tuple(CheckState(name=name, state="Pending") for name in checks),
        )
        return [reserved] if checks else [reserved, self.admitted(key)]

    def admitted(self, key: WorkloadKey) -> WorkloadAdmitted:
        workload = self[key]
        return WorkloadAdmitted(
            workload=key, uid=workload.uid, cluster_queue=workload.cluster_queue, message="The workload is admitted"
        )

    def admit(self, key: WorkloadKey, **more: Any) -> None:
        self.cycle_of(*self.reserved(key, **more))

    # --- looking ---------------------------------------------------------------------------------------------------

    def __getitem__(self, key: WorkloadKey) -> Workload:
        return self.state.workloads[key]

    def stage(self, key: WorkloadKey) -> Stage:
        return self[key].stage

    def offers(self, cluster_queue: str = "cq") -> list[str]:
        return [key.partition("/")[2] for key in self.state.index.offered.get(cluster_queue, ())]

    def condition(self, key: WorkloadKey, kind: str) -> tuple[str, str, str] | None:
        for condition in self[key].conditions:
            if condition.type == kind:
                return condition.status, condition.reason, condition.message
        return None
