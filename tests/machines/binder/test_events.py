"""Kubernetes Events: Kueue's reasons and notes, each once, within a budget, and never of what is over."""

from typing import Any

import msgspec
import pytest
from tests.machines.binder.test_decide import BRIDGE, MANAGER, SCHEDULER, about, admitted, observed, queued, reserved
from tests.machines.binder.test_writes import offered, skipped
from tests.support.logs import TestLog

from headgate.core.machine.contract import MERGE_PATCH, Call, Committed, Completed, Settled
from headgate.core.workload.owners import TOO_DEEP, TOO_DEEP_MESSAGE
from headgate.events import effects, facts
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration, RetentionPolicies
from headgate.events.decisions import WorkloadPreempted, WorkloadReplaced
from headgate.events.ids import JobKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    CheckState,
    Container,
    Job,
    OwnerReference,
    PodSet,
    PodSpec,
    PodTemplate,
    PriorityClassRef,
    WorkloadSpec,
)
from headgate.events.queueing import DeadlinePassed, WorkloadEvicted, WorkloadFinished, WorkloadParked
from headgate.machines.binder import events as telling
from headgate.machines.binder.decide import Binder

UNGATER = Producer.UNGATER
JOB: dict[str, Any] = {
    "job": JobKey("batch/Job/team-a/train"),
    "job_uid": Uid("j"),
    "workload": WorkloadKey("team-a/w"),
}


class Teller:
    """A binder of which only the Events are looked at. Each is answered at once."""

    def __init__(self, told: telling.EventDetail = "summary", log: TestLog | None = None) -> None:
        self.log = log or TestLog()
        self.machine = Binder(self.log.state, told)

    def say(self, producer: Producer, *events: EventBase) -> None:
        assert self.machine.decide(Committed(self.log.append(producer, *events))) == []

    def told(self, code: int = 201) -> list[dict[str, Any]]:
        found = []
        for _ in range(1000):
            commands = self.machine.decide(Settled(self.log.now_ms))
            calls = [each for each in commands if isinstance(each, Call) and each.id.startswith("event/")]
            for call in calls:
                assert call.method == "POST"
                found.append(call.body)
                self.machine.decide(Completed(call.id, code, b"{}"))
            if not calls:
                return found
        raise AssertionError("it does not come to rest")

    def settle(self, code: int = 200) -> tuple[list[str], list[int]]:
        """What is created now, as reason and object, and the counts of series that are written."""
        created: list[str] = []
        counts: list[int] = []
        for _ in range(1000):
            commands = self.machine.decide(Settled(self.log.now_ms))
            calls = [each for each in commands if isinstance(each, Call) and each.id.startswith(("event/", "series/"))]
            if not calls:
                return created, counts
            for call in calls:
                if call.method == "POST":
                    created.append(f"{call.body['reason']} {call.body['regarding']['name']}")
                else:
                    assert (call.content_type, call.lane) == (MERGE_PATCH, call.path)
                    counts.append(call.body["series"]["count"])
                self.machine.decide(Completed(call.id, code, b"{}"))
        raise AssertionError("it does not come to rest")

    def later(self, ms: int) -> None:
        self.log.now_ms = UnixMs(self.log.now_ms + ms)


def lines(events: list[dict[str, Any]]) -> list[str]:
    """As kubectl describe shows them: type, reason, object, note."""
    return [f"{each['type']} {each['reason']} {each['regarding']['kind']}: {each['note']}" for each in events]


def a_life(teller: Teller) -> None:
    """A Job's Workload is made, admitted, evicted for good, and over."""
    created = effects.WorkloadCreated(**JOB)
    teller.say(BRIDGE, facts.JobObserved(job=JOB["job"], spec=Job(uid="j", created_ms=UnixMs(5))), created)
    teller.say(BRIDGE, msgspec.structs.replace(observed(), created_ms=UnixMs(teller.log.now_ms - 3000)))
    teller.say(SCHEDULER, reserved(), admitted())
    teller.say(UNGATER, effects.JobStarted(**JOB, workload_uid=Uid("uid-w")))
    message = 'The workload is deactivated due to AdmissionCheck in Rejected state: "budget"'
    evicted = WorkloadEvicted(**about(), reason="Deactivated", message=message, underlying_cause="AdmissionCheck")
    teller.say(MANAGER, evicted)
    teller.say(UNGATER, effects.JobStopped(**JOB, reason="WorkloadEvicted"))


