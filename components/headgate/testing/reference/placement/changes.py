"""
What happens in a run, told to the objects, the cluster and the queue, and recorded as steps.

With each change comes what the queue made of it: the events, what the hints said of each pod that waits, the moves.
"""

from collections.abc import Callable, Mapping
from typing import Any

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.events import EventResource, Hint
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue import Move, Queue
from headgate.core.placement.queue_changes import Noticed, node_changed, object_changed, pod_changed
from headgate.core.placement.queue_entry import QueueLimits
from headgate.core.placement.queue_events import UNSCHEDULABLE_TIMEOUT, ClusterEvent, pod_updates
from headgate.core.placement.queue_hints import QueueProfile
from headgate.events.ids import UnixMs
from headgate.testing.reference.placement.objects import ScenarioObjects, key_of
from headgate.testing.reference.placement.recorded import apply_action
from headgate.testing.reference.placement.scenario import Json, PlacementScenario

_RESOURCES: Mapping[str, EventResource] = {each.value.split("/")[-1]: each for each in EventResource}


class AskingQueue(Queue):
    """A queue that also asks every hint of each event before the event takes effect, as the recordings do."""

    def __init__(self, cluster: PlacementCluster, profiles: Mapping[str, QueueProfile], limits: QueueLimits) -> None:
        super().__init__(cluster, profiles, limits)
        self.said: dict[str, dict[str, dict[str, Hint]]] = {}
        """What the hints said, by event, pod and plugin."""

    def notify(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        now_ms: UnixMs,
        *,
        only: Callable[[PodInfo], bool] | None = None,
    ) -> list[Move]:
        """Ask, then do."""
        said = self.hints(event, old, new)
        if only is not None:
            said = {key: hints for key, hints in said.items() if only(self._cluster.pods[key])}
        if said:
            self.said.setdefault(event.label, {}).update(said)
        return super().notify(event, old, new, now_ms, only=only)

    def update(self, old: PodInfo, new: PodInfo, now_ms: UnixMs) -> list[Move]:
        """Ask for the pod alone, then do."""
        for event in pod_updates(old, new):
            said = self.hints(event, old, new).get(new.key)
            if said:
                self.said.setdefault(event.label, {})[new.key] = said
        return super().update(old, new, now_ms)


