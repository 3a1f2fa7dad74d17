"""Activeness: reasons and messages of the Active condition are Kueue's."""

from typing import Any

import pytest
from tests.support.cells import Cell, cluster_queue, cohort

from headgate.core.config import feature_gates
from headgate.core.quota.activeness import admission_check_active, cluster_queue_active, local_queue_active
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import (
    AdmissionCheckObserved,
    ClusterQueueDeleted,
    ConfigurationObserved,
    LocalQueueObserved,
    ResourceFlavorDeleted,
    TopologyObserved,
)
from headgate.events.ids import LocalQueueKey
from headgate.events.objects import (
    AdmissionCheckSpec,
    AdmissionChecksStrategy,
    CheckRule,
    LocalQueueSpec,
    ResourceFlavorSpec,
    TopologySpec,
)

QUEUE = LocalQueueKey("team-a/cq")


def cell(*more: EventBase, flavors: Any = None, **spec: Any) -> Cell:
    return Cell(cluster_queue("cq", {"f": {"gpu": 1}}, **spec), *more, flavors=flavors)


def checks(*names: str) -> AdmissionChecksStrategy:
    return AdmissionChecksStrategy(admission_checks=tuple(CheckRule(name=name) for name in names))


def check(name: str, *, active: bool) -> AdmissionCheckObserved:
    return AdmissionCheckObserved(name=name, spec=AdmissionCheckSpec(controller_name="c"), active=active)


def test_a_queue_with_nothing_wrong_is_ready() -> None:
    """Checks that their controllers serve and Topologies that exist are nothing wrong."""
    tas = {"f": ResourceFlavorSpec(topology_name="t")}
    ready = cell(
        check("a", active=True),
        TopologyObserved(name="t", spec=TopologySpec()),
        flavors=tas,
        admission_checks_strategy=checks("a"),
    )
    answer = cluster_queue_active(ready.state, "cq")
    assert (answer.active, answer.reason, answer.message) == (True, "Ready", "Can admit new workloads")


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_is_not_active(policy: str) -> None:
    """With either policy."""
    answer = cluster_queue_active(cell(stop_policy=policy).state, "cq")
    assert (answer.active, answer.reason, answer.message) == (
        False,
        "Stopped",
        "Can't admit new workloads: is stopped.",
    )


def test_several_problems_are_all_named_and_the_first_gives_the_reason() -> None:
    """In Kueue's order."""
    broken = cell(check("b", active=False), stop_policy="Hold", admission_checks_strategy=checks("b", "a"))
    broken.log.append(Producer.INFORMER_BRIDGE, ResourceFlavorDeleted(name="f"))
    answer = cluster_queue_active(broken.state, "cq")
    assert answer.reason == "Stopped"
    assert answer.message == (
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): f, "
        "references missing AdmissionCheck(s): a, references inactive AdmissionCheck(s): b."
    )


def test_a_flavor_whose_topology_is_missing_stops_its_queue() -> None:
    """Pods could not be placed."""
    answer = cluster_queue_active(cell(flavors={"f": ResourceFlavorSpec(topology_name="t")}).state, "cq")
    assert answer.reason == "TopologyNotFound"
    assert answer.message == 'Can\'t admit new workloads: there is no Topology "t" for TAS flavor "f".'


def test_a_cycle_of_cohorts_stops_the_queues_below_it() -> None:
    """There is no tree to share quota in; and it is reported."""
    answer = cluster_queue_active(cell(cohort("x", "y"), cohort("y", "x"), cohort_name="x").state, "cq")
    assert (answer.active, answer.reason) == (False, "CohortCycle")
    assert '"x"' in answer.message


def test_what_does_not_exist_is_not_found() -> None:
    """ClusterQueue, LocalQueue and admission check."""
    state = cell().state
    assert cluster_queue_active(state, "none").reason == "NotFound"
    assert local_queue_active(state, LocalQueueKey("team-a/none")).reason == "NotFound"
    assert admission_check_active(state, "none").reason == "NotFound"


def test_a_local_queue_is_as_active_as_its_cluster_queue() -> None:
    """Ready, stopped itself, or pointing to a ClusterQueue that is inactive or gone."""
    some = cell()
    ready = local_queue_active(some.state, QUEUE)
    assert (ready.active, ready.reason, ready.message) == (True, "Ready", "Can submit new workloads to localQueue")
    inactive = local_queue_active(cell(stop_policy="Hold").state, QUEUE)
    assert (inactive.active, inactive.reason) == (False, "ClusterQueueIsInactive")
    some.log.append(Producer.INFORMER_BRIDGE, ClusterQueueDeleted(name="cq"))
    gone = local_queue_active(some.state, QUEUE)
    assert (gone.reason, gone.message) == ("ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
    stopped = LocalQueueObserved(queue=QUEUE, spec=LocalQueueSpec(cluster_queue="cq", stop_policy="Hold"))
    some.log.append(Producer.INFORMER_BRIDGE, stopped)
    answer = local_queue_active(some.state, QUEUE)
    assert (answer.active, answer.reason, answer.message) == (False, "Stopped", "LocalQueue is stopped")


def served(name: str, controller: str) -> AdmissionCheckObserved:
    spec = AdmissionCheckSpec(controller_name=f"kueue.x-k8s.io/{controller}")
    return AdmissionCheckObserved(name=name, spec=spec, active=True)


@pytest.mark.parametrize(
    ("rules", "reason", "what"),
    [
        (
            [CheckRule(name="m"), CheckRule(name="k")],
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: k,m",
        ),
        (
            [CheckRule(name="m", on_flavors=("f",))],
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: m",
        ),
        (
            [CheckRule(name="p"), CheckRule(name="m")],
            "MultiKueueWithProvisioningRequest",
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: m, p",
        ),
    ],
)
def test_checks_that_do_not_go_together_are_named(rules: list[CheckRule], reason: str, what: str) -> None:
    """In Kueue's words."""
    found = served("m", "multikueue"), served("k", "multikueue"), served("p", "provisioning-request")
    strategy = AdmissionChecksStrategy(admission_checks=tuple(rules))
    answer = cluster_queue_active(cell(*found, admission_checks_strategy=strategy).state, "cq")
    assert (answer.active, answer.reason) == (False, reason)
    assert answer.message == f"Can't admit new workloads: {what}."


def test_a_missing_topology_is_no_problem_of_a_manager_or_without_topologies() -> None:
    """With MultiKueue they are those of the workers; with the gate off nobody reads them."""
    tas = {"f": ResourceFlavorSpec(topology_name="t")}
    manager = cell(served("m", "multikueue"), flavors=tas, admission_checks_strategy=checks("m"))
    assert cluster_queue_active(manager.state, "cq").active
    off = cell(flavors=tas)
    assert cluster_queue_active(off.state, "cq").reason == "TopologyNotFound"
    gates = {feature_gates.TOPOLOGY_AWARE_SCHEDULING: False}
    off.log.append(Producer.INFORMER_BRIDGE, ConfigurationObserved(configuration=Configuration(feature_gates=gates)))
    assert cluster_queue_active(off.state, "cq").active
