"""Elastic Jobs in the whole system: scaled while they run, by workload slices, whatever goes wrong."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scenarios import job as a_job
from tests.simulation.scenarios import kueue, node
from tests.simulation.test_seeds import JOBS, WORKLOADS, faults_of

from headgate.core.audit.invariants import forgotten
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import NO_FAULTS, FaultRates, World

PODS = BY_PLURAL["", "pods"]
START_MS = 1_700_000_000_000
FAULTS_END_MS = START_MS + 150_000
"""After the last fault and every backoff that one may have led to."""
GATE = "kueue.x-k8s.io/elastic-job"
REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for"


def cell(
    faults: FaultRates = NO_FAULTS,
    seed: int = 0,
    *,
    quota: int = 4,
    check: Callable[[State, LoggedCommit], None] | None = None,
) -> World:
    """One node, one queue; pods run for ever."""
    world = World(seed=seed, faults=faults, check=check)
    quotas = [{"name": "cpu", "nominalQuota": str(quota)}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}]
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("ResourceFlavor", "spot", {}),
        node("n", "spot", 16, taint=False),
        kueue("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups}),
        kueue("LocalQueue", "main", {"clusterQueue": "cq"}, "team-a"),
    )
    return world


def job(name: str, pods: int, *, run_ms: int = 10**9, elastic: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = a_job(name, "team-a", random.Random(1), 1, pods, run_ms, "")
    made["spec"]["completions"] = 20
    if elastic:
        made["metadata"]["annotations"] = {GATE: "true"}
    return made


def scale(world: World, name: str, pods: int) -> None:
    path = f"/apis/batch/v1/namespaces/team-a/jobs/{name}"
    body = b'{"spec": {"parallelism": %d}}' % pods
    answer = world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json")
    assert answer.status == 200, answer.body


def run(world: World, for_ms: int) -> None:
    until_ms = world.clock.now_ms + for_ms
    world.run(until_ms=until_ms)
    world.advance(until_ms)


def slices(world: World, name: str) -> list[dict[str, Any]]:
    """A Job's Workloads, unfinished ones first, then by age."""
    mine = [each for each in world.cluster.objects(WORKLOADS) if each["metadata"]["name"].startswith(f"job-{name}-")]
    return sorted(mine, key=lambda each: (is_true(each, "Finished"), int(each["metadata"]["resourceVersion"])))


def is_true(found: dict[str, Any], kind: str) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def condition(found: dict[str, Any], kind: str) -> tuple[str, str, str]:
    (it,) = [each for each in found["status"]["conditions"] if each["type"] == kind]
    return it["status"], it["reason"], it["message"]


