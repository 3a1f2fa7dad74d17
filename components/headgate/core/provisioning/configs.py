"""
Which ProvisioningRequestConfig an admission check has, and whether the check is active by it.

Reasons and messages are those of Kueue (admissioncheck_reconciler.go and pkg/util/admissioncheck), and one more: a
cluster may not have the API of ProvisioningRequests, or get it later. Kueue then serves none of its checks, without a
word; here they say so.
"""

from typing import Final

import msgspec

from headgate.core.api.admission_checks import PROVISIONING
from headgate.core.state.tables import State
from headgate.events.objects import AdmissionCheckSpec, ProvisioningConfigSpec

_GROUP: Final = "kueue.x-k8s.io"
_KIND: Final = "ProvisioningRequestConfig"
REQUESTS: Final = "provisioningrequests"
_CONFIGS: Final = "provisioningrequestconfigs"
"""The watched resources."""

_BAD: Final = "bad parameters reference"


class CheckStanding(msgspec.Struct, frozen=True):
    """The Active condition of an admission check: its status, reason and message."""

    active: bool
    reason: str
    message: str


_ACTIVE: Final = CheckStanding(active=True, reason="Active", message="The admission check is active")
UNSERVED: Final = CheckStanding(
    active=False,
    reason="ProvisioningRequestNotServed",
    message="The API server does not serve autoscaling.x-k8s.io/v1 ProvisioningRequests: install their definition "
    "together with a cluster autoscaler that carries them out",
)
"""Of every check for ProvisioningRequests in a cluster that has none."""


def is_ours(state: State, check: str) -> bool:
    """Whether a check is one for ProvisioningRequests."""
    record = state.admission_checks.get(check)
    return record is not None and record.spec.controller_name == PROVISIONING


def standing(state: State, spec: AdmissionCheckSpec) -> CheckStanding | None:
    """
    Whether a check for ProvisioningRequests is active, and if not, why; None while not everything is listed.

    What is not installed has no mark in the log.
    """
    if not are_known(state):
        return None
    if state.resource_versions and not state.resource_versions.get(REQUESTS):
        return UNSERVED
    problem = _problem(state, spec)
    return CheckStanding(active=False, reason="BadParametersRef", message=problem) if problem else _ACTIVE


def _problem(state: State, spec: AdmissionCheckSpec) -> str:
    ref = spec.parameters
    if ref is None:
        return "missing parameters reference"
    if not ref.name:
        return f"empty name: {_BAD}"
    if ref.api_group != _GROUP:
        return f'wrong group "{ref.api_group}", expecting "{_GROUP}": {_BAD}'
    if ref.kind != _KIND:
        return f'wrong kind "{ref.kind}", expecting "{_KIND}": {_BAD}'
    if ref.name not in state.provisioning_configs:
        return f'{_KIND}.{_GROUP} "{ref.name}" not found'
    return ""


def are_known(state: State) -> bool:
    """
    Whether a configuration that is not in the state does not exist.

    A log of an earlier version has none, until an informer bridge of this one has listed them.
    """
    return not state.relisting and (not state.resource_versions or _CONFIGS in state.resource_versions)


def config_of(state: State, check: str) -> ProvisioningConfigSpec | None:
    """The configuration of a check for ProvisioningRequests; None when it has none that is usable."""
    record = state.admission_checks.get(check)
    if record is None or record.spec.parameters is None or _problem(state, record.spec):
        return None
    return state.provisioning_configs[record.spec.parameters.name]


def checks_using(state: State, config: str) -> list[str]:
    """The checks for ProvisioningRequests that name a configuration."""
    return [
        name
        for name, record in state.admission_checks.items()
        if record.spec.controller_name == PROVISIONING
        and record.spec.parameters is not None
        and record.spec.parameters.name == config
    ]
