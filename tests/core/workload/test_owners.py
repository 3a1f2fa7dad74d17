"""An owner is who it is by group, kind, namespace, name and uid: no two of them meet because they share the rest."""

from typing import Any

import pytest
from tests.support.logs import TestLog

from headgate.core.api import job_kinds
from headgate.core.queueing import eviction
from headgate.core.reading.decoding import read
from headgate.core.state.tables import Workload
from headgate.core.workload import owners
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.ids import JobKey, JobRef, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Job, Labels, OwnerReference, PodSet, WorkloadSpec
from headgate.machines.binder.finalizers import may_run
from headgate.machines.informer_bridge.diff import deleted

BRIDGE = Producer.INFORMER_BRIDGE
BATCH, VOLCANO = JobKey("batch/Job/team-a/train"), JobKey("batch.volcano.sh/Job/team-a/train")
W = WorkloadKey("team-a/w")


def owner_of(job: JobKey, uid: str = "j") -> OwnerReference:
    ref = JobRef.parse(job)
    version = {"batch": "batch/v1"}.get(ref.group, f"{ref.group}/v1alpha1" if ref.group else "v1")
    return OwnerReference(api_version=version, kind=ref.kind, name=ref.name, uid=uid)


def observed(job: JobKey, key: str = W, uid: str = "w", **more: Any) -> facts.WorkloadObserved:
    return facts.WorkloadObserved(
        workload=WorkloadKey(key),
        uid=Uid(uid),
        created_ms=UnixMs(5),
        spec=WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=1),)),
        **{"labels": {"kueue.x-k8s.io/job-uid": "j"}, "owner": owner_of(job), **more},
    )


def job_of(job: JobKey, uid: str = "j") -> facts.JobObserved:
    return facts.JobObserved(job=job, spec=Job(uid=uid, created_ms=UnixMs(5), queue_name="main", suspended=True))


def log_of(*events: Any) -> TestLog:
    log = TestLog()
    log.append(BRIDGE, *events)
    return log


def workload(log: TestLog, key: str = W) -> Workload:
    return log.state.workloads[WorkloadKey(key)]


OTHERS = [
    pytest.param(owner_of(VOLCANO), id="another group"),
    pytest.param(owner_of(JobKey("batch/CronJob/team-a/train")), id="another kind"),
    pytest.param(owner_of(JobKey("/Job/team-a/train")), id="the core group"),
    pytest.param(owner_of(JobKey("batch/Job/team-a/other")), id="another name"),
    pytest.param(owner_of(BATCH, uid="before"), id="another uid"),
]


@pytest.mark.parametrize("owner", OTHERS)
def test_a_job_owns_only_what_names_all_of_it(owner: OwnerReference) -> None:
    """Whichever part of the reference differs: the Workload is none of this Job's, and the Job has none."""
    log = log_of(job_of(BATCH), observed(BATCH, owner=owner))
    assert owners.job_of(log.state, workload(log)) is None
    assert owners.workload_of(log.state, BATCH, "j") is None


def test_a_workload_that_names_a_uid_for_another_object_stands_before_no_other() -> None:
    """A Workload may name any owner: the one that the Job really has is still found."""
    log = log_of(job_of(BATCH), observed(BATCH), observed(VOLCANO, "team-a/x", "x"))
    found = owners.workload_of(log.state, BATCH, "j")
    assert found is workload(log)


def test_the_end_of_one_job_is_not_that_of_its_namesake() -> None:
    """Jobs of two groups that share namespace, name and even uid: each Workload loses its own owner only."""
    for gone, kept in ((BATCH, VOLCANO), (VOLCANO, BATCH)):
        log = log_of(job_of(BATCH), job_of(VOLCANO), observed(kept))
        log.append(BRIDGE, facts.JobDeleted(job=gone, uid=Uid("j"), gone=True))
        assert list(log.state.jobs) == [kept]
        assert not workload(log).owner_gone
        assert eviction.finish(log.state, workload(log)) is None


def test_a_job_that_takes_a_name_replaces_the_one_of_its_kind() -> None:
    """A new batch/v1 Job of the name proves that the former one is gone, and nothing about a Volcano Job."""
    log = log_of(job_of(BATCH), job_of(VOLCANO), observed(BATCH), observed(VOLCANO, "team-a/x", "x"))
    log.append(BRIDGE, job_of(BATCH, uid="again"))
    assert workload(log).owner_gone
    assert not workload(log, "team-a/x").owner_gone
    assert log.state.jobs[VOLCANO].job.uid == "j"


