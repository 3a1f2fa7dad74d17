"""Objects are deleted when they have been kept for as long as the configuration sets, and none before."""

from typing import Any

import msgspec
from tests.machines.binder.test_finalizers import ABOUT, BRIDGE, MANAGER, job, workload
from tests.support.backoff import backs_off, longest
from tests.support.logs import TestLog

from headgate.core.machine.contract import Call, Committed, Completed, Settled, WakeAt
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration, RetentionPolicies
from headgate.events.ids import JobKey, Uid, UnixMs
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished, WorkloadReleased
from headgate.machines.binder.decide import Binder

HOUR_MS = 3_600_000
FINISHED = WorkloadFinished(**ABOUT, reason="Succeeded", message="m")


class Keeper:
    """A binder of which only the deletions are looked at."""

    def __init__(self, log: TestLog | None = None, **policies: int) -> None:
        self.log = log or TestLog()
        self.machine = Binder(self.log.state, "off")
        self.wake_at: int | None = None
        if log is None:
            self.configure(**policies)

    def configure(self, **policies: int) -> None:
        configuration = Configuration(object_retention_policies=RetentionPolicies(**policies))
        self.say(BRIDGE, facts.ConfigurationObserved(configuration=configuration))

    def say(self, producer: Producer, *events: EventBase) -> None:
        assert self.machine.decide(Committed(self.log.append(producer, *events))) == []

    def pass_ms(self, ms: int) -> None:
        self.log.now_ms = UnixMs(self.log.now_ms + ms)

    def calls(self) -> list[Call]:
        self.wake_at = None
        found = []
        for command in self.machine.decide(Settled(self.log.now_ms)):
            if isinstance(command, Call) and command.id.startswith("retention/"):
                found.append(command)
            if isinstance(command, WakeAt):
                self.wake_at = command.at_ms
        return found

    def answer(self, call: Call, code: int = 200) -> None:
        self.machine.decide(Completed(call.id, code, b"{}"))


def deletes(call: Call, path: str, uid: str) -> None:
    assert (call.method, call.path) == ("DELETE", path)
    assert call.body["preconditions"] == {"uid": uid}
    assert call.body["propagationPolicy"] == "Background"


def switched_off(keeper: Keeper, cause: str = "RequeuingLimitExceeded") -> None:
    keeper.say(BRIDGE, job(suspended=True), workload())
    keeper.say(MANAGER, WorkloadEvicted(**ABOUT, reason="Deactivated", message="m", underlying_cause=cause))


def test_a_finished_workload_is_deleted_after_its_time() -> None:
    """Not before; once; and by a binder that has come after it too."""
    keeper = Keeper(after_finished_ms=HOUR_MS)
    keeper.say(BRIDGE, workload())
    keeper.say(MANAGER, FINISHED)
    assert keeper.calls() == []
    keeper.pass_ms(HOUR_MS - 1000)
    assert keeper.calls() == []
    assert keeper.wake_at is not None
    assert keeper.log.now_ms < keeper.wake_at <= keeper.log.now_ms + 1000
    keeper.pass_ms(1000)
    (again,) = Keeper(keeper.log).calls()
    (call,) = keeper.calls()
    assert again == call
    deletes(call, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/w", "w")
    keeper.answer(call)
    keeper.say(BRIDGE, workload())
    assert keeper.calls() == []
    keeper.say(BRIDGE, facts.WorkloadDeleted(**ABOUT))
    assert keeper.calls() == []


def test_without_a_policy_everything_is_kept() -> None:
    """And a policy that comes later counts for what has finished before."""
    keeper = Keeper()
    keeper.say(BRIDGE, workload())
    keeper.say(MANAGER, FINISHED)
    keeper.pass_ms(100 * HOUR_MS)
    assert keeper.calls() == []
    keeper.configure(after_finished_ms=0)
    assert len(keeper.calls()) == 1


def test_the_job_of_a_workload_that_kueue_has_switched_off_is_deleted() -> None:
    """With everything that it owns."""
    keeper = Keeper(after_deactivated_by_kueue_ms=HOUR_MS)
    switched_off(keeper)
    keeper.say(MANAGER, WorkloadReleased(**ABOUT, requeued=False, reason="Deactivated", message="m"))
    assert keeper.calls() == []
    keeper.pass_ms(HOUR_MS)
    (call,) = keeper.calls()
    deletes(call, "/apis/batch/v1/namespaces/team-a/jobs/train", "j")
    keeper.answer(call)
    keeper.say(BRIDGE, job(suspended=True, deleting=True))
    assert keeper.calls() == []
    keeper.say(BRIDGE, facts.JobDeleted(job=JobKey("batch/Job/team-a/train"), uid=Uid("j")))
    assert keeper.calls() == []


def test_the_job_of_a_workload_that_its_user_has_switched_off_is_kept() -> None:
    """And of one that was switched on again."""
    keeper = Keeper(after_deactivated_by_kueue_ms=0)
    switched_off(keeper, cause="")
    keeper.pass_ms(HOUR_MS)
    assert keeper.calls() == []


def test_a_refused_deletion_is_tried_again_later_and_later() -> None:
    """With a wake-up; one that is gone, or another object by now, is done with."""
    keeper = Keeper(after_finished_ms=0)
    keeper.say(BRIDGE, workload())
    keeper.say(MANAGER, FINISHED)
    for wait in (1000, 2000):
        (call,) = keeper.calls()
        keeper.answer(call, 403)
        assert keeper.calls() == []
        assert backs_off(keeper.log.now_ms, keeper.wake_at, wait)
        keeper.pass_ms(longest(wait))
    (call,) = keeper.calls()
    keeper.answer(call, 409)
    assert keeper.calls() == []
    keeper.say(BRIDGE, facts.WorkloadDeleted(**ABOUT))
    another: Any = msgspec.structs.replace(workload(), uid=Uid("w2"))
    keeper.say(BRIDGE, another)
    assert keeper.calls() == []
