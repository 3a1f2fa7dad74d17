"""
Echoes: what the objects of pods show of a decision that the log has, and when a node has started them.

A pod that Headgate binds changes twice more within a second: it shows its node, which `pod.placed` and `pod.bound` have
said, and then when its node has started it, which only orders victims. Each change would be the whole object again. So
such a change waits for the next one of its pod, for WAIT_MS at most; then it is appended with those that have waited
for half of that. Where the mark of pods is due, all are appended. Any other change of the pod is appended at once.

Nothing is held back that somebody else has done: a node that the log does not know, a label, a condition, a deletion.
Only labels of topologies, which the API server copies from the node, may come with the binding.

Owned by the bridge's machine, and equally pure. Memory: the reduced objects of the pods that were bound or started
within WAIT_MS.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from headgate.core.placement.objects.kinds import PODS
from headgate.core.placement.objects.pods import PodConditionObject, PodObject
from headgate.core.state.manifests import NOT_READABLE, raw_object
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.ids import PodKey, UnixMs

WAIT_MS: Final = 1_000
"""How long a change waits for the next one."""

_TOPOLOGY: Final = "topology.kubernetes.io/"
_SCHEDULED: Final = "PodScheduled"


class _Waiting(NamedTuple):
    """The last change of a pod that waits, and since when one of it does."""

    since_ms: UnixMs
    observed: facts.ObjectObserved


class PodEchoes:
    """The changes that wait. See the module's docstring."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[PodKey, _Waiting] = {}
        """In the order of their first changes."""
        self._now_ms = UnixMs(0)
        self._holds = True

    def __bool__(self) -> bool:
        """Whether any change waits."""
        return bool(self._waiting)

    def begin(self, now_ms: UnixMs, *, holds: bool) -> None:
        """A decision is requested. It `holds` no change back where a mark is to follow."""
        self._now_ms, self._holds = now_ms, holds

    def holds(self, observed: facts.ObjectObserved) -> bool:
        """Whether this change of a pod waits. If not, what has waited of the pod is void."""
        key = PodKey(observed.name)
        if self._holds and self._is_echo(observed):
            before = self._waiting.get(key)
            self._waiting[key] = _Waiting(before.since_ms if before is not None else self._now_ms, observed)
            return True
        self.drop(key)
        return False

    def drop(self, key: PodKey) -> None:
        """A pod is gone, has ended, or is as the log has it."""
        self._waiting.pop(key, None)

    def clear(self) -> None:
        """All pods are listed, or none are placed any more."""
        self._waiting.clear()

    def take(self, room_for: int) -> Iterator[facts.ObjectObserved]:
        """The changes that are due, at most `room_for`."""
        due_ms = self.wake_ms()
        if self._holds and (due_ms is None or self._now_ms < due_ms):
            return
        for key, waiting in list(self._waiting.items())[:room_for]:
            if self._holds and self._now_ms < waiting.since_ms + WAIT_MS // 2:
                return
            yield waiting.observed
            self.drop(key)

    def wake_ms(self) -> UnixMs | None:
        """When changes are due; None if there are none."""
        first = next(iter(self._waiting.values()), None)
        return None if first is None else UnixMs(first.since_ms + WAIT_MS)

    def _is_echo(self, observed: facts.ObjectObserved) -> bool:
        known = raw_object(self._state, PODS.plural, observed.name)
        if known is None:
            return False
        try:
            old, new = PODS.read(known), PODS.read(observed.object)
        except NOT_READABLE:
            return False
        return _follows(old, new) and (old.spec.node_name == new.spec.node_name or self._is_our_binding(new))

    def _is_our_binding(self, pod: PodObject) -> bool:
        record = self._state.placements.get(PodKey(pod.metadata.key))
        return record is not None and record.uid == pod.metadata.uid and record.node == pod.spec.node_name


def _follows(old: PodObject, new: PodObject) -> bool:
    """Whether a pod with a node differs from what it was by what a binding and a start of it change, at most."""
    node, status = new.spec.node_name, new.status
    if not node or _others(old.status.conditions) != _others(status.conditions):
        return False
    is_scheduled = all(each.status == "True" for each in status.conditions if each.type == _SCHEDULED)
    labels = new.metadata.labels if _own(old.metadata.labels) == _own(new.metadata.labels) else old.metadata.labels
    expected = replace(
        old,
        metadata=replace(old.metadata, labels=labels),
        spec=replace(old.spec, node_name=node),
        status=replace(
            old.status,
            start_time=status.start_time,
            conditions=status.conditions,
            nominated_node_name=status.nominated_node_name and old.status.nominated_node_name,
        ),
    )
    return is_scheduled and expected == new


def _others(conditions: tuple[PodConditionObject, ...]) -> list[PodConditionObject]:
    return [each for each in conditions if each.type != _SCHEDULED]


def _own(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if not name.startswith(_TOPOLOGY)}
