"""
Admission checks that decide where pods can run: with them, a topology assignment has to wait.

The catalog notes them with each ClusterQueue (Kueue's flavorsForProvReqACs and hasMultiKueueAC). A check of the
ProvisioningRequest controller creates nodes, so its flavors have domains for the pods only when it is Ready. With a
MultiKueue check another cluster places them.
"""

from typing import NamedTuple

from headgate.core.api.admission_checks import MULTI_KUEUE, PROVISIONING
from headgate.core.state.tables import State
from headgate.events.objects import ClusterQueueSpec


class ProvisioningChecks(NamedTuple):
    """The flavors of a ClusterQueue whose nodes are provisioned, and whether its pods run in other clusters."""

    provisioned_flavors: frozenset[str] = frozenset()
    is_multi_cluster: bool = False


def provisioning_checks(state: State, spec: ClusterQueueSpec) -> ProvisioningChecks:
    """Which flavors of a ClusterQueue have such checks."""
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return ProvisioningChecks()
    flavors = [quotas.name for group in spec.resource_groups for quotas in group.flavors]
    provisioned: dict[str, None] = {}
    is_multi_cluster = False
    for rule in strategy.admission_checks:
        record = state.admission_checks.get(rule.name)
        controller = record.spec.controller_name if record is not None else ""
        if controller == PROVISIONING:
            provisioned.update(dict.fromkeys(rule.on_flavors or flavors))
        is_multi_cluster = is_multi_cluster or controller == MULTI_KUEUE
    return ProvisioningChecks(frozenset(provisioned), is_multi_cluster)
