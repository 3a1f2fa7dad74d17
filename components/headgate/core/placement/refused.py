"""Why an attempt has given a pod no node, as decisions record it, and what is to be written to help the pod."""

from collections.abc import Iterable
from typing import Final

import msgspec

from headgate.core.kubernetes.pod_manifests import SCHEDULER_ERROR
from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.framework.plugin import ObjectWrite
from headgate.core.placement.framework.status import Code, PluginStatus, unresolvable
from headgate.core.placement.messages import fit_error
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
