"""Who was made first in one second goes first, in the whole system: by the log's order, not by the uid."""

import random

import pytest
from tests.simulation.scenarios import job, kueue
from tests.simulation.test_absence import Cell
from tests.simulation.test_foreign_owners import cell, submit
from tests.simulation.test_seeds import JOBS

from headgate.core.state.tables import State
from headgate.events.decisions import WorkloadAdmitted
from headgate.events.ids import WorkloadKey
from headgate.testing.world.world import World

COUNT = 12


def names(seed: int) -> list[str]:
    """In an order that is neither that of the names nor, for the cluster draws them, that of the uids."""
    drawn = [f"j{number}" for number in range(COUNT)]
    random.Random(seed).shuffle(drawn)
    return drawn


def create(world: World, made: list[str]) -> None:
    """Workloads of one CPU each, without anything between them."""
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    for name in made:
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]}
        world.create(kueue("Workload", name, spec, "team-a"))


def admitted(world: World) -> list[WorkloadKey]:
    return [
        event.workload for logged in world.log for event in logged.commit.events if isinstance(event, WorkloadAdmitted)
    ]


def owners(state: State, keys: list[WorkloadKey]) -> list[str]:
    return [owner.name for key in keys if (owner := state.workloads[key].owner) is not None]


@pytest.mark.parametrize("seed", range(5))
def test_jobs_of_one_second_are_admitted_in_the_order_in_which_they_were_made(seed: int) -> None:
    """One after the other through a quota for one, whatever order their Workloads were made in."""
    world = Cell(seed=seed).furnish()
    blocker = job("blocker", "team-a", random.Random(1), COUNT, 1, 5000, "")
    world.create(blocker)
    world.rest(500)
    made = names(seed)
    for name in made:
        world.create(job(name, "team-a", random.Random(1), COUNT, 1, 1000, ""))
        world.run(until=lambda _: True)
    created = {each["metadata"]["creationTimestamp"] for each in world.cluster.objects(JOBS)}
    assert len(created) <= 2
    world.rest(60_000)
    assert owners(world.state, admitted(world)) == ["blocker", *made]


@pytest.mark.parametrize("seed", range(5))
def test_jobs_that_were_made_while_the_bridge_was_down_keep_their_order(seed: int) -> None:
    """A list is by name; what was not changed since has its version from when it was made."""
    world = Cell(seed=seed).furnish()
    world.stop_bridge()
    made = names(seed)
    for name in made:
        world.create(job(name, "team-a", random.Random(1), COUNT, 1, 1000, ""))
    world.start_bridge()
    world.rest(60_000)
    assert owners(world.state, admitted(world)) == made


@pytest.mark.parametrize("seed", range(5))
def test_workloads_without_jobs_are_admitted_in_the_order_in_which_they_were_made(seed: int) -> None:
    """What is shown in one burst, and folded in one commit, still has its order."""
    world = cell(seed=seed)
    made = names(seed)
    create(world, made)
    world.run(until_ms=world.clock.now_ms + 5000)
    assert [key.partition("/")[2] for key in admitted(world)] == made[:4]


def test_the_last_to_arrive_is_the_first_to_be_preempted() -> None:
    """Among equals that got their quota in the same second."""
    world = cell()
    create(world, ["b", "a", "d", "c"])
    world.run(until_ms=world.clock.now_ms + 1000)
    assert len({each.reserved_at_ms // 1000 for each in world.state.workloads.values()}) == 1
    submit(world, "high", cpu=2, priority=10)
    evicted = {key for key, each in world.state.workloads.items() if each.evictions}
    assert evicted == {"team-a/d", "team-a/c"}
