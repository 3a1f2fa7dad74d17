"""What admission depends on in Kueue's Configuration."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core.admission.rules import MANAGES_UNNAMED, AdmissionTarget, Variable
from headgate.core.config import feature_gates
from headgate.core.config.frameworks import JOB_FRAMEWORK, is_implied, is_named
from headgate.core.config.reader import read_configuration
from headgate.events.objects import LabelSelector


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """
    The gates that the file sets, whether jobs without a queue are managed, the selected namespaces, the frameworks.

    `namespaces` None: all.
    """

    gates: dict[str, bool] = {}
    manages_unnamed: bool = False
    namespaces: LabelSelector | None = None
    frameworks: tuple[str, ...] = (JOB_FRAMEWORK,)

    def is_on(self, gate: str) -> bool:
        """Whether a gate of a rule is on: a gate of Kueue, with `!` its opposite, or `MANAGES_UNNAMED`."""
        if gate.startswith("!"):
            return not self.is_on(gate[1:])
        return self.manages_unnamed if gate == MANAGES_UNNAMED else feature_gates.is_on(self.gates, gate)

    def text_of(self, variable: Variable) -> str:
        """The expression that a variable is under these settings."""
        return variable.expression if not variable.gate or self.is_on(variable.gate) else variable.otherwise

    def covers(self, target: AdmissionTarget) -> bool:
        """Whether objects of a kind are looked at: its framework is enabled, or it is one of Kueue's own kinds."""
        return not target.framework or is_named(target.framework, self.frameworks)

    def scope_of(self, target: AdmissionTarget) -> str:
        """The condition on the objects of a kind that are looked at; "" when all are."""
        return target.implied_scope if is_implied(target.framework, self.frameworks) else target.scope_when


def settings_of(document: Mapping[str, Any]) -> AdmissionSettings:
    """The settings in a file of Kueue's Configuration. Raises ConfigurationError."""
    configuration = read_configuration(document)
    given = document.get("featureGates") or {}
    return AdmissionSettings(
        gates={name: given[name] for name in given if name in feature_gates.KNOWN},
        manages_unnamed=bool(document.get("manageJobsWithoutQueueName")),
        namespaces=configuration.managed_jobs_namespace_selector,
        frameworks=configuration.integrations.frameworks,
    )
