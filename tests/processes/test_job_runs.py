"""Bridge, binder and ungater together on a simulated cluster: a Job runs, and a crash at any step changes nothing."""

from typing import Any

import pytest
from tests.support.cell import Cell
from tests.support.playing import evict, furnish, job, play, to_the_end

from headgate.core import fold
from headgate.events.registry import Event

JOBS = ("train", "eval")


def run(*, crash_at: int | None = None) -> Cell:
    cell = Cell(crash_at=crash_at)
    furnish(cell)
    for name in JOBS:
        cell.cluster.apply(job(name))
    to_the_end(cell)
    return cell


def events_of(cell: Cell, name: str) -> list[Event]:
    return [event for logged in cell.log.commits for event in logged.commit.events if type(event).__name__ == name]


def ends_of(cell: Cell) -> Any:
    """What a run has come to, without names and times that may differ."""
    jobs = {
        each["metadata"]["name"]: sorted(c["type"] for c in each["status"]["conditions"] if c["status"] == "True")
        for each in cell.all("jobs")
    }
    workloads = {
        each["metadata"]["name"].rpartition("-")[0]: [
            (c["type"], c["status"], c["reason"]) for c in each["status"]["conditions"]
        ]
        for each in cell.all("workloads")
    }
    queues = {
        each["metadata"]["name"]: {k: v for k, v in each["status"].items() if k != "conditions"}
        for each in (*cell.all("clusterqueues"), *cell.all("localqueues"))
    }
    return jobs, workloads, queues


def test_a_job_is_queued_admitted_run_and_finished() -> None:
    """The whole way of a Job: its Workload, its flavor, its end, and its statuses. The cluster places its pods."""
    cell = run()
    jobs, workloads, queues = ends_of(cell)
    assert all("Complete" in conditions for conditions in jobs.values())
    assert jobs.keys() == set(JOBS)
    for conditions in workloads.values():
        assert conditions == [
            ("QuotaReserved", "True", "QuotaReserved"),
            ("Admitted", "True", "Admitted"),
            ("Finished", "True", "Succeeded"),
        ]
    assert queues["cq"]["pendingWorkloads"] == queues["cq"]["admittedWorkloads"] == 0
    template = cell.get("jobs", "team-a", "train")["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"tier": "spot"}
    assert template["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] == "cq"
    assert [each["spec"]["nodeName"] for each in cell.all("pods")] == ["n1"] * 4
    assert not events_of(cell, "PodPlaced")


def test_what_headgate_writes_is_no_news() -> None:
    """Each Workload is observed once: nothing that comes back of our own statuses is appended as a fact."""
    cell = run()
    assert len(events_of(cell, "WorkloadObserved")) == len(JOBS)
    # Suspended, then running, then finished; and reclaimable pods do not show with the last of them.
    assert len(events_of(cell, "JobObserved")) <= 5 * len(JOBS)


def test_a_reservation_and_an_admission_in_one_commit_are_one_write() -> None:
    """The status of a workload is written once a transition: admitted, finished."""
    cell = run()
    writes = [call for call in cell.calls if call.id.startswith("status/")]
    assert len(writes) == 2 * len(JOBS)


STEPS = run().steps


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_crash_after_any_step_changes_nothing(step: int) -> None:
    """All three processes are killed after a step whose result none has seen; the end is that of an undisturbed run."""
    calm, shaken = run(), run(crash_at=step)
    assert ends_of(shaken) == ends_of(calm)
    assert fold.state_hash(shaken.log.refold()) == fold.state_hash(shaken.state)
    bound = [event.pod for event in events_of(shaken, "PodBound")]  # type: ignore[union-attr]
    assert len(bound) == len(set(bound))


def test_an_evicted_job_stops_is_restored_and_runs_again() -> None:
    """Eviction suspends the Job, gives its template back, and the next admission starts it on its flavor again."""
    cell = Cell()
    furnish(cell)
    cell.cluster.apply(job("train", annotations={}, nodeSelector={"disk": "ssd"}))
    cell.run()
    play(cell)
    cell.run()
    key = next(iter(cell.state.workloads))
    assert cell.get("jobs", "team-a", "train")["spec"]["suspend"] is False
    evict(cell, key)
    cell.run()
    stopped = cell.get("jobs", "team-a", "train")
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert "tolerations" not in stopped["spec"]["template"]["spec"]
    assert not any(key.startswith("kueue") for key in stopped["spec"]["template"]["metadata"]["labels"])
    assert "kueue.x-k8s.io/workload" not in stopped["spec"]["template"]["metadata"].get("annotations", {})
    assert len(events_of(cell, "JobStopped")) == 1
    assert play(cell)
    cell.run()
    assert play(cell)
    cell.run()
    again = cell.get("jobs", "team-a", "train")
    assert again["spec"]["suspend"] is False
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd", "tier": "spot"}


def test_a_job_that_starts_by_itself_is_stopped_until_it_is_admitted() -> None:
    """A Job with a queue that was created running is suspended, keeps its place, and runs once admitted."""
    cell = Cell()
    furnish(cell)
    cell.cluster.apply(job("train", suspend=False))
    cell.run()
    assert cell.get("jobs", "team-a", "train")["spec"]["suspend"] is True
    to_the_end(cell)
    assert "Complete" in ends_of(cell)[0]["train"]


def test_a_deleted_job_takes_its_workload_along() -> None:
    """The garbage collector deletes the Workload, the bridge takes its finalizer away, and its quota is free."""
    cell = Cell()
    furnish(cell)
    cell.cluster.apply(job("train"))
    cell.run()
    play(cell)
    cell.run()
    assert cell.state.index.usage["cq"]
    cell.cluster.request("DELETE", "/apis/batch/v1/namespaces/team-a/jobs/train", {"propagationPolicy": "Background"})
    for _ in range(60):
        cell.wait(1000)
    assert cell.all("workloads") == []
    assert not cell.state.workloads
    assert not cell.state.index.usage["cq"]


def test_a_deleted_workload_stops_its_job_first_and_is_made_anew() -> None:
    """Quota stays charged until the pods are gone; then the Workload goes, and the Job, restored, gets another."""
    cell = Cell()
    furnish(cell)
    cell.cluster.apply(job("train"))
    cell.run()
    play(cell)
    cell.run()
    (workload,) = cell.all("workloads")
    first = workload["metadata"]["uid"]
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/{workload['metadata']['name']}"
    assert cell.cluster.request("DELETE", path).status == 200
    cell.run()
    for _ in range(60):
        cell.wait(1000)
    (workload,) = cell.all("workloads")
    assert workload["metadata"]["uid"] != first
    assert workload["spec"]["podSets"][0]["template"]["spec"].get("nodeSelector") is None
    assert cell.get("jobs", "team-a", "train")["spec"]["suspend"] is True
