"""
Profiles: per scheduler name, the plugins of each extension point in order, their weights and arguments.

`read_profiles` makes them of a KubeSchedulerConfiguration document; `framework.runtime` runs one.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.config.fields import ConfigurationError, nearest
from headgate.core.placement.configuration.checks import REMOVED, check, check_extenders
from headgate.core.placement.configuration.decoding import decoded
from headgate.core.placement.configuration.merging import POINTS, at_points, merged, needed, weights
from headgate.core.placement.configuration.types import (
    Extender,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    PluginConfig,
    Plugins,
)
from headgate.core.placement.framework.plugin import Plugin, PluginFactory
from headgate.core.placement.framework.profile import PluginArguments, Profile, why_unusable
from headgate.core.state.error_text import describe

DEFAULT_NAME: Final = "default-scheduler"

METHODS: Final[Mapping[str, str]] = {
    **{point: field for point, field in POINTS.items() if not point.startswith("placement")},
    "queueSort": "sort_key",
}
"""The method by which a plugin takes part in a point. No plugin takes part in the points of pod groups."""

CORRECT: Final = "correct its arguments or its package, or do not enable it"

_FIT: Final = "NodeResourcesFit"
"""The plugin that leaves resources to extenders."""

Registry = Mapping[str, PluginFactory]


class Profiles(msgspec.Struct, frozen=True):
    """What a configuration amounts to."""

    by_name: Mapping[str, Profile]
    percentage_of_nodes_to_score: int
    initial_backoff_s: int
    max_backoff_s: int
    extenders: tuple[Extender, ...]

    def percentage_of(self, profile: Profile) -> int:
        """How many of the nodes are scored for pods of a profile; 0 adapts to their number."""
        own = profile.percentage_of_nodes_to_score
        return self.percentage_of_nodes_to_score if own is None else own


def read_profiles(document: Mapping[str, Any] | None, registry: Registry) -> Profiles:
    """
    The profiles of a KubeSchedulerConfiguration; None gives the default one.

    Raises ConfigurationError for an unknown field, plugin or argument, and for values that Kubernetes refuses.
    """
    configuration = _configuration(document)
    check(configuration)
    profiles = [
        _profile(profile, registry, f"profiles[{index}]", _ignored_resources(configuration.extenders))
        for index, profile in enumerate(configuration.profiles)
    ]
    _check_queue_sort(profiles)
    return Profiles(
        by_name={profile.scheduler_name: profile for profile in profiles},
        percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score,
        initial_backoff_s=configuration.pod_initial_backoff_seconds,
        max_backoff_s=configuration.pod_max_backoff_seconds,
        extenders=configuration.extenders,
    )


def read_extenders(document: Mapping[str, Any]) -> tuple[Extender, ...]:
    """The extenders alone of a KubeSchedulerConfiguration document. Raises ConfigurationError."""
    extenders = decoded(document.get("extenders") or [], tuple[Extender, ...], "extenders")
    check_extenders(extenders)
    return extenders


def _configuration(document: Mapping[str, Any] | None) -> KubeSchedulerConfiguration:
    if document is None:
        document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    configuration = decoded(document, KubeSchedulerConfiguration)
    profiles = configuration.profiles or (KubeSchedulerProfile(),)
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        profiles = (msgspec.structs.replace(profiles[0], scheduler_name=DEFAULT_NAME),)
    return msgspec.structs.replace(configuration, profiles=profiles)


def _ignored_resources(extenders: tuple[Extender, ...]) -> tuple[str, ...]:
    """The resources that extenders account for alone."""
    managed = (resource for extender in extenders for resource in extender.managed_resources)
    return tuple(resource.name for resource in managed if resource.ignored_by_scheduler)


def _leave_to_extenders(arguments: dict[str, PluginArguments], ignored: tuple[str, ...], path: str) -> None:
    """Have the filter of resources ignore some. They replace what is configured, as in Go (buildExtenders)."""
    fit = arguments.get(_FIT)
    if not isinstance(fit, msgspec.Struct):
        raise ConfigurationError(
            path, f"an extender has {_FIT} ignore {ignored[0]!r}, which is not enabled", "enable it"
        )
    arguments[_FIT] = msgspec.structs.replace(fit, ignored_resources=ignored)


def _profile(given: KubeSchedulerProfile, registry: Registry, path: str, ignored: tuple[str, ...]) -> Profile:
    custom = merged(given.plugins)
    names = needed(custom)
    for name in names:
        if name not in registry:
            at = _place_of(name, given.plugins, path)
            raise ConfigurationError(at, f"there is no plugin {name!r}", _remedy(name, registry))
    arguments = _arguments(given.plugin_config, names, registry, path)
    if ignored:
        _leave_to_extenders(arguments, ignored, f"{path}.plugins")
    plugins = {name: _built(registry[name], arguments.get(name), f"{path}.plugins") for name in names}

    def takes_part(name: str, point: str) -> bool:
        return point in METHODS and callable(getattr(plugins[name], METHODS[point], None))

    points = at_points(custom, takes_part, f"{path}.plugins")
    if len(points["queueSort"]) != 1:
        raise ConfigurationError(
            f"{path}.plugins.queueSort", f"{len(points['queueSort'])} plugins are enabled", "enable exactly one"
        )
    if not points["bind"]:
        raise ConfigurationError(f"{path}.plugins.bind", "no plugin is enabled", "enable one, e.g. DefaultBinder")
    for name, plugin in plugins.items():
        why = why_unusable(plugin, name, points)
        if why:
            raise ConfigurationError(f"{path}.plugins", f"plugin {name!r} cannot be used: {why}", CORRECT)
    all_weights = weights(custom, takes_part, f"{path}.plugins")
    return Profile(
        scheduler_name=given.scheduler_name or DEFAULT_NAME,
        percentage_of_nodes_to_score=given.percentage_of_nodes_to_score,
        points={point: found for point, found in points.items() if found},
        weights={name: all_weights[name] for name in points["score"]},
        arguments=arguments,
        plugins=plugins,
    )


def _built(factory: PluginFactory, arguments: Any, path: str) -> Plugin:
    try:
        return factory.build(arguments)
    except (ConfigurationError, MemoryError):
        raise
    except Exception as failure:
        # Whatever code of another package raises.
        raise ConfigurationError(
            path, f"plugin {factory.name!r} cannot be made: {describe(failure)}", CORRECT
        ) from failure


def _place_of(name: str, plugins: Plugins, path: str) -> str:
    for field in msgspec.structs.fields(plugins):
        enabled = getattr(plugins, field.name).enabled
        for index, each in enumerate(enabled):
            if each.name == name:
                return f"{path}.plugins.{field.encode_name}.enabled[{index}].name"
    return f"{path}.plugins"


def _remedy(name: str, registry: Registry) -> str:
    return "enable NodeVolumeLimits instead" if name in REMOVED else nearest(name, list(registry))


def _arguments(
    given: tuple[PluginConfig, ...], names: list[str], registry: Registry, path: str
) -> dict[str, PluginArguments]:
    """The arguments of the plugins of a profile that have any, and of others that are configured, with defaults."""
    found: dict[str, PluginArguments] = {}
    configured = [(config, f"{path}.pluginConfig[{index}]") for index, config in enumerate(given)]
    missing = [name for name in names if all(config.name != name for config in given)]
    for config, at in [*configured, *((PluginConfig(name=name), path) for name in missing)]:
        factory = registry.get(config.name)
        if factory is None:
            raise ConfigurationError(
                f"{at}.name", f"there is no plugin {config.name!r}", _remedy(config.name, registry)
            )
        if factory.arguments is None:
            if config.args:
                raise ConfigurationError(f"{at}.args", f"plugin {config.name!r} has no arguments", "remove them")
            continue
        arguments = decoded(_own(config, f"{at}.args"), factory.arguments, f"{at}.args")
        if factory.defaulted is not None:
            arguments = factory.defaulted(arguments)
        if factory.check is not None:
            factory.check(arguments, f"{at}.args")
        found[config.name] = arguments
    return found


def _own(config: PluginConfig, path: str) -> dict[str, Any]:
    """The arguments without the version and kind that they may carry."""
    given = dict(config.args or {})
    kind = given.pop("kind", f"{config.name}Args")
    given.pop("apiVersion", None)
    if kind != f"{config.name}Args":
        raise ConfigurationError(f"{path}.kind", f"{kind!r} is that of another plugin", f"write {config.name}Args")
    return given


def _check_queue_sort(profiles: list[Profile]) -> None:
    """There is one queue: its order must be the same for all profiles."""
    first = profiles[0]
    name = first.points["queueSort"]
    for index, profile in enumerate(profiles[1:], 1):
        same_arguments = profile.arguments.get(name[0]) == first.arguments.get(name[0])
        if profile.points["queueSort"] != name or not same_arguments:
            raise ConfigurationError(
                f"profiles[{index}].plugins.queueSort",
                f"it is another one than that of {first.scheduler_name!r}",
                "enable the same with the same arguments in all profiles",
            )
