"""
What every process has recorded is decided again as it was; what none of them would have recorded is found.

Genuine logs are those of whole simulated runs, with faults and without. Forged ones are such a log up to some position,
with one commit more that the producer whose name it bears would not have made.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scenarios import Scenario, contended, scenario
from tests.support.forging import cut_where, decoded, forged, recorded, verified

from headgate import __version__
from headgate.core.log.rules_version import RULES
from headgate.core.state.tables import HOLDS_QUOTA, Stage, State, Workload
from headgate.core.verification.check import OtherRules
from headgate.events import decisions, effects, queueing
from headgate.events.base import Producer
from headgate.events.ids import Seq, Uid, WorkloadKey
from headgate.events.objects import Admission, PodSetAssignment
from headgate.events.registry import Event

BRIDGE, QUEUES, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
BINDER, UNGATER, SNAPSHOTTER = Producer.BINDER, Producer.UNGATER, Producer.SNAPSHOTTER


@pytest.mark.parametrize("make", [scenario, contended])
@pytest.mark.parametrize("wild", [False, True])
def test_an_honest_log_is_decided_again_as_it_was(
    verified_seed: int, make: Callable[[int], Scenario], wild: bool
) -> None:
    """Queue life, cycles, placements, statuses, job runs, creations: all of them, whatever went wrong on the way."""
    result = verified(recorded(verified_seed, wild=wild, make=make))
    assert result.differences == ()
    assert result.passed_over == 0
    assert result.cycles > 0
    # These cells have no topologies and no checks for ProvisioningRequests; in some Headgate places the pods.
    absent = ["pods sent to domains", "provisioning requests"]
    if not make(verified_seed).placing:
        absent.append("placements")
    compared = {what: count for what, count in result.compared.items() if what not in absent}
    assert all(count > 0 for count in compared.values()), compared


# --- forged --------------------------------------------------------------------------------------------------------

SEED = 5
PLACING_SEED = 4
"""A scenario in which Headgate places the pods."""


def one_is(*stages: Stage) -> Callable[[State], bool]:
    return lambda state: state.synced and any(each.stage in stages for each in state.workloads.values())


def first(state: State, *stages: Stage) -> Workload:
    return next(each for each in state.workloads.values() if each.stage in stages)


def found_at_the_end(entries: tuple, state: State, producer: Producer, *events: Event, decided_at: int | None = None):
    """The only difference, which is at the forged commit."""
    log = forged(entries, state, producer, *events, decided_at=decided_at)
    assert verified(entries).differences == (), "the log was honest up to there"
    (difference,) = verified(log).differences
    assert difference.position.seq == log[-1].seq
    return difference


def running() -> tuple[tuple, State, Workload]:
    entries, state = cut_where(recorded(SEED), one_is(Stage.ADMITTED))
    return entries, state, first(state, Stage.ADMITTED)


def waiting() -> tuple[tuple, State, Workload]:
    """A position at which one workload waits, and another holds the quota."""

    def is_there(state: State) -> bool:
        stages = {each.stage for each in state.workloads.values()}
        return bool(stages & HOLDS_QUOTA) and bool(stages & {Stage.QUEUED, Stage.OFFERED}) and state.cycle > 5

    entries, state = cut_where(recorded(SEED), is_there)
    return entries, state, first(state, Stage.QUEUED, Stage.OFFERED)


def test_a_forged_end_of_a_running_workload_is_found() -> None:
    """Its Job has not ended: no queue manager would say so."""
    entries, state, workload = running()
    over = queueing.WorkloadFinished(workload=workload.key, uid=workload.uid, reason="Succeeded", message="m")
    difference = found_at_the_end(entries, state, QUEUES, over)
    assert "workload.finished" in difference.recorded
    assert "what the queue-manager decided" in difference.what


def test_a_forged_eviction_is_found() -> None:
    """Nothing drives it out."""
    entries, state, workload = running()
    out = queueing.WorkloadEvicted(workload=workload.key, uid=workload.uid, reason="Deactivated", message="m")
    assert "workload.evicted" in found_at_the_end(entries, state, QUEUES, out).recorded


def test_an_old_ground_does_not_justify_a_new_decision() -> None:
    """No process decides on a state that lacks its own last decision."""
    log = recorded(SEED)
    cycle = next(each for each in decoded(log) if type(each.commit.events[0]) is decisions.CycleDecided)
    entries, state = cut_where(log, lambda state: state.cycle >= 3)
    at = cycle.commit.decided_at
    again = decisions.CycleDecided(cycle=state.cycle + 1, decided_at=at)
    difference = found_at_the_end(entries, state, SCHEDULER, again, decided_at=at)
    assert "before its own last commit" in difference.what


def test_an_offer_out_of_turn_is_found() -> None:
    """One whose shape sleeps, because there is not enough quota for it, is not offered."""

    def asleep(state: State) -> list[Workload]:
        return [
            each
            for each in state.workloads.values()
            if each.stage is Stage.QUEUED and each.cluster_queue in state.sleeps
            if state.sleeps[each.cluster_queue].shapes.get(each.shape) is not None
        ]

    entries, state = cut_where(recorded(SEED), lambda state: bool(asleep(state)))
    workload = asleep(state)[0]
    head = queueing.Head(cluster_queue=workload.cluster_queue, workload=workload.key, uid=workload.uid, alone=True)
    assert "heads.offered" in found_at_the_end(entries, state, QUEUES, queueing.HeadsOffered(heads=(head,))).recorded


def reservation(workload: Workload, cpu: str) -> decisions.QuotaReserved:
    assignment = PodSetAssignment(flavors={"cpu": "on-demand"}, resource_usage={"cpu": cpu}, count=1)
    admission = Admission(cluster_queue=workload.cluster_queue, pod_set_assignments=(assignment,))
    ids: dict[str, Any] = {"workload": workload.key, "uid": workload.uid, "cluster_queue": workload.cluster_queue}
    return decisions.QuotaReserved(**ids, admission=admission, message="m")


def test_a_forged_admission_over_quota_is_found() -> None:
    """In a cycle of its own, that no scheduler would have decided."""
    entries, state, workload = waiting()
    cycle = decisions.CycleDecided(cycle=state.cycle + 1, decided_at=state.position)
    difference = found_at_the_end(entries, state, SCHEDULER, cycle, reservation(workload, "1000"))
    assert difference.what == f"cycle {state.cycle + 1}, decided at {state.position}"


def test_a_reservation_outside_of_a_cycle_is_found() -> None:
    """The scheduler appends nothing but cycles."""
    entries, state, workload = waiting()
    difference = found_at_the_end(entries, state, SCHEDULER, reservation(workload, "1000"))
    assert difference.what == "a commit of the scheduler that is no cycle"


def test_what_is_for_another_process_to_say_is_found() -> None:
    """The binder ends no workload."""
    entries, state, workload = running()
    over = queueing.WorkloadFinished(workload=workload.key, uid=workload.uid, reason="Succeeded", message="m")
    difference = found_at_the_end(entries, state, BINDER, over)
    assert "binder" in difference.what
    assert difference.replayed == "an event of the queue-manager"


def test_a_pod_on_another_node_is_found() -> None:
    """The best of those that it fits on is decided again."""
    log = recorded(PLACING_SEED, make=scenario)
    placed = next(
        each for each in decoded(log) if any(type(event) is decisions.PodPlaced for event in each.commit.events)
    )
    entries, state = cut_where(log, lambda state: state.position == placed.commit.decided_at)
    event = next(each for each in placed.commit.events if type(each) is decisions.PodPlaced)
    elsewhere = next(name for name in sorted(state.nodes) if name != event.node)
    moved = decisions.PodPlaced(pod=event.pod, uid=event.uid, node=elsewhere)
    assert f'"node":"{event.node}"' in found_at_the_end(entries, state, SCHEDULER, moved).replayed


def test_a_binding_without_a_placement_is_found() -> None:
    """That node was never chosen."""
    entries, state = cut_where(
        recorded(SEED), lambda state: any(record.bound for record in state.pods.values()) and state.synced
    )
    key, record = next((key, record) for key, record in state.pods.items() if record.bound)
    bound = effects.PodBound(pod=key, uid=Uid(record.pod.uid), node="nowhere")
    assert "the binding of pod" in found_at_the_end(entries, state, BINDER, bound).what


def test_a_status_that_no_state_gave_is_found() -> None:
    """Its digest is none of those that the workload's statuses have had."""
    entries, state, workload = running()
    written = effects.StatusApplied(workload=workload.key, uid=workload.uid, digest="0" * 32)
    assert "that no state up to" in found_at_the_end(entries, state, BINDER, written).what


