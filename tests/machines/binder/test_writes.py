"""What the binder writes, and how often: one write a transition, waiting in budgets, others' fields unchanged."""

from typing import Any

import msgspec
import pytest
from tests.machines.binder.test_decide import (
    BRIDGE,
    MANAGER,
    SCHEDULER,
    Bound,
    about,
    admitted,
    observed,
    queue_calls,
    queued,
    reserved,
    with_queues,
)
from tests.support.backoff import longest
from tests.support.conformance import fact_of
from tests.support.playing import cluster_queue

from headgate.core.engine.budget import UNDER_WAY_MAX, Budget, BudgetSettings, Load
from headgate.core.machine.contract import Call
from headgate.core.status import foreign_conditions
from headgate.events import facts
from headgate.events.decisions import WorkloadSkipped
from headgate.events.effects import StatusRejected
from headgate.events.ids import JobKey, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    CheckState,
    Condition,
    Job,
    OwnerReference,
    PodSetAssignment,
    ShownConditions,
    WorkloadStatus,
)
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    WorkloadEvicted,
    WorkloadFinished,
    WorkloadParked,
    WorkloadReleased,
    WorkloadWoken,
)
from headgate.machines.binder.queue_statuses import QUEUES_BUDGET
from headgate.machines.binder.workload_statuses import (
    REPEAT_MS,
    RUNNING_BUDGET,
    RUNNING_DELAY_MS,
    WAITING_BUDGET,
    WAITING_DELAY_MS,
)
from headgate.processes.runtime.configuration_files import KUEUES_DEFAULTS

Json = dict[str, Any]


def skipped(name: str = "w", message: str = "1 more needed", reason: str = "WaitingForQuota") -> WorkloadSkipped:
    return WorkloadSkipped(
        **about(name),
        cluster_queue="cq",
        status="notNominated",
        requeue_reason="NoFit",
        scope="workload",
        reason=reason,
        message=message,
    )


def offered(name: str = "w") -> HeadsOffered:
    return HeadsOffered(heads=(Head(cluster_queue="cq", **about(name)),))


def waits(bound: Bound, name: str = "w", **more: Any) -> None:
    """A workload is seen, queued, offered, and not admitted."""
    bound.say(BRIDGE, observed(name))
    bound.say(MANAGER, queued(name), offered(name))
    bound.say(SCHEDULER, skipped(name, **more))


def waits_on(bound: Bound, name: str = "w", **more: Any) -> None:
    """It is looked at again, with other words."""
    parked = WorkloadParked(**about(name), reason="r", message="m", wake=(), cluster_queue="cq")
    woken = WorkloadWoken(**about(name), cluster_queue="cq", by="quota", by_position=bound.log.state.position)
    bound.say(MANAGER, parked, woken, queued(name), offered(name))
    bound.say(SCHEDULER, skipped(name, **more))


def statuses(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.id.startswith("status/")]


def words(call: Call) -> tuple[str, str]:
    """Reason and message of QuotaReserved."""
    condition = next(each for each in call.body["status"]["conditions"] if each["type"] == "QuotaReserved")
    return condition["reason"], condition["message"]


# --- Workloads -----------------------------------------------------------------------------------------------------


def test_a_wait_that_ends_in_the_same_breath_is_never_written() -> None:
    """Skipped, then admitted: one write, of the admission."""
    bound = Bound()
    waits(bound)
    assert bound.rest()[1] == []
    bound.later(WAITING_DELAY_MS - 1)
    bound.say(SCHEDULER, reserved(), admitted())
    (call,) = bound.writes()
    assert "admission" in call.body["status"]


def test_why_a_workload_waits_is_written_once_it_has_stood() -> None:
    """With a wake-up for it, and none after it."""
    bound = Bound()
    waits(bound)
    assert bound.rest()[1] == []
    assert bound.wake_at == bound.log.now_ms + WAITING_DELAY_MS
    (call,) = bound.writes()
    assert words(call) == ("WaitingForQuota", "1 more needed")
    bound.answer(call)
    bound.rest()
    assert bound.wake_at is None


def test_changing_numbers_are_no_news_and_the_last_are_always_written() -> None:
    """The same reason is written again after REPEAT_MS, with the words of then."""
    bound = Bound()
    waits(bound)
    bound.answer(bound.writes()[0])
    for number in (2, 3, 4):
        waits_on(bound, message=f"{number} more needed")
        assert bound.writes() == []
    bound.later(REPEAT_MS)
    (call,) = bound.writes()
    assert words(call) == ("WaitingForQuota", "4 more needed")


