"""The audit finds what it promises to find, and nothing in a log that keeps the rules."""

from typing import Any

import msgspec
import pytest
from tests.support.history import History

from headgate.adapters.log import LogEntry
from headgate.core.audit.log import Audit, AuditReport
from headgate.core.audit.quotas import Quotas
from headgate.core.fold import new_state, transitions
from headgate.core.log.authority import author_of
from headgate.core.log.rules_version import RULES
from headgate.core.state import lifecycle
from headgate.core.state.tables import ClusterQueueRecord, CohortRecord, Stage
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Commit, commit_id, decode_commit, encode_commit
from headgate.events.ids import Epoch, JobKey, LocalQueueKey, PodKey, Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    CohortSpec,
    Condition,
    FlavorQuotas,
    Job,
    LocalQueueSpec,
    Pod,
    PodSet,
    PodSetAssignment,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    WorkloadSpec,
    WorkloadStatus,
)
from headgate.events.registry import TAGS, Event

BRIDGE, QUEUES, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
BINDER, UNGATER, SNAPSHOTTER = Producer.BINDER, Producer.UNGATER, Producer.SNAPSHOTTER
CPU = ("f", "cpu")


def group(nominal: str, borrowing: str | None = None, lending: str | None = None) -> tuple[ResourceGroup, ...]:
    quota = ResourceQuota(name="cpu", nominal_quota=nominal, borrowing_limit=borrowing, lending_limit=lending)
    return (ResourceGroup(covered_resources=("cpu",), flavors=(FlavorQuotas(name="f", resources=(quota,)),)),)


def queue(
    name: str, nominal: str, cohort: str = "", borrowing: str | None = None, lending: str | None = None
) -> facts.ClusterQueueObserved:
    spec = ClusterQueueSpec(resource_groups=group(nominal, borrowing, lending), cohort_name=cohort)
    return facts.ClusterQueueObserved(name=name, spec=spec)


def a_cell(*queues: facts.ClusterQueueObserved) -> History:
    history = History()
    history.put(
        BRIDGE,
        facts.ResourceFlavorObserved(name="f", spec=ResourceFlavorSpec()),
        *(queues or (queue("a", "2"),)),
        facts.LocalQueueObserved(queue=LocalQueueKey("n/main"), spec=LocalQueueSpec(cluster_queue="a")),
        facts.InformersSynced(),
    )
    return history


def workload(name: str) -> facts.WorkloadObserved:
    spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(),))
    return facts.WorkloadObserved(
        workload=WorkloadKey(f"n/{name}"), uid=Uid(f"u-{name}"), created_ms=UnixMs(1), spec=spec
    )


def offer(history: History, name: str, cluster_queue: str = "a") -> None:
    """A workload appears, is queued and offered."""
    ids: dict[str, Any] = {"workload": f"n/{name}", "uid": f"u-{name}", "cluster_queue": cluster_queue}
    history.put(BRIDGE, workload(name))
    history.put(
        QUEUES,
        queueing.WorkloadQueued(**ids, priority=0, queued_at_ms=UnixMs(1), shape=Shape(name)),
        queueing.HeadsOffered(heads=(queueing.Head(**ids),)),
    )


def reserve(
    name: str, cpu: str, cluster_queue: str = "a"
) -> tuple[decisions.QuotaReserved, decisions.WorkloadAdmitted]:
    ids: dict[str, Any] = {"workload": f"n/{name}", "uid": f"u-{name}", "cluster_queue": cluster_queue}
    assignment = PodSetAssignment(flavors={"cpu": "f"}, resource_usage={"cpu": cpu}, count=1)
    admission = Admission(cluster_queue=cluster_queue, pod_set_assignments=(assignment,))
    return (
        decisions.QuotaReserved(**ids, admission=admission, message="m"),
        decisions.WorkloadAdmitted(**ids, message="m"),
    )


