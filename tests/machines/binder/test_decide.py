"""The binder's machine: one write a transition, queue statuses once a second, no busy loops."""

from typing import Any, Literal

import msgspec
import pytest
from tests.support.backoff import backs_off, longest
from tests.support.conformance import fact_of
from tests.support.logs import TestLog
from tests.support.playing import cluster_queue, local_queue, node

from headgate.core.machine.contract import Append, AskExtender, Call, Committed, Completed, Settled, WakeAt
from headgate.core.status.queue_status import count_cluster_queue, count_local_queue
from headgate.events import effects, facts
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import LocalQueueKey, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission, Condition, PodSet, PodSetAssignment, WorkloadSpec
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished, WorkloadParked, WorkloadQueued, WorkloadReleased
from headgate.machines.binder.decide import Binder
from headgate.machines.binder.events import EventDetail
from headgate.machines.binder.queue_statuses import StatusOwner

BRIDGE, MANAGER, SCHEDULER, BINDER = (
    Producer.INFORMER_BRIDGE,
    Producer.QUEUE_MANAGER,
    Producer.SCHEDULER,
    Producer.BINDER,
)
Json = dict[str, Any]


class Bound:
    """
    A binder and its log. `settle` appends what it returns and passes it the commit; `calls` are those not yet answered.

    Queues are shown as `shown` has them, by path; finalizers are as they should be.
    """

    def __init__(self, log: TestLog | None = None, *, told: EventDetail = "off") -> None:
        self.log = log or TestLog()
        self.machine = Binder(self.log.state, told)
        self.wake_at: int | None = None
        self.shown: dict[str, Json] = {}
        self.asks: list[AskExtender] = []
        """The calls of extenders that have no answer yet."""

    def say(self, producer: Producer, *events: EventBase) -> None:
        logged = self.log.append(producer, *events)
        assert self.machine.decide(Committed(logged)) == []

    def settle(self) -> tuple[tuple[EventBase, ...], list[Call]]:
        self.wake_at = None
        events: tuple[EventBase, ...] = ()
        calls: list[Call] = []
        looks: list[Call] = []
        for command in self.machine.decide(Settled(self.log.now_ms)):
            match command:
                case Append():
                    events = command.events
                case Call() if command.id.startswith("queue-look/"):
                    looks.append(command)
                case Call() if command.id.startswith("finalizer/"):
                    self.answer(command)
                case Call():
                    calls.append(command)
                case AskExtender():
                    self.asks.append(command)
                case WakeAt():
                    self.wake_at = command.at_ms
                case _:
                    raise AssertionError(command)
        if events:
            self.say(BINDER, *events)
        for look in looks:
            self.answer(look, **self.shown.get(look.path, {}))
        if looks:
            more, further = self.settle()
            return (*events, *more), [*calls, *further]
        return events, calls

    def rest(self) -> tuple[list[EventBase], list[Call]]:
        """Settle until there is nothing more to do."""
        all_events: list[EventBase] = []
        all_calls: list[Call] = []
        for _ in range(100):
            events, calls = self.settle()
            all_events += events
            all_calls += calls
            if not events and not calls:
                return all_events, all_calls
        raise AssertionError("the binder does not come to rest")

    def answer(self, call: Call, code: int = 200, /, **body: Any) -> None:
        assert self.machine.decide(Completed(call.id, code, msgspec.json.encode(body))) == []

    def extender_answers(self, status: int = 200, body: bytes = b"{}") -> AskExtender:
        """The extender that was called first answers. Returns its call."""
        ask = self.asks.pop(0)
        assert self.machine.decide(Completed(ask.id, status, body)) == []
        return ask

    def later(self, ms: int) -> None:
        self.log.now_ms = UnixMs(self.log.now_ms + ms)

    def writes(self) -> list[Call]:
        """The writes of Workload statuses now, and those that waiting a second brings."""
        calls = self.rest()[1]
        self.later(1000)
        return [call for call in (*calls, *self.rest()[1]) if call.id.startswith("status/")]