def test_an_eviction_goes_with_the_release_behind_it() -> None:
    """A Job that stops at once makes it one write."""
    bound = admitted_one(owned=True)
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    assert statuses(bound.rest()[1]) == []
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=True, reason="ClusterQueueStopped", message="m"))
    (call,) = statuses(bound.rest()[1])
    assert states(call) == {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True", "Requeued": "True"}
    bound.answer(call)
    bound.later(60_000)
    assert statuses(bound.rest()[1]) == []


def test_an_eviction_is_written_alone_while_a_job_stops() -> None:
    """The release may take as long as the pods do."""
    bound = admitted_one(owned=True)
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    assert statuses(bound.rest()[1]) == []
    assert bound.wake_at == bound.log.now_ms + WAITING_DELAY_MS
    bound.later(WAITING_DELAY_MS)
    (call,) = statuses(bound.rest()[1])
    assert states(call) == {"QuotaReserved": "True", "Admitted": "True", "Evicted": "True"}


def test_an_eviction_is_told_at_once_to_an_owner_that_headgate_does_not_run() -> None:
    """The owner has to stop the work, and gets it from the status alone."""
    bound = admitted_one()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    (call,) = statuses(bound.rest()[1])
    assert states(call) == {"QuotaReserved": "True", "Admitted": "True", "Evicted": "True"}


def admitted_one(*, owned: bool = False) -> Bound:
    """A workload that is admitted, as the API server shows."""
    bound = Bound()
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="job") if owned else None
    bound.say(BRIDGE, msgspec.structs.replace(observed(), owner=owner))
    bound.say(SCHEDULER, reserved(), admitted())
    for call in bound.rest()[1]:
        bound.answer(call, metadata={"resourceVersion": "4"})
    bound.rest()
    return bound


def states(call: Call) -> dict[str, str]:
    return {each["type"]: each["status"] for each in call.body["status"]["conditions"]}


def test_another_reason_is_news() -> None:
    """The missing flavor is reported at once, not after half a minute."""
    bound = Bound()
    waits(bound)
    bound.answer(bound.writes()[0])
    waits_on(bound, reason="NoMatchingFlavor", message="untolerated taint")
    (call,) = bound.writes()
    assert words(call) == ("NoMatchingFlavor", "untolerated taint")


def test_under_load_waits_are_written_within_a_budget_and_all_of_them_in_the_end() -> None:
    """Many verdicts are written at the rate of the budget; admissions are not held up by it."""
    bound = Bound()
    count = int(WAITING_BUDGET.burst) + 30
    for number in range(count):
        waits(bound, f"w{number}")
    first = bound.writes()
    # A second has passed, at the rate of an idle API server.
    assert len(first) == WAITING_BUDGET.burst
    bound.say(BRIDGE, observed("x"))
    bound.say(SCHEDULER, reserved("x"), admitted("x"))
    assert [call.id for call in statuses(bound.rest()[1])] == ["status/team-a/x"]
    rest = []
    for call in first:
        bound.answer(call)
    for _ in range(20):
        for call in bound.writes():
            bound.answer(call)
            rest.append(call)
    assert len(first) + len(rest) == count
    assert len({call.id for call in (*first, *rest)}) == count


def runs(bound: Bound, *names: str) -> list[Call]:
    """Jobs of which the pods are waited for, admitted and started; the writes of their admissions, still under way."""
    bound.say(BRIDGE, facts.ConfigurationObserved(configuration=KUEUES_DEFAULTS))
    for name in names:
        owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=f"job-{name}")
        bound.say(BRIDGE, counted(name), msgspec.structs.replace(observed(name), owner=owner))
    for name in names:
        bound.say(SCHEDULER, reserved(name), admitted(name))
    return statuses(bound.rest()[1])


def counted(name: str, **counters: Any) -> facts.JobObserved:
    spec = Job(uid=f"job-{name}", created_ms=UnixMs(5), queue_name="main", active=1, **counters)
    return facts.JobObserved(job=JobKey(f"batch/Job/team-a/{name}"), spec=spec)


def pods_ready(call: Call) -> tuple[str, str]:
    found = next(each for each in call.body["status"]["conditions"] if each["type"] == "PodsReady")
    return found["status"], found["reason"]