def cycle(history: History, *events: Event, decided_at: int = 0) -> int:
    at = decided_at or history.position
    number = history.state.cycle + 1
    return history.put(SCHEDULER, decisions.CycleDecided(cycle=number, decided_at=Seq(at)), *events, decided_at=at).seq


def audited(entries: list[LogEntry]) -> AuditReport:
    judge = Audit()
    for entry in entries:
        judge.feed_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
    return judge.report()


def found(history: History) -> list[str]:
    return [finding.check for finding in audited(history.entries).findings]


def a_life() -> History:
    """A job that is queued, admitted, started, bound, finished; with a snapshot on the way."""
    history = a_cell()
    history.put(
        BRIDGE,
        facts.JobObserved(job=JobKey("batch/Job/n/j"), spec=Job(uid="uj", created_ms=UnixMs(1), queue_name="main")),
    )
    history.put(
        BRIDGE, effects.WorkloadCreated(workload=WorkloadKey("n/w"), job=JobKey("batch/Job/n/j"), job_uid=Uid("uj"))
    )
    offer(history, "w")
    cycle(history, *reserve("w", "2"))
    history.put(
        UNGATER,
        effects.JobStarted(
            job=JobKey("batch/Job/n/j"), job_uid=Uid("uj"), workload=WorkloadKey("n/w"), workload_uid=Uid("u-w")
        ),
    )
    history.put(BINDER, effects.StatusApplied(workload=WorkloadKey("n/w"), uid=Uid("u-w"), digest="d"))
    taken = effects.SnapshotTaken(
        position=Seq(history.position), state_hash="h", log_hash=history.state.log_hash, name="s", size_bytes=1
    )
    history.put(SNAPSHOTTER, taken)
    history.put(BRIDGE, facts.PodObserved(pod=PodKey("n/p"), spec=Pod(uid="up", created_ms=UnixMs(1))))
    history.put(BINDER, decisions.PodPlaced(pod=PodKey("n/p"), uid=Uid("up"), node="node"))
    history.put(BINDER, effects.PodBound(pod=PodKey("n/p"), uid=Uid("up"), node="node"))
    history.put(
        QUEUES, queueing.WorkloadFinished(workload=WorkloadKey("n/w"), uid=Uid("u-w"), reason="Succeeded", message="m")
    )
    return history


def recommit(entry: LogEntry, **changes: object) -> LogEntry:
    """An entry whose commit has other contents."""
    commit = decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms).commit
    values = {field: getattr(commit, field) for field in Commit.__struct_fields__} | changes
    return msgspec.structs.replace(entry, payload=encode_commit(Commit(**values)))


def test_a_log_that_keeps_the_rules_has_no_findings() -> None:
    """A whole life, over all processes."""
    history = a_life()
    report = audited(history.entries)
    assert report.findings == ()
    assert (report.first, report.last, report.folded_to) == (1, history.position, history.position)
    assert report.reservations == 1


def test_a_missing_entry_is_found_and_what_follows_is_still_judged() -> None:
    """The gap, the broken numbering, and the end of folding are reported; later envelopes are still checked."""
    history = a_life()
    hole = [entry for entry in history.entries if entry.seq != 6]
    report = audited(hole)
    assert [finding.check for finding in report.findings][:2] == ["gaps", "gaps"]
    assert report.findings[0].position.seq == 7
    assert report.folded_to < report.last == history.position


def test_a_log_without_its_beginning_is_found() -> None:
    """What came before the first entry cannot be checked, and the report states it."""
    history = a_life()
    assert "the log begins at 3" in audited(history.entries[2:]).findings[0].text


def test_a_changed_entry_breaks_the_chain() -> None:
    """Its own bytes decode; the producer's next commit names another hash."""
    history = a_life()
    entry = history.entries[1]
    entries = [*history.entries]
    entries[1] = recommit(entry, time_ms=1)
    assert "chain" in {finding.check for finding in audited(entries).findings}


