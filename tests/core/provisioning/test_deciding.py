"""
What follows for an admission check, and for a workload, from its ProvisioningRequests: rule by rule.

The expectations are what Kueue's provisioning controller does (syncCheckStates, syncOwnedProvisionRequest and
deleteUnusedProvisioningRequests of pkg/controller/admissionchecks/provisioning).
"""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.queueing import QueueCell

from headgate.core.provisioning.configs import config_of, standing
from headgate.core.provisioning.deciding import backoff_s, is_needed
from headgate.core.provisioning.names import request_key
from headgate.core.state.tables import Stage
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration
from headgate.events.ids import RequestKey, Uid
from headgate.events.objects import (
    AdmissionCheckSpec,
    AdmissionChecksStrategy,
    CheckParameters,
    CheckRule,
    CheckState,
    Condition,
    ProvisioningConfigSpec,
    ProvisioningRequest,
    ProvisioningRetries,
    ProvisioningUpdates,
    RequestedPods,
    SelectorFromDetail,
)

KUEUE, KIND = "kueue.x-k8s.io", "ProvisioningRequestConfig"
CONTROLLER = "kueue.x-k8s.io/provisioning-request"
CONFIG = ProvisioningConfigSpec(
    provisioning_class_name="class", retry_strategy=ProvisioningRetries(backoff_limit_count=2, backoff_base_seconds=10)
)
UID = Uid("uid-w")


def check_spec(name: str = "config", group: str = KUEUE, kind: str = KIND) -> AdmissionCheckSpec:
    return AdmissionCheckSpec(
        controller_name=CONTROLLER, parameters=CheckParameters(api_group=group, kind=kind, name=name)
    )


class Provisioned:
    """A workload `team/w` whose quota is reserved, with the check `prov`."""

    def __init__(self, config: ProvisioningConfigSpec | None = CONFIG, *, crashes: bool = False) -> None:
        self.cell = QueueCell(crashes=crashes)
        if config is not None:
            self.cell.see(facts.ProvisioningConfigObserved(name="config", spec=config))
        self.cell.see(facts.AdmissionCheckObserved(name="prov", spec=check_spec(), active=True))
        self.cell.ready(admission_checks_strategy=AdmissionChecksStrategy(admission_checks=(CheckRule(name="prov"),)))
        self.key = self.cell.submit("w")
        self.cell.settle()

    def reserve(self) -> list[EventBase]:
        """A cycle reserves its quota; what the queue manager says then."""
        (reserved,) = self.cell.reserved(self.key, checks=("prov",))
        assert isinstance(reserved, decisions.QuotaReserved)
        # A check keeps what it has from the reservation before.
        self.cell.cycle_of(replace(reserved, checks=self.cell[self.key].checks or reserved.checks))
        return self.cell.settle()

    def show(
        self, *conditions: Condition, attempt: int = 1, class_name: str = "class", uid: str = "", **more: Any
    ) -> list[EventBase]:
        """The API server shows a request of it; what the queue manager says then."""
        key = request_key(self.key, "prov", attempt)
        pods = (RequestedPods(template=f"ppt-w-prov-{attempt}-main", count=1),)
        spec = ProvisioningRequest(
            uid=uid or f"uid-{attempt}",
            owner_uid=UID,
            class_name=class_name,
            pod_sets=pods,
            conditions=conditions,
            **more,
        )
        self.cell.see(facts.ProvisioningRequestObserved(request=key, owner=self.key, spec=spec))
        return self.cell.settle()

    def delete(self, attempt: int = 1) -> list[EventBase]:
        """The API server shows that a request is gone."""
        key = request_key(self.key, "prov", attempt)
        self.cell.see(facts.ProvisioningRequestDeleted(request=key, owner=self.key, uid=Uid(f"uid-{attempt}")))
        return self.cell.settle()

    def admit(self) -> None:
        """The scheduler admits it."""
        self.cell.cycle_of(self.cell.admitted(self.key))
        self.cell.settle()

    @property
    def check(self) -> CheckState:
        (check,) = self.cell[self.key].checks
        return check

    @property
    def said(self) -> tuple[str, str]:
        return self.check.state, self.check.message


