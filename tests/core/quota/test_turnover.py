"""Quota that finishing workloads release: its rate in the log, and who waits for it instead of preempting."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.benchmarks.drain import cluster_queue, workload
from tests.support.logs import TestLog
from tests.support.rounds import Rounds

from headgate.core import fold
from headgate.core.config.reader import V1BETA2, read_configuration
from headgate.core.quota import turnover
from headgate.core.state.tables import Stage, State
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.ids import LocalQueueKey, UnixMs, WorkloadKey
from headgate.events.objects import Condition, LocalQueueSpec, Preemption, ResourceFlavorSpec

BRIDGE = Producer.INFORMER_BRIDGE
ON = Configuration(preemption_waits=True)
DONE = Condition(type="Finished", status="True", reason="Succeeded", message="", last_transition_time="")
ANY = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
CPU = ("rf", "cpu")


class Cohort:
    """Two ClusterQueues, `a` and `b`, of 20 cpu each that lend to each other, and their machines."""

    def __init__(self, configuration: Configuration = ON) -> None:
        log = TestLog()
        found: list[facts.Fact] = [
            facts.ConfigurationObserved(configuration=configuration),
            facts.ResourceFlavorObserved(name="rf", spec=ResourceFlavorSpec()),
        ]
        for name in ("a", "b"):
            found += (
                facts.NamespaceObserved(name=name),
                facts.ClusterQueueObserved(name=name, spec=cluster_queue("cohort", ANY)),
                facts.LocalQueueObserved(queue=LocalQueueKey(f"{name}/main"), spec=LocalQueueSpec(cluster_queue=name)),
            )
        log.append(BRIDGE, *found, facts.InformersSynced())
        self.rounds = Rounds(log)

    @property
    def state(self) -> State:
        return self.rounds.state

    def submit(self, key: str, cpu: int, priority: int = 0) -> None:
        self.rounds.hear(BRIDGE, workload(WorkloadKey(key), str(cpu), priority, self.rounds.log.now_ms))

    def finish(self, key: str) -> None:
        self.hear_finished(key)
        self.rounds.react()

    def hear_finished(self, key: str) -> None:
        each = self.state.workloads[WorkloadKey(key)]
        fact = facts.WorkloadObserved(
            workload=each.key, uid=each.uid, created_ms=each.created_ms, spec=each.spec, finished=DONE
        )
        self.rounds.hear(BRIDGE, fact)

    def run(self, ms: int = 0, step_ms: int = 50) -> None:
        """Let both machines decide, and time pass."""
        end_ms = self.rounds.log.now_ms + ms
        while True:
            assert self.rounds.run_by_turns(0, 400)
            if self.rounds.log.now_ms >= end_ms:
                return
            self.rounds.log.now_ms = UnixMs(self.rounds.log.now_ms + step_ms)

    def stage(self, key: str) -> Stage:
        return self.state.workloads[WorkloadKey(key)].stage

    def lend(self) -> None:
        """Let `b` use all of the cohort, and a quarter of that finish in the last second."""
        self.turn_over("b")

    def turn_over(self, name: str) -> None:
        """Let a ClusterQueue use all of the cohort, and let one of its workloads finish each tenth of a second."""
        for number in range(50):
            self.submit(f"{name}/job-{number:02}", 1)
        self.run()
        for number in range(10):
            self.run(100)
            self.finish(f"{name}/job-{number:02}")
            self.run()


def test_a_queue_takes_back_what_comes_free_instead_of_preempting() -> None:
    """Where workloads finish all the time, one that reclaims nominal quota waits for them, without an eviction."""
    cohort = Cohort()
    cohort.lend()
    cohort.submit("a/job", 2)
    cohort.run(50)
    assert cohort.stage("a/job") is not Stage.ADMITTED
    for number in range(10, 13):
        cohort.finish(f"b/job-{number}")
        cohort.run(50)
    assert cohort.stage("a/job") is Stage.ADMITTED
    assert not cohort.rounds.preempted


def test_what_comes_free_meanwhile_is_kept_for_who_waits() -> None:
    """Those that `b` has pending borrow nothing of it, though they came first."""
    cohort = Cohort()
    cohort.lend()
    admitted = {key for key, each in cohort.state.workloads.items() if each.stage is Stage.ADMITTED}
    cohort.submit("a/job", 2)
    cohort.run(50)
    cohort.finish("b/job-10")
    cohort.run(50)
    now = {key for key, each in cohort.state.workloads.items() if each.stage is Stage.ADMITTED}
    assert now == admitted - {"b/job-10"}


def test_who_waits_in_vain_preempts_when_its_time_has_come() -> None:
    """The wait is bounded, and happens once."""
    cohort = Cohort()
    cohort.lend()
    cohort.submit("a/job", 2)
    cohort.run(turnover.RECLAIM_MS_MAX - 100)
    assert not cohort.rounds.preempted
    cohort.run(300)
    assert sum(cohort.rounds.preempted.values()) == 2
    assert cohort.stage("a/job") is Stage.ADMITTED


def test_nobody_waits_where_nothing_comes_free() -> None:
    """Where no workload has finished lately, a workload that may preempt does so at once, as in Kueue."""
    cohort = Cohort()
    for number in range(40):
        cohort.submit(f"b/job-{number}", 1)
    cohort.run()
    cohort.submit("a/job", 2)
    cohort.run()
    assert sum(cohort.rounds.preempted.values()) == 2
    assert cohort.stage("a/job") is Stage.ADMITTED


def test_nobody_waits_where_the_gate_is_off() -> None:
    """With HeadgatePreemptionWaits off preemption is Kueue's, and the log's state keeps nothing of it."""
    cohort = Cohort(Configuration())
    cohort.lend()
    cohort.submit("a/job", 2)
    cohort.run()
    assert sum(cohort.rounds.preempted.values()) == 2
    assert not cohort.state.turnover
    assert not cohort.state.eviction_ms


def test_a_higher_priority_waits_no_longer_than_evicting_takes() -> None:
    """Its wait is that of an eviction, not that of a reclaiming queue."""
    cohort = Cohort()
    cohort.turn_over("a")
    cohort.submit("a/urgent", 2, priority=1)
    cohort.run(turnover.EVICTION_MS_MIN - 100)
    assert not cohort.rounds.preempted
    cohort.run(200)
    assert sum(cohort.rounds.preempted.values()) == 2


def test_quota_is_not_lent_that_its_queue_would_take_back_at_once() -> None:
    """Nominal quota that the pending workloads of a reclaiming ClusterQueue will fill is not lent."""
    cohort = Cohort()
    cohort.submit("a/big", 20)
    cohort.submit("b/big", 20)
    cohort.run()
    for number in range(30):
        cohort.submit(f"a/job-{number}", 1)
        cohort.submit(f"b/job-{number}", 1)
    cohort.run()
    cohort.finish("a/big")
    cohort.run(1_000)
    held = [key for key, each in cohort.state.workloads.items() if each.stage is Stage.ADMITTED]
    assert sorted(key.partition("/")[0] for key in held) == ["a"] * 20 + ["b"]
    assert not cohort.rounds.preempted


def test_nobody_passes_a_head_for_which_enough_comes_free_soon() -> None:
    """A workload without candidates waits at the front for a while: one admitted behind it would be in its way."""
    cohort = Cohort()
    cohort.turn_over("a")
    cohort.submit("a/big", 3)
    cohort.submit("a/small", 1)
    cohort.run(50)
    for number in range(10, 13):
        assert cohort.stage("a/small") is not Stage.ADMITTED
        cohort.finish(f"a/job-{number}")
        cohort.run(50)
    assert cohort.stage("a/big") is Stage.ADMITTED
    assert not cohort.rounds.preempted


def test_others_pass_a_head_that_has_waited_in_vain() -> None:
    """The time at the front is bounded; then the queue is BestEffortFIFO again."""
    cohort = Cohort()
    cohort.turn_over("a")
    cohort.submit("a/big", 3)
    cohort.submit("a/small", 1)
    cohort.run(turnover.RECLAIM_MS_MAX + 200)
    cohort.finish("a/job-10")
    cohort.run(50)
    assert cohort.stage("a/small") is Stage.ADMITTED
    assert cohort.stage("a/big") is not Stage.ADMITTED


def test_a_wait_is_neither_repeated_nor_begun_again_while_others_come_before_it() -> None:
    """Quota that others of the cycle get leaves the verdict of a waiting head as it was: its end, and its place."""
    cohort = Cohort()
    cohort.turn_over("a")
    cohort.submit("a/big", 3)
    cohort.run(50)
    verdict = cohort.state.workloads[WorkloadKey("a/big")].verdict
    assert verdict is not None
    assert verdict.until_ms
    for number in range(10, 13):
        cohort.hear_finished(f"a/job-{number}")
        cohort.submit(f"b/first-{number}", 1, priority=9)
    cohort.run()
    assert cohort.state.workloads[WorkloadKey("a/big")].verdict == verdict
    assert cohort.stage("b/first-12") is Stage.ADMITTED


def test_the_head_gets_nothing_before_those_that_sleep_before_it() -> None:
    """A cycle between the release of quota and the waking does not give it to a head of lower priority."""
    cohort = Cohort()
    cohort.submit("a/large-0", 20, priority=2)
    for number in range(20):
        cohort.submit(f"b/job-{number:02}", 1, priority=2)
    cohort.run()
    cohort.submit("a/large-1", 20, priority=2)
    cohort.run()
    cohort.finish("b/job-00")
    cohort.submit("a/small", 1)
    cohort.submit("b/next-0", 1)
    cohort.run()
    assert cohort.state.sleeps["a"].blocked_by == "a/small"
    cohort.hear_finished("a/large-0")
    cohort.hear_finished("b/job-01")
    cohort.submit("b/next-1", 1)
    cohort.rounds.settle(Producer.QUEUE_MANAGER)
    cohort.rounds.settle(Producer.SCHEDULER)
    assert cohort.stage("a/small") is not Stage.ADMITTED
    cohort.run()
    assert cohort.stage("a/large-1") is Stage.ADMITTED


def test_the_wait_says_what_it_waits_for() -> None:
    """The verdict names the targets and until when it waits, as fields and in its message."""
    cohort = Cohort()
    cohort.lend()
    cohort.submit("a/job", 2)
    cohort.run()
    verdict = cohort.state.workloads[WorkloadKey("a/job")].verdict
    assert verdict is not None
    assert len(verdict.targets) == 2
    assert verdict.until_ms > cohort.state.now_ms
    assert "Unless enough quota is free by 20" in verdict.message
    assert "2 workload(s) will be preempted" in verdict.message


def test_the_wait_survives_a_restart() -> None:
    """A state that is encoded and restored has the same counts, and ends the same wait at the same time."""
    cohort = Cohort()
    cohort.lend()
    cohort.submit("a/job", 2)
    cohort.run()
    encoded = fold.encode(cohort.state)
    assert fold.encode(fold.restore(cohort.state.cell, encoded)) == encoded
    assert cohort.state.turnover


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 1_000)), max_size=40),
    st.integers(0, 10_000),
    st.integers(1, 10_000),
)
def test_more_quota_takes_longer_to_come_free(freed: list[tuple[int, int]], later_ms: int, short: int) -> None:
    """The expectation grows with what is short, is never negative, and is none where nothing has come free lately."""
    state = fold.new_state("main")
    at_ms = 1_000_000
    counted = None
    for after_ms, value in freed:
        at_ms += after_ms
        counted = turnover._add(counted, value, UnixMs(at_ms))
    if counted is not None:
        state.turnover["cohort"] = {"rf/cpu": counted}
    state.now_ms = UnixMs(at_ms + later_ms)
    one = turnover.expected_ms(state, "cohort", {CPU: short})
    more = turnover.expected_ms(state, "cohort", {CPU: 2 * short})
    if not freed or later_ms >= 2 * turnover.WINDOW_MS:
        assert one is None
    if one is not None:
        assert more is not None
        assert 0 < one <= more
    assert turnover.expected_ms(state, "cohort", {CPU: 0}) == 0


def test_a_configuration_turns_the_wait_off() -> None:
    """The gate is Headgate's own: on in every configuration that does not turn it off."""
    document = {"apiVersion": V1BETA2, "kind": "Configuration"}
    assert read_configuration(document).preemption_waits
    off = read_configuration({**document, "featureGates": {"HeadgatePreemptionWaits": False}})
    assert not off.preemption_waits
    assert msgspec.structs.replace(off, preemption_waits=True) == read_configuration(document)


@pytest.mark.parametrize("took_ms", [0, 700, 100_000])
def test_evictions_are_taken_to_last_between_bounds(took_ms: int) -> None:
    """However short or long they were."""
    state = fold.new_state("main")
    state.eviction_ms["a"] = took_ms
    assert turnover.EVICTION_MS_MIN <= turnover.eviction_ms(state, "a") <= turnover.EVICTION_MS_MAX