def test_the_summary_of_a_life() -> None:
    """scheduler.recordWorkloadAdmissionEvents, reportEvictedWorkload, startJob and stopJob."""
    teller = Teller()
    a_life(teller)
    rejected = 'due to AdmissionCheck in Rejected state: "budget"'
    assert lines(teller.told()) == [
        "Normal Admitted Workload: Admitted by ClusterQueue cq, wait time since reservation was 0s",
        "Normal Started Job: Admitted by clusterQueue cq",
        f"Warning AdmissionCheckRejected Workload: Deactivated {rejected}",
        f"Normal EvictedDueToDeactivatedDueToAdmissionCheck Workload: The workload is deactivated {rejected}",
        f"Normal Stopped Job: The workload is deactivated {rejected}",
    ]


def test_all_of_a_life() -> None:
    """What the summary leaves out: CreatedWorkload, QuotaReserved, FinishedWorkload."""
    summary, everything = Teller(), Teller("all")
    for teller in (summary, everything):
        a_life(teller)
    more = [line for line in lines(everything.told()) if line not in lines(summary.told())]
    assert more[:2] == [
        "Normal CreatedWorkload Job: Created Workload: team-a/w",
        "Normal QuotaReserved Workload: Quota reserved in ClusterQueue cq, wait time since queued was 3s",
    ]
    nothing = Teller("off")
    a_life(nothing)
    assert nothing.told() == []


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            WorkloadParked(**about(), reason="AdmissionGated", message="Admission is gated by: a/b", wake=()),
            "Normal AdmissionGated Workload: Workload admission is gated by: a/b",
        ),
        (
            DeadlinePassed(**about(), deadline="MaximumExecutionTime", at_ms=UnixMs(0)),
            "Warning MaximumExecutionTimeExceeded Workload: The maximum execution time (None s) exceeded",
        ),
    ],
)
def test_what_else_kueue_tells(event: EventBase, line: str) -> None:
    """In the words of mayUpdateConditionForAdmissionGatedBy and reconcileMaxExecutionTime."""
    teller = Teller()
    teller.say(BRIDGE, observed())
    teller.say(MANAGER, event)
    assert lines(teller.told()) == [line.replace("None s", "Nones")]


def test_the_action_is_the_reason_but_of_a_replaced_slice() -> None:
    """As in Kueue: the action of an Event is called Replaced where the reason is WorkloadSliceReplaced."""
    teller = Teller()
    teller.say(BRIDGE, observed())
    teller.say(SCHEDULER, reserved(), admitted())
    larger, uid = WorkloadKey("team-a/larger"), Uid("uid-larger")
    teller.say(SCHEDULER, WorkloadReplaced(**about(), cluster_queue="cq", by=larger, by_uid=uid, message="m"))
    actions = [(each["reason"], each["action"]) for each in teller.told()]
    assert actions == [("Admitted", "Admitted"), ("WorkloadSliceReplaced", "Replaced")]


def test_a_preemption_is_told_of_both() -> None:
    """IssuePreemptions' message, with the effective priorities; the Events of the eviction come besides."""
    notes = "preemptor effective priority: 7 (base: 7, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)"
    expected = [
        f"Normal Preempted Workload: Preempted to accommodate a workload; {notes}",
        f"Normal PreemptedWorkload Workload: Preempted workload team-a/w (UID: uid-w) in ClusterQueue cq; {notes}",
    ]
    for told, more in (
        ("summary", []),
        ("all", ["Normal EvictedDueToPreempted Workload: Preempted to accommodate a workload"]),
    ):
        teller = Teller(told)  # type: ignore[arg-type]
        big = observed("big")
        teller.say(BRIDGE, observed(), msgspec.structs.replace(big, spec=msgspec.structs.replace(big.spec, priority=7)))
        teller.say(SCHEDULER, reserved(), admitted())
        teller.told()
        preempted = WorkloadPreempted(
            **about(),
            cluster_queue="cq",
            preemptor=WorkloadKey("team-a/big"),
            preemptor_uid=Uid("uid-big"),
            reason="InClusterQueue",
            message="Preempted to accommodate a workload",
        )
        teller.say(SCHEDULER, preempted)
        assert lines(teller.told()) == more + expected


