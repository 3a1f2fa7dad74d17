"""
What is woken, against the rule that everything is: random clusters where quota is contended, without jobs.

`tests.simulation.test_contended` has the whole system; here are queue manager and scheduler alone, so that the result
can be compared with Kueue's own rhythm.
"""

import random

import msgspec
import pytest
from tests.simulation.scenarios import Manifest, contended
from tests.support import conformance
from tests.support.delayed import outcomes
from tests.support.logs import START_MS, TestLog
from tests.support.rounds import Rounds, could_go, placed

from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.state.tables import HOLDS_QUOTA, Stage, State
from headgate.events.base import Producer
from headgate.events.configuration import WakePolicyName
from headgate.events.facts import ConfigurationObserved, InformersSynced, WorkloadObserved
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.objects import Condition, WorkloadStatus
from headgate.testing.reference.rhythm import ReferencePlan
from headgate.testing.reference.scenario import Scenario
from headgate.testing.reference.stopping import run

HOUR_S = 3600
ROUNDS_MAX = 200
DELAYED_MAX = 240
PRIORITIES = {"": 0, "low": -10, "high": 100}
DONE = Condition(type="Finished", status="True", reason="Succeeded", message="", last_transition_time="")


def world(seed: int) -> Scenario:
    """
    The cluster of a seed, with its jobs as Workloads.

    Those of lower priority were there before, and run where they found room; the others come all at once.
    """
    plan = contended(seed)
    configuration = ConfigurationObserved(configuration=plan.configuration)
    jobs = [step.apply for step in plan.steps if step.apply is not None]
    workloads = sorted(map(_workload, range(len(jobs)), jobs), key=lambda each: each["spec"]["priority"])
    cluster = [conformance.fact_of(each) for each in plan.objects if each["kind"] != "Node"]
    half = len(workloads) // 2
    log = TestLog()
    before = [*cluster, *map(conformance.fact_of, workloads[:half])]
    log.append(Producer.INFORMER_BRIDGE, configuration, *before, InformersSynced())
    Rounds(log).run_as_kueue(ROUNDS_MAX)
    for manifest in workloads[:half]:
        _as_it_runs(log.state, manifest)
    return Scenario(
        name=f"{seed}",
        facts=(*cluster, *map(conformance.fact_of, workloads)),  # type: ignore[arg-type]
        configuration=configuration,
        now_ms=UnixMs(log.now_ms + 1000 * HOUR_S),
        cycles_max=ROUNDS_MAX,
    )


def _workload(number: int, job: Manifest) -> Manifest:
    metadata, spec = job["metadata"], job["spec"]
    priority = metadata["labels"].get("kueue.x-k8s.io/priority-class", "")
    pod_set = {"name": "main", "count": spec["parallelism"], "template": spec["template"]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": f"uid-{number}",
            "creationTimestamp": rfc3339(UnixMs(START_MS - 1000 * HOUR_S + 1000 * number)),
        },
        "spec": {"queueName": "main", "priority": PRIORITIES[priority], "podSets": [pod_set]},
    }


def _as_it_runs(state: State, manifest: Manifest) -> None:
    """Put into a Workload's status what it holds, if anything."""
    metadata = manifest["metadata"]
    workload = state.workloads[WorkloadKey(f"{metadata['namespace']}/{metadata['name']}")]
    if workload.stage is Stage.ADMITTED:
        manifest["status"] = msgspec.to_builtins(
            {
                "admission": workload.admission,
                "conditions": [each for each in workload.conditions if each.type in ("QuotaReserved", "Admitted")],
            }
        )


def _goes_round(scenario: Scenario) -> bool:
    """Whether Kueue's own rhythm goes round in a loop."""
    return (
        run(ReferencePlan(scenario.facts, scenario.configuration, scenario.now_ms, notes_queues=True), ROUNDS_MAX)
        == "loop"
    )


def _from_here(scenario: Scenario, state: State) -> Scenario:
    """The scenario that begins with the present state: admitted workloads hold quota, the others wait."""
    facts = []
    for fact in scenario.facts:
        if isinstance(fact, WorkloadObserved):
            workload = state.workloads[fact.workload]
            if workload.stage is Stage.FINISHED:
                continue
            if workload.stage is Stage.ADMITTED:
                shown = tuple(each for each in workload.conditions if each.type in ("QuotaReserved", "Admitted"))
                status = WorkloadStatus(admission=workload.admission, conditions=shown)
                fact = msgspec.structs.replace(fact, taken_over=status)
            else:
                fact = msgspec.structs.replace(fact, taken_over=None)
        facts.append(fact)
    return msgspec.structs.replace(scenario, facts=tuple(facts), now_ms=state.now_ms)


def test_they_end_as_kueue_does_sooner_or_later(sampled_seed: int) -> None:
    """
    Who holds what in the end is what comes of waking everything, or of Kueue's own rhythm.

    There, jobs take their time to stop, and what was set aside to come back. Only where Kueue goes round for ever do
    they.
    """
    scenario = world(sampled_seed)
    ours = Rounds.of(scenario).run_as_kueue(ROUNDS_MAX)
    others = Rounds.of(scenario, "CohortTree").run_as_kueue(ROUNDS_MAX)
    if len(ours) == ROUNDS_MAX:
        assert len(others) == ROUNDS_MAX
        assert _goes_round(scenario)
    else:
        assert ours[-1] in others or ours[-1] in outcomes(scenario, DELAYED_MAX)


@pytest.mark.parametrize("policy", ["Bounded", "CohortTree"])
def test_nobody_is_left_behind_who_could_go(sampled_seed: int, policy: WakePolicyName) -> None:
    """In any order of finishing: when no event is left, no cycle would admit or preempt any workload."""
    scenario = world(sampled_seed)
    rng = random.Random(f"finishing-{sampled_seed}")
    rounds = Rounds.of(scenario, policy)
    while True:
        ended = rounds.run_by_turns(10, ROUNDS_MAX)
        if ended:
            assert could_go(rounds.state) == []
        elif policy == "Bounded":
            assert _goes_round(_from_here(scenario, rounds.state)), "they never come to an end"
        finishing = _finishing(rounds, rng)
        if finishing is None:
            break
        rounds.hear(Producer.INFORMER_BRIDGE, finishing)
    assert all(each.stage is Stage.FINISHED for each in rounds.state.workloads.values())
    assert placed(rounds.state) == {}


def _finishing(rounds: Rounds, rng: random.Random) -> WorkloadObserved | None:
    """One of those that run has come to its end; None when none runs."""
    running = [each for each in rounds.state.workloads.values() if each.stage in HOLDS_QUOTA - {Stage.EVICTED}]
    if not running:
        return None
    ends = rng.choice(sorted(running, key=lambda each: each.key))
    return WorkloadObserved(
        workload=ends.key,
        uid=ends.uid,
        created_ms=ends.created_ms,
        spec=ends.spec,
        generation=ends.generation,
        finished=DONE,
    )


def test_the_worlds_contend() -> None:
    """Over a few seeds some workload is preempted, and some waits at the end."""
    preempted = waiting = 0
    for seed in range(30):
        rounds = Rounds.of(world(seed))
        rounds.run_as_kueue(ROUNDS_MAX)
        preempted += len(rounds.preempted)
        waiting += len(rounds.state.workloads) - len(placed(rounds.state))
    assert preempted > 20
    assert waiting > 100
