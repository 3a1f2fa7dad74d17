"""
A log that is older than its cluster: what ran keeps running, and the rest continues as if nothing had been lost.

The world loses its log back to a backup, at any moment, and starts again from there beside a cluster that has gone on.
"""

import random
from typing import Any

from tests.simulation.oracle import overdrawn
from tests.simulation.scenarios import scenario
from tests.simulation.test_seeds import WORKLOADS, Run, waiting

from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, Stage, State
from headgate.events.commit import LoggedCommit
from headgate.events.effects import JobStopped
from headgate.events.ids import Seq, Uid
from headgate.testing.world.world import FaultRates

CALM = FaultRates(until_ms=1)
"""Nothing goes wrong, but every process keeps a state of its own."""
LOSSES = 3
"""How often the log is lost in a run."""
HORIZON_MS = 4 * 3600_000


class Restored(Run):
    """A run that loses its log once. `stops` are the Jobs that were stopped since, and the reasons."""

    stops: list[JobStopped]
    over: list[str]
    since = 0

    def check(self, state: State, logged: LoggedCommit) -> None:
        """As in every run; and from the restore on no queue holds more than it may, whatever made it hold it."""
        super().check(state, logged)
        if not self.since:
            return
        self.stops += [event for event in logged.commit.events if isinstance(event, JobStopped)]
        for name in state.cluster_queues:
            self.over += [f"position {logged.seq}: {each}" for each in overdrawn(state, name)]

    def lose(self, backup: Seq) -> None:
        self.stops, self.over = [], []
        self.since = self.world.state.position
        self.world.restore(backup)

    def play_to(self, at_ms: int, start_ms: int, done: int) -> int:
        """The steps of the script up to a time; how many have been played by then."""
        for step in self.plan.steps[done:]:
            if step.at_ms > at_ms:
                break
            self.run_until(start_ms + step.at_ms)
            if step.apply is not None:
                self.world.apply(step.apply)
            else:
                namespace, name = step.delete.split("/")
                path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
                self.world.cluster.request("DELETE", path, {"propagationPolicy": "Background"})
            done += 1
        self.run_until(start_ms + at_ms)
        return done


def admitted(run: Run) -> dict[str, Any]:
    """What the API server shows as admitted and not over, by uid: its admission."""
    found = {}
    for workload in run.world.cluster.objects(WORKLOADS):
        status = workload.get("status", {})
        true = {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}
        if "Admitted" in true and not true & {"Evicted", "Finished"}:
            found[workload["metadata"]["uid"]] = status["admission"]
    return found


def test_a_restore_at_rest_disturbs_nothing_that_runs(sampled_seed: int) -> None:
    """
    Whatever was admitted after the backup stays admitted, and charged; nothing is stopped, and no quota is exceeded.

    All jobs finish that can, as without a loss, and the log folds to one state.
    """
    rng = random.Random(f"restore-{sampled_seed}")
    plan = scenario(sampled_seed)
    run = Restored(plan, CALM, sampled_seed)
    world, start_ms = run.world, run.world.clock.now_ms
    world.apply(*plan.objects)
    run.open_gate()
    last_ms = max(step.at_ms for step in plan.steps)
    done = 0
    for at_ms in sorted(rng.randint(0, last_ms) for _ in range(LOSSES)):
        done = run.play_to(max(at_ms, world.clock.now_ms - start_ms), start_ms, done)
        backup = Seq(max(1, world.state.position - rng.randint(0, 40)))
        done = run.play_to(world.clock.now_ms - start_ms + rng.randint(0, 3_000), start_ms, done)
        while not all_written(run):
            # What is written with a budget, or when it has been stable for a while, is written by then.
            done = run.play_to(world.clock.now_ms - start_ms + 500, start_ms, done)
        before = admitted(run)
        run.lose(backup)
        assert world.run(until=lambda world: world.is_reconciled)
        held = {workload.uid: workload for workload in world.state.workloads.values() if workload.stage in HOLDS_QUOTA}
        for uid, admission in before.items():
            assert uid in held, f"{uid} is admitted and not charged"
            assert held[Uid(uid)].stage is Stage.ADMITTED
            reserved = held[Uid(uid)].admission
            assert reserved is not None
            assert reserved.cluster_queue == admission["clusterQueue"]
        assert run.over == []
        assert run.stops == []
    run.play_to(last_ms, start_ms, done)
    run.run_until(world.clock.now_ms + 120_000)
    run.run_until(world.clock.now_ms + HORIZON_MS, stop_when_done=True)
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert forgotten(world.state) == []
    assert all(stop.reason == "WorkloadEvicted" for stop in run.stops)
    refolded = fold.new_state(world.cell)
    for logged in world.log:
        fold.apply(refolded, logged)
    assert fold.encode(refolded) == fold.encode(world.state)


def all_written(run: Run) -> bool:
    """Whether the API server shows each workload's admission as in the log."""
    shown = admitted(run)
    known = {
        workload.uid
        for workload in run.world.state.workloads.values()
        if workload.stage is Stage.ADMITTED and not workload.followed
    }
    return known == shown.keys()


def test_a_restore_under_load_ends_as_if_nothing_had_been_lost(sampled_seed: int) -> None:
    """At any moment, with anything on its way: the same jobs finish, and none is forgotten."""
    rng = random.Random(f"loss-{sampled_seed}")
    plan = scenario(sampled_seed)
    run = Restored(plan, CALM, sampled_seed)
    world, start_ms = run.world, run.world.clock.now_ms
    world.apply(*plan.objects)
    run.open_gate()
    last_ms = max(step.at_ms for step in plan.steps)
    done = run.play_to(rng.randint(0, last_ms), start_ms, 0)
    backup = Seq(max(1, world.state.position - rng.randint(0, 40)))
    steps = rng.randint(1, 400)
    world.run(until=lambda world: world.steps > steps or world.state.position > backup + steps)
    run.lose(backup)
    run.play_to(last_ms, start_ms, done)
    run.run_until(world.clock.now_ms + 120_000)
    run.run_until(world.clock.now_ms + HORIZON_MS, stop_when_done=True)
    assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
    assert forgotten(world.state) == []
    still = {key for key, workload in world.state.workloads.items() if workload.stage in PENDING}
    assert len(still) == len(plan.never_fits), still