def test_quota_without_admission_is_told() -> None:
    """While its admission checks are pending, no other Event reports its reservation."""
    teller = Teller()
    teller.say(BRIDGE, observed())
    teller.say(SCHEDULER, msgspec.structs.replace(reserved(), checks=(CheckState(name="a", state="Pending"),)))
    assert [each["reason"] for each in teller.told()] == ["QuotaReserved"]


def wait(teller: Teller, name: str = "w") -> None:
    teller.say(BRIDGE, observed(name))
    teller.say(MANAGER, queued(name), offered(name))
    teller.say(SCHEDULER, skipped(name))


def test_why_a_workload_waits_is_a_warning_once_it_has_waited() -> None:
    """Not when it is admitted in the same breath, and not again and again."""
    teller = Teller()
    wait(teller)
    assert teller.told() == []
    teller.later(telling.DELAY_MS)
    assert lines(teller.told()) == ["Warning WaitingForQuota Workload: 1 more needed"]
    teller.say(MANAGER, WorkloadParked(**about(), reason="r", message="m", wake=(), cluster_queue="cq"))
    wait(teller, "v")
    teller.say(SCHEDULER, reserved("v"), admitted("v"))
    teller.later(telling.DELAY_MS)
    assert [each["reason"] for each in teller.told()] == ["Admitted"]


def test_a_restart_tells_nothing_again_and_a_repeated_one_is_the_same() -> None:
    """The name is that of the object and the position in the log."""
    teller, twin = Teller(), Teller()
    for each in (teller, twin):
        a_life(each)
    assert teller.told() == twin.told(code=409)
    assert Teller(log=teller.log).told() == []
    another = Teller()
    a_life(another)
    names = [each["metadata"]["name"] for each in another.told()]
    assert names == ["w.3.1", "train.4.0", "w.5.0", "w.5.0.1", "train.6.0"]


def test_of_a_flood_the_newest_are_told_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that wait are bounded; what they cost the API server is too."""
    monkeypatch.setattr(telling, "WAITING_MAX", 10)
    teller = Teller()
    for number in range(300):
        teller.say(BRIDGE, observed(f"w{number}"))
        teller.say(SCHEDULER, reserved(f"w{number}"), admitted(f"w{number}"))
    assert teller.machine.events.dropped == 290
    assert [each["regarding"]["name"] for each in teller.told()] == [f"w{number}" for number in range(290, 300)]
    burst = telling.BUDGETS["summary"].burst
    monkeypatch.setattr(telling, "WAITING_MAX", 1000)
    for number in range(300, 600):
        teller.say(BRIDGE, observed(f"w{number}"))
        teller.say(SCHEDULER, reserved(f"w{number}"), admitted(f"w{number}"))
    assert len(teller.told()) == burst - 10


def test_the_end_is_told_of_the_job_when_all_is_told() -> None:
    """reconcile: FinishedWorkload."""
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")
    for told, expected in (
        ("all", ["Normal FinishedWorkload Job: Workload 'team-a/w' is declared finished"]),
        ("summary", []),
    ):
        teller = Teller(told)  # type: ignore[arg-type]
        teller.say(BRIDGE, msgspec.structs.replace(observed(), owner=owner))
        teller.say(MANAGER, WorkloadFinished(**about(), reason="Succeeded", message="m"))
        assert lines(teller.told()) == expected


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        (
            WorkloadFinished(**about(), reason="Succeeded", message="m"),
            "Normal Deleted Workload: Deleted finished workload due to elapsed retention",
        ),
        (
            WorkloadEvicted(
                **about(), reason="Deactivated", message="m", underlying_cause="MaximumExecutionTimeExceeded"
            ),
            "Normal Deleted Job: Deleted job: deactivation retention period expired",
        ),
    ],
)
def test_what_is_no_longer_kept_is_told(ended: EventBase, line: str) -> None:
    """The Workload's Reconcile and handleWorkloadAfterDeactivatedPolicy: once it is gone, not when that is refused."""
    teller = Teller()
    policies = RetentionPolicies(after_finished_ms=1000, after_deactivated_by_kueue_ms=1000)
    teller.say(BRIDGE, facts.ConfigurationObserved(configuration=Configuration(object_retention_policies=policies)))
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")
    teller.say(BRIDGE, facts.JobObserved(job=JOB["job"], spec=Job(uid="j", created_ms=UnixMs(5), suspended=True)))
    teller.say(BRIDGE, msgspec.structs.replace(observed(), owner=owner))
    teller.say(MANAGER, ended)
    assert teller.told() == []

    def delete(code: int) -> None:
        for _ in range(10):
            for each in teller.machine.decide(Settled(teller.log.now_ms)):
                if isinstance(each, Call) and each.id.startswith("retention/"):
                    teller.machine.decide(Completed(each.id, code, b"{}"))
                    return
            teller.later(1000)
        raise AssertionError("nothing is deleted")

    delete(403)
    assert teller.told() == []
    delete(200)
    assert lines(teller.told()) == [line]