def true(kind: str, message: str = "") -> Condition:
    return Condition(type=kind, status="True", reason=kind, message=message)


def requests(events: list[EventBase]) -> list[tuple[str, int]]:
    return [(each.request, each.attempt) for each in events if isinstance(each, queueing.ProvisioningRequested)]


def withdrawn(events: list[EventBase]) -> list[RequestKey]:
    return [each.request for each in events if isinstance(each, queueing.ProvisioningWithdrawn)]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_reservation_requests_capacity_once(crashes: bool) -> None:
    """The first attempt, and nothing more while it is created and waited for."""
    workload = Provisioned(crashes=crashes)
    assert requests(workload.reserve()) == [("team/w-prov-1", 1)]
    created = effects.ProvisioningCreated(workload=workload.key, uid=UID, request=RequestKey("team/w-prov-1"))
    workload.cell.put(Producer.BINDER, created)
    assert workload.cell.settle() == []
    assert workload.show() == []
    assert workload.said == ("Pending", "")


# Conditions of the first request -> the state of the check and its message.
STATES = [
    ("", "Pending", ""),
    ("Accepted", "Pending", ""),
    ("Accepted Provisioned=False", "Pending", "of Provisioned"),
    ("Provisioned", "Ready", "of Provisioned"),
    ("Accepted Provisioned", "Ready", "of Provisioned"),
    ("Provisioned CapacityRevoked", "Rejected", "of CapacityRevoked"),
    ("Provisioned BookingExpired CapacityRevoked", "Rejected", "of CapacityRevoked"),
]


@pytest.mark.parametrize(("conditions", "state", "message"), STATES)
def test_the_state_of_a_check_follows_from_the_request(conditions: str, state: str, message: str) -> None:
    """With the message of the condition that decides."""
    workload = Provisioned()
    workload.reserve()
    found = [each.partition("=") for each in conditions.split()]
    shown = [replace(true(kind, f"of {kind}"), status=status or "True") for kind, _, status in found]
    said = workload.show(*shown)
    updates = [each.check for each in said if isinstance(each, queueing.CheckUpdated)]
    assert ([(each.state, each.message) for each in updates] or [("Pending", "")])[-1] == (state, message)


def test_provisioned_capacity_is_used_by_annotations_and_selectors() -> None:
    """A detail that the request lacks is left out; states that come later change nothing."""
    wanted = ProvisioningUpdates(
        node_selector=(
            SelectorFromDetail(key="pool", value_from_provisioning_class_detail="Pool"),
            SelectorFromDetail(key="zone", value_from_provisioning_class_detail="Zone"),
        )
    )
    workload = Provisioned(replace(CONFIG, pod_set_updates=wanted))
    workload.reserve()
    workload.show(true("Provisioned"), details={"Pool": "new"})
    (update,) = workload.check.pod_set_updates
    assert (update.name, update.node_selector) == ("main", {"pool": "new"})
    assert update.annotations == {
        "autoscaling.x-k8s.io/consume-provisioning-request": "w-prov-1",
        "autoscaling.x-k8s.io/provisioning-class-name": "class",
    }
    assert workload.show(true("Provisioned"), details={"Pool": "other"}) == []


