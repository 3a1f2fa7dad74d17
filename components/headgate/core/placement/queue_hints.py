"""
Which plugins care about an event, and what their hints say of a pod that they have rejected.

The registrations of all profiles are matched once per kind of event. Hints that read a part of a pod's shape
(`EventHint.key`) are asked once per event for all pods that are equal in it. A hint that raises an exception counts as
Queue, as in the kube-scheduler: an attempt too many is better than a pod that is forgotten.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.asking import failed
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import EventHint, Hint
from headgate.core.placement.framework.plugin import EnqueueExtensions, Plugin, PreEnqueuePlugin, QueueSortPlugin
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import PluginStatus
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue_entry import QueuedPod
from headgate.core.placement.queue_events import ClusterEvent, EventRegistration, registrations
from headgate.events.extenders import EXTENDER

_REJECTING: Final = ("preEnqueue", "preFilter", "filter", "reserve", "permit", "preBind")
"""The extension points whose plugins can reject a pod."""

QUEUEING_HINT: Final = "QueueingHint"
"""What failures of hints are named by."""


class QueueProfile(msgspec.Struct, frozen=True):
    """What the queue needs of a profile. `cycle` makes the cycle in which PreEnqueue plugins are asked."""

    cycle: Callable[[PodInfo], PlacementCycle]
    sort: QueueSortPlugin
    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    registrations: tuple[EventRegistration, ...]


def queue_profile(framework: Framework) -> QueueProfile:
    """What the queue needs of a profile that runs."""
    points, plugins = framework.profile.points, framework.profile.plugins
    sort = plugins[points["queueSort"][0]]
    assert isinstance(sort, QueueSortPlugin), f"{sort.name} does not sort"
    gates = [plugins[name] for name in points.get("preEnqueue", ())]
    rejecting = dict.fromkeys(name for point in _REJECTING for name in points.get(point, ()))
    declared = [(name, _events_of(plugins[name])) for name in rejecting]
    if framework.extenders:
        # What an extender decides by is not known: any event may help.
        declared.insert(0, (EXTENDER, None))
    return QueueProfile(
        cycle=framework.cycle,
        sort=sort,
        pre_enqueue=tuple(gate for gate in gates if isinstance(gate, PreEnqueuePlugin)),
        registrations=registrations(declared),
    )


def _events_of(plugin: Plugin) -> tuple[EventHint, ...] | None:
    return plugin.events() if isinstance(plugin, EnqueueExtensions) else None


Failures = dict[tuple[str, str], PluginStatus]
"""By plugin and extension point the last failure of it."""


class Interest:
    """Who cares about one kind of event: all profiles' plugins, and the registrations by profile."""

    def __init__(self, by_profile: Mapping[str, tuple[EventRegistration, ...]], failures: Failures) -> None:
        self._by_profile = by_profile
        self._failures = failures
        self.plugins = tuple(dict.fromkeys(each.plugin for registered in by_profile.values() for each in registered))
        """The plugins, by name."""

    def __bool__(self) -> bool:
        return bool(self.plugins)

    def is_of(self, plugin: str) -> bool:
        """Whether a plugin cares, in any profile."""
        return plugin in self.plugins

    def queueing(
        self, queued: QueuedPod, old: Any, new: Any, cluster: PlacementCluster, memo: dict[Any, Hint]
    ) -> Iterator[str]:
        """The plugins that rejected a pod and whose hint says Queue. `memo` is of one event."""
        for each in self._by_profile[queued.pod.spec.scheduler_name]:
            is_rejector = each.plugin in queued.rejectors or each.plugin in queued.pending
            if is_rejector and self._said(each, queued, old, new, cluster, memo) == Hint.QUEUE:
                yield each.plugin

    def hints(self, queued: QueuedPod, old: Any, new: Any, cluster: PlacementCluster) -> dict[str, Hint]:
        """What each plugin that rejected a pod says."""
        said: dict[str, Hint] = {}
        for each in self._by_profile[queued.pod.spec.scheduler_name]:
            is_rejector = each.plugin in queued.rejectors or each.plugin in queued.pending
            if is_rejector and said.get(each.plugin) != Hint.QUEUE:
                said[each.plugin] = self._said(each, queued, old, new, cluster, {})
        return said

    def _said(
        self,
        registered: EventRegistration,
        queued: QueuedPod,
        old: Any,
        new: Any,
        cluster: PlacementCluster,
        memo: dict[Any, Hint],
    ) -> Hint:
        try:
            return _hint(registered, queued, old, new, cluster, memo)
        except Exception as failure:  # noqa: BLE001 - whatever a plugin raises, the pod is tried again
            status = failed(registered.plugin, QUEUEING_HINT, failure).status
            self._failures[registered.plugin, QUEUEING_HINT] = status
            return Hint.QUEUE


class Interests:
    """The interests in all kinds of events."""

    def __init__(self, profiles: Mapping[str, QueueProfile], failures: Failures) -> None:
        self._profiles = profiles
        self._failures = failures
        self._by_event: dict[ClusterEvent, Interest] = {}

    def of(self, event: ClusterEvent) -> Interest:
        """Who cares about a kind of event. Of a wildcard, everybody."""
        known = self._by_event.get(event)
        if known is None:
            known = self._by_event[event] = Interest(
                {
                    name: tuple(each for each in profile.registrations if event.meets(each.event))
                    for name, profile in self._profiles.items()
                },
                self._failures,
            )
        return known


def _hint(
    registered: EventRegistration,
    queued: QueuedPod,
    old: Any,
    new: Any,
    cluster: PlacementCluster,
    memo: dict[Any, Hint],
) -> Hint:
    hint, key_of = registered.event.hint, registered.event.key
    if hint is None:
        return Hint.QUEUE
    if key_of is None:
        return hint(queued.pod, old, new, cluster)
    keys = queued.hint_keys
    if registered.number not in keys:
        keys[registered.number] = key_of(queued.pod.shape)
    # Numbers are of a profile: equal ones of two profiles may be of different plugins.
    place = (queued.pod.spec.scheduler_name, registered.number, keys[registered.number])
    known = memo.get(place)
    if known is None:
        known = memo[place] = hint(queued.pod, old, new, cluster)
    return known