def test_a_forged_start_and_a_forged_stop_are_found() -> None:
    """A Job whose workload waits is not resumed; one whose workload is admitted is not suspended."""
    entries, state, workload = waiting()
    assert workload.owner is not None
    ids: dict[str, Any] = {"job": f"{workload.key.split('/')[0]}/{workload.owner.name}", "job_uid": workload.owner.uid}
    started = effects.JobStarted(**ids, workload=workload.key, workload_uid=workload.uid)
    assert "no reason" in found_at_the_end(entries, state, UNGATER, started).what

    entries, state = cut_where(
        recorded(SEED), lambda state: any(each.started_for and not each.job.suspended for each in state.jobs.values())
    )
    key, record = next((key, each) for key, each in state.jobs.items() if each.started_for and not each.job.suspended)
    stopped = effects.JobStopped(
        job=key, job_uid=Uid(record.job.uid), workload=record.workload, reason="WorkloadEvicted"
    )
    assert "no reason" in found_at_the_end(entries, state, UNGATER, stopped).what


def test_a_workload_for_no_job_is_found() -> None:
    """The bridge makes Workloads of Jobs that it has seen, under the names that follow from them."""
    entries, state, _ = running()
    key, record = next(iter(state.jobs.items()))
    made = effects.WorkloadCreated(workload=WorkloadKey("team-a/another"), job=key, job_uid=Uid(record.job.uid))
    assert "the Workload of Job" in found_at_the_end(entries, state, BRIDGE, made).what