@pytest.mark.parametrize("kind", ["Failed", "BookingExpired"])
def test_a_failure_is_tried_again_after_a_backoff_until_the_limit(kind: str) -> None:
    """Retry evicts and keeps the count; the requests are withdrawn; after the last attempt it is rejected."""
    workload = Provisioned()
    again = "Retrying after failure: no" if kind == "Failed" else "Retrying after booking expired: no"
    for attempt, backoff in ((1, 10), (2, 20)):
        assert requests(workload.reserve()) == [(f"team/w-prov-{attempt}", attempt)]
        said = workload.show(true(kind, "no"), attempt=attempt)
        (updated,) = (each.check for each in said if isinstance(each, queueing.CheckUpdated))
        assert (updated.state, updated.message, updated.requeue_after_seconds) == ("Retry", again, backoff)
        (evicted,) = (each for each in said if isinstance(each, queueing.WorkloadEvicted))
        assert evicted.message == f'Evicted due to AdmissionCheck in Retry state: "prov" ({again})'
        assert withdrawn(said) == [f"team/w-prov-{attempt}"]
        assert workload.check.retry_count == attempt
        workload.delete(attempt)
        workload.cell.owner_stops(workload.key)
        workload.cell.settle()
        workload.cell.pass_s(backoff + 1)
        workload.cell.settle()
        assert workload.cell.stage(workload.key) is Stage.OFFERED
    assert requests(workload.reserve()) == [("team/w-prov-3", 3)]
    said = workload.show(true(kind, "no"), attempt=3)
    (evicted,) = (each for each in said if isinstance(each, queueing.WorkloadEvicted))
    assert (evicted.reason, evicted.underlying_cause) == ("Deactivated", "AdmissionCheck")


def test_a_booking_that_expires_after_the_admission_changes_nothing() -> None:
    """The pods are there already; capacity that is revoked ends them."""
    workload = Provisioned()
    workload.reserve()
    workload.show(true("Provisioned"))
    workload.admit()
    assert workload.show(true("Provisioned"), true("BookingExpired", "late")) == []
    said = workload.show(true("Provisioned"), true("CapacityRevoked", "gone"))
    (evicted,) = (each for each in said if isinstance(each, queueing.WorkloadEvicted))
    assert evicted.underlying_cause == "AdmissionCheck"


def test_requests_outlive_an_eviction_where_the_gate_is_off() -> None:
    """The failed one is found again: its attempt counts, and the next request has the next number."""
    workload = Provisioned()
    gates = {"CleanupProvisioningRequestsOnEviction": False}
    workload.cell.see(facts.ConfigurationObserved(configuration=Configuration(feature_gates=gates)))
    workload.reserve()
    assert withdrawn(workload.show(true("Failed", "no"))) == []
    workload.cell.owner_stops(workload.key)
    workload.cell.settle()
    workload.cell.pass_s(11)
    workload.cell.settle()
    said = workload.reserve()
    assert requests(said) == [("team/w-prov-2", 2)]
    assert withdrawn(said) == ["team/w-prov-1"]
    assert workload.said == ("Pending", "Retrying after failure: no")


@pytest.mark.parametrize(
    ("class_name", "parameters", "replaced"),
    [
        ("class", {"a": "1", "more": "x"}, False),
        ("other", {"a": "1"}, True),
        ("class", {"a": "2"}, True),
        ("class", {}, True),
    ],
)
def test_a_request_that_differs_from_its_configuration_is_replaced(
    class_name: str, parameters: dict[str, str], replaced: bool
) -> None:
    """It must have the class and all parameters; more of them do no harm. The new one waits until the old is gone."""
    workload = Provisioned(replace(CONFIG, parameters={"a": "1"}))
    workload.reserve()
    said = workload.show(class_name=class_name, parameters=parameters)
    assert bool(withdrawn(said)) == replaced
    assert requests(said) == []
    if replaced:
        assert requests(workload.delete()) == [("team/w-prov-1", 1)]


def test_a_refused_request_is_told_by_its_check() -> None:
    """And no longer once it could be created."""
    workload = Provisioned()
    workload.reserve()
    message = 'Error creating ProvisioningRequest "w-prov-1": no'
    rejected = effects.ProvisioningRejected(
        workload=workload.key,
        uid=UID,
        request=RequestKey("team/w-prov-1"),
        code=403,
        reason="Forbidden",
        message=message,
    )
    workload.cell.put(Producer.BINDER, rejected)
    workload.cell.settle()
    assert workload.said == ("Pending", message)
    workload.show()
    assert workload.said == ("Pending", "")


