"""The whole system under load that does not fit: large workloads are not tried each time that a little is freed."""

import random
from collections import Counter

import pytest
from tests.simulation.scenarios import cluster_queue, job, kueue, node

from headgate.core.state.tables import Stage
from headgate.events.base import tag_of
from headgate.testing.world.world import World

START_MS = 1_700_000_000_000
CPU = 16
BIG = "team-a/big"


class Busy:
    """One queue with quota for sixteen cpu, all of them held by jobs of one cpu that end one after the other."""

    def __init__(self, strategy: str) -> None:
        self.said: Counter[str] = Counter()
        self.vain_cycles = 0
        self.world = World(seed=1, check=self.check)
        rng = random.Random(1)
        queue = cluster_queue("team-a", ["spot"], CPU, rng, cohort="", checks=False)
        queue["spec"]["queueingStrategy"] = strategy
        self.world.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
            kueue("ResourceFlavor", "spot", {}),
            node("n", "spot", CPU, taint=False),
            queue,
            kueue("LocalQueue", "main", {"clusterQueue": "team-a"}, "team-a"),
        )
        for number in range(CPU):
            self.world.apply(job(f"small-{number}", "team-a", rng, 1, 1, 10_000 + 1000 * number, ""))
        self.run_until(START_MS + 5000)
        self.world.apply(job("big", "team-a", rng, CPU, 1, 1000, ""))

    def check(self, _: object, logged: object) -> None:
        tags = [tag_of(type(event)) for event in logged.commit.events]  # type: ignore[attr-defined]
        self.said.update(tags)
        if "cycle.decided" in tags and "workload.quota_reserved" not in tags:
            self.vain_cycles += 1

    def run_until(self, at_ms: int) -> None:
        while self.world.clock.now_ms < at_ms:
            until_ms = min(at_ms, self.world.clock.now_ms + 500)
            self.world.run(until_ms=until_ms)
            self.world.advance(until_ms)


@pytest.mark.parametrize(("strategy", "woken"), [("BestEffortFIFO", 0), ("StrictFIFO", 1)])
def test_a_job_that_needs_all_is_tried_when_all_is_there(strategy: str, woken: int) -> None:
    """
    Sixteen times something is freed, and it is offered again once: two verdicts in all, one of them the admission.

    Where it blocks its ClusterQueue that wakes, too; where others may pass it is offered alone.
    """
    busy = Busy(strategy)
    busy.run_until(START_MS + 60_000)
    stages = Counter(workload.stage for workload in busy.world.state.workloads.values())
    assert stages == {Stage.FINISHED: CPU + 1}
    assert (busy.said["workload.skipped"], busy.said["workload.parked"], busy.said["workload.woken"]) == (1, 1, woken)
    assert busy.vain_cycles == 1
