"""
Which plugins run at which extension point, in order, and with which weight: Go's rules.

Sources: pkg/scheduler/apis/config/v1/default_plugins.go (`mergePluginSet`) and framework/runtime/framework.go
(`NewFramework`, `expandMultiPointPlugins`, `getValidScoreWeights`).

- The custom set of a point is merged into the default one, which names plugins under MultiPoint alone: a default that
  is enabled again keeps its place with the new weight, one that is disabled (by name or `*`) goes, the others are
  appended.
- A point then has, in this order: the plugins of its own set that MultiPoint enables too; those that MultiPoint enables
  and that take part in the point; the others of its own set. Disabled by name, or all by `*`, leaves them out.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.configuration.types import PluginReference, Plugins, PluginSet
from headgate.core.placement.framework.plugin import SCORE_MAX

DEFAULTS: Final = PluginSet(
    enabled=(
        PluginReference(name="SchedulingGates"),
        PluginReference(name="PrioritySort"),
        PluginReference(name="NodeUnschedulable"),
        PluginReference(name="NodeName"),
        PluginReference(name="TaintToleration", weight=3),
        PluginReference(name="NodeAffinity", weight=2),
        PluginReference(name="NodePorts"),
        PluginReference(name="NodeResourcesFit", weight=1),
        PluginReference(name="VolumeRestrictions"),
        PluginReference(name="NodeVolumeLimits"),
        PluginReference(name="VolumeBinding"),
        PluginReference(name="VolumeZone"),
        PluginReference(name="PodTopologySpread", weight=2),
        PluginReference(name="InterPodAffinity", weight=2),
        PluginReference(name="DynamicResources", weight=2),
        PluginReference(name="DefaultPreemption"),
        PluginReference(name="NodeResourcesBalancedAllocation", weight=1),
        PluginReference(name="ImageLocality", weight=1),
        PluginReference(name="DefaultBinder"),
        PluginReference(name="NodeDeclaredFeatures"),
        PluginReference(name="GangScheduling"),
    )
)
"""The default plugins, all under MultiPoint. GangScheduling is one with the feature gate of the same name."""

POINTS: Final[Mapping[str, str]] = {
    "preEnqueue": "pre_enqueue",
    "queueSort": "queue_sort",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "score": "score",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
    "placementGenerate": "placement_generate",
    "placementScore": "placement_score",
}
"""The extension points as configured, and their fields in `Plugins`."""

TOTAL_MAX: Final = 2**63 - 1
"""The highest total score of a node."""

ALL: Final = "*"

TakesPart = Callable[[str, str], bool]
"""`takes_part(plugin, point)`."""


def merged(custom: Plugins) -> Plugins:
    """The custom plugins merged into the defaults."""
    sets = {field: _merged_set(PluginSet(), getattr(custom, field)) for field in POINTS.values()}
    return Plugins(multi_point=_merged_set(DEFAULTS, custom.multi_point), **sets)


def _merged_set(defaults: PluginSet, custom: PluginSet) -> PluginSet:
    disabled = [each.name for each in (*custom.disabled, *defaults.disabled)]
    given = {each.name: each for each in custom.enabled}
    kept: list[PluginReference] = []
    if ALL not in disabled:
        kept = [given.get(each.name, each) for each in defaults.enabled if each.name not in disabled]
    # A default that is given twice is replaced by the last of them; the first remains, and is found to be a repetition.
    replaced = [given[each.name] for each in kept if each.name in given]
    kept += [each for each in custom.enabled if not any(each is other for other in replaced)]
    return PluginSet(enabled=tuple(kept), disabled=tuple(PluginReference(name=name) for name in disabled))


def needed(plugins: Plugins) -> list[str]:
    """The names of all plugins that are enabled anywhere, in order of appearance."""
    fields = ("multi_point", *POINTS.values())
    return list(dict.fromkeys(each.name for field in fields for each in getattr(plugins, field).enabled))


def at_points(plugins: Plugins, takes_part: TakesPart, path: str) -> dict[str, tuple[str, ...]]:
    """The plugins of each extension point in order of execution. Raises ConfigurationError."""
    return {
        point: _at_point(plugins.multi_point, getattr(plugins, field), point, takes_part, f"{path}.{point}")
        for point, field in POINTS.items()
    }


def _at_point(multi_point: PluginSet, own: PluginSet, point: str, takes_part: TakesPart, path: str) -> tuple[str, ...]:
    names = [each.name for each in own.enabled]
    for index, name in enumerate(names):
        at = f"{path}.enabled[{index}]"
        if not takes_part(name, point):
            raise ConfigurationError(at, f"plugin {name!r} does not extend {point}", "remove it from this point")
        if name in names[:index]:
            raise ConfigurationError(at, f"plugin {name!r} is enabled twice", "enable it once")
    disabled = [each.name for each in own.disabled]
    if ALL in disabled:
        return tuple(names)
    expanded: list[str] = []
    overridden: list[str] = []
    for each in multi_point.enabled:
        if not takes_part(each.name, point) or each.name in disabled:
            continue
        if each.name in names:
            overridden.append(each.name)
        elif each.name in expanded:
            raise ConfigurationError(f"{path}: multiPoint", f"plugin {each.name!r} is enabled twice", "enable it once")
        else:
            expanded.append(each.name)
    return (
        *(name for name in names if name in overridden),
        *expanded,
        *(name for name in names if name not in overridden),
    )


def weights(plugins: Plugins, takes_part: TakesPart, path: str) -> dict[str, int]:
    """
    The weights of all plugins that score: of their own set before MultiPoint; 1 where none is given.

    Raises ConfigurationError for weights so high that a total score would not be a 64-bit integer.
    """
    found: dict[str, int] = {}
    for each in (*plugins.score.enabled, *plugins.multi_point.enabled):
        if takes_part(each.name, "score"):
            found.setdefault(each.name, each.weight or 1)
    if sum(found.values()) * SCORE_MAX > TOTAL_MAX:
        raise ConfigurationError(f"{path}.score", "the total of the weights is too high", "write lower weights")
    return found
