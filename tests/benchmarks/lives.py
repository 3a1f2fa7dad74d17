"""
Logs for measuring: the lives of many jobs, made without the machines, as the six processes would write them.

`Writer` keeps what makes a commit sound (number, hash chain); `Lives` makes the events. A life is that of a one-pod
Job with free quota, from `job.observed` to `workload.deleted`, twenty events over fourteen commits; `wave` jobs go
through it together, which sets the number of events a commit. The objects look like those that people have: two
containers' worth of requests, a node selector, a toleration, labels.
"""

from collections.abc import Iterator

from headgate.core.state.tables import State, Workload
from headgate.core.status.workload_status import digest_of, workload_status
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Commit, LoggedCommit, commit_id, digest, encode_commit
from headgate.events.ids import Epoch, JobKey, LocalQueueKey, PodKey, Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    Condition,
    Container,
    FlavorQuotas,
    Job,
    LabelSelector,
    LocalQueueSpec,
    Node,
    OwnerReference,
    Pod,
    PodSet,
    PodSetAssignment,
    PodSpec,
    PodTemplate,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Resources,
    Toleration,
    WorkloadSpec,
)
from headgate.events.subjects import log_subject

CELL = "bench"
START_MS = UnixMs(1_700_000_000_000)
EPOCH = Epoch(1)
SHAPES = 20
QUEUES = 10
FLAVOR = "on-demand"

Payload = tuple[str, bytes]
"""A log subject, and a commit's bytes."""


class Writer:
    """Makes commits that can follow on each other; `seq` is the sequence of the last one."""

    def __init__(self) -> None:
        self.seq = 0
        self.events = 0
        self.now_ms = START_MS
        self._last: dict[Producer, tuple[int, str]] = {}
        self._subjects = {producer: log_subject(CELL, producer) for producer in Producer}

    def commit(self, producer: Producer, *events: EventBase, decided_at: int = 0) -> Payload:
        """The next commit of a producer, encoded."""
        commit, payload = self._encode(producer, events, decided_at)
        self._last[producer] = (commit.number, digest(payload))
        return self._subjects[producer], payload

    def logged(self, producer: Producer, *events: EventBase, decided_at: int = 0) -> LoggedCommit:
        """The same, as it is read back, without having been decoded."""
        commit, payload = self._encode(producer, events, decided_at)
        hashed = digest(payload)
        self._last[producer] = (commit.number, hashed)
        return LoggedCommit(seq=Seq(self.seq), hash=hashed, commit=commit)

    def _encode(self, producer: Producer, events: tuple[EventBase, ...], decided_at: int) -> tuple[Commit, bytes]:
        number, prev = self._last.get(producer, (0, ""))
        self.seq += 1
        self.events += len(events)
        self.now_ms = UnixMs(self.now_ms + 1)
        commit = Commit(
            id=commit_id(producer, EPOCH, number + 1),
            producer=producer,
            epoch=EPOCH,
            number=number + 1,
            time_ms=self.now_ms,
            prev=prev,
            events=events,  # type: ignore[arg-type]
            decided_at=Seq(decided_at),
        )
        return commit, encode_commit(commit)


def cluster(queues: int = QUEUES, nodes: int = 20, cpu: int = 1_000_000) -> tuple[EventBase, ...]:
    """The facts of a cluster: a flavor, nodes, and ClusterQueues q0, q1, ... with a namespace and LocalQueue each."""
    quota = ResourceGroup(
        covered_resources=("cpu", "memory"),
        flavors=(
            FlavorQuotas(
                name=FLAVOR,
                resources=(
                    ResourceQuota(name="cpu", nominal_quota=str(cpu)),
                    ResourceQuota(name="memory", nominal_quota=f"{4 * cpu}Gi"),
                ),
            ),
        ),
    )
    allocatable: dict[str, str | int | float] = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    events: list[EventBase] = [
        facts.ResourceFlavorObserved(name=FLAVOR, spec=ResourceFlavorSpec(node_labels={"type": FLAVOR}))
    ]
    events += [
        facts.NodeObserved(name=f"n{n}", node=Node(name=f"n{n}", labels={"type": FLAVOR}, allocatable=allocatable))
        for n in range(nodes)
    ]
    for n in range(queues):
        spec = ClusterQueueSpec(resource_groups=(quota,), namespace_selector=LabelSelector(), cohort_name="all")
        events.append(facts.NamespaceObserved(name=f"team-{n}", labels={"kubernetes.io/metadata.name": f"team-{n}"}))
        events.append(facts.ClusterQueueObserved(name=f"q{n}", spec=spec, uid=Uid(f"uid-q{n}")))
        local = LocalQueueSpec(cluster_queue=f"q{n}")
        events.append(
            facts.LocalQueueObserved(queue=LocalQueueKey(f"team-{n}/main"), spec=local, uid=Uid(f"uid-lq{n}"))
        )
    return (*events, facts.InformersSynced())


