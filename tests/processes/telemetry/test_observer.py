"""The telemetry of a process: Kueue's metrics follow from the log, its own from its counters."""

import msgspec
from tests.support.logs import START_MS, TestLog

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.log import Appended, Conflict
from headgate.adapters.telemetry import Metrics, open_traces
from headgate.core.machine.contract import Append
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Position
from headgate.events.configuration import Configuration, FairSharingConfiguration
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadAdmitted, WorkloadPreempted, WorkloadSkipped
from headgate.events.facts import (
    ClusterQueueObserved,
    CohortObserved,
    ConfigurationObserved,
    NamespaceObserved,
    WorkloadObserved,
)
from headgate.events.ids import Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    CohortSpec,
    FairSharing,
    FlavorQuotas,
    PodSet,
    PodSetAssignment,
    PriorityClassRef,
    ResourceGroup,
    ResourceQuota,
    WorkloadSpec,
)
from headgate.events.queueing import Head, HeadsOffered, WorkloadEvicted, WorkloadFinished, WorkloadQueued
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.telemetry.observer import Observing

BRIDGE, MANAGER, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
LABELS = 'cluster_queue="cq",priority_class="high",replica_role="leader"'


def test_retries_and_watches_of_the_api_server_are_counted_by_what_they_were() -> None:
    """A process with an API client adds its counts; they are read at each scrape."""
    observed = Observed()
    observed.status.retries.append(lambda: [(3, {"cause": "throttled"})])
    observed.status.watches.append(lambda: [(2, {"resource": "jobs", "what": "expired"})])
    rendered = observed.metrics.render().splitlines()
    assert 'headgate_kubernetes_retries_total{cause="throttled"} 3' in rendered
    assert 'headgate_kubernetes_watches_total{resource="jobs",what="expired"} 2' in rendered


class Observed:
    """A log that an observer follows."""

    def __init__(self, *, kueue: bool = True) -> None:
        self.log = TestLog()
        self.metrics = Metrics()
        self.status = Status(process="snapshotter", cell="main", holder="h", health=DependencyHealth())
        self.status.phase = Phase.LEADING
        self.observing = Observing(self.status, self.metrics, None, kueue=kueue)
        self.observing.gauges_of(lambda: self.log.state)

    def append(self, producer: Producer, *events: EventBase, after_ms: int = 0, leading: bool = True) -> None:
        self.log.now_ms = UnixMs(START_MS + after_ms)
        logged = self.log.append(producer, *events)
        self.observing.folded(self.log.state, logged, leading=leading)


def key(name: str) -> WorkloadKey:
    return WorkloadKey(f"ns/{name}")


def with_two_queued() -> Observed:
    observed = Observed()
    reference = PriorityClassRef(group="scheduling.k8s.io", kind="PriorityClass", name="high")
    spec = WorkloadSpec(queue_name="lq", pod_sets=(PodSet(),), priority_class_ref=reference)
    facts = [WorkloadObserved(workload=key(name), uid=Uid(name), created_ms=START_MS, spec=spec) for name in ("a", "b")]
    observed.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), *facts)
    queued = [
        WorkloadQueued(
            workload=key(name), uid=Uid(name), cluster_queue="cq", priority=0, queued_at_ms=START_MS, shape=Shape(name)
        )
        for name in ("a", "b")
    ]
    observed.append(MANAGER, *queued)
    heads = tuple(Head(cluster_queue="cq", workload=key(name), uid=Uid(name)) for name in ("a", "b"))
    observed.append(MANAGER, HeadsOffered(heads=heads))
    return observed


def admit(observed: Observed, name: str, *, after_ms: int, leading: bool = True) -> None:
    head = Head(cluster_queue="cq", workload=key(name), uid=Uid(name))
    assignment = PodSetAssignment(flavors={"cpu": "f"}, resource_usage={"cpu": "1500m"}, count=1)
    observed.append(
        SCHEDULER,
        CycleDecided(cycle=1, decided_at=Seq(3), heads=(head,)),
        QuotaReserved(
            workload=key(name),
            uid=Uid(name),
            cluster_queue="cq",
            admission=Admission(cluster_queue="cq", pod_set_assignments=(assignment,)),
            message="m",
        ),
        WorkloadAdmitted(workload=key(name), uid=Uid(name), cluster_queue="cq", message="m"),
        after_ms=after_ms,
        leading=leading,
    )