def test_pods_that_start_are_one_write_and_none_when_their_end_is_near() -> None:
    """That they are waited for goes with the admission; that they are ready is written when it has been stable."""
    bound = Bound()
    first, second = runs(bound, "long", "short")
    assert pods_ready(first) == pods_ready(second) == ("False", "WaitForStart")
    bound.answer(first)
    bound.answer(second)
    bound.rest()
    bound.say(BRIDGE, counted("long", pods_ready=True), counted("short", pods_ready=True))
    assert statuses(bound.rest()[1]) == []
    assert bound.wake_at == bound.log.now_ms + RUNNING_DELAY_MS
    bound.later(RUNNING_DELAY_MS - 1)
    bound.say(MANAGER, WorkloadFinished(**about("short"), reason="Succeeded", message="m"))
    (end,) = statuses(bound.rest()[1])
    assert pods_ready(end) == ("True", "Started")
    bound.answer(end)
    bound.later(1)
    (ready,) = statuses(bound.rest()[1])
    assert (ready.id, pods_ready(ready)) == ("status/team-a/long", ("True", "Started"))
    bound.answer(ready)
    bound.later(60_000)
    assert statuses(bound.rest()[1]) == []


def test_under_load_ready_pods_are_told_within_a_budget_and_all_of_them_in_the_end() -> None:
    """They are written later, and admissions are not delayed."""
    bound = Bound()
    names = [f"w{number}" for number in range(int(RUNNING_BUDGET.burst) + 30)]
    for call in runs(bound, *names):
        bound.answer(call)
    for call in statuses(bound.rest()[1]):
        bound.answer(call)
    bound.rest()
    bound.say(BRIDGE, *(counted(name, pods_ready=True) for name in names))
    bound.rest()
    bound.later(RUNNING_DELAY_MS)
    told = statuses(bound.rest()[1])
    assert len(told) == RUNNING_BUDGET.burst
    assert bound.wake_at is not None
    bound.say(BRIDGE, observed("x"))
    bound.say(SCHEDULER, reserved("x"), admitted("x"))
    assert [call.id for call in statuses(bound.rest()[1])] == ["status/team-a/x"]
    for call in told:
        bound.answer(call)
    bound.rest()
    bound.later(1000)
    told += statuses(bound.rest()[1])
    assert {call.id for call in told} == {f"status/team-a/{name}" for name in names}
    assert len(told) == len(names)


def test_what_comes_during_a_write_that_takes_long_is_written_after_it() -> None:
    """A write holds what was known when it began."""
    bound = Bound()
    (first,) = runs(bound, "w")
    bound.say(BRIDGE, counted("w", pods_ready=True))
    bound.rest()
    bound.later(RUNNING_DELAY_MS)
    assert statuses(bound.rest()[1]) == []
    bound.answer(first)
    (second,) = statuses(bound.rest()[1])
    assert pods_ready(second) == ("True", "Started")


def finished_by_others(name: str = "w") -> facts.WorkloadObserved:
    finished = Condition(type="Finished", status="True", reason="Succeeded", message="over")
    return msgspec.structs.replace(observed(name), finished=finished)


def test_a_workload_that_others_finish_is_not_written_again() -> None:
    """One write for all of its life: the admission."""
    bound = Bound()
    bound.say(BRIDGE, observed())
    bound.say(MANAGER, queued())
    bound.say(SCHEDULER, reserved(), admitted())
    (call,) = bound.writes()
    bound.answer(call)
    bound.rest()
    bound.say(BRIDGE, finished_by_others())
    bound.say(MANAGER, WorkloadFinished(**about(), reason="Succeeded", message="over"))
    assert bound.writes() == []
    assert Bound(bound.log).writes() == []


def test_what_is_taken_over_is_not_written_until_it_changes() -> None:
    """A cluster that Kueue has run: its conditions stay, and an eviction is one write with all of them."""
    conditions = tuple(
        Condition(type=kind, status="True", reason=kind, last_transition_time="2026-01-01T00:00:00Z")
        for kind in ("QuotaReserved", "Admitted", "PodsReady")
    )
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "2"}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    bound = Bound()
    status = WorkloadStatus(conditions=conditions, admission=admission)
    bound.say(BRIDGE, msgspec.structs.replace(observed(), taken_over=status))
    assert bound.writes() == []
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    (call,) = bound.writes()
    # PodsReady belongs to another controller.
    assert [each["type"] for each in call.body["status"]["conditions"]] == ["QuotaReserved", "Admitted", "Evicted"]


