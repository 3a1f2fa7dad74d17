"""Nothing follows from an object being absent before that is proved: what the log does not know yet keeps its quota."""

import random
from typing import Any

import pytest
from tests.simulation.scenarios import cluster_queue, job, kueue, node
from tests.simulation.test_seeds import JOBS, WORKLOADS, faults_of

from headgate.core import fold
from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.state.tables import Stage
from headgate.core.workload.names import workload_name
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.ids import Epoch
from headgate.events.queueing import WorkloadFinished, WorkloadReleased
from headgate.testing.world.world import FaultRates, Instance, World

Manifest = dict[str, Any]
COUNT = 12
LONG_MS = 10_000_000
NEVER_MS = 10**15
QUIET = FaultRates(until_ms=1)
"""No faults, and yet a state of its own for each process, as in a cluster."""


class Cell(World):
    """A world in which what is shown of some resources may come late."""

    def __init__(self, faults: FaultRates = QUIET, seed: int = 0, late: tuple[str, ...] = ()) -> None:
        self.late = late
        super().__init__(seed=seed, faults=faults)

    def furnish(self) -> "Cell":
        """A queue with quota for all, and a node with room for twice as many."""
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
            kueue("ResourceFlavor", "spot", {}),
            node("n", "spot", 4 * COUNT, taint=False),
            cluster_queue("team-a", ["spot"], COUNT, random.Random(1), cohort="", checks=False),
            kueue("LocalQueue", "main", {"clusterQueue": "team-a"}, "team-a"),
        )
        return self.rest()

    def rest(self, for_ms: int = 3000) -> "Cell":
        self.run(until_ms=self.clock.now_ms + for_ms)
        return self

    def _poll_watch(self, instance: Instance, resource: str) -> None:
        if resource in self.late:
            instance.news[resource] = None
        else:
            super()._poll_watch(instance, resource)

    def _list(self, instance: Instance, resource: str) -> None:
        if resource not in self.late:
            super()._list(instance, resource)

    def show(self) -> "Cell":
        """What was late is shown."""
        late, self.late = self.late, ()
        for resource in late:
            if resource not in self.bridge.watches:
                self._list(self.bridge, resource)
            self.bridge.news[resource] = None
        return self.rest()

    @property
    def bridge(self) -> Instance:
        return next(each for each in self.instances if each.producer is Producer.INFORMER_BRIDGE)

    def stop_bridge(self) -> None:
        self.crash(self.bridge)
        self.bridge.down_until_ms = NEVER_MS

    def start_bridge(self) -> "Cell":
        self.bridge.down_until_ms = self.clock.now_ms
        return self.rest()

    def submit(self, name: str, *, with_workload: bool) -> None:
        """A suspended Job; with the Workload that Kueue would have made for it."""
        self.create(job(name, "team-a", random.Random(1), 1, 1, LONG_MS, ""))
        if not with_workload:
            return
        (found,) = [each for each in self.cluster.objects(JOBS) if each["metadata"]["name"] == name]
        uid, pod = found["metadata"]["uid"], found["spec"]["template"]["spec"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]}
        manifest = kueue("Workload", workload_name(BATCH_JOB.ref("team-a", name), uid), spec, "team-a")
        manifest["metadata"] |= {"labels": {"kueue.x-k8s.io/job-uid": uid}, "ownerReferences": [owner]}
        self.create(manifest)

    def delete_job(self, name: str, propagation: str = "Background") -> None:
        path = f"/apis/batch/v1/namespaces/team-a/jobs/{name}"
        answer = self.cluster.request("DELETE", path, {"propagationPolicy": propagation})
        assert answer.status == 200, answer.body

    def running(self) -> int:
        return sum(not each["spec"]["suspend"] for each in self.cluster.objects(JOBS))

    def told(self, kind: type) -> list[Any]:
        return [event for logged in self.log for event in logged.commit.events if isinstance(event, kind)]

    def stages(self) -> list[Stage]:
        return [each.stage for each in self.state.workloads.values()]


