"""Which job runs one that others control: owners are followed through those that name no queue (Kueue's ancestors)."""

import itertools
from typing import Any

import msgspec
import pytest
from tests.machines.informer_bridge.test_decide import Bridge, raw, synced
from tests.machines.informer_bridge.test_unnamed_jobs import unnamed
from tests.support.playing import job, local_queue

from headgate.core.machine.contract import Call, Completed
from headgate.core.workload.owners import TOO_DEEP
from headgate.events import facts
from headgate.events.ids import JobKey
from headgate.events.objects import OwnerReference

Json = dict[str, Any]
NAMESPACE = "/apis/{}/namespaces/team-a"
TRAIN = JobKey("batch/Job/team-a/train")
JOB = ("batch/v1", "Job", "jobs")
JOB_SET = ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")
REPLICA_SET = ("apps/v1", "ReplicaSet", "replicasets")
DEPLOYMENT = ("apps/v1", "Deployment", "deployments")
Kind = tuple[str, str, str]


def owned(manifest: Json, name: str, kind: Kind = JOB, uid: str = "") -> Json:
    """An object that another one controls."""
    version, shown, _ = kind
    owner = {"apiVersion": version, "kind": shown, "name": name, "uid": uid or name, "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def anything(name: str) -> Json:
    """An object of any kind that is read for its owner alone."""
    return {"metadata": {"name": name, "namespace": "team-a"}, "spec": {}}


def reference(name: str, kind: Kind = JOB) -> OwnerReference:
    return OwnerReference(api_version=kind[0], kind=kind[1], name=name, uid=name)


def path(name: str, kind: Kind = JOB) -> str:
    return f"{NAMESPACE.format(kind[0])}/{kind[2]}/{name}"


def answered(bridge: Bridge, call: Call, manifest: Json | None) -> None:
    body = raw(manifest, uid=manifest["metadata"]["name"]) if manifest is not None else b"{}"
    bridge.machine.decide(Completed(call.id, 200 if manifest is not None else 404, body))


def climb(bridge: Bridge, *owners: Json | None) -> list[Call]:
    """Answer the reads of owners, one after the other, and return what the bridge calls then."""
    for each in owners:
        (get,) = bridge.all_calls()
        assert get.method == "GET"
        answered(bridge, get, each)
    return bridge.all_calls()


def ancestors(bridge: Bridge) -> tuple[OwnerReference, ...]:
    return bridge.log.state.jobs[TRAIN].job.ancestors


def below(kind: Kind = JOB, *, is_shown: bool = True) -> Bridge:
    """A job with a queue, below one of a kind without a queue, which `top` controls, that has one."""
    top = [raw(job("top"), uid="top")] if is_shown else []
    return synced(jobs=[*top, raw(owned(job(), "middle", kind), uid="train")])


def posted(calls: list[Call]) -> list[str]:
    """The jobs that get a Workload."""
    bodies: list[Any] = [call.body for call in calls if call.method == "POST"]
    return [body["metadata"]["ownerReferences"][0]["name"] for body in bodies]


@pytest.mark.parametrize("kind", [JOB, JOB_SET, REPLICA_SET])
def test_a_job_below_one_without_a_queue_below_one_that_has_one_gets_no_workload(kind: Kind) -> None:
    """The one at the top runs it; also through a kind that is not enabled, or that is no job at all."""
    bridge = below(kind)
    (post, get) = bridge.all_calls()
    assert posted([post]) == ["top"]
    assert get.path == path("middle", kind)
    answered(bridge, get, owned(anything("middle"), "top"))
    assert bridge.all_calls() == []
    assert ancestors(bridge) == (reference("top"),)


def test_owners_are_followed_through_a_deployment() -> None:
    """Each is read once; it runs no jobs itself."""
    bridge = synced(jobs=[raw(owned(job(), "pods", REPLICA_SET), uid="train")])
    calls = climb(bridge, owned(anything("pods"), "web", DEPLOYMENT), anything("web"))
    assert posted(calls) == ["train"]
    assert ancestors(bridge) == (reference("web", DEPLOYMENT),)


def test_a_chain_that_leads_to_no_queue_gives_the_job_its_own_workload() -> None:
    """What was found is in its fact, so that it counts once the one at the top has a queue."""
    bridge = synced(jobs=[raw(owned(job(), "middle"), uid="train")])
    calls = climb(bridge, owned(unnamed("middle"), "top"), unnamed("top"))
    assert posted(calls) == ["train"]
    assert ancestors(bridge) == (reference("top"),)


@pytest.mark.parametrize(
    "middle",
    [None, owned(anything("another"), "top"), anything("middle"), owned(anything("middle"), "cron", ("b/v1", "C", ""))],
    ids=["gone", "another of its name", "without an owner", "below a kind that is not followed"],
)
def test_a_chain_that_ends_ends_the_search(middle: Json | None) -> None:
    """The job is one of its own then, whatever is further up."""
    bridge = below()
    (_, get) = bridge.all_calls()
    answered(bridge, get, middle)
    assert posted(bridge.all_calls()) == ["train"]


def test_a_job_waits_for_the_one_at_the_top_to_be_shown() -> None:
    """Until then its Workload would be charged beside that of the other."""
    bridge = below(is_shown=False)
    assert climb(bridge, owned(unnamed("middle"), "top"), job("top")) == []
    assert ancestors(bridge) == ()
    bridge.change("jobs", job("top"), "ADDED", uid="top")
    assert posted(bridge.all_calls()) == ["top"]
    assert ancestors(bridge) == (reference("top"),)


def test_a_job_that_is_shown_without_a_queue_is_not_read() -> None:
    """Its object says what controls it."""
    bridge = below()
    (_, get) = bridge.all_calls()
    bridge.change("jobs", owned(unnamed("middle"), "top"), uid="middle")
    assert bridge.all_calls() == []
    assert ancestors(bridge) == (reference("top"),)
    answered(bridge, get, owned(unnamed("middle"), "top"))
    assert bridge.all_calls() == []


def test_what_was_found_stays_with_the_job() -> None:
    """A change of it is told with that, and no owner is read again, by this bridge or the next one."""
    bridge = below()
    climbed = bridge.all_calls()[1]
    answered(bridge, climbed, owned(unnamed("middle"), "top"))
    bridge.all_calls()
    bridge.change("jobs", owned(job(), "middle"), uid="train")
    assert bridge.settle() == ((), [])
    bridge.change("jobs", owned(job(parallelism=5), "middle"), uid="train")
    events, calls = bridge.settle()
    (seen,) = [each for each in events if isinstance(each, facts.JobObserved)]
    assert seen.spec.ancestors == (reference("top"),)
    assert calls == []
    again = Bridge(bridge.log)
    again.list_all(jobs=[raw(job("top"), uid="top"), raw(owned(job(parallelism=5), "middle"), uid="train")])
    assert [call.method for call in again.all_calls()] == ["POST"]  # that of `top`, which no watch has shown


def test_a_job_in_the_middle_that_gets_a_queue_runs_the_job() -> None:
    """What it is controlled by itself counts from then on."""
    bridge = synced(jobs=[raw(owned(job(), "middle"), uid="train")])
    (get,) = bridge.all_calls()
    bridge.change("jobs", job("middle"), "ADDED", uid="middle")
    assert posted(bridge.all_calls()) == ["middle"]
    answered(bridge, get, unnamed("middle"))
    assert bridge.all_calls() == []


def chain(length: int) -> list[Json]:
    """Owners without a queue, each controlled by the next."""
    names = [f"o{number}" for number in range(length)]
    return [owned(anything(name), above) for name, above in itertools.pairwise(names)] + [anything(names[-1])]


def test_a_job_with_ten_owners_above_is_followed_to_the_end() -> None:
    """As many as Kueue follows."""
    bridge = synced(jobs=[raw(owned(job(), "o0"), uid="train")])
    assert posted(climb(bridge, *chain(10))) == ["train"]


def test_a_job_with_more_owners_above_gets_no_workload() -> None:
    """The reason is Kueue's; it is said once."""
    bridge = synced(jobs=[raw(owned(job(), "o0"), uid="train")])
    assert climb(bridge, *chain(11)[:10]) == []
    refused = bridge.log.state.jobs[TRAIN].refused
    assert refused == f"422 {TOO_DEEP}: " + (
        "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10"
    )


def test_owners_in_a_circle_are_followed_once() -> None:
    """No garbage collector has to find that they are."""
    bridge = synced(jobs=[raw(owned(job(), "middle"), uid="train")])
    calls = climb(bridge, owned(unnamed("middle"), "other"), owned(unnamed("other"), "middle"))
    assert posted(calls) == ["train"]


def test_owners_are_read_a_few_at_a_time() -> None:
    """The others wait for an answer."""
    bridge = synced(jobs=[raw(owned(job(f"j{n}"), f"o{n}"), uid=f"j{n}") for n in range(100)])
    calls = bridge.all_calls()
    assert len(calls) == 64
    answered(bridge, calls[0], anything("o0"))
    assert [call.method for call in bridge.all_calls()] == ["POST", "GET"]


# --- jobs without a queue ------------------------------------------------------------------------------------------


def stray(kind: Kind = JOB_SET, **status: Any) -> Json:
    """A job without a queue that runs, of an object that the log does not have."""
    found = owned(unnamed("child", suspend=False), "middle", kind)
    return {**found, "status": status}


def told(bridge: Bridge) -> list[facts.JobObserved]:
    events, _ = bridge.settle()
    return [each for each in events if isinstance(each, facts.JobObserved)]


def waiting() -> Bridge:
    """A cell in which `top` waits for its admission."""
    bridge = synced(localqueues=[raw(local_queue(), uid="q")], jobs=[raw(job("top"), uid="top")])
    (post,) = bridge.all_calls()
    body: Any = post.body
    bridge.machine.decide(Completed(post.id, 201, msgspec.json.encode(body)))
    bridge.change("workloads", body, "ADDED", uid="w")
    assert bridge.all_calls() == []
    return bridge


def test_a_job_without_a_queue_that_runs_far_below_one_that_waits_is_in_the_log() -> None:
    """Until it is suspended; by what is above the object between them."""
    bridge = waiting()
    bridge.change("jobs", stray(), "ADDED", uid="child")
    (get,) = bridge.all_calls()
    assert get.path == path("middle", JOB_SET)
    assert JobKey("batch/Job/team-a/child") not in bridge.log.state.jobs
    answered(bridge, get, owned(anything("middle"), "top"))
    (seen,) = told(bridge)
    assert (seen.spec.queue_name, seen.spec.ancestors) == ("", (reference("top"),))
    bridge.change("jobs", {**stray(), "spec": {**stray()["spec"], "suspend": True}}, uid="child")
    events, calls = bridge.settle()
    assert [type(event) for event in events] == [facts.JobDeleted]
    assert calls == []


@pytest.mark.parametrize("middle", [anything("middle"), owned(anything("middle"), "elsewhere"), None])
def test_one_below_nothing_that_waits_is_left_alone(middle: Json | None) -> None:
    """The owner between is read once for all of its jobs."""
    bridge = waiting()
    bridge.change("jobs", stray(), "ADDED", uid="child")
    (get,) = bridge.all_calls()
    answered(bridge, get, middle)
    while calls := bridge.all_calls():
        answered(bridge, calls[0], anything("elsewhere"))
    assert JobKey("batch/Job/team-a/child") not in bridge.log.state.jobs
    bridge.change("jobs", stray(active=1), uid="child")
    assert bridge.settle() == ((), [])


def test_where_nothing_is_queued_no_owner_is_read() -> None:
    """Most clusters have many such jobs, and most of their namespaces no queue."""
    bridge = synced()
    bridge.change("jobs", stray(), "ADDED", uid="child")
    assert bridge.settle() == ((), [])


def test_a_job_that_changes_while_its_owner_is_read_is_judged_by_what_it_is_then() -> None:
    """It was suspended meanwhile."""
    bridge = waiting()
    bridge.change("jobs", stray(), "ADDED", uid="child")
    (get,) = bridge.all_calls()
    bridge.change("jobs", {**stray(), "spec": {**stray()["spec"], "suspend": True}}, uid="child")
    assert bridge.settle() == ((), [])
    answered(bridge, get, owned(anything("middle"), "top"))
    assert bridge.settle() == ((), [])