def test_what_others_have_written_goes_by_name() -> None:
    """Server-side apply leaves a reservation that another manager owns too; the answer shows it, and it is removed."""
    bound = Bound()
    bound.say(BRIDGE, observed())
    bound.say(SCHEDULER, reserved(), admitted())
    bound.answer(bound.writes()[0])
    bound.rest()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=False, reason="ClusterQueueStopped", message="m"))
    (call,) = bound.writes()
    bound.answer(call, status={"admission": {"clusterQueue": "cq"}, "resourceRequests": []})
    (removal,) = bound.writes()
    assert (removal.method, removal.content_type) == ("PATCH", "application/merge-patch+json")
    assert removal.body == {"metadata": {"uid": "uid-w"}, "status": {"admission": None}}
    bound.answer(removal, status={"admission": {"clusterQueue": "cq"}})
    assert bound.writes() == []
    assert Bound(bound.log).writes() == []


def with_check() -> tuple[Bound, Call]:
    bound = Bound()
    bound.say(BRIDGE, observed())
    check = CheckState(name="budget", state="Pending", last_transition_time="2026-01-01T00:00:00Z")
    bound.say(SCHEDULER, msgspec.structs.replace(reserved(), checks=(check,)))
    (call,) = bound.writes()
    return bound, call


def conflict(*fields: str) -> Json:
    causes = [{"reason": "FieldManagerConflict", "message": "conflict", "field": field} for field in fields]
    return {"reason": "Conflict", "message": "Apply failed", "details": {"causes": causes}}


def test_states_of_admission_checks_are_not_forced() -> None:
    """Their controller may have answered meanwhile: then our write is refused, and repeated with its answer."""
    bound, call = with_check()
    assert "force" not in call.query
    bound.answer(call, 409, **conflict('.status.admissionChecks[name="budget"].state'))
    assert bound.rest()[1] == []
    ready = CheckState(name="budget", state="Ready", last_transition_time="2026-01-01T00:00:01Z")
    bound.say(BRIDGE, msgspec.structs.replace(observed(), checks=(ready,)))
    bound.later(1000)
    (again,) = bound.writes()
    assert "force" not in again.query
    assert [each["state"] for each in again.body["status"]["admissionChecks"]] == ["Ready"]


def test_what_an_admission_writes_is_taken_from_whoever_had_it() -> None:
    """A reservation under another manager's name would be refused for ever."""
    bound, call = with_check()
    bound.answer(call, 409, **conflict(".status.admission.clusterQueue"))
    assert bound.rest()[1] == []
    bound.later(longest(1000))
    (again,) = bound.writes()
    assert again.query["force"] == "true"


def test_an_eviction_resets_the_checks_whatever_they_say() -> None:
    """Kueue's resetChecksOnEviction: what was answered was about the reservation that is gone."""
    bound, call = with_check()
    bound.answer(call)
    bound.rest()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    (again,) = bound.writes()
    assert again.query["force"] == "true"


def reserved_again(answer: CheckState) -> tuple[Bound, Call]:
    """A check was answered, an eviction has reset it, and there is quota again: all while no binder ran."""
    bound, call = with_check()
    bound.answer(call)
    bound.rest()
    bound.say(BRIDGE, msgspec.structs.replace(observed(), checks=(answer,)))
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=True, reason="ClusterQueueStopped", message="m"))
    bound.say(MANAGER, queued(), offered())
    (check,) = bound.log.state.workloads[WorkloadKey("team-a/w")].checks
    bound.say(SCHEDULER, msgspec.structs.replace(reserved(), checks=(check,)))
    again = Bound(bound.log)
    (call,) = again.writes()
    assert "force" not in call.query
    return again, call


@pytest.mark.parametrize(("second", "is_taken"), [(1, True), (2, False)])
def test_an_answer_that_an_eviction_has_reset_is_taken_at_the_version_that_was_read(
    second: int, *, is_taken: bool
) -> None:
    """An answer to the reservation before would refuse the next one's status for ever; a newer one is not taken."""
    answers = [
        CheckState(name="budget", state="Ready", last_transition_time=f"2026-01-01T00:00:0{at}Z") for at in (1, 2)
    ]
    bound, call = reserved_again(answers[0])
    bound.answer(call, 409, **conflict('.status.admissionChecks[name="budget"].state'))
    (read,) = bound.rest()[1]
    assert read.body == {"metadata": {"uid": "uid-w"}, "status": {}}
    shown = msgspec.to_builtins(answers[second - 1])
    bound.answer(read, metadata={"resourceVersion": "7"}, status={"admissionChecks": [shown]})
    assert bound.rest() == ([], [])
    bound.later(longest(1000))
    (again,) = bound.writes()
    assert again.body["status"] == call.body["status"]
    assert ("force" in again.query, again.body["metadata"].get("resourceVersion")) == (
        (True, "7") if is_taken else (False, None)
    )


