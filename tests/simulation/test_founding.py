"""The bridge founds the cell before any other appends; a log that has none gets its identity once."""

import pytest

from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.effects import LeaderElected
from headgate.events.identity import CellFounded
from headgate.testing.world.world import FaultRates, World


def logged_world(seed: int, faults: FaultRates) -> tuple[World, list[LoggedCommit]]:
    commits: list[LoggedCommit] = []

    def check(_: State, logged: LoggedCommit) -> None:
        commits.append(logged)

    return World(seed=seed, faults=faults, check=check), commits


def founded_at(world: World) -> int:
    assert world.state.identity is not None
    return world.state.identity.founded_at


@pytest.mark.parametrize("seed", range(5))
def test_the_founding_is_the_first_event_after_the_election_of_the_bridge(seed: int) -> None:
    """Under any crash and takeover the log begins with the bridge, and is founded exactly once."""
    faults = FaultRates(crash=0.05, rival=0.05, lag=0.3, until_ms=1_700_000_000_000 + 60_000)
    world, commits = logged_world(seed, faults)
    world.apply(*cluster_objects(), *job_objects(4, seed=seed))
    assert world.run(until_ms=world.clock.now_ms + 600_000)
    before = [commit.commit for commit in commits if commit.seq < founded_at(world)]
    assert {commit.producer for commit in before} == {Producer.INFORMER_BRIDGE}
    assert all(type(event) is LeaderElected for commit in before for event in commit.events)
    founding = commits[founded_at(world) - 1].commit
    assert founding.producer is Producer.INFORMER_BRIDGE
    assert type(founding.events[0]) is CellFounded
    assert sum(type(event) is CellFounded for each in commits for event in each.commit.events) == 1


def test_a_bridge_that_finds_an_old_log_founds_it_before_it_says_anything_else() -> None:
    """A log of a version without identities: the next term of the bridge begins with one, and records it once."""
    world, commits = logged_world(1, FaultRates(until_ms=1))
    founding, world._founding = world._founding, None
    world.apply(*cluster_objects(), *job_objects(2, seed=1))
    assert world.run(until_ms=world.clock.now_ms + 600_000)
    assert world.state.identity is None
    position = world.state.position
    world._founding = founding
    for instance in list(world.instances):
        world.crash(instance)
    assert world.run(until_ms=world.clock.now_ms + 1_200_000)
    later = [
        event
        for each in commits[position:]
        if each.commit.producer is Producer.INFORMER_BRIDGE
        for event in each.commit.events
    ]
    assert [type(event) for event in later[:2]] == [LeaderElected, CellFounded]
    assert sum(type(event) is CellFounded for event in later) == 1
    assert all(each.commit.producer is Producer.INFORMER_BRIDGE for each in commits[position : founded_at(world)])
