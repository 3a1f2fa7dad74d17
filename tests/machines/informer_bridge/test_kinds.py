"""Which kinds of jobs the bridge follows: those of the configuration, and what becomes of the others."""

from typing import Any

import msgspec
from tests.machines.informer_bridge.test_decide import Bridge, Json
from tests.support.job_kinds import job_object, pod_template
from tests.support.logs import TestLog
from tests.support.playing import namespace

from headgate.core.machine.contract import Listed
from headgate.core.reading.decoding import RESOURCES, watched
from headgate.events import facts
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.ids import JobKey, Uid

BOTH = Configuration(
    integrations=IntegrationsConfiguration(frameworks=("batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/tfjob"))
)
TRAIN = JobKey("jobset.x-k8s.io/JobSet/team-a/train")


def raw(obj: Json) -> bytes:
    return msgspec.json.encode(obj)


def job_set(**metadata: Any) -> bytes:
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": {"template": pod_template()}}}]
    times: Json = {"creationTimestamp": "2026-01-15T10:00:00Z"}
    return raw(job_object("JobSet", {"suspend": True, "replicatedJobs": jobs}, **times, **metadata))


def listed(bridge: Bridge, **objects: list[bytes]) -> Bridge:
    for resource in bridge.machine.resources:
        bridge.machine.decide(Listed(resource, tuple(objects.get(resource, ())), "1"))
    return bridge


def team() -> bytes:
    meta = {**namespace("team-a")["metadata"], "uid": "n", "creationTimestamp": "2026-01-15T10:00:00Z"}
    return raw({**namespace("team-a"), "metadata": meta})


def test_a_bridge_follows_the_kinds_that_its_configuration_enables() -> None:
    """Batch/v1 Jobs alone where it names none, and no more is waited for than that."""
    assert Bridge().machine.resources == RESOURCES
    assert Bridge(configuration=BOTH).machine.resources == watched(BOTH)
    assert set(watched(BOTH)) - set(RESOURCES) == {"jobsets", "tfjobs"}


def test_a_kind_that_is_not_installed_keeps_nothing_back() -> None:
    """It counts as empty, without a version: all is synced, and there is no mark to resume it from."""
    bridge = Bridge(configuration=BOTH)
    for resource in bridge.machine.resources:
        bridge.machine.decide(Listed(resource, (), "" if resource == "tfjobs" else "1"))
    events, _ = bridge.settle()
    (synced,) = (event for event in events if isinstance(event, facts.InformersSynced))
    assert "tfjobs" in synced.resources
    assert "tfjobs" not in synced.resource_versions


def test_a_job_set_gets_a_workload_with_its_pod_sets() -> None:
    """Named after kind and name, and owned by it."""
    bridge = listed(Bridge(configuration=BOTH), namespaces=[team()], jobsets=[job_set()])
    (call,) = bridge.all_calls()
    body: Any = call.body
    assert body["metadata"]["name"].startswith("jobset-train-")
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["uid"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet", "j")
    (pod_set,) = body["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"], pod_set["template"]) == ("w", 2, pod_template())


def test_a_job_set_that_another_job_controls_gets_none() -> None:
    """What that one was admitted for is what runs."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "above", "uid": "t", "controller": True}
    above = job_object("TFJob", {"tfReplicaSpecs": {"Worker": {"template": pod_template()}}}, name="above", uid="t")
    below = job_set(ownerReferences=[owner])
    bridge = listed(Bridge(configuration=BOTH), namespaces=[team()], jobsets=[below], tfjobs=[raw(above)])
    assert [call.body["metadata"]["name"][:11] for call in bridge.all_calls()] == ["tfjob-above"]


def test_jobs_of_a_kind_that_is_enabled_no_longer_leave_the_log() -> None:
    """They may run on: nothing is proved deleted."""
    log = TestLog()
    bridge = listed(Bridge(log, BOTH), jobsets=[job_set()])
    bridge.settle()
    assert TRAIN in log.state.jobs
    events, _ = listed(Bridge(log, Configuration())).settle()
    assert facts.JobDeleted(job=TRAIN, uid=Uid("j"), gone=False) in events
    assert TRAIN not in log.state.jobs
