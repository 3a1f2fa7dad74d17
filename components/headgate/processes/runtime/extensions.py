"""
Kinds of jobs from other packages, found by the entry point group `headgate.integrations`.

A package names an object, or a class without arguments, that is an `Integration` (`headgate.core.jobs.integration`):

    [project.entry-points."headgate.integrations"]
    "example.com/trainer" = "example_trainer:Trainer"

The command line loads them when it starts, before a machine is made: every process of a cell needs the same packages,
because state and decisions depend on which jobs the cell runs. A kind runs once its framework is named in
`integrations.frameworks`.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

GROUP: Final = "headgate.integrations"


class ExtensionError(Exception):
    """Raised when an integration of another package cannot be used; the message names entry point and remedy."""

    def __init__(self, found: EntryPoint, why: str) -> None:
        super().__init__(
            f"the integration {found.name} ({found.value}) cannot be used: {why}. Correct or uninstall its package"
        )


def load_integrations(found: Iterable[EntryPoint] | None = None) -> tuple[str, ...]:
    """
    Register the integrations of other packages, and return their frameworks; by default those that are installed.

    Raises ExtensionError.
    """
    return tuple(_load(each) for each in (entry_points(group=GROUP) if found is None else found))


def _load(found: EntryPoint) -> str:
    # Only here, because the command line begins with this module.
    from headgate.core.jobs.registry import register

    try:
        loaded = found.load()
        integration = loaded() if isinstance(loaded, type) else loaded
        register(integration)
    except Exception as error:
        # Whatever code of another package raises.
        raise ExtensionError(found, f"{type(error).__name__}: {error}") from error
    framework: str = integration.kind.framework
    return framework
