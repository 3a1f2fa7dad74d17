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


def verified(run: Run, least: int) -> None:
    """What was decided and bound follows from the log alone."""
    verify_replay(run)
    found, compared = placements_again(run)
    assert found == []
    assert compared >= least


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


@pytest.mark.parametrize("seed", [3, 21])
def test_a_run_that_places_pods_finishes_all_work_and_agrees_with_its_replay(seed: int) -> None:
    """With crashes, rivals, lost calls and late commits; at the end nothing about any pod is left undone."""
    plan = scenario(seed, placing=True)
    run = Run(plan, faults_of(seed), seed).play()
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert not run.world.state.placements
    verified(run, len(plan.can_finish))


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
    plan = scenario(seed, placing=True)
    run = Run(plan, faults_of(seed), seed, placing={**SCHEDULER_CONFIGURATION, "extenders": [extender]})
    run.world.extenders[url] = answer
    run.play()
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert not run.world.state.placements
    assert not run.world.state.extender_answers
    assert calls["filter"]
    verified(run, len(plan.can_finish))


@pytest.mark.parametrize("ignorable", [False, True])
@pytest.mark.parametrize("seed", [3, 8])
def test_a_run_whose_extender_binds_finishes_all_work_and_agrees_with_its_replay(seed: int, ignorable: bool) -> None:
    """It binds and its answer is lost, it fails now and then, the binder crashes between call and answer."""
    url, bound, calls = "http://extender.example", 0, 0

    def answer(path: str, body: Any) -> tuple[int, bytes]:
        nonlocal bound, calls
        calls += 1
        if calls % 5 == 0:
            return 500, b""
        namespace, name = body["PodNamespace"], body["PodName"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": body["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": body["Node"]},
        }
        said = run.world.cluster.request(
            "POST", f"/api/v1/namespaces/{namespace}/pods/{name}/{path}", body=msgspec.json.encode(binding)
        )
        bound += said.status == 201
        return 200, msgspec.json.encode({"Error": "" if said.status == 201 else said.json()["message"]})

    extender = {"urlPrefix": url, "bindVerb": "binding", "ignorable": ignorable}
    plan = scenario(seed, placing=True)
    run = Run(plan, faults_of(seed), seed, placing={**SCHEDULER_CONFIGURATION, "extenders": [extender]})
    run.world.extenders[url] = answer
    run.play()
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert not run.world.state.placements
    assert not run.world.state.extender_answers
    assert bound >= len(plan.can_finish) // 2
    verified(run, len(plan.can_finish))
