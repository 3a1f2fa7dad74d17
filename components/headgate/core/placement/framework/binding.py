"""
What happens between the choice of a node and the binding: Reserve, Permit, PreBind, Bind, PostBind.

Each point runs the plugins of the profile in order. Nothing is done here: what is reserved, waited for and written is
the answer, and the caller's to carry out. Source: pkg/scheduler/framework/runtime/framework.go.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.core.placement.framework.asking import asked, failed
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import (
    Assumed,
    BindPlugin,
    ObjectWrite,
    PermitPlugin,
    Permitted,
    PostBindPlugin,
    PreBindPlugin,
    PreBound,
    Reserved,
    ReservePlugin,
)
from headgate.core.placement.framework.status import SUCCESS, Code, PluginError, PluginStatus
from headgate.core.placement.nodes import NodeInfo

WAIT_MS_MAX: Final = 15 * 60 * 1000
"""No plugin makes a pod wait for longer."""

_WAITING: Final = "one or more plugins asked to wait and no plugin rejected pod"


class Permission(msgspec.Struct, frozen=True):
    """Success, a rejection, or Wait with how long each plugin lets the pod wait at most."""

    status: PluginStatus = SUCCESS
    waits_ms_max: Mapping[str, int] = {}


class BindingPoints:
    """The plugins of a profile at these points."""

    def __init__(
        self,
        reserves: list[ReservePlugin],
        permits: list[PermitPlugin],
        pre_binds: list[PreBindPlugin],
        binds: list[BindPlugin],
        post_binds: list[PostBindPlugin],
    ) -> None:
        self._reserves = reserves
        self._permits = permits
        self._pre_binds = pre_binds
        self._binds = binds
        self._post_binds = post_binds

    def reserve(self, cycle: PlacementCycle, node: NodeInfo) -> Reserved:
        """All that is set aside; nothing when one of the plugins rejects the pod."""
        assumed: list[Assumed] = []
        for plugin in self._reserves:
            try:
                answer = asked(plugin.name, "Reserve", Reserved, plugin.reserve, cycle, node)
            except PluginError as failure:
                return Reserved(failure.status)
            if not answer.status.is_success:
                return Reserved(_failure(answer.status, "Reserve", plugin.name))
            assumed.extend(answer.assumed)
        return Reserved(assumed=tuple(assumed))

    def permit(self, cycle: PlacementCycle, node: NodeInfo) -> Permission:
        """Whether the pod may be bound now, or what it has to wait for."""
        waits: dict[str, int] = {}
        said: tuple[str, ...] = ()
        for plugin in self._permits:
            try:
                answer = asked(plugin.name, "Permit", Permitted, plugin.permit, cycle, node)
            except PluginError as failure:
                return Permission(failure.status)
            if answer.status.code == Code.WAIT:
                waits[plugin.name] = min(answer.wait_ms_max, WAIT_MS_MAX)
                said = answer.status.reasons
            elif not answer.status.is_success:
                return Permission(_failure(answer.status, "Permit", plugin.name))
        return Permission(PluginStatus(Code.WAIT, (*said, _WAITING)), waits) if waits else Permission()

    def pre_bind(self, cycle: PlacementCycle, node: NodeInfo) -> PreBound:
        """What is left to be written, for all plugins together, or to be waited for."""
        writes: list[ObjectWrite] = []
        is_waiting = False
        for plugin in self._pre_binds:
            try:
                answer = asked(plugin.name, "PreBind", PreBound, plugin.pre_bind, cycle, node)
            except PluginError as failure:
                return PreBound(failure.status)
            if answer.status.code == Code.WAIT:
                is_waiting = True
                writes.extend(answer.writes)
            elif not answer.status.is_success:
                return PreBound(_failure(answer.status, "PreBind", plugin.name))
        return PreBound(PluginStatus(Code.WAIT), tuple(writes)) if is_waiting else PreBound()

    def bind(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Success when the binder is to bind the pod; Skip when no plugin wants to."""
        for plugin in self._binds:
            try:
                status = asked(plugin.name, "Bind", PluginStatus, plugin.bind, cycle, node)
            except PluginError as failure:
                return failure.status
            if status.code != Code.SKIP:
                return status if status.is_success else _failure(status, "Bind", plugin.name)
        return PluginStatus(Code.SKIP)

    def post_bind(self, cycle: PlacementCycle, node: NodeInfo) -> tuple[PluginStatus, ...]:
        """The pod is bound; the failures of plugins, which change nothing about that."""
        failures: list[PluginStatus] = []
        for plugin in self._post_binds:
            try:
                plugin.post_bind(cycle, node)
            except Exception as failure:  # noqa: BLE001 - the pod is bound, and the other plugins are to know it
                failures.append(failed(plugin.name, "PostBind", failure).status)
        return tuple(failures)


def _failure(status: PluginStatus, point: str, name: str) -> PluginStatus:
    """A rejection under the name of its plugin; anything else is an error."""
    if status.is_rejected:
        return status.of(name)
    return PluginStatus(Code.ERROR, (f'running {point} plugin "{name}": {status.message}',), name)