def test_a_check_without_its_configuration_is_not_active() -> None:
    """It is Pending, and nothing is requested until the configuration is there."""
    workload = Provisioned(None)
    assert requests(workload.reserve()) == []
    assert workload.said == ("Pending", "the check is not active")
    workload.cell.see(facts.ProvisioningConfigObserved(name="config", spec=CONFIG))
    assert requests(workload.cell.settle()) == [("team/w-prov-1", 1)]


@pytest.mark.parametrize(
    ("resources", "needed"), [((), True), (("cpu",), True), (("example.com/gpu",), False), (("memory", "cpu"), True)]
)
def test_only_managed_resources_need_a_request(resources: tuple[str, ...], needed: bool) -> None:
    """All of them where none is named. Without need the check is Ready and says so."""
    workload = Provisioned(replace(CONFIG, managed_resources=resources))
    said = workload.reserve()
    assert bool(requests(said)) == needed
    assert (workload.said == ("Ready", "the provisioning request is not needed")) == (not needed)
    config = config_of(workload.cell.state, "prov")
    assert config is not None
    assert is_needed(workload.cell[workload.key], config) is needed


def test_a_finished_workload_gives_its_requests_back() -> None:
    """They are withdrawn once."""
    workload = Provisioned()
    workload.reserve()
    workload.show(true("Provisioned"))
    workload.admit()
    over = Condition(type="Finished", status="True", reason="Succeeded", message="done")
    workload.cell.see(workload.cell.observed("w", finished=over))
    assert withdrawn(workload.cell.settle()) == ["team/w-prov-1"]
    assert workload.cell.settle() == []


def test_what_others_write_into_a_decided_check_changes_nothing() -> None:
    """Its state is decided from the request alone."""
    workload = Provisioned()
    workload.reserve()
    workload.show(true("Accepted"), Condition(type="Provisioned", status="False", message="ETA: 5m"))
    workload.cell.see(workload.cell.observed("w", checks=(CheckState(name="prov", state="Rejected", message="mine"),)))
    assert workload.cell.settle() == []
    assert workload.said == ("Pending", "ETA: 5m")


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (check_spec(), "Active", "The admission check is active"),
        (AdmissionCheckSpec(controller_name=CONTROLLER), "BadParametersRef", "missing parameters reference"),
        (check_spec(name=""), "BadParametersRef", "empty name: bad parameters reference"),
        (
            check_spec(group="g"),
            "BadParametersRef",
            f'wrong group "g", expecting "{KUEUE}": bad parameters reference',
        ),
        (check_spec(kind="K"), "BadParametersRef", f'wrong kind "K", expecting "{KIND}": bad parameters reference'),
        (check_spec(name="none"), "BadParametersRef", f'{KIND}.{KUEUE} "none" not found'),
    ],
)
def test_a_check_is_active_by_its_configuration(spec: AdmissionCheckSpec, reason: str, message: str) -> None:
    """With Kueue's reasons and messages."""
    found = standing(Provisioned().cell.state, spec)
    assert found is not None
    assert (found.reason, found.message, found.active) == (reason, message, reason == "Active")


@pytest.mark.parametrize(
    ("base", "limit", "waits"),
    [(60, 1800, [60, 120, 240, 480, 960, 1800, 1800]), (10, 15, [10, 15, 15]), (100, 50, [100, 50]), (0, 5, [0, 0])],
)
def test_waits_double_up_to_their_limit(base: int, limit: int, waits: list[int]) -> None:
    """The limit does not apply to the first."""
    retries = ProvisioningRetries(backoff_base_seconds=base, backoff_max_seconds=limit)
    assert [backoff_s(retries, count) for count in range(1, len(waits) + 1)] == waits