def observed(name: str = "w", queue: str = "main", uid: str = "") -> facts.WorkloadObserved:
    return facts.WorkloadObserved(
        workload=WorkloadKey(f"team-a/{name}"),
        uid=Uid(uid or f"uid-{name}"),
        created_ms=UnixMs(5),
        spec=WorkloadSpec(queue_name=queue, pod_sets=(PodSet(count=1),)),
    )


def about(name: str = "w") -> Json:
    return {"workload": WorkloadKey(f"team-a/{name}"), "uid": Uid(f"uid-{name}")}


def queued(name: str = "w") -> WorkloadQueued:
    return WorkloadQueued(**about(name), cluster_queue="cq", priority=0, queued_at_ms=UnixMs(5), shape=Shape("s"))


def reserved(name: str = "w") -> QuotaReserved:
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "2"}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    return QuotaReserved(**about(name), cluster_queue="cq", admission=admission, message="Quota reserved")


def admitted(name: str = "w") -> WorkloadAdmitted:
    return WorkloadAdmitted(**about(name), cluster_queue="cq", message="The workload is admitted")


# --- Workload statuses ---------------------------------------------------------------------------------------------


def with_status() -> tuple[Bound, Call]:
    bound = Bound()
    bound.say(BRIDGE, observed())
    bound.say(SCHEDULER, reserved(), admitted())
    (call,) = bound.rest()[1]
    return bound, call


def test_reserved_and_admitted_at_once_is_one_write() -> None:
    """Server-side apply of the whole status, as Kueue's manager, forced."""
    _, call = with_status()
    assert (call.method, call.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert call.query == {"fieldManager": "kueue-admission", "fieldValidation": "Ignore", "force": "true"}
    assert call.path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/w/status"
    assert [each["type"] for each in call.body["status"]["conditions"]] == ["QuotaReserved", "Admitted"]


def test_what_happens_during_a_write_is_one_more_write() -> None:
    """One write a workload at a time; the next has all that came meanwhile."""
    bound, first = with_status()
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="ClusterQueueStopped", message="m"))
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=False, reason="ClusterQueueStopped", message="m"))
    assert bound.rest() == ([], [])
    bound.answer(first)
    events, (second,) = bound.rest()
    assert [type(event) for event in events] == [effects.StatusApplied]
    assert "admission" not in second.body["status"]
    bound.answer(second)
    events, calls = bound.rest()
    assert (len(events), calls) == (1, [])


def test_an_applied_status_is_not_written_again_after_a_restart() -> None:
    """The digest in the log is that of the API server's status; without the effect it is written once more, alike."""
    bound, call = with_status()
    (again,) = Bound(bound.log).rest()[1]
    assert again.body == call.body
    bound.answer(call)
    bound.rest()
    assert Bound(bound.log).rest() == ([], [])


@pytest.mark.parametrize("code", [404, 400, 403])
def test_a_refused_status_is_recorded_and_left(code: int) -> None:
    """The API server's error is in the log, and no call is repeated until the status is another one."""
    bound, call = with_status()
    bound.answer(call, code, reason="Invalid", message="no")
    events, calls = bound.rest()
    assert calls == []
    (event,) = events
    assert isinstance(event, effects.StatusRejected)
    assert (event.code, event.reason, event.message) == (code, "Invalid", "no")
    assert Bound(bound.log).rest() == ([], [])
    bound.say(MANAGER, WorkloadFinished(**about(), reason="Succeeded", message="m"))
    assert len(bound.rest()[1]) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_reservation_that_may_not_replace_another_is_written_after_none(restarted: bool) -> None:
    """Released and reserved again before its status was written: the API server lets a reservation go, not change."""
    bound, call = with_status()
    bound.answer(call, 422, reason="Invalid", message="status.admission: field is immutable")
    if restarted:
        bound.rest()
        bound = Bound(bound.log)
    (between,) = bound.rest()[1]
    assert "admission" not in between.body["status"]
    assert {each["type"]: each["status"] for each in between.body["status"]["conditions"]} == {
        "QuotaReserved": "False",
        "Admitted": "False",
    }
    bound.answer(between)
    (again,) = bound.rest()[1]
    assert again.body == call.body
    bound.answer(again, 422, reason="Invalid", message="something else")
    assert bound.rest()[1] == []


