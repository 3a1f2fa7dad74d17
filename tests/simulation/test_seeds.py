"""
The whole system under a seed: whatever goes wrong on the way, it ends as if nothing had.

A failure names its seed; `pytest tests/simulation --first-seed SEED --seeds 1` runs it again, the same to the byte.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from tests.simulation.oracle import overdrawn
from tests.simulation.scenarios import GATE, Scenario, scenario

from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.cycle import decide_cycle
from headgate.core.engine.driver import ATOMIC, DriverLimits
from headgate.core.machine.contract import Machine
from headgate.core.state.tables import PENDING, Stage, State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import CycleDecided, PlacementDecision, QuotaReserved
from headgate.events.effects import LeaderElected
from headgate.events.facts import ConfigurationObserved
from headgate.events.signing import Signer
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.snapshotter.decide import Rules, Snapshotter
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import MACHINES, NO_FAULTS, NO_SIGNERS, SCHEDULER_CONFIGURATION, FaultRates, World

HORIZON_MS = 4 * 3600_000
JOBS = BY_PLURAL["batch", "jobs"]
WORKLOADS = BY_PLURAL["kueue.x-k8s.io", "workloads"]


def faults_of(seed: int) -> FaultRates:
    """What goes wrong in a seed: each kind of fault is absent in some."""
    rng = random.Random(f"faults-{seed}")

    def some(most: float) -> float:
        return rng.choice([0.0, most / 4, most])

    return FaultRates(
        crash=some(0.02),
        rival=some(0.01),
        call_error=some(0.2),
        call_lost=some(0.1),
        watch_cut=some(0.02),
        lag=some(0.4),
        forget=some(0.2),
        until_ms=1_700_000_000_000 + 60_000,
    )


def rules_of(seed: int) -> Rules:
    """When snapshots are taken in a seed: after every few commits, or as in production."""
    rng = random.Random(f"snapshots-{seed}")
    return Rules(commits=rng.choice([7, 40, 20_000]), idle_ms=rng.choice([500, 15_000]))


class Run:
    """One run of a scenario, with the invariants checked after every commit."""

    def __init__(
        self,
        plan: Scenario,
        faults: FaultRates,
        seed: int,
        *,
        round_ms: int = 0,
        signers: Mapping[Producer, Signer] = NO_SIGNERS,
        bounds: DriverLimits = DriverLimits(),  # noqa: B008  (frozen)
        placing: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        if placing is None and plan.placing:
            placing = SCHEDULER_CONFIGURATION
        configuration = ConfigurationObserved(configuration=plan.configuration)
        machines: dict[Producer, Callable[[State], Machine]] = {
            **MACHINES,
            Producer.INFORMER_BRIDGE: partial(InformerBridge, configuration=configuration, placing=placing),
            Producer.SNAPSHOTTER: partial(Snapshotter, rules=rules_of(seed)),
        }
        self.world = World(
            seed=seed,
            faults=faults,
            check=self.check,
            machines=machines,
            round_ms=round_ms,
            signers=signers,
            bounds=bounds,
        )

    def check(self, state: State, logged: LoggedCommit) -> None:
        """No reservation overdraws its ClusterQueue or its cohort, at any position."""
        for event in logged.commit.events:
            if isinstance(event, QuotaReserved):
                assert not overdrawn(state, event.cluster_queue), (
                    f"position {logged.seq}: {overdrawn(state, event.cluster_queue)}"
                )

    def play(self) -> "Run":
        """The script, then on until nothing more happens."""
        world, start_ms = self.world, self.world.clock.now_ms
        world.apply(*self.plan.objects)
        self.open_gate()
        for step in self.plan.steps:
            self.run_until(start_ms + step.at_ms)
            if step.apply is not None:
                world.apply(step.apply)
            else:
                namespace, name = step.delete.split("/")
                path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
                world.cluster.request("DELETE", path, {"propagationPolicy": "Background"})
        self.run_until(start_ms + 120_000)
        self.run_until(start_ms + HORIZON_MS, stop_when_done=True)
        return self

    def run_until(self, at_ms: int, *, stop_when_done: bool = False) -> None:
        """Run in slices, playing the controller of the admission check in between."""
        while self.world.clock.now_ms < at_ms:
            if stop_when_done and not self.world.failing() and self.done():
                return
            self.world.run(until_ms=min(at_ms, self.world.clock.now_ms + 500))
            self.world.advance(min(at_ms, self.world.clock.now_ms + 500))
            self.open_gate()

    def open_gate(self) -> None:
        """The check's controller: it is active, and finds every workload ready."""
        world = self.world
        path = f"/apis/kueue.x-k8s.io/v1beta2/admissionchecks/{GATE}"
        found = world.cluster.request("GET", path)
        if found.status == 200 and "status" not in found.json():
            active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": NOW}
            self.patch(path, {"conditions": [active]})
        for workload in world.cluster.objects(WORKLOADS):
            checks = workload.get("status", {}).get("admissionChecks", [])
            if any(check["state"] == "Pending" for check in checks):
                ready = [{**check, "state": "Ready", "lastTransitionTime": NOW} for check in checks]
                name = f"{workload['metadata']['namespace']}/workloads/{workload['metadata']['name']}"
                self.patch(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}", {"admissionChecks": ready})

    def patch(self, path: str, status: dict[str, Any]) -> None:
        body = msgspec.json.encode({"status": status})
        answer = self.world.cluster.request(
            "PATCH", f"{path}/status", {}, body, "application/merge-patch+json", user="gate"
        )
        assert answer.status == 200, answer.body

    def finished(self) -> set[str]:
        """Jobs that are Complete."""
        return {
            f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            for job in self.world.cluster.objects(JOBS)
            for condition in job.get("status", {}).get("conditions", [])
            if condition["type"] == "Complete" and condition["status"] == "True"
        }

    def done(self) -> bool:
        """Whether all that can finish has, also in the log."""
        over = sum(workload.stage is Stage.FINISHED for workload in self.world.state.workloads.values())
        return self.finished() >= self.plan.can_finish and over >= len(self.plan.can_finish)