def test_what_pending_checks_say_is_told_of_the_job() -> None:
    """recordAdmissionCheckUpdate: while quota is reserved; one without a message, or that was reset, has no Event."""

    def said(*states: tuple[str, str, str]) -> facts.WorkloadObserved:
        checks = tuple(CheckState(name=name, state=state, message=message) for name, state, message in states)
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")
        return msgspec.structs.replace(observed(), owner=owner, checks=checks)

    teller = Teller()
    teller.say(BRIDGE, said())
    teller.say(BRIDGE, said(("a", "Pending", "too early")))
    assert teller.told() == []
    needs = tuple(CheckState(name=name, state="Pending") for name in ("a", "b"))
    teller.say(SCHEDULER, msgspec.structs.replace(reserved(), checks=needs))
    teller.told()
    teller.say(BRIDGE, said(("a", "Pending", "waits for nodes"), ("b", "Pending", "asks")))
    note = "a: waits for nodes; b: asks"
    assert lines(teller.told()) == [f"Normal UpdatedAdmissionCheck Job: {note}"]
    teller.say(
        BRIDGE,
        msgspec.structs.replace(said(("a", "Pending", "waits for nodes"), ("b", "Pending", "asks")), generation=2),
    )
    assert teller.told() == []
    teller.say(BRIDGE, said(("a", "Ready", "there they are"), ("b", "Pending", "asks")))
    assert lines(teller.told()) == ["Normal UpdatedAdmissionCheck Job: b: asks"]


def test_what_becomes_of_the_workload_of_an_edited_job_is_told_of_the_job() -> None:
    """updateWorkloadToMatchJob, UpdateWorkloadPriority and ensureOneWorkload."""
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")

    def job(parallelism: int) -> facts.JobObserved:
        template = PodTemplate(spec=PodSpec(containers=(Container(name="c"),)))
        spec = Job(uid="j", created_ms=UnixMs(5), suspended=True, parallelism=parallelism, template=template)
        return facts.JobObserved(job=JOB["job"], spec=spec)

    def made(count: int, name: str = "w", priority_class: str = "", **more: Any) -> facts.WorkloadObserved:
        reference = PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=priority_class)
        template = PodTemplate(spec=PodSpec(containers=(Container(name="c"),)))
        spec = WorkloadSpec(
            queue_name="main",
            pod_sets=(PodSet(name="main", count=count, template=template),),
            priority_class_ref=reference if priority_class else None,
        )
        return msgspec.structs.replace(observed(name), owner=owner, spec=spec, finalizer=True, **more)

    def told(teller: Teller, *events: EventBase) -> list[str]:
        teller.say(BRIDGE, *events)
        found = teller.told()
        assert all(each["action"] == each["reason"] for each in found)
        return lines(found)

    teller = Teller()
    assert told(teller, job(1), made(1)) == []
    assert told(teller, made(1, generation=2)) == []
    assert told(teller, job(2), made(2)) == [
        "Normal UpdatedWorkload Job: Updated not matching Workload for suspended job: team-a/w"
    ]
    assert told(Teller(log=teller.log), made(2, priority_class="high")) == [
        "Normal UpdatedWorkload Job: Updated workload priority class: team-a/w"
    ]
    gated = made(2, priority_class="high", annotations={"kueue.x-k8s.io/admission-gated-by": "a/b"})
    assert told(Teller(log=teller.log), gated) == [
        'Normal UpdatedWorkload Job: Updated workload AdmissionGatedBy to "a/b"'
    ]
    # Deleted by somebody else it is one for its job, and nothing is told; deleted because of the edit it is not.
    late = Teller(log=teller.log)
    assert told(late, msgspec.structs.replace(gated, deleting=True)) == []
    another = Teller()
    told(another, job(1), made(1))
    assert told(another, job(3), made(1, deleting=True)) == [
        "Normal DeletedWorkload Job: Deleted not matching Workload: team-a/w"
    ]
    assert told(another, made(1, deleting=True, generation=2)) == []


