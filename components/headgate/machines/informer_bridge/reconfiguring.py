"""
A changed Configuration while the bridge runs: which one can take effect without a restart.

Any, as long as the same frameworks are enabled: kinds of jobs and resources are settled when the machine is made.
Called by the bridge's machine, which appends the configuration as a fact, and by its process, which tells the operator.
"""

from typing import Final

import msgspec

from headgate.core.api import job_kinds
from headgate.core.config.reader import ConfigurationError, read_document
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved

CONFIGURATIONS: Final = "configurations.config.kueue.x-k8s.io"
"""The name under which the machine is shown the file, as if it were a watched resource."""


def refusal(configuration: Configuration, at_start: Configuration) -> str:
    """Why a configuration needs a restart of a bridge that began with another one; "" if it does not."""
    if frozenset(configuration.integrations.frameworks) == frozenset(at_start.integrations.frameworks):
        return ""
    kinds = ", ".join(kind.kind for kind in job_kinds.enabled(configuration))
    return f"it enables other kinds of jobs ({kinds}); restart the informer bridge"


def changed_configuration(raw: bytes, at_start: Configuration) -> ConfigurationObserved | None:
    """The configuration of a file's content as JSON; None if it cannot take effect now."""
    try:
        observed = read_document(msgspec.json.decode(raw))
    except (ConfigurationError, msgspec.DecodeError):
        return None
    return None if refusal(observed.configuration, at_start) else observed
