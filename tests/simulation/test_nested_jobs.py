"""Jobs far below another one, whatever is between them, in the whole system, whatever goes wrong."""

from typing import Any

import pytest
from tests.simulation.test_changed_jobs import (
    Json,
    cell,
    edit,
    job,
    job_of,
    run,
    runs,
    settle,
    stop_queue,
    used,
    workloads,
)
from tests.support.forging import verified

from headgate.adapters.log import LogEntry
from headgate.testing.world.world import World

QUEUE = "kueue.x-k8s.io/queue-name"


def recorded(seed: int | None) -> tuple[World, list[LogEntry]]:
    """A cell, and what will be in its log."""
    entries: list[LogEntry] = []
    world = cell(seed)
    world._sink = lambda seq, subject, time_ms, payload: entries.append(LogEntry(seq, subject, time_ms, payload))
    return world, entries


def below(world: World, name: str, owner: str, *, queue: str = "", suspend: bool = True) -> Json:
    """A job that another one controls."""
    made = job(name)
    made["metadata"]["labels"] = {QUEUE: queue} if queue else {}
    made["spec"]["suspend"] = suspend
    uid = job_of(world, owner)["metadata"]["uid"]
    above: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid, "controller": True}
    made["metadata"]["ownerReferences"] = [above]
    return made


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("queue", ["main", ""], ids=["with a queue", "without a queue"])
def test_a_job_below_one_without_a_queue_runs_while_the_one_at_the_top_is_admitted(
    seed: int | None, queue: str
) -> None:
    """It is suspended until then whoever resumes it, has no Workload of its own, and what it uses is charged once."""
    world, entries = recorded(seed)
    stop_queue(world, "Hold")
    world.create(job("top"))
    run(world)
    world.create(below(world, "middle", "top"))
    run(world)
    world.create(below(world, "low", "middle", queue=queue, suspend=False))
    settle(world)
    assert not runs(world, "low")
    assert (len(workloads(world, "top")), workloads(world, "middle"), workloads(world, "low")) == (1, [], [])
    stop_queue(world, "None")
    settle(world)
    assert runs(world, "top")
    edit(world, "low", {"spec": {"suspend": False}})
    settle(world)
    assert runs(world, "low")
    assert workloads(world, "low") == []
    assert used(world) == 1000
    stop_queue(world, "HoldAndDrain")
    settle(world)
    assert not runs(world, "top")
    edit(world, "low", {"metadata": {"labels": {"touched": "yes"}}})
    settle(world)
    assert not runs(world, "low")
    assert verified(tuple(entries)).differences == ()
