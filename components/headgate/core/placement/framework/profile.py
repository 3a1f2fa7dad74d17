"""A profile: which plugins run at which extension point, as a configuration says and the runtime reads."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.placement.framework.asking import check_kind
from headgate.core.placement.framework.events import EventHint
from headgate.core.placement.framework.plugin import (
    BindPlugin,
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
)
from headgate.core.state.error_text import describe

_PROTOCOLS: Final[Mapping[str, Any]] = {
    "preEnqueue": PreEnqueuePlugin,
    "queueSort": QueueSortPlugin,
    "preFilter": PreFilterPlugin,
    "filter": FilterPlugin,
    "postFilter": PostFilterPlugin,
    "preScore": PreScorePlugin,
    "score": ScorePlugin,
    "reserve": ReservePlugin,
    "permit": PermitPlugin,
    "preBind": PreBindPlugin,
    "bind": BindPlugin,
    "postBind": PostBindPlugin,
}


PluginArguments = msgspec.Struct | dict[str, Any]
"""As the factory of the plugin wants them."""


class Profile(msgspec.Struct, frozen=True):
    """
    A profile, ready to run.

    `points` has the names of the plugins per extension point in order of execution, `weights` those of the plugins that
    score, `arguments` of the plugins that have any, `plugins` all of them by name.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]
    arguments: Mapping[str, PluginArguments]
    plugins: Mapping[str, Plugin]


def why_unusable(plugin: Plugin, name: str, points: Mapping[str, tuple[str, ...]]) -> str:
    """What of a plugin contradicts the contract, before it is asked for any pod; "" if nothing does."""
    try:
        if plugin.name != name:
            return f"it calls itself {plugin.name!r}"
        for point, protocol in _PROTOCOLS.items():
            if name in points.get(point, ()) and not isinstance(plugin, protocol):
                return f"it lacks a member of {protocol.__name__}"
        for point, attribute in (("filter", "filter_reads"), ("score", "score_reads")):
            if name in points.get(point, ()):
                check_kind(getattr(plugin, attribute), Reads)
        for event in plugin.events() if isinstance(plugin, EnqueueExtensions) else ():
            check_kind(event, EventHint)
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - it may be of another package
        return describe(failure)
    return ""