def test_an_unreadable_entry_is_found_with_its_reason() -> None:
    """It is named, and folding ends there."""
    history = a_life()
    entries = [*history.entries]
    entries[3] = msgspec.structs.replace(entries[3], payload=b'{"events":[{"type":"job.teleported"}]}')
    report = audited(entries)
    assert report.findings[0].check == "readable"
    assert "job.teleported" in report.findings[0].text
    assert report.folded_to == 3


def test_a_commit_on_another_producers_subject_is_found() -> None:
    """The fence is per subject: no producer may write under another's."""
    history = a_life()
    entries = [*history.entries]
    entries[0] = msgspec.structs.replace(entries[0], subject="headgate.main.log.binder")
    assert audited(entries).findings[0].check == "readable"


def test_a_deposed_leaders_commit_is_found() -> None:
    """An epoch that falls means that the fence did not hold."""
    history = a_life()
    history.term(QUEUES, "two")
    entries = [*history.entries]
    last = history.put(QUEUES, queueing.HeadsWithdrawn(cluster_queues=("a",), reason="r"))
    stale = recommit(history.entries[-1], epoch=1, id=commit_id(QUEUES, Epoch(1), last.commit.number))
    assert [finding.check for finding in audited([*entries, stale]).findings] == ["epochs"]


def test_a_term_that_does_not_begin_with_an_election_is_found() -> None:
    """Each term opens with `leader.elected`."""
    history = a_life()
    last = history.put(QUEUES, queueing.HeadsWithdrawn(cluster_queues=("a",), reason="r"))
    entries = history.entries[:-1]
    jumped = recommit(history.entries[-1], epoch=2, id=commit_id(QUEUES, Epoch(2), last.commit.number))
    assert [finding.check for finding in audited([*entries, jumped]).findings] == ["epochs"]


def test_time_that_goes_back_is_found() -> None:
    """Per producer; two producers' clocks may differ."""
    history = a_life()
    history.put(QUEUES, queueing.HeadsWithdrawn(cluster_queues=("a",), reason="r"))
    entries = [*history.entries[:-1], recommit(history.entries[-1], time_ms=5)]
    assert [finding.check for finding in audited(entries).findings] == ["times", "clock"]


def test_a_cycle_out_of_turn_is_found() -> None:
    """Cycles are numbered without a gap."""
    history = a_cell()
    history.put(SCHEDULER, decisions.CycleDecided(cycle=7, decided_at=Seq(2)), decided_at=2)
    assert found(history) == ["order"]


def test_a_ground_that_lies_ahead_is_found() -> None:
    """No commit decides on a position that is not yet in the log."""
    history = a_cell()
    history.put(QUEUES, queueing.HeadsWithdrawn(cluster_queues=("a",), reason="r"), decided_at=99)
    assert found(history) == ["order"]


def test_an_event_of_another_process_is_found() -> None:
    """The binder does not speak for the queue manager."""
    history = a_cell()
    history.put(BINDER, queueing.HeadsWithdrawn(cluster_queues=("a",), reason="r"))
    assert found(history) == ["authority"]


def test_every_event_has_one_author_but_those_of_every_process() -> None:
    """No event type is without an owner."""
    nobody = [tag for tag, kind in TAGS.items() if author_of(kind) is None]
    assert nobody == ["leader.elected", "object.quarantined", "object.released"]


def test_an_illegal_transition_is_found_once_and_ends_folding() -> None:
    """Admitting what was never reserved cannot happen."""
    history = a_cell()
    history.put(BRIDGE, workload("w"))
    history.put(QUEUES, queueing.HeadsWithdrawn(cluster_queues=("a",), reason="r"))
    released = queueing.WorkloadReleased(
        workload=WorkloadKey("n/w"), uid=Uid("u-w"), requeued=True, reason="r", message="m"
    )
    entries = [*history.entries[:-1], recommit(history.entries[-1], events=(released,))]
    report = audited(entries)
    assert [finding.check for finding in report.findings] == ["lifecycle"]
    assert report.findings[0].about == "n/w"