def test_an_admission_counts_in_kueues_counters_and_histograms() -> None:
    """The wait is from queueing to the commit's time; labels are Kueue's."""
    observed = with_two_queued()
    admit(observed, "a", after_ms=4_000)
    text = observed.metrics.render()
    assert 'kueue_admission_attempts_total{result="success",replica_role="leader"} 1' in text
    assert f"kueue_quota_reserved_workloads_total{{{LABELS}}} 1" in text
    assert f"kueue_admitted_workloads_total{{{LABELS}}} 1" in text
    assert f'kueue_admission_wait_time_seconds_bucket{{{LABELS},le="2.5"}} 0' in text
    assert f'kueue_admission_wait_time_seconds_bucket{{{LABELS},le="5"}} 1' in text
    assert f"kueue_admission_wait_time_seconds_sum{{{LABELS}}} 4" in text
    assert 'kueue_admitted_active_workloads{cluster_queue="cq",replica_role="leader"} 1' in text
    assert 'kueue_pending_workloads{cluster_queue="cq",status="active",replica_role="leader"} 1' in text
    assert 'flavor="f",resource="cpu",replica_role="leader"} 1.5' in text


def test_a_cycle_that_admits_nothing_is_an_inadmissible_attempt() -> None:
    """And its workload is pending, inadmissible."""
    observed = with_two_queued()
    head = Head(cluster_queue="cq", workload=key("a"), uid=Uid("a"))
    skipped = WorkloadSkipped(
        workload=key("a"),
        uid=Uid("a"),
        cluster_queue="cq",
        status="notNominated",
        requeue_reason="NoFit",
        scope="shape",
        reason="r",
        message="m",
    )
    observed.append(SCHEDULER, CycleDecided(cycle=1, decided_at=Seq(3), heads=(head,)), skipped)
    text = observed.metrics.render()
    assert 'kueue_admission_attempts_total{result="inadmissible",replica_role="leader"} 1' in text
    assert 'kueue_pending_workloads{cluster_queue="cq",status="inadmissible",replica_role="leader"} 1' in text


def test_ends_count_with_their_reasons() -> None:
    """Evictions by reason; executions from admission to finish."""
    observed = with_two_queued()
    admit(observed, "a", after_ms=1_000)
    admit(observed, "b", after_ms=1_000)
    evicted = WorkloadEvicted(workload=key("b"), uid=Uid("b"), reason="ClusterQueueStopped", message="m")
    done = WorkloadFinished(workload=key("a"), uid=Uid("a"), reason="Succeeded", message="m")
    observed.append(MANAGER, evicted, done, after_ms=8_000)
    text = observed.metrics.render()
    assert 'kueue_evicted_workloads_total{cluster_queue="cq",reason="ClusterQueueStopped"' in text
    assert f"kueue_finished_workloads_total{{{LABELS}}} 1" in text
    assert f"kueue_execution_time_seconds_sum{{{LABELS}}} 7" in text


def test_a_preemption_counts_for_who_goes_and_for_who_comes() -> None:
    """Evicted with reason Preempted in its own ClusterQueue, preempted by the ClusterQueue of the other."""
    observed = with_two_queued()
    admit(observed, "a", after_ms=1_000)
    preempted = WorkloadPreempted(
        workload=key("a"), uid=Uid("a"), cluster_queue="cq", preemptor=key("b"), preemptor_uid=Uid("b"),
        reason="InClusterQueue", message="m",
    )  # fmt: skip
    observed.append(SCHEDULER, preempted)
    text = observed.metrics.render()
    assert (
        'kueue_evicted_workloads_total{cluster_queue="cq",reason="Preempted",underlying_cause="",'
        'priority_class="high",replica_role="leader"} 1' in text
    )
    assert (
        'kueue_preempted_workloads_total{preempting_cluster_queue="cq",reason="InClusterQueue",replica_role="leader"} 1'
        in text
    )