def test_a_reservation_that_is_refused_with_and_without_is_left() -> None:
    """Two refusals end it, until the status is another one."""
    bound, call = with_status()
    bound.answer(call, 422, reason="Invalid", message="no")
    (between,) = bound.rest()[1]
    bound.answer(between, 422, reason="Invalid", message="no")
    assert bound.rest()[1] == []
    assert Bound(bound.log).rest() == ([], [])


def test_a_conflict_is_tried_again_later_and_later() -> None:
    """With a wake-up instead of a busy loop; a workload recreated under its name ends it."""
    bound, call = with_status()
    for wait in (1000, 2000, 4000):
        bound.answer(call, 409, reason="Conflict")
        assert bound.rest() == ([], [])
        assert backs_off(bound.log.now_ms, bound.wake_at, wait)
        bound.later(longest(wait))
        (call,) = bound.rest()[1]
    bound.answer(call, 409)
    bound.say(BRIDGE, observed(uid="another"))
    bound.later(300_000)
    assert bound.rest() == ([], [])


# --- deactivation --------------------------------------------------------------------------------------------------


def version(generation: int, *, active: bool = True, uid: str = "uid-w") -> facts.WorkloadObserved:
    seen = observed(uid=uid)
    spec = msgspec.structs.replace(seen.spec, active=active)
    return msgspec.structs.replace(seen, spec=spec, generation=generation)


def switched_off() -> tuple[Bound, Call]:
    """A workload at generation 1 that ran for too long, and the call that switches it off."""
    bound = Bound()
    bound.say(BRIDGE, version(1))
    bound.say(SCHEDULER, reserved(), admitted())
    bound.answer(bound.rest()[1][0])
    bound.rest()
    due = "The workload is deactivated due to exceeding the maximum execution time"
    cause = "MaximumExecutionTimeExceeded"
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="Deactivated", message=due, underlying_cause=cause))
    return bound, deactivations(bound)[0]


def deactivations(bound: Bound) -> list[Call]:
    """The calls that switch workloads off. Statuses are taken by the API server at once."""
    found = []
    for _ in range(10):
        _, calls = bound.settle()
        found += [call for call in calls if call.id.startswith("deactivate/")]
        for call in calls:
            if call.id.startswith("status/"):
                bound.answer(call)
    return found


def test_an_eviction_for_good_switches_the_workload_off() -> None:
    """One merge patch of the spec, of this very object; once it is seen in the log there is nothing more to do."""
    bound, call = switched_off()
    assert (call.method, call.content_type) == ("PATCH", "application/merge-patch+json")
    assert call.path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/w"
    assert call.body == {"metadata": {"uid": "uid-w"}, "spec": {"active": False}}
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=False, reason="Deactivated", message="m"))
    assert deactivations(bound) == []  # one at a time
    bound.answer(call)
    assert deactivations(bound) == []
    bound.say(BRIDGE, version(2, active=False))
    assert deactivations(bound) == []
    assert deactivations(Bound(bound.log)) == []


@pytest.mark.parametrize("is_admitted", [False, True])
def test_a_workload_is_switched_off_for_whoever_asks_for_it(is_admitted: bool) -> None:
    """Another controller's DeactivationTarget condition that is True; again if still True after a reactivation."""

    def asking(generation: int, status: Literal["True", "False"], *, active: bool = True) -> facts.WorkloadObserved:
        target = Condition(type="DeactivationTarget", status=status, reason="Operator", message="m")
        return msgspec.structs.replace(version(generation, active=active), deactivation_target=target)

    bound = Bound()
    bound.say(BRIDGE, asking(1, "False"))
    if is_admitted:
        bound.say(SCHEDULER, reserved(), admitted())
    assert deactivations(bound) == []
    bound.say(BRIDGE, asking(1, "True"))
    (call,) = deactivations(bound)
    assert call.body == {"metadata": {"uid": "uid-w"}, "spec": {"active": False}}
    bound.answer(call)
    assert deactivations(bound) == []
    bound.say(BRIDGE, asking(2, "True", active=False))
    assert deactivations(bound) == []
    bound.say(BRIDGE, asking(3, "True"))
    assert len(deactivations(bound)) == 1
    bound.say(MANAGER, WorkloadFinished(**about(), reason="Succeeded", message="m"))
    assert deactivations(Bound(bound.log)) == []