def test_a_reservation_beyond_quota_is_found_where_it_happened() -> None:
    """The second one is too much, with how much there is and how much is allowed."""
    history = a_cell()
    offer(history, "one")
    offer(history, "two")
    cycle(history, *reserve("one", "2"))
    at = cycle(history, *reserve("two", "500m"))
    (finding,) = audited(history.entries).findings
    assert (finding.check, finding.position.seq, finding.about) == ("quota", at, "n/two")
    assert "2.5 cpu of f are in use in ClusterQueue a; 2 are allowed" in finding.text


def preempt(history: History, *targets: str) -> int:
    """`one` runs; `two` preempts it, with a verdict that names `targets`."""
    offer(history, "one")
    cycle(history, *reserve("one", "2"))
    offer(history, "two")
    preempted = decisions.WorkloadPreempted(
        workload=WorkloadKey("n/one"),
        uid=Uid("u-one"),
        cluster_queue="a",
        preemptor=WorkloadKey("n/two"),
        preemptor_uid=Uid("u-two"),
        reason="InClusterQueue",
        message="m",
    )
    verdict = decisions.WorkloadSkipped(
        workload=WorkloadKey("n/two"),
        uid=Uid("u-two"),
        cluster_queue="a",
        status="notNominated",
        requeue_reason="PendingPreemption",
        scope="queue",
        reason="WaitingForPreemptedWorkloads",
        message="m",
        targets=tuple(map(WorkloadKey, targets)),
    )
    return cycle(history, preempted, verdict)


def test_a_preemption_that_no_verdict_names_is_found() -> None:
    """A workload is preempted only for one that waits for that quota."""
    history = a_cell()
    at = preempt(history, "n/three")
    findings = [finding for finding in audited(history.entries).findings if finding.check == "preemption"]
    assert [(finding.position.seq, finding.about) for finding in findings] == [(at, "n/one")]
    assert "was preempted for n/two, and no verdict on that one names it" in findings[0].text
    history = a_cell()
    preempt(history, "n/one")
    assert "preemption" not in found(history)


def test_one_that_was_preempted_may_be_admitted_again_once_released() -> None:
    """And not before: the lifecycle has no way from evicted to reserved."""
    history = a_cell()
    preempt(history, "n/one")
    released = queueing.WorkloadReleased(
        workload=WorkloadKey("n/one"), uid=Uid("u-one"), reason="Pending", message="m", requeued=True
    )
    history.put(QUEUES, released)
    ids: dict[str, Any] = {"workload": "n/one", "uid": "u-one", "cluster_queue": "a"}
    history.put(QUEUES, queueing.WorkloadQueued(**ids, priority=0, queued_at_ms=UnixMs(1), shape=Shape("one")))
    history.put(QUEUES, queueing.HeadsOffered(heads=(queueing.Head(**ids),)))
    cycle(history, *reserve("one", "2"))
    assert not {"preemption", "admitted-twice", "quota", "lifecycle"} & set(found(history))


def test_borrowing_up_to_the_limit_is_fine_and_beyond_it_is_found() -> None:
    """A member may use its own quota and so much of the cohort's."""

    def borrows(cpu: str) -> list[str]:
        history = a_cell(queue("a", "2", "c", borrowing="1"), queue("b", "4", "c"))
        offer(history, "w")
        cycle(history, *reserve("w", cpu))
        return found(history)

    assert borrows("3") == []
    assert borrows("3001m") == ["quota"]


def test_what_is_not_lent_cannot_be_borrowed() -> None:
    """A lending limit keeps the rest at home: the cohort above is then overdrawn."""

    def borrows(cpu: str) -> list[str]:
        history = a_cell(queue("a", "2", "c"), queue("b", "4", "c", lending="1"))
        offer(history, "w")
        cycle(history, *reserve("w", cpu))
        return found(history)

    assert borrows("3") == []
    assert borrows("4") == ["quota"]


