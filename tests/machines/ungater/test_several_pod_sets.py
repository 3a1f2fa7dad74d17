"""The ungater on a JobSet: it is read before it is started or restored, and patched in the version that was read."""

from typing import Any

import msgspec
import pytest
from tests.machines.ungater.test_decide import ABOUT, BRIDGE, KEY, MANAGER, SCHEDULER, Gate, flavor
from tests.support.job_kinds import job_object, merged, pod_template

from headgate.core.jobs.job_set import JobSet
from headgate.core.machine.contract import Call, Completed
from headgate.events import effects, facts
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import JobKey, Uid, UnixMs
from headgate.events.objects import Admission, OwnerReference, PodSetAssignment, WorkloadSpec
from headgate.events.queueing import WorkloadEvicted

JOB = JobKey("jobset.x-k8s.io/JobSet/team-a/train")
PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/train"
FRAMEWORKS = IntegrationsConfiguration(frameworks=("batch/job", "jobset.x-k8s.io/jobset"))
Json = dict[str, Any]


def job_set(**spec: Any) -> Json:
    jobs = [{"name": each, "replicas": 1, "template": {"spec": {"template": pod_template()}}} for each in ("a", "b")]
    return job_object("JobSet", {"suspend": True, "replicatedJobs": jobs, **spec})


def seen(obj: Json) -> facts.JobObserved:
    job = JobSet().read(msgspec.json.encode(obj))[1]
    assert job is not None
    return facts.JobObserved(job=JOB, spec=msgspec.structs.replace(job, created_ms=UnixMs(5)))


def gate(obj: Json) -> Gate:
    """An ungater with a JobSet and its Workload, which is admitted."""
    made = Gate()
    pod_sets = seen(obj).spec.pod_sets
    owner = OwnerReference(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="train", uid="j")
    spec = WorkloadSpec(queue_name="main", pod_sets=pod_sets)
    made.say(
        BRIDGE,
        facts.ConfigurationObserved(configuration=Configuration(integrations=FRAMEWORKS)),
        flavor(),
        seen(obj),
        facts.WorkloadObserved(workload=KEY, uid=Uid("w"), created_ms=UnixMs(5), spec=spec, owner=owner),
        facts.InformersSynced(),
    )
    assigned = tuple(
        PodSetAssignment(name=each.name, flavors={"cpu": "spot"}, resource_usage={"cpu": "1"}, count=1)
        for each in pod_sets
    )
    admission = Admission(cluster_queue="cq", pod_set_assignments=assigned)
    made.say(
        SCHEDULER,
        QuotaReserved(**ABOUT, cluster_queue="cq", admission=admission, message="m"),
        WorkloadAdmitted(**ABOUT, cluster_queue="cq", message="m"),
    )
    return made


def shown(gate: Gate, call: Call, obj: Json) -> None:
    """The object that was read."""
    assert call.method == "GET"
    assert gate.machine.decide(Completed(call.id, 200, msgspec.json.encode(obj))) == []


def selectors(obj: Json) -> list[Any]:
    templates = (each["template"]["spec"]["template"] for each in obj["spec"]["replicatedJobs"])
    return [each["spec"].get("nodeSelector") for each in templates]


def test_a_job_set_is_read_patched_stopped_and_restored() -> None:
    """Its whole life: each patch but the stop is for the version that was read."""
    before = job_set()
    it = gate(before)
    read = it.call()
    assert (read.method, read.path) == ("GET", PATH)
    shown(it, read, before)
    start = it.call()
    assert (start.method, start.path, start.body["metadata"]["resourceVersion"]) == ("PATCH", PATH, "7")
    running = merged(before, start.body)
    assert selectors(running) == [{"tier": "spot"}, {"tier": "spot"}]
    it.answer(start)
    assert it.rest()[0] == [effects.JobStarted(job=JOB, job_uid=Uid("j"), workload=KEY, workload_uid=Uid("w"))]
    it.say(BRIDGE, seen(running))
    it.say(MANAGER, WorkloadEvicted(**ABOUT, reason="Deactivated", message="m"))
    stop = it.call()
    assert stop.body == {"metadata": {"uid": "j"}, "spec": {"suspend": True}}
    it.answer(stop)
    it.rest()
    stopped = merged(running, stop.body)
    it.say(BRIDGE, seen(stopped))
    again = it.call()
    assert again.method == "GET"
    shown(it, again, stopped)
    restore = it.call()
    assert merged(stopped, restore.body) == before
    it.answer(restore)
    assert it.rest() == ([], [])


def test_what_has_changed_between_reading_and_patching_is_read_again() -> None:
    """The API server refuses the patch of an older version: after a backoff all begins anew."""
    it = gate(job_set())
    shown(it, it.call(), job_set())
    it.answer(it.call(), 409)
    it.rest()
    assert it.wake_at is not None
    it.log.now_ms = UnixMs(it.wake_at)
    assert it.call().method == "GET"


def test_a_start_that_is_not_due_any_more_is_not_made() -> None:
    """The workload was evicted while the JobSet was read."""
    it = gate(job_set())
    read = it.call()
    it.say(MANAGER, WorkloadEvicted(**ABOUT, reason="Deactivated", message="m"))
    shown(it, read, job_set())
    assert [call.method for call in it.rest()[1]] == []


def test_a_job_set_that_has_other_pod_sets_by_now_is_not_started() -> None:
    """It is said once, and the JobSet is tried again when it changes."""
    it = gate(job_set())
    shown(it, it.call(), job_set(replicatedJobs=[]))
    ((said,), (again,)) = it.rest()
    assert isinstance(said, effects.JobStartRejected)
    assert said.message == ("JobSet team-a/train cannot be started: it has the pod sets none, and its Workload a, b")
    shown(it, again, job_set(replicatedJobs=[]))
    assert it.rest() == ([], [])


@pytest.mark.parametrize("status", [404, 403])
def test_a_job_set_that_cannot_be_read_is_not_started(status: int) -> None:
    """One that is gone the watch reports; any other refusal is recorded."""
    it = gate(job_set())
    it.answer(it.call(), status, reason="r", message="m")
    events, calls = it.rest()
    assert [type(each) for each in events] == ([] if status == 404 else [effects.JobStartRejected])
    assert calls == []