def test_repeated_edits_are_one_event_and_its_series() -> None:
    """The notes do not count, as with client-go's recorder: type, reason, action and object do."""
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")
    teller = Teller()
    teller.say(BRIDGE, facts.JobObserved(job=JOB["job"], spec=Job(uid="j", created_ms=UnixMs(5))))
    for count in range(1, 4):
        spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=count),))
        teller.say(BRIDGE, msgspec.structs.replace(observed(), owner=owner, spec=spec))
    assert teller.settle() == (["UpdatedWorkload train"], [2])


def test_a_job_that_is_nested_too_deep_is_told_by_that_name() -> None:
    """A Warning about the job; other problems have one reason in common."""
    teller = Teller()
    teller.say(BRIDGE, effects.WorkloadCreateRejected(**JOB, code=422, reason=TOO_DEEP, message=TOO_DEEP_MESSAGE))
    (event,) = teller.told()
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "JobNestingTooDeep", TOO_DEEP_MESSAGE)


def test_a_conflict_of_names_has_kueues_action() -> None:
    """WorkloadNameConflict is recorded with the action Admission."""
    teller = Teller()
    rejected = effects.WorkloadCreateRejected(**JOB, code=409, reason="WorkloadNameConflict", message="taken")
    teller.say(BRIDGE, rejected)
    assert [(each["reason"], each["action"]) for each in teller.told()] == [("WorkloadNameConflict", "Admission")]


def preempting(teller: Teller, *victims: str) -> None:
    """A workload preempts others, one after the other."""
    for name in victims:
        teller.say(BRIDGE, observed(name))
        teller.say(SCHEDULER, reserved(name), admitted(name))
        teller.say(
            SCHEDULER,
            WorkloadPreempted(
                **about(name),
                cluster_queue="cq",
                preemptor=WorkloadKey("team-a/high"),
                preemptor_uid=Uid("uid-high"),
                reason="InClusterQueue",
                message="Preempted",
            ),
        )


def test_eight_preemptions_of_one_kind_are_one_event_and_its_series() -> None:
    """As with client-go's recorder: of the preemptor one Event that counts, of each victim its own."""
    teller = Teller()
    teller.say(BRIDGE, observed("high"))
    preempting(teller, *(f"v{number}" for number in range(8)))
    created, counts = teller.settle()
    assert created.count("PreemptedWorkload high") == 1
    assert sum(each.startswith("Preempted v") for each in created) == 8
    assert teller.settle() == ([], [])
    teller.later(telling.REFRESH_MS)
    assert [*counts, *teller.settle()[1]][-1] == 8


def test_a_series_counts_at_intervals_and_ends_after_a_while() -> None:
    """The second time is counted at once, later ones together; after the end, or where the Event is gone, again."""
    teller = Teller()
    teller.say(BRIDGE, observed("high"))
    preempting(teller, "v0")
    assert teller.settle()[1] == []
    preempting(teller, "v1")
    assert teller.settle()[1] == [2]
    preempting(teller, "v2", "v3")
    assert teller.settle()[1] == []
    teller.later(telling.REFRESH_MS)
    assert teller.settle() == ([], [4])
    teller.later(telling.SERIES_MS + 1)
    preempting(teller, "v4")
    assert "PreemptedWorkload high" in teller.settle()[0]
    preempting(teller, "v5")
    assert teller.settle(code=404)[1] == [2]
    preempting(teller, "v6")
    assert "PreemptedWorkload high" in teller.settle()[0]