def test_lowering_a_quota_below_what_is_in_use_is_nobodys_fault() -> None:
    """Nor is a cycle that was on its way while it was lowered: it is judged by the quota it saw."""
    history = a_cell()
    offer(history, "one")
    offer(history, "two")
    cycle(history, *reserve("one", "1"))
    seen = history.position
    history.put(BRIDGE, queue("a", "1"))
    cycle(history, *reserve("two", "1"), decided_at=seen)
    assert found(history) == []


def test_a_cycle_that_could_have_seen_the_lower_quota_is_found() -> None:
    """The counterpart: decided after the change, it has no excuse."""
    history = a_cell()
    offer(history, "one")
    offer(history, "two")
    cycle(history, *reserve("one", "1"))
    history.put(BRIDGE, queue("a", "1"))
    cycle(history, *reserve("two", "1"))
    assert found(history) == ["quota"]


@pytest.mark.parametrize(
    ("effect", "producer"),
    [
        (
            effects.JobStarted(
                job=JobKey("batch/Job/n/j"), job_uid=Uid("uj"), workload=WorkloadKey("n/w"), workload_uid=Uid("u-w")
            ),
            UNGATER,
        ),
        (effects.PodBound(pod=PodKey("n/p"), uid=Uid("up"), node="node"), BINDER),
        (effects.PodPreempted(pod=PodKey("n/p"), uid=Uid("up"), by=PodKey("n/other")), BINDER),
        (effects.StatusApplied(workload=WorkloadKey("n/x"), uid=Uid("u-x"), digest="d"), BINDER),
        (effects.WorkloadCreated(workload=WorkloadKey("n/x"), job=JobKey("batch/Job/n/x"), job_uid=Uid("ux")), BRIDGE),
        (
            effects.VariantChanged(
                variant=WorkloadKey("n/v"),
                uid=Uid("u-v"),
                parent=WorkloadKey("n/x"),
                parent_uid=Uid("u-x"),
                flavor="spot",
                change="created",
            ),
            BRIDGE,
        ),
        (
            effects.JobStopped(job=JobKey("batch/Job/n/x"), job_uid=Uid("ux"), workload=WorkloadKey("n/x"), reason="r"),
            UNGATER,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, EventBase) else "",
)
def test_an_effect_without_its_decision_is_found(effect: Event, producer: Producer) -> None:
    """Durable before visible."""
    history = a_cell()
    history.put(
        BRIDGE,
        facts.JobObserved(job=JobKey("batch/Job/n/j"), spec=Job(uid="uj", created_ms=UnixMs(1), queue_name="main")),
    )
    history.put(BRIDGE, facts.PodObserved(pod=PodKey("n/p"), spec=Pod(uid="up", created_ms=UnixMs(1))))
    offer(history, "w")
    history.put(producer, effect)
    assert found(history) == ["durable"]


def test_a_decision_in_the_same_commit_is_not_early_enough() -> None:
    """It was not acknowledged yet when the effect was carried out."""
    history = a_cell()
    history.put(BRIDGE, facts.PodObserved(pod=PodKey("n/p"), spec=Pod(uid="up", created_ms=UnixMs(1))))
    placed = decisions.PodPlaced(pod=PodKey("n/p"), uid=Uid("up"), node="node")
    history.put(BINDER, placed, effects.PodBound(pod=PodKey("n/p"), uid=Uid("up"), node="node"))
    assert found(history) == ["durable"]


def test_a_pod_bound_elsewhere_than_placed_is_found() -> None:
    """The placement that counts is the last before the binding."""
    history = a_cell()
    history.put(BRIDGE, facts.PodObserved(pod=PodKey("n/p"), spec=Pod(uid="up", created_ms=UnixMs(1))))
    history.put(BINDER, decisions.PodPlaced(pod=PodKey("n/p"), uid=Uid("up"), node="one"))
    history.put(BINDER, effects.PodBound(pod=PodKey("n/p"), uid=Uid("up"), node="two"))
    assert found(history) == ["durable"]


def test_a_pod_placed_by_the_binder_of_today_is_found() -> None:
    """By its former rules it placed pods itself."""
    history = a_cell()
    placed = decisions.PodPlaced(pod=PodKey("n/p"), uid=Uid("up"), node="one")
    history.term(BINDER, rules=1)
    history.put(BINDER, placed)
    assert found(history) == []
    history.term(BINDER, rules=RULES[BINDER])
    history.put(BINDER, placed)
    assert found(history) == ["authority"]


def test_a_snapshot_of_another_log_is_found() -> None:
    """Its log hash is the fingerprint of every commit before."""
    history = a_cell()
    taken = effects.SnapshotTaken(position=Seq(2), state_hash="h", log_hash="other", name="s", size_bytes=1)
    history.put(SNAPSHOTTER, taken)
    assert found(history) == ["chain"]


def test_a_divergence_that_was_noted_is_reported() -> None:
    """The snapshotter's own alarm is a finding."""
    history = a_cell()
    history.put(SNAPSHOTTER, effects.DivergenceFound(position=Seq(2), live_hash="a", refolded_hash="b"))
    assert found(history) == ["divergence"]


def test_a_workload_that_nothing_will_wake_is_found() -> None:
    """Parked for no reason that can come true."""
    history = a_cell()
    history.put(BRIDGE, workload("w"))
    history.put(
        QUEUES, queueing.WorkloadParked(workload=WorkloadKey("n/w"), uid=Uid("u-w"), reason="r", message="m", wake=())
    )
    assert found(history) == ["forgotten"]


def test_work_that_was_taken_over_counts_as_admitted() -> None:
    """What another Kueue has admitted may be started, and must not be admitted again."""
    history = a_cell()
    history.put(
        BRIDGE,
        facts.JobObserved(job=JobKey("batch/Job/n/j"), spec=Job(uid="uj", created_ms=UnixMs(1), queue_name="main")),
    )
    (reservation, _) = reserve("w", "1")
    status = WorkloadStatus(
        admission=reservation.admission,
        conditions=(Condition(type="QuotaReserved", status="True"), Condition(type="Admitted", status="True")),
    )
    history.put(BRIDGE, msgspec.structs.replace(workload("w"), taken_over=status))
    history.put(
        UNGATER,
        effects.JobStarted(
            job=JobKey("batch/Job/n/j"), job_uid=Uid("uj"), workload=WorkloadKey("n/w"), workload_uid=Uid("u-w")
        ),
    )
    assert found(history) == []


def test_quota_lent_through_two_cohorts_is_counted_once() -> None:
    """Sums over a tree: a limit is all quota below, less what each member keeps to itself."""
    state = new_state("main")
    state.cohorts["root"] = CohortRecord(spec=CohortSpec(resource_groups=group("1")))
    state.cohorts["mid"] = CohortRecord(spec=CohortSpec(parent_name="root"))
    for name, event in (("a", queue("a", "2", "mid", lending="1")), ("b", queue("b", "3", "root"))):
        state.cluster_queues[name] = ClusterQueueRecord(spec=event.spec)
    quotas = Quotas(state)
    assert quotas.path("a") == ["ClusterQueue/a", "Cohort/mid", "Cohort/root"]
    assert quotas.limit("Cohort/root", CPU) == 1000 + 1000 + 3000
    assert quotas.in_use("Cohort/root", CPU, {"ClusterQueue/a": 1500, "ClusterQueue/b": 3000}) == 500 + 3000


def test_a_second_admission_is_found_even_if_the_lifecycle_allowed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit counts for itself: a table that let it pass would not hide it."""
    lawful = lifecycle.next_stage

    def lenient(stage: Stage, event: type[EventBase]) -> Stage | None:
        return Stage.RESERVED if event is decisions.QuotaReserved else lawful(stage, event)

    monkeypatch.setattr(transitions, "next_stage", lenient)
    history = a_cell()
    offer(history, "w")
    cycle(history, *reserve("w", "1"))
    cycle(history, *reserve("w", "1"))
    assert found(history) == ["admitted-twice", "admitted-twice"]
