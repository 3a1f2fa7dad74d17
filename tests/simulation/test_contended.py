"""
The whole system where quota is contended: every policy of preemption, cohorts of cohorts, priorities, fair sharing.

Virtual time passes with each round. Kueue's rules let workloads of several ClusterQueues preempt each other in turn for
as long as no other ends (`kueue-observed`, "known endless loops"; without fair sharing too, where one that borrows
preempts within its ClusterQueue and another that borrows less takes what it has freed). Each turn costs time, in which
those that run come to their ends; so every run ends, and no workload is preempted without bound.

`pytest tests/simulation/test_contended.py --first-seed SEED --seeds 1` runs a seed again, the same to the byte.
"""

from collections import Counter

from tests.simulation.scenarios import Scenario, contended
from tests.simulation.test_seeds import Run, faults_of, verify_replay, waiting

from headgate.core.audit.invariants import forgotten
from headgate.core.cycle import evaluate
from headgate.core.flavors.catalog import Catalog
from headgate.core.queueing.wake_conditions import Unused
from headgate.core.state.tables import PENDING, Parked, Stage, State, Workload
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import WorkloadPreempted
from headgate.events.ids import WorkloadKey
from headgate.events.queueing import QuotaFreed, WorkloadReleased
from headgate.testing.world.world import NO_FAULTS, FaultRates

ROUND_MS = 5
PREEMPTED_MAX = 200
"""How often one workload may be preempted in a run. Most are never; those that meet a loop a few dozen times."""
LOOK_EVERY = 7
"""At each so-maniest commit those that sleep are tried."""


class Contended(Run):
    """A run that keeps count of preemptions, and tries now and then whether those that sleep could do otherwise."""

    def __init__(self, plan: Scenario, faults: FaultRates, seed: int) -> None:
        self.preempted: Counter[WorkloadKey] = Counter()
        self.reasons: Counter[str] = Counter()
        self.tried = 0
        super().__init__(plan, faults, seed, round_ms=ROUND_MS)

    def check(self, state: State, logged: LoggedCommit) -> None:
        super().check(state, logged)
        for event in logged.commit.events:
            if isinstance(event, WorkloadPreempted):
                self.preempted[event.workload] += 1
                self.reasons[event.reason] += 1
                assert self.preempted[event.workload] <= PREEMPTED_MAX, f"{event.workload} is preempted again and again"
            elif isinstance(event, WorkloadReleased):
                assert event.workload not in state.index.usage_of, f"{event.workload} is released and charged"
        if logged.seq % LOOK_EVERY == 0:
            self.tried += assert_the_sleeping_could_not(state)


def assert_the_sleeping_could_not(state: State) -> int:
    """No workload that is left asleep for lack of quota could be admitted, or preempt, in a cycle. How many."""
    unused, catalog = Unused(state), Catalog(state)
    tried = 0
    for workload, parked in sleeping(state):
        needs = next((wake.needs for wake in parked.wake if isinstance(wake, QuotaFreed)), ())
        name = workload.cluster_queue
        queue = catalog.queue(name)
        if queue is None or not needs or unused.enough(name, needs) or unused.reaches(name, needs, workload):
            continue
        (entry,) = evaluate(state, catalog, [(workload, queue)]).entries
        assert entry.status != "assumed", f"{workload.key} sleeps, and there is room for it"
        assert not entry.targets, f"{workload.key} sleeps, and could preempt {entry.targets}"
        tried += 1
    return tried


def sleeping(state: State) -> list[tuple[Workload, Parked]]:
    """The first of each shape that sleeps, and the heads that block their ClusterQueue."""
    found = []
    for name, sleep in state.sleeps.items():
        for shape, parked in sleep.shapes.items():
            key = next(state.index.pending[name].members(shape), WorkloadKey(""))
            if key and parked is not None:
                found.append((state.workloads[key], parked))
        head = state.workloads.get(sleep.blocked_by)
        if head is not None and sleep.blocked is not None and not any(_targets(sleep.blocked)):
            found.append((head, sleep.blocked))
    return found


def _targets(parked: Parked) -> list[WorkloadKey]:
    return [target for wake in parked.wake if isinstance(wake, QuotaFreed) for target in wake.targets]


def test_contended_work_ends_with_faults_as_without(sampled_seed: int) -> None:
    """Preempted workloads are requeued: every job ends, under any crash, and each cycle decides the same again."""
    plan = contended(sampled_seed)
    for faults in (NO_FAULTS, faults_of(sampled_seed)):
        run = Contended(plan, faults, sampled_seed)
        run.play()
        assert run.finished() == plan.can_finish, waiting(run)
        assert forgotten(run.world.state, settled=True) == []
        assert not [key for key, each in run.world.state.workloads.items() if each.stage in PENDING]
    verify_replay(run)


def test_the_scenarios_contend() -> None:
    """Over a few seeds there are preemptions of every kind, and many sleep without a chance to be admitted."""
    reasons: Counter[str] = Counter()
    tried = 0
    for seed in range(24):
        run = Contended(contended(seed), NO_FAULTS, seed)
        run.play()
        reasons += run.reasons
        tried += run.tried
        assert all(each.stage is Stage.FINISHED for each in run.world.state.workloads.values())
    assert {"InClusterQueue", "InCohortReclamation", "InCohortFairSharing"} <= reasons.keys()
    assert tried > 1_000
