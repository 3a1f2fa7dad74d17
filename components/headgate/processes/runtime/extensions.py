"""
What other packages add, found by entry points: kinds of jobs, and placement plugins.

Kinds of jobs are in the group `headgate.integrations`. A package names an object, or a class without arguments, that is
an `Integration` (`headgate.core.jobs.integration`):

    [project.entry-points."headgate.integrations"]
    "example.com/trainer" = "example_trainer:Trainer"

The command line loads them when it starts, before a machine is made: every process of a cell needs the same packages,
because state and decisions depend on which jobs the cell runs. A kind runs once its framework is named in
`integrations.frameworks`.

Placement plugins are in the group `headgate.placement_plugins`. An entry point has the plugin's name, and is a class or
another callable that is given the plugin's arguments as a dict, or a `PluginFactory`
(`headgate.core.placement.framework.plugin`). A plugin runs once a profile of the scheduler enables it.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.core.placement.configuration.profiles import Registry
    from headgate.core.placement.framework.plugin import PluginFactory

GROUP: Final = "headgate.integrations"
PLACEMENT_GROUP: Final = "headgate.placement_plugins"


class ExtensionError(Exception):
    """Raised when something of another package cannot be used; the message names entry point and remedy."""

    def __init__(self, found: EntryPoint, why: str, what: str = "integration") -> None:
        super().__init__(
            f"the {what} {found.name} ({found.value}) cannot be used: {why}. Correct or uninstall its package"
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


def load_placement_plugins(found: Iterable[EntryPoint] | None = None) -> "Registry":
    """
    The plugins of the kube-scheduler and those of other packages; by default those that are installed.

    Raises ExtensionError.
    """
    # Only here, because the command line begins with this module.
    from headgate.core.placement.plugins.registry import REGISTRY

    registry = dict(REGISTRY)
    for each in entry_points(group=PLACEMENT_GROUP) if found is None else found:
        if each.name in registry:
            raise ExtensionError(each, "there is a plugin of this name already", "placement plugin")
        try:
            registry[each.name] = _plugin_factory(each)
        except Exception as error:
            # Whatever code of another package raises.
            raise ExtensionError(each, f"{type(error).__name__}: {error}", "placement plugin") from error
    return registry


def _plugin_factory(found: EntryPoint) -> "PluginFactory":
    from headgate.core.placement.framework.plugin import PluginFactory

    loaded = found.load()
    if isinstance(loaded, PluginFactory):
        if loaded.name != found.name:
            raise ValueError(f"the factory makes {loaded.name!r}")
        return loaded
    if not callable(loaded):
        raise TypeError(f"a {type(loaded).__name__} cannot be called to make a plugin")
    return PluginFactory(found.name, loaded, arguments=dict)