def template(kind: int) -> PodTemplate:
    """One of a few pod templates, which differ in their requests."""
    requests: dict[str, str | int | float] = {"cpu": f"{100 + 100 * (kind % SHAPES)}m", "memory": "512Mi"}
    return PodTemplate(
        spec=PodSpec(
            containers=(Container(name="main", resources=Resources(requests=requests, limits=requests)),),
            node_selector={"disk": "ssd"},
            tolerations=(Toleration(key="batch", operator="Exists", effect="NoSchedule"),),
            scheduler_name="headgate",
        )
    )


TEMPLATES = tuple(template(kind) for kind in range(SHAPES))


class Life:
    """The names and objects of one job."""

    def __init__(self, number: int) -> None:
        team = number % QUEUES
        self.kind = number // QUEUES % SHAPES
        self.cluster_queue = f"q{team}"
        self.job = JobKey(f"batch/Job/team-{team}/train-{number}")
        self.job_uid = Uid(f"7a1c0000-0000-4000-8000-{number:012d}")
        self.workload = WorkloadKey(f"team-{team}/job-train-{number}-{number % 65536:05x}")
        self.uid = Uid(f"7a1c0000-0000-4000-9000-{number:012d}")
        self.pod = PodKey(f"team-{team}/train-{number}-x{number % 997:03d}")
        self.pod_uid = Uid(f"7a1c0000-0000-4000-a000-{number:012d}")
        self.shape = Shape(f"{self.kind:032x}")
        self.head = queueing.Head(cluster_queue=self.cluster_queue, workload=self.workload, uid=self.uid)

    def job_observed(self, **changed: object) -> EventBase:
        """`job.observed`, with what has changed since it was created."""
        job = Job(
            uid=self.job_uid,
            created_ms=START_MS,
            queue_name="main",
            template=TEMPLATES[self.kind],
            **{"suspended": True, **changed},  # type: ignore[arg-type]
        )
        return facts.JobObserved(job=self.job, spec=job)

    def workload_observed(self) -> EventBase:
        """`workload.observed`, as the bridge makes it."""
        return facts.WorkloadObserved(
            workload=self.workload,
            uid=self.uid,
            created_ms=START_MS,
            generation=1,
            labels={"kueue.x-k8s.io/job-uid": self.job_uid},
            owner=OwnerReference(
                api_version="batch/v1", kind="Job", name=self.job.rpartition("/")[2], uid=self.job_uid
            ),
            spec=WorkloadSpec(queue_name="main", priority=0, pod_sets=(PodSet(template=TEMPLATES[self.kind]),)),
        )

    def created(self) -> EventBase:
        return effects.WorkloadCreated(workload=self.workload, job=self.job, job_uid=self.job_uid)

    def queued(self) -> EventBase:
        return queueing.WorkloadQueued(
            workload=self.workload,
            uid=self.uid,
            cluster_queue=self.cluster_queue,
            priority=0,
            queued_at_ms=START_MS,
            shape=self.shape,
        )

    def reserved(self) -> EventBase:
        usage: dict[str, str | int | float] = {"cpu": f"{100 + 100 * self.kind}m", "memory": "512Mi"}
        assignment = PodSetAssignment(flavors={"cpu": FLAVOR, "memory": FLAVOR}, resource_usage=usage, count=1)
        return decisions.QuotaReserved(
            workload=self.workload,
            uid=self.uid,
            cluster_queue=self.cluster_queue,
            admission=Admission(cluster_queue=self.cluster_queue, pod_set_assignments=(assignment,)),
            message=f"Quota reserved in ClusterQueue {self.cluster_queue}, wait time since queued was 0s",
        )

    def admitted(self) -> EventBase:
        return decisions.WorkloadAdmitted(
            workload=self.workload,
            uid=self.uid,
            cluster_queue=self.cluster_queue,
            message=f"Admitted by ClusterQueue {self.cluster_queue}, wait time since reservation was 0s",
        )

    def started(self) -> EventBase:
        return effects.JobStarted(job=self.job, job_uid=self.job_uid, workload=self.workload, workload_uid=self.uid)

    def applied(self, number: int) -> EventBase:
        return effects.StatusApplied(workload=self.workload, uid=self.uid, digest=f"{number:032x}")

    def pod_observed(self, node: str = "", phase: str = "Pending") -> EventBase:
        spec = PodSpec(
            containers=TEMPLATES[self.kind].spec.containers,
            node_selector={"disk": "ssd", "type": FLAVOR},
            tolerations=TEMPLATES[self.kind].spec.tolerations,
            scheduler_name="headgate",
            node_name=node,
        )
        pod = Pod(uid=self.pod_uid, created_ms=START_MS, spec=spec, phase=phase)
        return facts.PodObserved(pod=self.pod, spec=pod)

    def finished(self) -> EventBase:
        message = "Job finished successfully"
        return queueing.WorkloadFinished(workload=self.workload, uid=self.uid, reason="Succeeded", message=message)


