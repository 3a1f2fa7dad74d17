"""The ungater's machine: a Job runs exactly while its workload is admitted, and every action bears repetition."""

from typing import Any

import msgspec
import pytest
from tests.support.backoff import backs_off, longest
from tests.support.logs import TestLog

from headgate.core.machine.contract import Append, Call, Committed, Completed, Settled, WakeAt
from headgate.events import effects, facts
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted, WorkloadPreempted
from headgate.events.ids import JobKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    Job,
    OwnerReference,
    PodSet,
    PodSetAssignment,
    PodTemplate,
    ResourceFlavorSpec,
    TemplateMeta,
    WorkloadSpec,
)
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished
from headgate.machines.ungater.decide import Ungater

BRIDGE, MANAGER, SCHEDULER, UNGATER = (
    Producer.INFORMER_BRIDGE,
    Producer.QUEUE_MANAGER,
    Producer.SCHEDULER,
    Producer.UNGATER,
)
KEY, JOB = WorkloadKey("team-a/w"), JobKey("batch/Job/team-a/train")
ABOUT: dict[str, Any] = {"workload": KEY, "uid": Uid("w")}
MARKED = PodTemplate(metadata=TemplateMeta(annotations={"kueue.x-k8s.io/workload": "w"}))


def job(**more: Any) -> facts.JobObserved:
    return facts.JobObserved(
        job=JOB, spec=Job(uid="j", created_ms=UnixMs(5), queue_name="main", **{"suspended": True, **more})
    )


def workload(**more: Any) -> facts.WorkloadObserved:
    return facts.WorkloadObserved(
        workload=KEY,
        uid=Uid("w"),
        created_ms=UnixMs(5),
        spec=WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=1),)),
        owner=OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j"),
        **more,
    )


def flavor() -> facts.ResourceFlavorObserved:
    return facts.ResourceFlavorObserved(name="spot", spec=ResourceFlavorSpec(node_labels={"tier": "spot"}))


def no_workload() -> effects.WorkloadCreateRejected:
    return effects.WorkloadCreateRejected(
        workload=KEY, job=JOB, job_uid=Uid("j"), code=403, reason="Forbidden", message="exceeded quota"
    )


class Gate:
    """An ungater and its log. `settle` appends what it returns and passes it the commit."""

    def __init__(self, log: TestLog | None = None) -> None:
        self.log = log or TestLog()
        self.machine = Ungater(self.log.state)
        self.wake_at: int | None = None

    def say(self, producer: Producer, *events: EventBase) -> None:
        logged = self.log.append(producer, *events)
        assert self.machine.decide(Committed(logged)) == []

    def admit(self) -> None:
        assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "1"}, count=1)
        admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
        self.say(
            SCHEDULER,
            QuotaReserved(**ABOUT, cluster_queue="cq", admission=admission, message="m"),
            WorkloadAdmitted(**ABOUT, cluster_queue="cq", message="m"),
        )

    def evict(self) -> None:
        self.say(MANAGER, WorkloadEvicted(**ABOUT, reason="Deactivated", message="m"))

    def rest(self) -> tuple[list[EventBase], list[Call]]:
        """Settle until there is nothing more to do."""
        events: list[EventBase] = []
        calls: list[Call] = []
        for _ in range(100):
            self.wake_at = None
            commands = self.machine.decide(Settled(self.log.now_ms))
            for command in commands:
                match command:
                    case Append():
                        events += command.events
                        self.say(UNGATER, *command.events)
                    case Call():
                        calls.append(command)
                    case WakeAt():
                        self.wake_at = command.at_ms
                    case _:
                        raise AssertionError(command)
            if all(isinstance(command, WakeAt) for command in commands):
                return events, calls
        raise AssertionError("the ungater does not come to rest")

    def call(self) -> Call:
        """The one call that has to be made now."""
        (call,) = self.rest()[1]
        return call

    def answer(self, call: Call, status: int = 200, **body: Any) -> None:
        assert self.machine.decide(Completed(call.id, status, msgspec.json.encode(body))) == []


def gate(*events: EventBase) -> Gate:
    made = Gate()
    made.say(BRIDGE, flavor(), *(events or (job(), workload())), facts.InformersSynced())
    return made


def started() -> Gate:
    made = gate()
    made.admit()
    made.answer(made.call())
    assert [type(event) for event in made.rest()[0]] == [effects.JobStarted]
    return made


# --- whose job -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", ["j", "v"])
def test_a_job_is_not_started_for_the_workload_of_its_namesake(uid: str) -> None:
    """A Volcano Job may have the namespace and the name of a Job, and a Workload its uid."""
    owner = OwnerReference(api_version="batch.volcano.sh/v1alpha1", kind="Job", name="train", uid=uid)
    made = gate(job(), msgspec.structs.replace(workload(), owner=owner))
    made.admit()
    assert made.rest() == ([], [])
    made.evict()
    assert made.rest() == ([], [])


