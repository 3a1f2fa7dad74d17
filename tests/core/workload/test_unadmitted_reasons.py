"""The two gates of Kueue that select how detailed the reason of a pending workload is."""

from typing import Any

import pytest
from tests.support.queueing import QueueCell

from headgate.adapters.telemetry.metrics import Metrics
from headgate.core.config.feature_gates import effective
from headgate.core.workload.unadmitted_reasons import shown_reason
from headgate.events import facts
from headgate.events.configuration import Configuration
from headgate.events.ids import WorkloadKey
from headgate.processes.telemetry.kueue_metrics import KueueMetrics

A = WorkloadKey("team/a")


def cell(**gates: bool) -> QueueCell:
    made = QueueCell()
    made.see(facts.ConfigurationObserved(configuration=Configuration(feature_gates=effective(gates))))
    return made.ready()


def reasons(made: QueueCell, key: WorkloadKey = A) -> tuple[Any, Any]:
    return made.condition(key, "QuotaReserved"), made.condition(key, "Admitted")


NOTHING_RESERVED = ("False", "NoReservation", "The workload has no reservation")


@pytest.mark.parametrize(
    ("exact", "legacy"),
    [
        ("WaitingForQuota", "Pending"),
        ("ExceedsMaxQuota", "Pending"),
        ("NoMatchingFlavor", "Pending"),
        ("WaitingForPreemptedWorkloads", "Pending"),
        ("PendingEvaluation", "Pending"),
        ("Deactivated", "Pending"),
        ("WaitingForPodsReady", "Waiting"),
        ("Misconfigured", "Inadmissible"),
        ("Suspended", "Inadmissible"),
        ("AdmissionGated", "AdmissionGated"),
    ],
)
def test_without_observability_reasons_are_those_of_before(exact: str, legacy: str) -> None:
    """Kueue's UnadmittedWorkloadReasonWithFallback, reason by reason."""
    off = Configuration(feature_gates=effective({"UnadmittedWorkloadsObservability": False}))
    assert shown_reason(off, exact) == legacy
    assert shown_reason(Configuration(), exact) == exact


def test_a_workload_that_no_queue_takes_is_inadmissible_without_observability() -> None:
    """The message stays; when a queue accepts it, its reason stays until it is tried, as in Kueue before."""
    made = cell(UnadmittedWorkloadsObservability=False)
    made.submit("a", queue="nowhere")
    made.settle()
    assert reasons(made) == (("False", "Inadmissible", "LocalQueue nowhere doesn't exist"), NOTHING_RESERVED)
    made.local_queue("nowhere")
    made.settle()
    assert made.offers() == ["a"]
    assert reasons(made)[0] == ("False", "Inadmissible", "LocalQueue nowhere doesn't exist")
    made.skip(A, "workload")
    assert reasons(made)[0] == ("False", "Pending", "insufficient quota")


def test_with_explicit_status_a_workload_says_from_the_start_that_it_waits() -> None:
    """Both conditions, before any cycle; without the gate it has none."""
    made, plain = cell(UnadmittedWorkloadsExplicitStatus=True), cell()
    for each in (made, plain):
        each.submit("a")
        each.settle()
    waits = ("False", "PendingEvaluation", "Workload is pending evaluation in the scheduling queue")
    assert reasons(made) == (waits, NOTHING_RESERVED)
    assert reasons(plain) == (None, None)


def test_with_explicit_status_one_of_a_sleeping_shape_says_what_the_shape_waits_for() -> None:
    """Kueue uses its table of equivalent workloads that failed lately."""
    made = cell(UnadmittedWorkloadsExplicitStatus=True)
    made.submit("a")
    made.settle()
    made.skip(A, "shape")
    made.settle()
    made.submit("b", created_s=1)
    made.settle()
    bypassed = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    assert reasons(made, WorkloadKey("team/b")) == (("False", "WaitingForQuota", bypassed), NOTHING_RESERVED)


def test_the_metrics_count_unadmitted_workloads_by_reason() -> None:
    """By both kinds of queue; one without conditions counts as pending evaluation; without the gate there are none."""
    made, off = cell(), cell(UnadmittedWorkloadsObservability=False)
    for each in (made, off):
        each.submit("a")
        each.submit("b", queue="nowhere")
        each.settle()
    shown = served(made)
    for queue, cause in (("cq", "PendingEvaluation"), ("", "Misconfigured")):
        labels = f'cluster_queue="{queue}",reason="NoReservation",underlying_cause="{cause}",replica_role="leader"'
        assert f"kueue_unadmitted_workloads{{{labels}}} 1" in shown
    assert 'kueue_local_queue_unadmitted_workloads{name="main",namespace="team",cluster_queue="cq",' in shown
    assert "kueue_unadmitted_workloads{" not in served(off)


def served(made: QueueCell) -> str:
    metrics = Metrics()
    KueueMetrics(metrics).serve_gauges(lambda: made.state)
    return metrics.render()