NOW = "2026-01-01T00:00:00Z"


def verify_replay(run: Run) -> None:
    """Deciding each recorded cycle again, on a state restored from bytes at its position, gives the recorded events."""
    state = fold.new_state(run.world.cell)
    cycles: dict[int, LoggedCommit] = {}
    for logged in run.world.log:
        if isinstance(logged.commit.events[0], CycleDecided):
            cycles[logged.commit.decided_at] = logged
    for logged in run.world.log:
        fold.apply(state, logged)
        recorded = cycles.get(logged.seq)
        if recorded is not None:
            restored = fold.restore(state.cell, fold.encode(state))
            assert decide_cycle(restored) == recorded.commit.events, f"cycle at {recorded.seq} decided at {logged.seq}"
    assert fold.encode(state) == fold.encode(run.world.state)


def test_a_run_with_faults_ends_as_its_run_without(world_seed: int) -> None:
    """Crashes, rivals, lost calls, late commits: the same jobs finish, none is forgotten, quota holds throughout."""
    seed = world_seed
    plan = scenario(seed)
    calm = Run(plan, NO_FAULTS, seed).play()
    assert calm.finished() - plan.deleted == plan.can_finish, waiting(calm)
    wild = Run(plan, faults_of(seed), seed).play()
    assert wild.finished() - plan.deleted == calm.finished() - plan.deleted, waiting(wild)
    for run in (calm, wild):
        assert forgotten(run.world.state) == []
        still = {key for key, workload in run.world.state.workloads.items() if workload.stage in PENDING}
        assert len(still) == len(plan.never_fits), still
    verify_replay(wild)


TIGHT = DriverLimits(commit_bytes_max=1_500, calls_max=2, stimuli_max=3)
"""Bounds that every run meets all the time: most commits are split, and calls and watches wait for each other."""


def test_a_run_within_tight_bounds_ends_as_one_that_meets_none(sampled_seed: int) -> None:
    """Split commits, held back decisions and feeders, lost answers of the broker: the same jobs finish."""
    plan = scenario(sampled_seed)
    lossy = msgspec.structs.replace(faults_of(sampled_seed), append_lost=0.1)
    for faults in (NO_FAULTS, lossy):
        run = Run(plan, faults, sampled_seed, bounds=TIGHT).play()
        assert run.finished() - plan.deleted == plan.can_finish, waiting(run)
        assert forgotten(run.world.state) == []
    parts = [logged for logged in run.world.log if logged.commit.producer in ATOMIC]
    assert all(
        isinstance(logged.commit.events[0], CycleDecided | LeaderElected | PlacementDecision) for logged in parts
    )


def waiting(run: Run) -> str:
    """What a run that did not finish is waiting for."""
    lines = [
        f"{key} {each.stage.value} {each.cluster_queue} parked={each.parked} verdict={each.verdict}"
        for key, each in run.world.state.workloads.items()
        if each.stage is not Stage.FINISHED
    ]
    lines += [
        f"{key} {each.job.suspended=} {each.job.active=} {each.workload=} {each.refused=} {each.action_refused=}"
        for key, each in run.world.state.jobs.items()
        if not each.job.finished
    ]
    lines += [f"{key} {each.placed=} {each.bound=} {each.pod.phase}" for key, each in run.world.state.pods.items()]
    return "\n".join(lines)


def test_the_same_seed_gives_the_same_log() -> None:
    """Two runs of one seed with faults agree to the byte."""
    first, second = (Run(scenario(3), faults_of(3), 3).play().world for _ in range(2))
    assert first.state.log_hash == second.state.log_hash
    assert first.crashes == second.crashes


def test_the_faults_do_happen() -> None:
    """Over a few seeds there are crashes, and refused appends of deposed instances: the test above tests something."""
    worlds = [Run(scenario(seed), faults_of(seed), seed).play().world for seed in range(10)]
    assert sum(world.crashes for world in worlds) > 10
    assert sum(world.refused for world in worlds) > 0
    assert sum(world.resumes for world in worlds) > 0
    assert sum(world.lists for world in worlds) > 0
    assert sum(world.restored for world in worlds) > 0