def test_a_job_goes_on_when_the_workload_of_its_namesake_is_evicted() -> None:
    """It runs for its own Workload."""
    made = started()
    owner = OwnerReference(api_version="batch.volcano.sh/v1alpha1", kind="Job", name="train", uid="j")
    other = msgspec.structs.replace(workload(), workload=WorkloadKey("team-a/x"), uid=Uid("x"), owner=owner)
    made.say(BRIDGE, job(suspended=False), other)
    made.say(MANAGER, WorkloadEvicted(workload=other.workload, uid=other.uid, reason="Deactivated", message="m"))
    made.say(BRIDGE, facts.WorkloadDeleted(workload=other.workload, uid=other.uid))
    assert made.rest() == ([], [])


# --- starting ------------------------------------------------------------------------------------------------------


def test_an_admitted_job_is_resumed_on_its_flavor_once() -> None:
    """Until the watch shows it running, the log's word is enough."""
    made = gate()
    assert made.rest() == ([], [])
    made.admit()
    call = made.call()
    assert (call.method, call.path) == ("PATCH", "/apis/batch/v1/namespaces/team-a/jobs/train")
    assert call.content_type == "application/merge-patch+json"
    assert call.body["spec"]["suspend"] is False
    assert call.body["spec"]["template"]["spec"]["nodeSelector"] == {"tier": "spot"}
    assert call.body["metadata"]["uid"] == "j"
    made.answer(call)
    (event,) = made.rest()[0]
    assert isinstance(event, effects.JobStarted)
    assert Gate(made.log).rest() == ([], [])
    made.say(BRIDGE, job(suspended=False, active=1))
    assert made.rest() == ([], [])


def test_a_crash_before_the_effect_starts_again_with_the_same_patch() -> None:
    """Whether the first was carried out or not, the second does no harm."""
    made = gate()
    made.admit()
    first = made.call()
    assert Gate(made.log).call().body == first.body


def test_a_template_that_is_closed_is_opened_first() -> None:
    """A Job that ran before has a start time; it is reset, and the start tried once more."""
    made = gate()
    made.admit()
    first = made.call()
    made.answer(first, 422, reason="Invalid", message="field is immutable")
    reset = made.call()
    assert reset.path.endswith("/jobs/train/status")
    assert reset.body["status"] == {"startTime": None}
    made.answer(reset)
    again = made.call()
    assert again.body == first.body
    made.answer(again, 422, reason="Invalid", message="still no")
    (event,) = made.rest()[0]
    assert isinstance(event, effects.JobStartRejected)
    assert (event.code, event.message) == (422, "still no")
    assert Gate(made.log).rest() == ([], [])
    made.say(BRIDGE, job(failed=1))
    assert made.call().body["spec"]["suspend"] is False


def test_a_start_waits_for_a_flavor_that_is_gone() -> None:
    """The log names it, once; its return starts the Job."""
    made = gate()
    made.admit()
    made.say(BRIDGE, facts.ResourceFlavorDeleted(name="spot"))
    ((event,), calls) = made.rest()
    assert isinstance(event, effects.JobStartRejected)
    assert 'resourceflavors.kueue.x-k8s.io "spot" not found' in event.message
    assert calls == []
    assert Gate(made.log).rest() == ([], [])
    made.say(BRIDGE, flavor())
    assert made.call().body["spec"]["suspend"] is False


def test_a_conflict_is_tried_again_later() -> None:
    """With a wake-up, not in a busy loop."""
    made = gate()
    made.admit()
    for wait in (1000, 2000):
        made.answer(made.call(), 409, reason="Conflict")
        assert made.rest() == ([], [])
        assert backs_off(made.log.now_ms, made.wake_at, wait)
        made.log.now_ms = UnixMs(made.log.now_ms + longest(wait))
    made.answer(made.call())
    assert len(made.rest()[0]) == 1


def test_a_job_that_its_user_suspends_while_admitted_is_resumed() -> None:
    """As with Kueue, admission decides whether a Job runs."""
    made = started()
    made.say(BRIDGE, job(suspended=False))
    made.say(BRIDGE, job(suspended=True))
    assert made.call().body["spec"]["suspend"] is False


# --- stopping ------------------------------------------------------------------------------------------------------


def test_an_evicted_job_is_suspended_once_and_then_restored() -> None:
    """First suspended, and when no pod is left, the template is opened and given back."""
    made = started()
    made.say(BRIDGE, job(suspended=False, active=1, template=MARKED))
    made.evict()
    stop = made.call()
    assert stop.body == {"metadata": {"uid": "j"}, "spec": {"suspend": True}}
    made.answer(stop)
    (event,) = made.rest()[0]
    assert isinstance(event, effects.JobStopped)
    assert event.reason == "WorkloadEvicted"
    assert made.rest() == ([], [])
    made.say(BRIDGE, job(active=1, template=MARKED))
    assert made.rest() == ([], [])
    made.say(BRIDGE, job(template=MARKED))
    reset = made.call()
    assert reset.path.endswith("/status")
    made.answer(reset)
    restore = made.call()
    assert restore.body["spec"]["template"]["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": None}
    made.answer(restore)
    assert made.rest() == ([], [])
    made.say(BRIDGE, job())
    assert Gate(made.log).rest() == ([], [])


