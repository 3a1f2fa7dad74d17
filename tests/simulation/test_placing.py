"""Random clusters with random work whose pods the scheduler places, whatever goes wrong meanwhile."""

from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import scenario
from tests.simulation.test_seeds import Run, faults_of, verify_replay, waiting

from headgate.core import fold
from headgate.core.verification.placements import PlacementCheck
from headgate.core.verification.replay import Plan, Replay
from headgate.testing.world.world import SCHEDULER_CONFIGURATION


def placements_again(run: Run) -> tuple[list[str], int]:
    """What replay finds wrong with the decisions about pods, and how many it has compared."""
    plan = Plan((PlacementCheck(),))
    for logged in run.world.log:
        plan.feed(logged)
    replay = Replay(fold.new_state(run.world.cell), plan, None)
    for logged in run.world.log:
        replay.feed(logged)
    result = replay.result()
    return [f"{each.what}: {each.recorded} / {each.replayed}" for each in result.differences], result.compared[
        "placements"
    ]


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_a_run_that_places_pods_finishes_all_work_and_agrees_with_its_replay(seed: int) -> None:
    """With crashes, rivals, lost calls and late commits; at the end nothing about any pod is left undone."""
    plan = scenario(seed)
    run = Run(plan, faults_of(seed), seed, placing=SCHEDULER_CONFIGURATION).play()
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert not run.world.state.placements
    verify_replay(run)
    found, compared = placements_again(run)
    assert found == []
    assert compared >= len(plan.can_finish)


@pytest.mark.parametrize("seed", [3, 8])
def test_a_run_with_extenders_finishes_all_work_and_agrees_with_its_replay(seed: int) -> None:
    """One drops the first node of several, one scores; their calls fail, and the scheduler crashes between them."""
    url, calls = "http://extender.example", {"filter": 0, "prioritize": 0}

    def answer(path: str, body: Any) -> tuple[int, bytes]:
        calls[path] += 1
        names = body["NodeNames"]
        if path == "prioritize":
            return 200, msgspec.json.encode([{"Host": name, "Score": at % 11} for at, name in enumerate(names)])
        return 200, msgspec.json.encode({"NodeNames": names[1:] or names})

    extender = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 2,
        "nodeCacheCapable": True,
    }
    plan = scenario(seed)
    run = Run(plan, faults_of(seed), seed, placing={**SCHEDULER_CONFIGURATION, "extenders": [extender]})
    run.world.extenders[url] = answer
    run.play()
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert not run.world.state.placements
    assert not run.world.state.extender_answers
    assert calls["filter"]
    verify_replay(run)
    found, compared = placements_again(run)
    assert found == []
    assert compared >= len(plan.can_finish)
