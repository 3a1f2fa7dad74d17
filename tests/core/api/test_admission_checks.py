"""Admission checks follow their ClusterQueue and survive an eviction, as Kueue's functions have it."""

from typing import Any

import msgspec
import pytest
from tests.support.conformance import fact_of
from tests.support.logs import TestLog
from tests.support.playing import cluster_queue

from headgate.core.api.admission_checks import checks_for, reset
from headgate.core.kubernetes.conditions import MESSAGE_BYTES_MAX, find, truncated
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    AdmissionChecksStrategy,
    CheckRule,
    CheckState,
    ClusterQueueSpec,
    PodSetAssignment,
    WorkloadSpec,
)
from headgate.events.queueing import WorkloadEvicted, WorkloadReleased

BRIDGE, MANAGER, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
ABOUT: dict[str, Any] = {"workload": WorkloadKey("team-a/w"), "uid": Uid("w")}
NOW = "2026-01-15T10:00:00Z"


def rules(*names: CheckRule | str) -> AdmissionChecksStrategy:
    return AdmissionChecksStrategy(
        admission_checks=tuple(each if isinstance(each, CheckRule) else CheckRule(name=each) for each in names)
    )


@pytest.mark.parametrize(
    ("strategy", "flavors", "names"),
    [
        (None, {"spot"}, []),
        (rules("b", "a"), {"spot"}, ["a", "b"]),
        (rules(CheckRule(name="a", on_flavors=("spot",)), "b"), {"on-demand"}, ["b"]),
        (rules(CheckRule(name="a", on_flavors=("spot", "x"))), {"on-demand", "spot"}, ["a"]),
    ],
)
def test_the_checks_of_an_admission(
    strategy: AdmissionChecksStrategy | None, flavors: set[str], names: list[str]
) -> None:
    """workload.AdmissionChecksForWorkload: those for all flavors, and those for one that was assigned; by name."""
    spec = ClusterQueueSpec(admission_checks_strategy=strategy)
    before = {"a": CheckState(name="a", state="Ready", message="go")}
    found = checks_for(spec, flavors, before, NOW)
    assert [check.name for check in found] == names
    assert [check.state for check in found if check.name == "a"] == ["Ready"] * names.count("a")
    assert all(check.last_transition_time == NOW for check in found if check.name == "b")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CheckState(name="a", state="Pending", message="soon"), CheckState(name="a", state="Pending", message="soon")),
        (
            CheckState(name="a", state="Ready", message="go", retry_count=2),
            CheckState(
                name="a",
                state="Pending",
                message="Reset to Pending after eviction. Previously: Ready",
                last_transition_time=NOW,
            ),
        ),
        (
            CheckState(name="a", state="Retry", retry_count=2, requeue_after_seconds=60),
            CheckState(
                name="a",
                state="Pending",
                message="Reset to Pending after eviction. Previously: Retry",
                last_transition_time=NOW,
                requeue_after_seconds=60,
                retry_count=3,
            ),
        ),
    ],
)
def test_an_eviction_resets_what_was_answered(before: CheckState, after: CheckState) -> None:
    """evict.resetChecksOnEviction."""
    assert reset(before, NOW) == after


def with_queue(*names: str) -> facts.ClusterQueueObserved:
    fact = fact_of({"kind": "ClusterQueue", **cluster_queue()})
    assert isinstance(fact, facts.ClusterQueueObserved)
    return msgspec.structs.replace(
        fact, spec=msgspec.structs.replace(fact.spec, admission_checks_strategy=rules(*names))
    )


def held(checks: tuple[CheckState, ...]) -> TestLog:
    """A workload that holds quota in a ClusterQueue with the check `a`."""
    log = TestLog()
    log.append(BRIDGE, with_queue("a"))
    log.append(
        BRIDGE,
        facts.WorkloadObserved(**ABOUT, created_ms=UnixMs(5), spec=WorkloadSpec(queue_name="main"), generation=1),
    )
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "2"}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    log.append(SCHEDULER, QuotaReserved(**ABOUT, cluster_queue="cq", admission=admission, message="m", checks=checks))
    return log


def test_a_reservation_follows_the_list_of_its_cluster_queue() -> None:
    """reconcileSyncAdmissionChecks: new checks are Pending, removed ones dropped, answered ones kept."""
    log = held((CheckState(name="a", state="Ready", message="go"),))
    (workload,) = log.state.workloads.values()
    log.append(BRIDGE, with_queue("a", "b"))
    assert [(check.name, check.state) for check in workload.checks] == [("a", "Ready"), ("b", "Pending")]
    log.append(BRIDGE, with_queue("b"))
    assert [(check.name, check.state) for check in workload.checks] == [("b", "Pending")]


def test_the_time_of_all_admissions_adds_up() -> None:
    """SyncAdmittedCondition: whole seconds, added when an admission ends; a time that is over starts again."""
    log = held(())
    (workload,) = log.state.workloads.values()
    for seconds, cause, past in ((7, "", 7), (5, "", 12), (90, "MaximumExecutionTimeExceeded", None)):
        if workload.admission is None:
            assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "2"}, count=1)
            admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
            log.append(SCHEDULER, QuotaReserved(**ABOUT, cluster_queue="cq", admission=admission, message="m"))
        log.append(SCHEDULER, WorkloadAdmitted(**ABOUT, cluster_queue="cq", message="m"))
        log.now_ms = UnixMs(log.now_ms + seconds * 1000)
        reason = "Deactivated" if cause else "ClusterQueueStopped"
        log.append(MANAGER, WorkloadEvicted(**ABOUT, reason=reason, message="m", underlying_cause=cause))
        log.append(MANAGER, WorkloadReleased(**ABOUT, requeued=False, reason=reason, message="m"))
        assert workload.past_execution_s == past
    evicted = find(workload.conditions, "Evicted")
    assert evicted is not None
    # evict.Evict: the reason of a deactivation names its cause.
    assert evicted.reason == "DeactivatedDueToMaximumExecutionTimeExceeded"


def test_a_message_is_cut_to_what_the_api_takes() -> None:
    """api.TruncateConditionMessage: 32 KiB, and the end shows that something is missing."""
    assert truncated("short") == "short"
    long = truncated("ä" * MESSAGE_BYTES_MAX)
    assert len(long.encode()) <= MESSAGE_BYTES_MAX
    assert long.endswith(" ...")