def restored(before: World, position: int) -> Cell:
    """The cell of another world's cluster, whose log was restored as it was at a position."""
    world = Cell()
    world.clock, world.cluster = before.clock, before.cluster
    for logged in before.log[:position]:
        fold.apply(world.state, logged)
        world.log.append(logged)
    for instance in world.instances:
        epoch = world.state.producers[instance.producer].epoch
        instance.epoch = world._epochs[instance.producer] = Epoch(epoch + 1)
    return world


@pytest.mark.parametrize("late", [(), ("jobs",), ("workloads",), ("localqueues", "jobs")])
def test_workloads_that_are_known_before_their_jobs_are_not_finished(late: tuple[str, ...]) -> None:
    """Jobs and their Workloads appear while the bridge is down; whatever is shown first, all of them run in the end."""
    world = Cell().furnish()
    world.stop_bridge()
    for number in range(5):
        world.submit(f"j{number}", with_workload=True)
    world.late = late
    world.start_bridge()
    world.show()
    assert world.told(WorkloadFinished) == []
    assert world.running() == 5
    assert set(world.stages()) == {Stage.ADMITTED}


@pytest.mark.parametrize("late", [(), ("jobs",), ("workloads",), ("localqueues",)])
def test_jobs_that_a_restored_log_does_not_know_run_on(late: tuple[str, ...]) -> None:
    """The log is older than the API server: what runs keeps running and is charged; none is admitted on its quota."""
    before = Cell().furnish()
    backup = before.state.position
    for number in range(COUNT):
        before.submit(f"j{number}", with_workload=False)
    assert before.rest().running() == COUNT
    before.submit("one-too-many", with_workload=False)
    before.rest()
    world = restored(before, backup)
    world.late = late
    for _ in range(5):
        world.rest()
        assert world.running() == COUNT
    world.show()
    assert world.told(WorkloadFinished) == world.told(WorkloadReleased) == []
    assert world.running() == COUNT
    assert world.state.index.usage["team-a"]["spot", "cpu"] == COUNT * 1000


def test_a_workload_whose_job_was_deleted_meanwhile_is_finished() -> None:
    """Deleted without its Workload while no watch ran: the bridge requests it, and the response is the proof."""
    world = Cell().furnish()
    world.submit("j", with_workload=False)
    assert world.rest().running() == 1
    world.stop_bridge()
    world.delete_job("j", "Orphan")
    world.start_bridge()
    assert [event.reason for event in world.told(WorkloadFinished)] == ["OwnerNotFound"]
    assert world.state.index.usage.get("team-a", {}) == {}


def test_a_workload_that_only_names_a_job_by_its_label_is_no_orphan() -> None:
    """An owner that never existed cannot be proved gone."""
    world = Cell().furnish()
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    manifest = kueue("Workload", "by-hand", spec, "team-a")
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "some-uid"}
    world.create(manifest)
    world.rest()
    assert world.stages() == [Stage.ADMITTED]


def test_a_job_that_names_no_queue_any_more_is_not_taken_for_gone() -> None:
    """Its Workload keeps its quota as long as the Job is there, and ends with it."""
    world = Cell().furnish()
    world.submit("j", with_workload=False)
    assert world.rest().running() == 1
    world.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "team-a"}})
    path = "/apis/batch/v1/namespaces/team-a/jobs/j"
    body = b'{"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}'
    answer = world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json")
    assert answer.status == 200, answer.body
    world.rest()
    assert world.told(facts.JobDeleted) != []
    assert world.told(WorkloadFinished) == []
    world.delete_job("j")
    world.rest()
    assert list(world.state.workloads) == []
    assert world.cluster.objects(WORKLOADS) == []


def test_whatever_goes_wrong_no_live_job_loses_its_workload(sampled_seed: int) -> None:
    """Bridges that crash, rivals, watches that are cut, histories that are forgotten: each Job runs, and stays so."""
    world = Cell(faults_of(sampled_seed), sampled_seed).furnish()
    for number in range(COUNT):
        if number % 4 == 0:
            world.crash(world.bridge)
        world.submit(f"j{number}", with_workload=number % 2 == 0)
        world.rest(for_ms=500)
    world.rest(for_ms=120_000)
    assert world.told(WorkloadFinished) == []
    assert world.running() == COUNT