def test_a_preempted_job_is_suspended() -> None:
    """The scheduler's word is enough, as the queue manager's is for other evictions."""
    made = started()
    made.say(BRIDGE, job(suspended=False, active=1, template=MARKED))
    more: dict[str, Any] = {"cluster_queue": "cq", "reason": "InClusterQueue", "message": "m"}
    made.say(SCHEDULER, WorkloadPreempted(**ABOUT, preemptor=WorkloadKey("team-a/x"), preemptor_uid=Uid("x"), **more))
    assert made.call().body == {"metadata": {"uid": "j"}, "spec": {"suspend": True}}


def test_a_job_that_was_resumed_and_evicted_before_it_showed_is_stopped() -> None:
    """The state still shows it suspended; that we resumed it is in the log."""
    made = started()
    made.evict()
    assert made.call().body["spec"] == {"suspend": True}


def test_a_start_that_is_overtaken_by_an_eviction_is_undone() -> None:
    """The eviction is folded while the patch is on its way."""
    made = gate()
    made.admit()
    start = made.call()
    made.evict()
    assert made.rest() == ([], [])
    made.answer(start)
    events, (stop,) = made.rest()
    assert [type(event) for event in events] == [effects.JobStarted]
    assert stop.body["spec"] == {"suspend": True}


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ((job(suspended=False), no_workload()), "NoMatchingWorkload"),
        ((job(suspended=False), workload()), "NotAdmitted"),
    ],
)
def test_a_job_that_runs_unadmitted_is_suspended(before: tuple[EventBase, ...], reason: str) -> None:
    """Also one for which no Workload can be made."""
    made = gate(*before)
    made.answer(made.call())
    (event,) = made.rest()[0]
    assert isinstance(event, effects.JobStopped)
    assert event.reason == reason


def test_nothing_is_stopped_before_everything_was_seen() -> None:
    """The Workload that admits a running Job may not have been read yet; synced brings the decision."""
    made = Gate()
    made.say(BRIDGE, job(suspended=False), workload())
    assert made.rest() == ([], [])
    made.say(BRIDGE, facts.InformersSynced())
    assert made.call().body["spec"] == {"suspend": True}


def test_a_running_job_is_not_stopped_because_its_workload_is_not_known() -> None:
    """The Workload that admits it may be shown later than the Job; it is stopped once that is there, or is refused."""
    made = Gate()
    made.say(BRIDGE, job(suspended=False), facts.InformersSynced())
    assert made.rest() == ([], [])
    made.say(BRIDGE, workload())
    assert made.call().body["spec"] == {"suspend": True}
    refused = Gate()
    refused.say(BRIDGE, job(suspended=False), facts.InformersSynced())
    refused.say(BRIDGE, no_workload())
    assert refused.call().body["spec"] == {"suspend": True}


def test_a_job_of_a_deleted_workload_is_stopped_and_one_of_a_finished_is_left() -> None:
    """Deletion takes the quota away; a finished workload's Job ends by itself."""
    made = started()
    made.say(BRIDGE, job(suspended=False), workload(deleting=True))
    made.answer(made.call())
    (event,) = made.rest()[0]
    assert isinstance(event, effects.JobStopped)
    assert event.reason == "WorkloadDeleted"
    over = started()
    over.say(BRIDGE, job(suspended=False))
    over.say(MANAGER, WorkloadFinished(**ABOUT, reason="Succeeded", message="m"))
    assert over.rest() == ([], [])


@pytest.mark.parametrize("more", [{"finished": "Complete"}, {"finished": "Failed"}, {"deleting": True}])
def test_a_job_that_is_over_is_left_alone(more: dict[str, Any]) -> None:
    """Neither stopped nor started."""
    made = gate(job(suspended=False, **more), workload())
    assert made.rest() == ([], [])
    made.admit()
    assert made.rest() == ([], [])


def test_a_refused_stop_is_recorded_and_tried_again_when_the_job_changes() -> None:
    """The API server's words are in the log."""
    made = gate(job(suspended=False), workload())
    made.answer(made.call(), 403, reason="Forbidden", message="no")
    (event,) = made.rest()[0]
    assert isinstance(event, effects.JobStopRejected)
    assert (event.code, event.reason) == (403, "Forbidden")
    assert Gate(made.log).rest() == ([], [])
    made.say(BRIDGE, job(suspended=False, active=1))
    assert made.call().body["spec"] == {"suspend": True}