def life_of(writer: Writer, lives: list[Life]) -> Iterator[Payload]:
    """The commits of some jobs that go through their lives together."""
    bridge, manager, binder = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.BINDER
    put = writer.commit
    yield put(bridge, *(life.job_observed() for life in lives))
    yield put(bridge, *(life.created() for life in lives), *(life.workload_observed() for life in lives))
    offered = queueing.HeadsOffered(heads=tuple(life.head for life in lives))
    yield put(manager, *(life.queued() for life in lives), offered)
    cycle = decisions.CycleDecided(cycle=writer.seq, decided_at=Seq(writer.seq), heads=offered.heads)
    verdicts = [event for life in lives for event in (life.reserved(), life.admitted())]
    yield put(Producer.SCHEDULER, cycle, *verdicts, decided_at=writer.seq)
    yield put(Producer.UNGATER, *(life.started() for life in lives))
    yield put(binder, *(life.applied(1) for life in lives))
    resumed = [life.job_observed(suspended=False) for life in lives]
    yield put(bridge, *resumed, *(life.pod_observed() for life in lives))
    yield put(Producer.SCHEDULER, *(decisions.PodPlaced(pod=life.pod, uid=life.pod_uid, node="n1") for life in lives))
    yield put(binder, *(effects.PodBound(pod=life.pod, uid=life.pod_uid, node="n1") for life in lives))
    running = [life.job_observed(suspended=False, active=1, ready=1) for life in lives]
    yield put(bridge, *running, *(life.pod_observed("n1", "Running") for life in lives))
    done = [life.job_observed(suspended=False, succeeded=1, finished="Complete") for life in lives]
    yield put(bridge, *done, *(facts.PodDeleted(pod=life.pod, uid=life.pod_uid) for life in lives))
    yield put(manager, *(life.finished() for life in lives))
    yield put(binder, *(life.applied(2) for life in lives))
    gone = [facts.WorkloadDeleted(workload=life.workload, uid=life.uid) for life in lives]
    yield put(bridge, *(facts.JobDeleted(job=life.job, uid=life.job_uid) for life in lives), *gone)


def history(events: int, wave: int, writer: Writer) -> Iterator[Payload]:
    """A log of at least so many events: a cluster, then one wave of jobs after the other."""
    for producer in Producer:
        yield writer.commit(producer, effects.LeaderElected(holder="bench"))
    yield writer.commit(Producer.INFORMER_BRIDGE, *cluster())
    number = 0
    while writer.events < events:
        lives = [Life(number + n) for n in range(wave)]
        number += wave
        yield from life_of(writer, lives)


def crowd(workloads: int, admitted: float = 0.2, size: int = 200) -> Iterator[LoggedCommit]:
    """
    A log that leaves many unfinished workloads behind: a share of them runs (with job and pod), the rest is queued.

    Digests of applied statuses are missing; `settle_statuses` puts them into the folded state.
    """
    writer = Writer()
    for producer in Producer:
        yield writer.logged(producer, effects.LeaderElected(holder="bench"))
    yield writer.logged(Producer.INFORMER_BRIDGE, *cluster(nodes=1000))
    for start in range(0, workloads, size):
        lives = [Life(start + n) for n in range(min(size, workloads - start))]
        yield writer.logged(Producer.INFORMER_BRIDGE, *(life.job_observed() for life in lives))
        seen = [event for life in lives for event in (life.created(), life.workload_observed())]
        yield writer.logged(Producer.INFORMER_BRIDGE, *seen)
        yield writer.logged(Producer.QUEUE_MANAGER, *(life.queued() for life in lives))
        lucky = lives[: int(len(lives) * admitted)]
        if lucky:
            yield from _run(writer, lucky)


def _run(writer: Writer, lives: list[Life]) -> Iterator[LoggedCommit]:
    heads = tuple(life.head for life in lives)
    yield writer.logged(Producer.QUEUE_MANAGER, queueing.HeadsOffered(heads=heads))
    cycle = decisions.CycleDecided(cycle=writer.seq, decided_at=Seq(writer.seq), heads=heads)
    verdicts = [event for life in lives for event in (life.reserved(), life.admitted())]
    yield writer.logged(Producer.SCHEDULER, cycle, *verdicts, decided_at=writer.seq)
    yield writer.logged(Producer.UNGATER, *(life.started() for life in lives))
    running = [life.job_observed(suspended=False, active=1, ready=1) for life in lives]
    nodes = [f"n{n % 1000}" for n in range(len(lives))]
    pods = [life.pod_observed(node, "Running") for life, node in zip(lives, nodes, strict=True)]
    yield writer.logged(Producer.INFORMER_BRIDGE, *running, *pods)


def settle_statuses(state: State) -> State:
    """As if the API server had every status: otherwise a start is a storm of writes, which is another measurement."""
    for workload in state.workloads.values():
        workload.applied = _digest(state, workload)
    return state


def _digest(state: State, workload: Workload) -> str:
    return digest_of(workload, workload_status(state, workload))


__all__ = ["CELL", "Condition", "Life", "Writer", "cluster", "crowd", "history", "life_of", "settle_statuses"]
