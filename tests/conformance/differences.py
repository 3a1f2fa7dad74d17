"""
Where a cell ends otherwise than Kueue did in a recorded scenario, and which of its properties is the reason.

`python -m tests.conformance.differences` writes the page `docs/concepts/differences.md`; `test_differences` compares.
The reason of a difference is found by experiment: the properties in which a cell differs from the recordings are
taken away one by one, then two at a time, and so on, until the recorded outcome comes.
"""

import gzip
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.support import conformance
from tests.support.rounds import MACHINES, Placed, placed

from headgate.core.plan.dry_run import STEP_MS, DryRun, Stop
from headgate.events.facts import ConfigurationObserved
from headgate.testing.reference.scenario import Scenario, read_scenario

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "differences.md"
SLOW_STOP_MS = 30_000
"""The default termination grace period of a pod."""
CYCLES_MAX = 300

WAKING, SECONDS, VICTIMS = "order of waking", "times in whole seconds", "victims still hold quota"
REASONS = (WAKING, SECONDS, VICTIMS)
LOOP = "Kueue does not come to rest"

Json = dict[str, Any]


class Outcome(NamedTuple):
    """Who holds which quota, and who was preempted how often."""

    placed: Placed
    preempted: Counter[str]


class Difference(NamedTuple):
    """A scenario, the reason when jobs stop at once, and when they take their time; "" where there is no difference."""

    scenario: str
    at_once: str
    slowly: str


def recorded(record: Json) -> Outcome:
    """How Kueue ended."""
    outcome = record["outcome"]
    holders = {
        key: (
            each["clusterQueue"],
            [(pod_set["name"], pod_set["count"], pod_set["flavors"]) for pod_set in each["podSets"]],
        )
        for key, each in outcome["final"]["workloads"].items()
        if each["state"] in ("Admitted", "QuotaReserved")
    }
    return Outcome(holders, Counter(key for cycle in outcome["trace"] for key in cycle.get("preempted", {})))


def played(scenario: Scenario, *, stops_after_ms: int, without: tuple[str, ...] = ()) -> tuple[Outcome, Stop]:
    """How a cell ends that has Headgate's defaults, and does `without` some of the properties that are reasons."""
    configuration = msgspec.structs.replace(
        scenario.configuration.configuration,
        wake_policy="CohortTree" if WAKING in without else "Bounded",
        preemption_waits=True,
    )
    dry_run = DryRun(
        scenario.facts,
        ConfigurationObserved(configuration=configuration),
        scenario.now_ms,
        MACHINES,
        step_ms=1000 if SECONDS in without else STEP_MS,
        stops_after_ms=0 if VICTIMS in without else stops_after_ms,
    )
    stop = dry_run.run(CYCLES_MAX)
    return Outcome(placed(dry_run.state), Counter(each.workload for each in dry_run.preempted)), stop


def reason(record: Json, *, stops_after_ms: int) -> str:
    """Why a cell ends otherwise than Kueue; "" when it does not. Raises AssertionError when no reason explains it."""
    scenario, want = read_scenario(record["scenario"]), recorded(record)
    candidates = REASONS if stops_after_ms else REASONS[:2]
    for count in range(len(candidates) + 1):
        for without in combinations(candidates, count):
            if played(scenario, stops_after_ms=stops_after_ms, without=without)[0] == want:
                return ", ".join(without)
        if count == 0 and record["outcome"]["stop"] == "loop":
            return LOOP
    raise AssertionError(f"{scenario.name}: no reason explains why it ends otherwise")


def records() -> Iterator[Json]:
    """The recorded scenarios, in the order of their names."""
    for kind in "abcdefg":
        with gzip.open(conformance.SCENARIOS / f"{kind}.jsonl.gz") as lines:
            yield from map(msgspec.json.decode, lines)


def page() -> str:
    """The whole page."""
    found: list[Difference] = []
    total = 0
    for record in records():
        total += 1
        reasons = [reason(record, stops_after_ms=stops) for stops in (0, SLOW_STOP_MS)]
        if any(reasons):
            found.append(Difference(record["scenario"]["name"], *reasons))
    at_once, slowly = (sum(bool(each) for each in column) for column in list(zip(*found, strict=True))[1:])
    rows = "\n".join(
        f"| {each.scenario} | {each.at_once or 'as Kueue'} | {each.slowly or 'as Kueue'} |" for each in found
    )
    return _TEXT.format(total=total, at_once=at_once, slowly=slowly, rows=rows)


_TEXT = """\
# Differences from Kueue

A scheduling cycle of Headgate decides as a cycle of Kueue does. `headgate plan --scenarios` runs Kueue's cycles in
Kueue's rhythm, and gives the recorded outcome of all {total} recorded scenarios. A cell has another rhythm. This page
lists the recorded scenarios in which the queue manager and the scheduler of a cell, with the default configuration, end
with other placements or other preemptions than Kueue did, and why. The list is generated by running them; a test keeps
it up to date.

In {at_once} of {total} scenarios the outcome differs when the jobs of evicted workloads stop at once, as they do in the
recordings, and in {slowly} when they take 30 s to stop.

- **Order of waking.** With the wake policy `Bounded`, a workload that cannot be admitted does not take a turn of its
  ClusterQueue, so workloads behind it are tried sooner; and quota that a preemption has freed is first offered to the
  workload that preempted. With `headgate.wakePolicy: CohortTree` these scenarios end as recorded. See
  [How pending workloads are retried](waking.md).
- **Times in whole seconds.** The API keeps times in whole seconds. The order of preemption candidates and of queues
  depends on them. In the recordings a second passes between two cycles; a cell runs many cycles in one second, so more
  workloads have equal times, and the next criterion decides.
- **Victims still hold quota.** A preempted workload holds its quota until its job has stopped. In the recordings it
  stops before the next cycle. A cell goes on deciding: a workload that fits only because of victims waits for them, and
  others are admitted in between.
- **Kueue does not come to rest.** The workloads preempt each other in turn without end. The recording was ended when a
  state came back for the fifth time, so its end depends on when it was stopped.

Where several reasons are given, it takes all of them to end as recorded.

| scenario | jobs stop at once | jobs take 30 s to stop |
|---|---|---|
{rows}
"""

if __name__ == "__main__":
    PAGE.write_text(page())