def test_shares_are_served_while_fair_sharing_is_on() -> None:
    """By ClusterQueue with its cohort, and by Cohort; a borrower of weight 0 has none."""
    observed = with_two_queued()
    cohort = 'kueue_cohort_weighted_share{cohort="c",replica_role="leader"}'
    share = 'kueue_cluster_queue_weighted_share{cluster_queue="cq",cohort="c",replica_role="leader"}'
    queues = {
        name: ClusterQueueSpec(
            cohort_name="c",
            fair_sharing=FairSharing(weight=weight),
            resource_groups=(
                ResourceGroup(
                    covered_resources=("cpu",),
                    flavors=(FlavorQuotas(name="f", resources=(ResourceQuota(name="cpu", nominal_quota=nominal),)),),
                ),
            ),
        )
        for name, nominal, weight in (("cq", "0.5", "0.5"), ("other", "7.5", "1"))
    }
    observed.append(
        BRIDGE,
        CohortObserved(name="c", spec=CohortSpec()),
        *(ClusterQueueObserved(name=name, spec=spec) for name, spec in queues.items()),
    )
    admit(observed, "a", after_ms=1_000)
    assert share not in observed.metrics.render()
    observed.append(BRIDGE, ConfigurationObserved(configuration=Configuration(fair_sharing=FairSharingConfiguration())))
    text = observed.metrics.render()
    assert f"{share} 250" in text
    assert f"{cohort} 0" in text
    weightless = msgspec.structs.replace(queues["cq"], fair_sharing=FairSharing(weight="0"))
    observed.append(BRIDGE, ClusterQueueObserved(name="cq", spec=weightless))
    assert share not in observed.metrics.render()


def test_a_standby_counts_nothing_of_kueues() -> None:
    """A sum over the replicas counts each admission once."""
    observed = with_two_queued()
    observed.status.phase = Phase.STANDBY
    admit(observed, "a", after_ms=0, leading=False)
    text = observed.metrics.render()
    assert "kueue_admitted_workloads_total{" not in text
    assert "kueue_pending_workloads{" not in text


def test_every_process_serves_its_own_counters() -> None:
    """And what it is about, and what it depends on."""
    observed = Observed(kueue=False)
    observed.status.counters.commits_appended = 7
    observed.status.counters.fold_ns = 2_500_000_000
    observed.status.health.unwell("nats", "gone")
    text = observed.metrics.render()
    assert "headgate_commits_appended_total 7" in text
    assert "headgate_fold_seconds_total 2.5" in text
    assert 'headgate_phase{phase="leading"} 1' in text
    assert 'headgate_dependency_up{dependency="nats"} 0' in text
    assert "kueue_" not in text


def test_a_commits_span_is_a_child_of_its_causes(capsys) -> None:
    """The traceparent goes from envelope to envelope; a refused append ends its span as an error."""
    log = TestLog()
    status = Status(process="scheduler", cell="main", holder="h", health=DependencyHealth())
    with open_traces(exporter="console", endpoint="", sampled=1.0, resource={}) as traces:
        observing = Observing(status, Metrics(), traces, kueue=False)
        traceparents = []
        for outcome in (Appended(1), Conflict(1, 2)):
            append = Append(events=(NamespaceObserved(name="x"),), cause=Position(Seq(1)))
            trace = observing.deciding(append)
            assert trace is not None
            traceparents.append(trace)
            logged = log.encode(Producer.SCHEDULER, *append.events)
            commit = msgspec.structs.replace(logged.commit, trace=trace)
            observing.appended(commit, outcome)
            observing.folded(log.state, msgspec.structs.replace(logged, commit=commit), leading=True)
    first, second = (each.split("-") for each in traceparents)
    assert first[1] == second[1]
    assert first[2] != second[2]
    assert "the log refused the append" in capsys.readouterr().err
