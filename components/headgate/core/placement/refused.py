"""Why an attempt has given a pod no node, as decisions record it, and what is to be written to help the pod."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headgate.core.kubernetes.pod_manifests import SCHEDULER_ERROR
from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.framework.plugin import ObjectWrite
from headgate.core.placement.framework.status import Code, PluginStatus, unresolvable
from headgate.core.placement.messages import fit_error
from headgate.core.placement.plugins.default_preemption import NAME as DEFAULT_PREEMPTION
from headgate.core.placement.plugins.volume_binding import NAME as VOLUME_BINDING
from headgate.core.state.tables import PlacementRecord
from headgate.events.decisions import ObjectPatch, PluginRefusal

UNSCHEDULABLE: Final = "Unschedulable"


class PodRefused(msgspec.Struct, frozen=True):
    """Why a pod was not placed."""

    reason: str
    message: str
    refusals: tuple[PluginRefusal, ...] = ()
    rejectors: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    writes: tuple[ObjectPatch, ...] = ()


def refusals_of(made: PlacementAttempt) -> tuple[PluginRefusal, ...]:
    """How many nodes each plugin has refused in an attempt, for which reason."""
    return tuple(
        PluginRefusal(plugin=plugin, reason=reason, nodes=nodes)
        for (plugin, reason), nodes in sorted(made.refusals.items())
    )


def refused_of(made: PlacementAttempt) -> PodRefused:
    """What an attempt without a node says."""
    refusals = refusals_of(made)
    pending = (status.plugin for status, _ in made.verdicts.counts() if status.code == Code.PENDING)
    writes = patches(made.post_filtered.writes) if made.post_filtered is not None else ()
    return PodRefused(made.reason, made.message, refusals, made.rejectors, tuple(dict.fromkeys(pending)), writes)


def patches(writes: Iterable[ObjectWrite]) -> tuple[ObjectPatch, ...]:
    """Writes that plugins ask for, as events have them."""
    return tuple(ObjectPatch(kind=write.kind, name=write.key, patch=dict(write.patch)) for write in writes)


def refused_by(status: PluginStatus) -> PodRefused:
    """What a plugin says of the node that was chosen (a FitError over that one node), or its error."""
    refusals = tuple(PluginRefusal(plugin=status.plugin, reason=reason, nodes=1) for reason in status.reasons)
    if not status.is_rejected:
        return PodRefused(SCHEDULER_ERROR, status.message, refusals)
    message = fit_error(1, "", ((status, 1),), unresolvable(), "")
    pending = (status.plugin,) if status.code == Code.PENDING else ()
    return PodRefused(UNSCHEDULABLE, message, refusals, (status.plugin,), pending)


def outwaited(record: PlacementRecord, waits_ms_max: Mapping[str, int]) -> PodRefused | None:
    """
    What the plugin says whose wait at Permit is over first; None while the pod has not waited as long as any lets it.

    `waits_ms_max` are those of the plugins that hold it back now. Each has its own time (waiting_pods_map.go).
    """
    plugin = min(waits_ms_max, key=lambda name: (waits_ms_max[name], name))
    wait_ms = waits_ms_max[plugin]
    if wait_ms > record.waits_ms:
        return None
    reason = f"rejected due to timeout after waiting {_as_go(wait_ms)} at plugin {plugin}"
    return refused_by(PluginStatus(Code.UNSCHEDULABLE, (reason,), plugin))


def _as_go(duration_ms: int) -> str:
    """A duration as Go writes it, of less than an hour."""
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    minutes, rest_ms = divmod(duration_ms, 60_000)
    return f"{minutes}m{rest_ms / 1000:g}s" if minutes else f"{rest_ms / 1000:g}s"


def preempted(record: PlacementRecord) -> PodRefused:
    """A pod that is placed, and whose place goes to another one before it is bound (preemption/executor.go)."""
    if record.waits_ms:
        return refused_by(PluginStatus(Code.UNSCHEDULABLE, ("preempted",), DEFAULT_PREEMPTION))
    return PodRefused(SCHEDULER_ERROR, f"preempted by {DEFAULT_PREEMPTION}")


UNBOUND_VOLUMES: Final = PodRefused(
    SCHEDULER_ERROR, f'running PreBind plugin "{VOLUME_BINDING}": binding volumes: context deadline exceeded'
)
"""Of a pod whose volumes were not bound in time."""