def test_a_restart_repeats_what_the_log_does_not_show_yet() -> None:
    """The call leaves no event: until its outcome comes back as a fact, each new binder makes it once."""
    bound, call = switched_off()
    bound.answer(call)
    assert deactivations(bound) == []
    (again,) = deactivations(Bound(bound.log))
    assert again.body == call.body


@pytest.mark.parametrize("reason", ["Preempted", "ClusterQueueStopped", "AdmissionCheck"])
def test_other_evictions_leave_the_spec_alone(reason: str) -> None:
    """A workload that may be requeued stays active."""
    bound = Bound()
    bound.say(BRIDGE, version(1))
    bound.say(SCHEDULER, reserved(), admitted())
    bound.say(MANAGER, WorkloadEvicted(**about(), reason=reason, message="m"))
    assert deactivations(bound) == []


def test_a_workload_that_was_switched_on_again_stays_on() -> None:
    """Its generation is another one than that which the eviction saw; a new eviction switches it off again."""
    bound, call = switched_off()
    bound.answer(call)
    bound.say(BRIDGE, version(2, active=False))
    bound.say(MANAGER, WorkloadReleased(**about(), requeued=False, reason="Deactivated", message="m"))
    bound.say(BRIDGE, version(3))
    assert deactivations(bound) == []
    assert deactivations(Bound(bound.log)) == []
    bound.say(MANAGER, WorkloadEvicted(**about(), reason="Deactivated", message="m", underlying_cause="AdmissionCheck"))
    assert len(deactivations(bound)) == 1


def test_a_refused_deactivation_is_tried_again_later_and_later() -> None:
    """With a wake-up instead of a busy loop, until it is taken or no longer needed."""
    bound, call = switched_off()
    bound.later(1000)
    assert deactivations(bound) == []  # the status shows the eviction
    for wait in (1000, 2000, 4000):
        bound.answer(call, 409, reason="Conflict")
        assert deactivations(bound) == []
        assert backs_off(bound.log.now_ms, bound.wake_at, wait)
        bound.later(longest(wait))
        (call,) = deactivations(bound)
    bound.answer(call, 409, reason="Conflict")
    bound.say(BRIDGE, version(1, uid="another"))
    for _ in range(2):
        bound.later(300_000)
        assert deactivations(bound) == []
    assert bound.wake_at is None


def test_nothing_is_asked_of_a_workload_that_is_gone() -> None:
    """404: the fact of its deletion is on its way."""
    bound, call = switched_off()
    bound.answer(call, 404, reason="NotFound")
    assert deactivations(bound) == []
    bound.later(600_000)
    assert deactivations(bound) == []


# --- queue statuses ------------------------------------------------------------------------------------------------


def with_queues() -> Bound:
    bound = Bound()
    bound.say(
        BRIDGE,
        fact_of({"kind": "ClusterQueue", **cluster_queue(cohortName="c", nominal="1")}),
        fact_of({"kind": "LocalQueue", **local_queue()}),
        facts.InformersSynced(),
    )
    return bound


def queue_calls(calls: list[Call]) -> dict[str, Call]:
    return {call.id.split("/")[1]: call for call in calls if call.id.startswith("queue-status/")}


def test_a_queue_is_written_at_most_once_a_second_and_its_last_state_always() -> None:
    """What changes within the second is written when it is over; what is as written is not."""
    bound = with_queues()
    calls = queue_calls(bound.rest()[1])
    assert calls.keys() == {"ClusterQueue", "LocalQueue"}
    for call in calls.values():
        bound.answer(call)
    for name in "abc":
        bound.say(BRIDGE, observed(name))
        bound.say(MANAGER, queued(name))
        assert queue_calls(bound.rest()[1]) == {}
    assert bound.wake_at == bound.log.now_ms + 1000
    bound.later(1000)
    calls = queue_calls(bound.rest()[1])
    assert [call.body["status"]["pendingWorkloads"] for call in calls.values()] == [3, 3]
    for call in calls.values():
        bound.answer(call)
    bound.later(5000)
    assert bound.rest() == ([], [])
    assert bound.wake_at is None