@pytest.mark.parametrize("released", [True, False])
def test_the_release_of_an_owner_is_not_overwritten(*, released: bool) -> None:
    """An owner writes QuotaReserved=False once: a later eviction does not show the quota as reserved again."""
    bound = admitted_one()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    (call,) = statuses(bound.rest()[1])
    assert call.body["metadata"]["resourceVersion"] == "4"
    bound.answer(call, 409, reason="Conflict", message="the object has been modified")
    (read,) = bound.rest()[1]
    assert read.body == {"metadata": {"uid": "uid-w"}, "status": {}}
    shown = {"type": "QuotaReserved", "status": "False" if released else "True", "reason": "Stopped", "message": "m"}
    bound.answer(read, metadata={"resourceVersion": "7"}, status={"conditions": [shown]})
    refused = [event for event in bound.rest()[0] if isinstance(event, StatusRejected)]
    assert bool(refused) == released
    bound.later(longest(1000))
    again = bound.writes()
    if not released:
        assert [call.body["metadata"]["resourceVersion"] for call in again] == ["7"]
        return
    assert again == []
    workload = bound.log.state.workloads[WorkloadKey("team-a/w")]
    condition = msgspec.convert(shown, Condition)
    bound.say(BRIDGE, msgspec.structs.replace(observed(), shown=ShownConditions(version=7, quota_reserved=condition)))
    assert foreign_conditions.given_back(bound.log.state, workload) == condition


def test_a_reservation_after_an_owners_release_is_written_once() -> None:
    """Decided before the release was written, it is not taken for the reservation that the owner has released."""
    bound = admitted_one()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="Preempted", message="m"))
    (call,) = statuses(bound.rest()[1])
    bound.answer(call, metadata={"resourceVersion": "5"})
    bound.rest()
    condition = Condition(type="QuotaReserved", status="False", reason="Pending", message="m")
    bound.say(BRIDGE, msgspec.structs.replace(observed(), shown=ShownConditions(version=7, quota_reserved=condition)))
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=True, reason="Preempted", message="m"), queued())
    bound.say(SCHEDULER, reserved(), admitted())
    (call,) = statuses(bound.rest()[1])
    assert states(call) == {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False", "Requeued": "True"}
    assert "resourceVersion" not in call.body["metadata"]
    bound.answer(call, metadata={"resourceVersion": "8"})
    bound.rest()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="Preempted", message="m"))
    (call,) = statuses(bound.rest()[1])
    assert call.body["metadata"]["resourceVersion"] == "8"


# --- queues --------------------------------------------------------------------------------------------------------


def test_what_a_queue_shows_already_is_not_written() -> None:
    """A restart reads each queue once; a difference is one write, and the condition keeps its time."""
    bound = with_queues()
    calls = queue_calls(bound.rest()[1])
    shown = {}
    for call in calls.values():
        bound.answer(call)
        shown[call.path.removesuffix("/status")] = {"metadata": call.body["metadata"], "status": call.body["status"]}
    again = Bound(bound.log)
    again.shown = shown
    assert queue_calls(again.rest()[1]) == {}
    again.say(BRIDGE, observed())
    again.say(MANAGER, queued())
    again.later(1000)
    written = queue_calls(again.rest()[1])["ClusterQueue"]
    assert written.body["status"]["pendingWorkloads"] == 1
    before = calls["ClusterQueue"].body["status"]["conditions"][0]["lastTransitionTime"]
    assert written.body["status"]["conditions"][0]["lastTransitionTime"] == before