class ScenarioChanges:
    """The steps of a run. `second` is the clock, in seconds since the start."""

    def __init__(self, scenario: PlacementScenario) -> None:
        self._scenario = scenario
        self.objects = ScenarioObjects()
        self.second = 0
        self.steps: list[Json] = []
        self._queue: AskingQueue | None = None
        self._deletions: list[tuple[int, str]] = []
        self._assumed: dict[str, PodInfo] = {}
        for manifest in scenario.objects:
            self.objects.put(manifest)
        self._there_before = {pod.key: None for pod in self.objects.cluster.pods.values() if pod.node_name}

    @property
    def queue(self) -> AskingQueue:
        """The queue that is told."""
        assert self._queue is not None, "the run has not begun"
        return self._queue

    @property
    def now_ms(self) -> UnixMs:
        """The clock."""
        return UnixMs(self._scenario.start_ms + 1000 * self.second)

    def begin(self, queue: AskingQueue) -> None:
        """The pods that wait from the start enter the queue."""
        self._queue = queue
        for pod in self.objects.cluster.pods.values():
            if not pod.node_name and queue.is_ours(pod):
                queue.add(pod, self.now_ms)

    def bound(self) -> dict[str, str]:
        """The nodes of the pods that have one, by pod, without those that had one at the start."""
        pods = sorted(self.objects.cluster.pods.values(), key=lambda each: each.key)
        return {each.key: each.node_name for each in pods if each.node_name and each.key not in self._there_before}

    def step(self, step: Json) -> None:
        """Record a step of this second."""
        self.steps.append({"t": self.second, **step})

    # --- time ------------------------------------------------------------------------------------------------------

    def deletions_due(self) -> list[int]:
        """When pods that terminate will be gone."""
        return [second for second, _ in self._deletions]

    def delete_due(self) -> None:
        """Pods whose time has come are gone, earliest first."""
        due = sorted(each for each in self._deletions if each[0] <= self.second)
        self._deletions = [each for each in self._deletions if each[0] > self.second]
        for _, key in due:
            self._delete(key)

    def end_backoffs(self) -> None:
        """Backoffs that are over end."""
        moves = self.queue.flush_backoff(self.now_ms)
        if moves:
            self.step({"do": "backoffDone", "moves": _told_moves(moves)})

    def act(self, index: int) -> None:
        """An action of the script happens."""
        action = self._scenario.script[index]
        step: Json = {"do": "script", "script": index}
        if action.op == "flush":
            moves = self.queue.flush_unschedulable(self.now_ms)
            if moves:
                self.step({**step, "events": [UNSCHEDULABLE_TIMEOUT.label], "moves": _told_moves(moves)})
            return
        kind = action.kind or action.object["kind"]
        key = action.name or key_of(action.object)
        if action.op == "create" or self.objects.get(kind, key) is not None:
            self._change(step, kind, key, lambda: apply_action(self.objects, action))

    # --- what attempts write ---------------------------------------------------------------------------------------

    def assume(self, pod: str) -> None:
        """A pod has a node and is being bound to it."""
        self._assumed[pod] = self.objects.cluster.pods[pod]

    def bind(self, pod: str, node: str) -> None:
        """A pod runs on its node."""
        step = {"do": "bound", "pod": pod, "node": node}
        self._change(step, "Pod", pod, lambda: self.objects.bind(pod, node, self.now_ms))

    def nominate(self, pod: str, node: str) -> None:
        """A pod is nominated to a node, or ("") to none."""
        step = {"do": "nominated", "pod": pod, "node": node}
        self._change(step, "Pod", pod, lambda: self.objects.nominate(pod, node))

    def evict(self, pod: str) -> None:
        """A pod is to go: at once, or after the grace of the scenario. One that terminates already does so."""
        grace = self._scenario.victim_grace_seconds
        if self.objects.cluster.pods[pod].is_terminating:
            return
        if not grace:
            self._delete(pod)
            return
        until = self.second + grace
        self._deletions.append((until, pod))
        step = {"do": "terminating", "pod": pod, "until": until}
        self._change(step, "Pod", pod, lambda: self.objects.terminate(pod, self.now_ms))

    def write(self, manifest: Json) -> None:
        """An object is written, in full."""
        step = {"do": "object", "object": manifest}
        self._change(step, manifest["kind"], key_of(manifest), lambda: self.objects.put(manifest))

    # --- changes ---------------------------------------------------------------------------------------------------

    def _delete(self, pod: str) -> None:
        if self.objects.get("Pod", pod) is not None:
            self._change({"do": "deleted", "pod": pod}, "Pod", pod, lambda: self.objects.delete("Pod", pod))

    def _change(self, step: Json, kind: str, key: str, change: Callable[[], object]) -> None:
        before = self.objects.seen(kind, key)
        change()
        self.queue.said = {}
        noticed = self._notice(kind, key, before, self.objects.seen(kind, key))
        events = list(dict.fromkeys(each.event.label for each in noticed if each.event is not None))
        told = dict(step)
        if events:
            told["events"] = events
        if self.queue.said:
            told["hints"] = {event: _told_hints(said) for event, said in sorted(self.queue.said.items())}
        moves = [move for each in noticed for move in each.moves]
        if moves:
            told["moves"] = _told_moves(moves)
        self.step(told)

    def _notice(self, kind: str, key: str, before: Any, after: Any) -> list[Noticed]:
        now_ms = self.now_ms
        if kind == "Pod":
            assumed = self._assumed.get(key)
            if after is None or after.node_name:
                self._assumed.pop(key, None)
            return pod_changed(self.queue, before, after, now_ms, assumed=assumed)
        if kind == "Node":
            return node_changed(self.queue, before, after, now_ms)
        resource = _RESOURCES.get(kind)
        return object_changed(self.queue, resource, before, after, now_ms) if resource is not None else []


def _told_hints(said: Mapping[str, Mapping[str, Hint]]) -> Json:
    return {pod: {plugin: hint.value for plugin, hint in sorted(hints.items())} for pod, hints in sorted(said.items())}


def _told_moves(moves: list[Move]) -> list[Json]:
    told = []
    for move in sorted(moves, key=lambda each: each.pod):
        source = {"from": move.before.value} if move.before is not None else {}
        told.append({"pod": move.pod, **source, "to": move.after.value if move.after is not None else "out"})
    return told