def test_a_snapshot_of_another_state_is_found() -> None:
    """Its hash is compared with that of the state at its position."""
    entries, state, _ = running()
    taken = effects.SnapshotTaken(
        position=Seq(state.position), state_hash="0" * 32, log_hash=state.log_hash, name="s", size_bytes=1
    )
    assert "snapshot s" in found_at_the_end(entries, state, SNAPSHOTTER, taken).what


def test_what_other_rules_have_decided_is_passed_over_and_counted() -> None:
    """The election names the rules of a term; those of another release cannot be repeated."""
    entries, state, workload = running()
    elected = effects.LeaderElected(holder="h", rules=99, version="9.0")
    log = forged(entries, state, QUEUES, elected)
    later = cut_where(log, lambda state: state.position == log[-1].seq)[1]
    over = queueing.WorkloadFinished(workload=workload.key, uid=workload.uid, reason="Succeeded", message="m")
    result = verified(forged(log, later, QUEUES, over))
    assert (result.differences, result.passed_over) == ((), 1)
    assert result.other_rules == (OtherRules(producer=QUEUES, rules=99, version="9.0", commits=2),)


def test_a_difference_under_the_rules_of_this_version_is_a_divergence_whichever_version_it_was() -> None:
    """Another version with the same rules has to decide the same; the difference names it."""
    entries, state, workload = running()
    elected = effects.LeaderElected(holder="h", rules=RULES[QUEUES], version="9.0")
    log = forged(entries, state, QUEUES, elected)
    later = cut_where(log, lambda state: state.position == log[-1].seq)[1]
    over = queueing.WorkloadFinished(workload=workload.key, uid=workload.uid, reason="Succeeded", message="m")
    result = verified(forged(log, later, QUEUES, over))
    (difference,) = result.differences
    assert (difference.version, result.passed_over, result.other_rules) == ("9.0", 0, ())


@pytest.mark.parametrize(("rules", "is_compared"), [(RULES[SNAPSHOTTER], True), (0, False)])
def test_a_snapshot_of_a_version_that_writes_states_otherwise_is_not_compared(rules: int, is_compared: bool) -> None:
    """Its state has another form, and so another hash; of this version's rules every hash is compared."""
    entries, state, _ = running()
    log = forged(entries, state, SNAPSHOTTER, effects.LeaderElected(holder="h", rules=rules))
    later = cut_where(log, lambda state: state.position == log[-1].seq)[1]
    taken = effects.SnapshotTaken(
        position=Seq(later.position), state_hash="0" * 32, log_hash=later.log_hash, name="s", size_bytes=1
    )
    result = verified(forged(log, later, SNAPSHOTTER, taken))
    assert (len(result.differences), result.snapshots, result.passed_over) == ((1, 1, 0) if is_compared else (0, 0, 1))


def test_every_term_says_which_version_decides() -> None:
    """The number of its rules, and the version of Headgate."""
    terms = [
        event
        for logged in decoded(recorded(SEED))
        for event in logged.commit.events
        if isinstance(event, effects.LeaderElected)
    ]
    assert terms
    assert {each.version for each in terms} == {__version__}