def test_a_queues_condition_keeps_its_transition_time() -> None:
    """It moves with the status of the condition only."""
    bound = with_queues()
    times, states = [], []
    flavor = fact_of({"kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": {}})
    for number, event in enumerate((facts.NodeDeleted(name="x"), flavor, facts.NodeDeleted(name="x"))):
        bound.say(BRIDGE, event, observed(f"w{number}"))
        bound.say(MANAGER, queued(f"w{number}"))
        bound.later(10_000)
        call = queue_calls(bound.rest()[1])["ClusterQueue"]
        (condition,) = call.body["status"]["conditions"]
        times.append(condition["lastTransitionTime"])
        states.append(condition["status"])
        bound.answer(call)
    assert states == ["False", "True", "True"]
    assert times[0] != times[1] == times[2]


def test_a_refused_queue_status_is_tried_again_and_one_that_is_gone_is_not() -> None:
    """Nothing of it is in the log; the state will be right in the end."""
    bound = with_queues()
    call = queue_calls(bound.rest()[1])["ClusterQueue"]
    bound.answer(call, 409)
    assert queue_calls(bound.rest()[1]) == {}
    bound.later(longest(1000))
    call = queue_calls(bound.rest()[1])["ClusterQueue"]
    bound.answer(call, 404)
    bound.later(600_000)
    assert queue_calls(bound.rest()[1]) == {}


def test_a_queue_made_anew_is_written_anew() -> None:
    """Another uid is another object, which has no status yet."""
    bound = with_queues()
    bound.answer(queue_calls(bound.rest()[1])["LocalQueue"])
    anew = local_queue()
    anew["metadata"]["uid"] = "another"
    bound.say(BRIDGE, fact_of({"kind": "LocalQueue", **anew}))
    call = queue_calls(bound.rest()[1])["LocalQueue"]
    assert call.body["metadata"]["uid"] == "another"


def test_the_running_count_is_that_of_the_state() -> None:
    """After any history the incremental counts are those that a pass over all workloads gives."""
    bound = with_queues()
    steps: list[tuple[Producer, EventBase]] = []
    for name in "abcd":
        steps += [(BRIDGE, observed(name)), (MANAGER, queued(name))]
    parked = WorkloadParked(**about("a"), reason="r", message="m", wake=(), cluster_queue="cq")
    steps += [
        (MANAGER, parked),
        (SCHEDULER, reserved("b")),
        (SCHEDULER, admitted("b")),
        (SCHEDULER, reserved("c")),
        (MANAGER, WorkloadEvicted(**about("b"), reason="r", message="m")),
        (MANAGER, WorkloadReleased(**about("b"), requeued=True, reason="r", message="m")),
        (MANAGER, WorkloadFinished(**about("c"), reason="Succeeded", message="m")),
        (BRIDGE, facts.WorkloadDeleted(**about("d"))),
    ]
    for producer, event in steps:
        bound.say(producer, event)
        for machine in (bound.machine, Binder(bound.log.state)):
            parts = machine._queues
            parts._recount()
            cluster = parts._counts(StatusOwner("ClusterQueue", "cq"), bound.log.state.index.holders.get("cq", {}))
            assert cluster == count_cluster_queue(bound.log.state, "cq")
            queue = StatusOwner("LocalQueue", "team-a/main")
            local = parts._counts(queue, parts._tally.holders.get(queue, {}))
            assert local == count_local_queue(bound.log.state, LocalQueueKey("team-a/main"))


# --- pods ----------------------------------------------------------------------------------------------------------


def test_no_pod_gets_a_node_without_a_configuration() -> None:
    """Not one that names Headgate either, with a node that has room: there is nothing to decide, write or wait for."""
    bound = Bound()
    container = {"resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "headgate", "containers": [container]}
    pod = fact_of({"kind": "Pod", "metadata": {"name": "p", "namespace": "team-a"}, "spec": spec})
    bound.say(BRIDGE, fact_of({"kind": "Node", **node("n1")}), pod, facts.InformersSynced())
    assert bound.rest() == ([], [])
    assert bound.wake_at is None
    assert Bound(bound.log).rest() == ([], [])