def pods(world: World, name: str) -> tuple[int, int]:
    """How many pods of a Job may run, and how many wait behind their gate."""
    mine = [pod for pod in world.cluster.objects(PODS) if pod["metadata"]["name"].startswith(f"{name}-")]
    alive = [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]
    gated = sum(any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", [])) for pod in alive)
    return len(alive) - gated, gated


def counts(found: dict[str, Any]) -> list[int]:
    return [pod_set["count"] for pod_set in found["spec"]["podSets"]]


def used(world: World) -> int:
    return world.state.index.usage.get("cq", {}).get(("spot", "cpu"), 0)


def test_a_scaled_up_job_runs_on_and_its_new_pods_wait_for_their_slice() -> None:
    """A slice for the new size takes the place of the old one in one commit; the pods that ran are not touched."""
    said_together: list[list[str]] = []

    def note(_: State, logged: LoggedCommit) -> None:
        said_together.append([type(event).__name__ for event in logged.commit.events])

    world = cell(check=note)
    world.create(job("train", 2))
    run(world, 10_000)
    (old,) = slices(world, "train")
    assert (counts(old), pods(world, "train"), used(world)) == ([2], (2, 0), 2000)
    ran = {pod["metadata"]["uid"] for pod in world.cluster.objects(PODS)}
    scale(world, "train", 4)
    run(world, 10_000)
    new, done = slices(world, "train")
    assert done["metadata"]["uid"] == old["metadata"]["uid"]
    job_uid = world.cluster.objects(JOBS)[0]["metadata"]["uid"]
    who = f"UID: {new['metadata']['uid']}, JobUID: {job_uid}"
    said = f"Replaced to accommodate a workload ({who}) due to workload slice aggregation"
    assert condition(done, "Finished") == ("True", "WorkloadSliceReplaced", said)
    annotations = new["metadata"]["annotations"]
    assert annotations[REPLACEMENT_FOR] == f"team-a/{old['metadata']['name']}"
    assert annotations["kueue.x-k8s.io/workload-slice-name"] == old["metadata"]["name"]
    assert (counts(new), is_true(new, "Admitted"), pods(world, "train"), used(world)) == ([4], True, (4, 0), 4000)
    assert ran < {pod["metadata"]["uid"] for pod in world.cluster.objects(PODS)}
    assert not world.cluster.objects(JOBS)[0]["spec"]["suspend"]
    (at_once,) = [names for names in said_together if "WorkloadReplaced" in names]
    assert sorted(at_once) == ["CycleDecided", "QuotaReserved", "WorkloadAdmitted", "WorkloadReplaced"]


def test_a_slice_that_does_not_fit_waits_and_the_old_one_stays() -> None:
    """The delta has to fit; until then the Job runs in its old size, and its new pods wait behind their gate."""
    world = cell()
    world.create(job("other", 1, elastic=False))
    world.create(job("train", 2))
    run(world, 10_000)
    scale(world, "train", 4)
    run(world, 10_000)
    first, second = slices(world, "train")
    waiting, old = sorted((first, second), key=lambda each: is_true(each, "Admitted"))
    assert (is_true(waiting, "QuotaReserved"), is_true(old, "Admitted")) == (False, True)
    assert condition(waiting, "QuotaReserved")[2].endswith(
        "insufficient unused quota for cpu in flavor spot, 1 more needed"
    )
    assert (pods(world, "train"), used(world)) == ((2, 2), 3000)
    world.cluster.request("DELETE", "/apis/batch/v1/namespaces/team-a/jobs/other", {}, b"")
    run(world, 10_000)
    new, done = slices(world, "train")
    assert (is_true(new, "Admitted"), is_true(done, "Finished")) == (True, True)
    assert (pods(world, "train"), used(world)) == ((4, 0), 4000)


def test_a_waiting_slice_follows_the_job_and_makes_no_third() -> None:
    """Scaled again before it fits, the pending slice is edited; scaled back, it takes the old one's place as it is."""
    world = cell(quota=3)
    world.create(job("train", 2))
    run(world, 10_000)
    for wanted in (5, 4):
        scale(world, "train", wanted)
        run(world, 10_000)
        assert sorted(counts(each) for each in slices(world, "train")) == [[2], [wanted]]
    scale(world, "train", 3)
    run(world, 10_000)
    new, done = slices(world, "train")
    assert (counts(new), counts(done), is_true(done, "Finished")) == ([3], [2], True)
    assert (pods(world, "train"), used(world)) == ((3, 0), 3000)


def test_scaling_down_edits_the_workload_and_frees_quota_at_once() -> None:
    """A workload that waited for it is admitted."""
    world = cell()
    world.create(job("train", 4))
    run(world, 10_000)
    world.create(job("next", 2, elastic=False))
    run(world, 10_000)
    assert not is_true(slices(world, "next")[0], "Admitted")
    scale(world, "train", 2)
    run(world, 10_000)
    (only,) = slices(world, "train")
    assert (counts(only), is_true(only, "Admitted"), pods(world, "train")) == ([2], True, (2, 0))
    assert is_true(slices(world, "next")[0], "Admitted")
    assert used(world) == 4000


def test_the_gate_of_the_feature_leaves_the_annotation_without_effect() -> None:
    """A Job that is not annotated is not sliced either: its parallelism is its own affair while it runs."""
    world = cell()
    world.create(job("plain", 1, elastic=False))
    run(world, 10_000)
    scale(world, "plain", 3)
    run(world, 10_000)
    (only,) = slices(world, "plain")
    assert GATE not in only["metadata"]["annotations"]
    assert not any(pod["spec"].get("schedulingGates") for pod in world.cluster.objects(PODS))


@pytest.mark.parametrize("seed", range(6))
def test_scaling_comes_to_the_same_end_whatever_goes_wrong(seed: int) -> None:
    """Crashes, lost answers and cut watches: one slice of the right size is left, and its pods run."""
    world = cell(faults_of(seed), seed)
    world.create(job("train", 1))
    for wanted in (3, 2, 4):
        run(world, 7_000)
        scale(world, "train", wanted)
    run(world, FAULTS_END_MS - world.clock.now_ms)
    unfinished = [each for each in slices(world, "train") if not is_true(each, "Finished")]
    assert [counts(each) for each in unfinished] == [[4]]
    assert is_true(unfinished[0], "Admitted")
    assert (pods(world, "train"), used(world)) == ((4, 0), 4000)
    assert forgotten(world.state, settled=True) == []


def test_a_waiting_slice_is_finished_as_soon_as_another_workload_stands_for_its_job() -> None:
    """Another Workload with the Job as its owner is newer: the slice that has waited is obsolete."""
    world = cell()
    world.apply(kueue("ClusterQueue", "cq", {}))
    run(world, 10_000)
    world.create(job("train", 2))
    run(world, 10_000)
    (waiting,) = slices(world, "train")
    assert not is_true(waiting, "Finished")
    found = world.cluster.objects(JOBS)[0]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": found["metadata"]["uid"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    pod_sets = [{"name": "p", "template": template}]
    other = kueue("Workload", "other", {"queueName": "main", "podSets": pod_sets}, "team-a")
    other["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    world.create(other)
    run(world, 10_000)
    said = "The workload slice is out of sync with its parent job"
    (waiting,) = slices(world, "train")
    assert condition(waiting, "Finished") == ("True", "OutOfSync", said)