def test_a_busy_api_server_is_spared_counts_and_told_of_what_is_inactive() -> None:
    """Many queues share a budget, in turn; that one is stopped is written within its second all the same."""
    bound = with_queues()
    for number in range(200):
        queue = cluster_queue(cohortName="c", nominal="1")
        queue["metadata"] = {**queue["metadata"], "name": f"cq{number}", "uid": f"u{number}"}
        bound.say(BRIDGE, fact_of({"kind": "ClusterQueue", **queue}))
    written = 0
    for _ in range(100):
        calls = [call for call in bound.rest()[1] if call.id.startswith("queue-status/")]
        for call in calls:
            bound.answer(call)
        written += len(calls)
        bound.later(100)
    assert written == 202
    budget = bound.machine._queues._budget
    while budget.take(bound.log.now_ms):
        pass
    bound.say(BRIDGE, observed())
    bound.say(MANAGER, queued())
    assert queue_calls(bound.rest()[1]) == {}
    stopped = cluster_queue(cohortName="c", nominal="1", stopPolicy="Hold")
    bound.say(BRIDGE, fact_of({"kind": "ClusterQueue", **stopped}))
    told = queue_calls(bound.rest()[1])["ClusterQueue"].body["status"]
    assert (told["conditions"][0]["reason"], told["pendingWorkloads"]) == ("Stopped", 1)


def test_a_queue_that_is_gone_presses_no_more() -> None:
    """Not even when a flavor has come meanwhile, by which it might have become active, and there is no budget."""
    bound = with_queues()
    call = queue_calls(bound.rest()[1])["LocalQueue"]
    bound.say(BRIDGE, fact_of({"kind": "ResourceFlavor", "metadata": {"name": "more"}, "spec": {}}))
    bound.answer(call, 404)
    bound.later(1000)
    budget = bound.machine._queues._budget
    while budget.take(bound.log.now_ms):
        pass
    assert "LocalQueue" not in queue_calls(bound.rest()[1])
    bound.later(60_000)
    assert "LocalQueue" not in queue_calls(bound.rest()[1])


def test_a_slow_api_server_is_spared_counts_until_it_answers() -> None:
    """While statuses wait for their answers a queue is written at the least rate; then within its second, as ever."""
    bound = with_queues()
    for call in bound.rest()[1]:
        bound.answer(call)
    names = [f"w{number}" for number in range(UNDER_WAY_MAX)]
    bound.say(BRIDGE, *map(observed, names))
    bound.say(MANAGER, *map(queued, names))
    bound.say(SCHEDULER, *(event for name in names for event in (reserved(name), admitted(name))))
    bound.later(1000)
    begun = bound.rest()[1]
    slow = statuses(begun)
    assert len(slow) == UNDER_WAY_MAX
    for call in queue_calls(begun).values():
        bound.answer(call)
    # For the average to settle.
    bound.later(60_000)
    for call in queue_calls(bound.rest()[1]).values():
        bound.answer(call)
    budget = bound.machine._queues._budget
    while budget.take(bound.log.now_ms):
        pass
    written = 0
    for number in range(100):
        name = f"more{number}"
        bound.say(BRIDGE, observed(name))
        bound.say(MANAGER, queued(name))
        bound.later(100)
        calls = queue_calls(bound.rest()[1]).values()
        for call in calls:
            bound.answer(call)
        written += len(calls)
    assert written == pytest.approx(10 * QUEUES_BUDGET.rate_min, abs=1)
    bound.say(BRIDGE, observed("last"))
    bound.say(MANAGER, queued("last"))
    for call in slow:
        bound.answer(call)
    assert queue_calls(bound.rest()[1]) == {}
    bound.later(1000)
    last = queue_calls(bound.rest()[1]).values()
    assert [call.body["status"]["pendingWorkloads"] for call in last] == [101, 101]


# --- budgets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("urgent", "under_way", "rate"), [(0, 0, 20), (20, 0, 10), (1000, 0, 2), (0, 2, 10), (0, 4, 2), (0, 256, 2)]
)
def test_a_budget_falls_with_the_load_but_never_to_nothing(urgent: int, under_way: int, rate: int) -> None:
    """20 a second when idle, half of each urgent write less, none at 4 without an answer; 2 at least."""
    load = Load()
    budget = Budget(BudgetSettings(rate_max=20, rate_min=2, burst=5, share=0.5), load)
    granted = 0
    for now in range(0, 60_000, 10):
        if now % 100 == 0:
            load.note(UnixMs(now), urgent // 10, under_way)
        # The first half is for the average to settle.
        granted += budget.take(UnixMs(now)) and now >= 30_000
    assert granted == pytest.approx(rate * 30, rel=0.1)


def test_a_bucket_holds_a_burst_and_says_when_the_next_token_comes() -> None:
    """What was saved while idle may be spent at once."""
    budget = Budget(BudgetSettings(rate_max=10, rate_min=1, burst=3), Load())
    now = UnixMs(5)
    assert [budget.take(now) for _ in range(4)] == [True, True, True, False]
    assert budget.ready_at(now) == now + 100
    assert budget.take(UnixMs(now + 100))
