"""
Whole recorded scenarios by the queue manager and the scheduler, machine against machine.

What a cycle decides is shown elsewhere (`test_scenarios`). Here it is about everything around it: places in line,
offers, what a verdict sets aside, what wakes it. With the wake policy CohortTree, which is Kueue's rule, they come to
what was recorded, in all. With the default, Bounded, they may come to something else, and then Kueue could have come to
it too.
"""

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.delayed import outcomes
from tests.support.rounds import Rounds, could_go, placed

from headgate.events.ids import WorkloadKey
from headgate.testing.reference.scenario import read_scenario

ROUNDS_MAX = 120
DELAYED_MAX = 80
RETURNS_MIN = 10
"""As often a loop has to come back to the recorded state."""
LOOPS_FROM = 4
"""Who was preempted so often in a recording is so in a loop: it ends when a state has come back for the fifth time."""

Json = dict[str, Any]
NOWHERE: Mapping[str, str] = {}


LATER = dict.fromkeys(
    ("b-1001", "c-1023", "f-1006"),
    "the message is that of the last verdict; Kueue tries once more in vain, and says how much is missing then",
)


def _records(*, without_preemption: bool = False, otherwise: Mapping[str, str] = NOWHERE) -> Iterator[Any]:
    for kind in "abcdefg":
        with gzip.open(conformance.SCENARIOS / f"{kind}.jsonl.gz") as lines:
            for line in lines:
                record = msgspec.json.decode(line)
                if not (without_preemption and (_is_fair(record) or _preempted(record))):
                    name = record["scenario"]["name"]
                    marks = [pytest.mark.xfail(reason=otherwise[name], strict=True)] if name in otherwise else []
                    yield pytest.param(record, id=name, marks=marks)


def _is_fair(record: Json) -> bool:
    return "fairSharing" in record["scenario"]["config"]


def _preempted(record: Json) -> Counter[str]:
    return Counter(key for cycle in record["outcome"]["trace"] for key in cycle.get("preempted", {}))


def _goes_round(record: Json) -> bool:
    """Whether Kueue preempts and admits again without end. There are loops of messages alone, too."""
    return max(_preempted(record).values(), default=0) >= LOOPS_FROM


def _recorded(record: Json) -> dict[str, Any]:
    return {
        key: (
            each["clusterQueue"],
            [(pod_set["name"], pod_set["count"], pod_set["flavors"]) for pod_set in each["podSets"]],
        )
        for key, each in record["outcome"]["final"]["workloads"].items()
        if each["state"] in ("Admitted", "QuotaReserved")
    }


each_scenario = pytest.mark.parametrize("record", list(_records()))


@each_scenario
def test_waking_the_cohort_tree_they_end_as_recorded(record: Json) -> None:
    """
    With the policy CohortTree, in Kueue's rhythm: who holds what at the end, and who was preempted how often.

    Where Kueue went round in a loop they do, through the state that the recording ends with.
    """
    rounds = Rounds.of(read_scenario(record["scenario"]), "CohortTree")
    seen = rounds.run_as_kueue(ROUNDS_MAX)
    if _goes_round(record):
        assert len(seen) == ROUNDS_MAX
        assert sum(each == _recorded(record) for each in seen) >= RETURNS_MIN
        assert rounds.preempted.keys() == _preempted(record).keys()
    else:
        assert seen[-1] == _recorded(record)
        assert rounds.preempted == _preempted(record)


@each_scenario
def test_they_end_as_kueue_does_sooner_or_later(record: Json) -> None:
    """
    With the policy Bounded: as recorded, or as Kueue where jobs stop and set-aside workloads return later.

    There are two reasons for the latter. A workload that sleeps because nothing can have changed for it takes no turn
    of its ClusterQueue, so those behind it come sooner. And what a preemption has freed goes first to its preemptor,
    while the recordings let those that were set aside back in at the same time. Only with fair sharing, and where Kueue
    goes on for ever too, do they.
    """
    scenario = read_scenario(record["scenario"])
    rounds = Rounds.of(scenario)
    seen = rounds.run_as_kueue(ROUNDS_MAX)
    if len(seen) == ROUNDS_MAX:
        assert _is_fair(record)
        assert _goes_round(record)
    elif seen[-1] != _recorded(record):
        assert seen[-1] in outcomes(scenario, DELAYED_MAX)


@each_scenario
@pytest.mark.parametrize("round_ms", [0, 10, 1000])
def test_by_turns_they_end_and_leave_nobody_behind_who_could_go(record: Json, round_ms: int) -> None:
    """As the processes do it, each decides once a round: they end, and none waits without need."""
    rounds = Rounds.of(read_scenario(record["scenario"]))
    assert rounds.run_by_turns(round_ms, ROUNDS_MAX)
    assert could_go(rounds.state) == []


@pytest.mark.parametrize("record", list(_records(without_preemption=True, otherwise=LATER)))
def test_conditions_are_worded_as_kueue_worded_them(record: Json) -> None:
    """
    Type, status, reason and message of every condition, where none was preempted.

    Of workloads that Kueue evaluates in every cycle to the end (heads of StrictFIFO ClusterQueues) type and status:
    its message follows the quota in use and the flavor that is tried in turn, ours is that of the time of the
    verdict.
    """
    rounds = Rounds.of(read_scenario(record["scenario"]))
    assert len(rounds.run_as_kueue(ROUNDS_MAX)) < ROUNDS_MAX
    assert placed(rounds.state) == _recorded(record)
    for key, each in record["outcome"]["final"]["workloads"].items():
        workload = rounds.state.workloads[WorkloadKey(key)]
        got: dict[str, tuple[str, ...]] = {
            one.type: (one.status, one.reason, one.message) for one in workload.conditions
        }
        want: dict[str, tuple[str, ...]] = {
            kind: (one["status"], one["reason"], one["message"]) for kind, one in each["conditions"].items()
        }
        if each.get("queue") == "active":
            got, want = ({kind: one[:1] for kind, one in of.items()} for of in (got, want))
        assert got == want, key