@pytest.mark.parametrize("labels", [{}, {"kueue.x-k8s.io/job-uid": "j"}])
def test_a_workload_of_a_kind_that_headgate_does_not_run_is_never_ended_for_its_owner(labels: Labels) -> None:
    """It is not known whether a Volcano Job is there: none is looked for, and the absence of one proves nothing."""
    log = log_of(observed(VOLCANO, labels=labels), job_of(BATCH))
    log.append(BRIDGE, facts.JobDeleted(job=BATCH, uid=Uid("j"), gone=True), facts.InformersSynced())
    it = workload(log)
    assert owners.unknown_job(log.state, it) is None
    assert not owners.is_gone(log.state, it)
    assert not owners.is_run_here(log.state, it)
    assert eviction.finish(log.state, it) is None
    log.append(BRIDGE, facts.OwnerGone(workload=W, uid=Uid("w"), owner_uid=Uid("j")))
    assert eviction.finish(log.state, workload(log)) is None


@pytest.mark.parametrize(
    ("gvk", "job"), [("batch/v1, Kind=Job", BATCH), ("batch.volcano.sh/v1alpha1, Kind=Job", None), ("", None)]
)
def test_a_workload_without_owner_belongs_to_the_job_that_it_was_made_for(gvk: str, job: JobKey | None) -> None:
    """Its annotations name group, kind and name, its label the uid."""
    made_for = {"kueue.x-k8s.io/job-owner-gvk": gvk, "kueue.x-k8s.io/job-owner-name": "train"}
    log = log_of(job_of(BATCH), observed(BATCH, owner=None, annotations=made_for))
    assert owners.job_key(log.state, workload(log)) == job


def test_a_workload_that_is_gone_says_whose_it_was() -> None:
    """It is not guessed from the Workload's name, which may be any; an owner of another controller is not resolved."""
    log = log_of(observed(BATCH, "team-a/any-name-1"), observed(VOLCANO))
    ours, theirs = (deleted(log.state, "workloads", key, gone=True) for key in ("team-a/any-name-1", W))
    assert isinstance(ours, facts.WorkloadDeleted)
    assert isinstance(theirs, facts.WorkloadDeleted)
    assert (ours.job, theirs.job) == (BATCH, "")


def test_the_pods_of_a_namesake_say_nothing() -> None:
    """PodsReady of a Workload that a Volcano Job owns is what its own controller has written."""
    body = b"""{"metadata": {"name": "w", "namespace": "team-a", "uid": "w", "ownerReferences": [
        {"apiVersion": "%s", "kind": "Job", "name": "train", "uid": "j", "controller": true}]},
        "status": {"conditions": [{"type": "PodsReady", "status": "True", "reason": "r", "message": "m"}]}}"""
    ours, theirs = (read("workloads", body % api).fact for api in (b"batch/v1", b"batch.volcano.sh/v1alpha1"))
    assert isinstance(ours, facts.WorkloadObserved)
    assert isinstance(theirs, facts.WorkloadObserved)
    assert ours.pods_ready is None
    assert theirs.pods_ready is not None


def test_a_job_that_runs_holds_its_own_workload_only() -> None:
    """The finalizer of a Workload waits for its own Job, not for one of the name in another group."""
    running = facts.JobObserved(job=BATCH, spec=Job(uid="j", created_ms=UnixMs(5), queue_name="main", active=1))
    log = log_of(running, observed(BATCH), observed(VOLCANO, "team-a/x", "x"))
    assert may_run(log.state, workload(log))
    assert not may_run(log.state, workload(log, "team-a/x"))


# --- names for people ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "title"),
    [
        (BATCH, "Job team-a/train"),
        (VOLCANO, "Job.batch.volcano.sh team-a/train"),
        ("example.com/RayJob/team-a/train", "RayJob.example.com team-a/train"),
        ("/Pod/team-a/train", "Pod team-a/train"),
    ],
)
def test_a_kind_is_named_with_its_group_where_it_could_be_another(key: str, title: str) -> None:
    """A Job is that of Kubernetes; a kind of any other group has the group behind it, as kubectl writes it."""
    assert job_kinds.title(key) == title
