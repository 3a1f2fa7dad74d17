"""
The scheduling queue against recorded runs of the kube-scheduler: which pod is taken next, and where each pod goes.

Each change and each failed attempt is taken from the recording, and so is what the hints of plugins said; the queue
alone decides. Whole runs, with our own attempts and hints, are compared elsewhere.
"""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.support.conformance import ROOT

from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.plugins.priority_sort import PrioritySort
from headgate.core.placement.plugins.scheduling_gates import SchedulingGates
from headgate.core.placement.queue import Move, Queue
from headgate.core.placement.queue_changes import Noticed, node_changed, object_changed, pod_changed
from headgate.core.placement.queue_entry import QueueLimits, backoff_ms
from headgate.core.placement.queue_events import UNSCHEDULABLE_TIMEOUT, EventRegistration
from headgate.core.placement.queue_hints import QueueProfile
from headgate.events.ids import UnixMs
from headgate.testing.reference.placement.objects import ScenarioObjects, key_of
from headgate.testing.reference.placement.recorded import apply_action
from headgate.testing.reference.placement.scenario import PlacementScenario, read_placement_scenario

PLACEMENT = ROOT / "placement"
CLASSES = ("resources", "nodes", "interpod", "spread", "preemption", "profiles", "queue", "volumes")
ACTIONS = {action.label: action for action in ActionType} | {"Update": ActionType(0b1_1111_1111_1100)}
RESOURCES = {resource.value: resource for resource in EventResource}

pytestmark = pytest.mark.skipif(not PLACEMENT.exists(), reason="the recordings are not here")


def tables() -> Any:
    return json.loads((PLACEMENT / "tables.json").read_bytes()) if PLACEMENT.exists() else {"backoff": {"rows": []}}


@pytest.mark.parametrize(("initial", "maximum", "failures", "seconds"), tables()["backoff"]["rows"])
def test_backoff_is_that_of_the_table(initial: int, maximum: int, failures: int, seconds: int) -> None:
    """Seconds after so many failures."""
    limits = QueueLimits(backoff_ms_initial=1000 * initial, backoff_ms_max=1000 * maximum)
    assert backoff_ms(limits, failures) == 1000 * seconds


@pytest.mark.parametrize("name", CLASSES)
def test_each_pod_is_taken_and_moved_as_recorded(name: str) -> None:
    """Pod, from, n and to of each attempt; events and moves of each change; the places of the pods that remain."""
    with gzip.open(PLACEMENT / f"{name}.jsonl.gz") as lines:
        for line in lines:
            record = json.loads(line)
            Replay(read_placement_scenario(record), record["outcome"]).run()


class Replay:
    """A recorded run, of which the queue decides its part."""

    def __init__(self, scenario: PlacementScenario, outcome: Any) -> None:
        self.scenario = scenario
        self.outcome = outcome
        self.objects = ScenarioObjects()
        self.said: dict[str, dict[str, str]] = {}
        """What the hints of the event at hand say, by pod and plugin."""
        profile = QueueProfile(
            cycle=lambda pod: msgspec.defstruct("Asked", [("pod", Any)])(pod),  # type: ignore[return-value, arg-type]
            sort=PrioritySort(),
            pre_enqueue=(SchedulingGates(),),
            registrations=tuple(self.registered()),
        )
        limits = QueueLimits(
            backoff_ms_initial=1000 * scenario.config.get("podInitialBackoffSeconds", 1),
            backoff_ms_max=1000 * scenario.config.get("podMaxBackoffSeconds", 10),
        )
        self.queue = Queue(self.objects.cluster, dict.fromkeys(outcome["profiles"], profile), limits)
        self.binding: set[str] = set()
        """The pods that have a node and are being bound to it."""

    def registered(self) -> Iterator[EventRegistration]:
        """The registrations of the table, with hints that say what was recorded."""
        number = 0
        for plugin, events in tables()["events"].items():
            for event in events:
                actions = ActionType(0)
                for action in event["actions"]:
                    actions |= ACTIONS[action]
                hint = None if event["hint"] == "always" else self.hint_of(plugin)
                yield EventRegistration(number, plugin, EventHint(RESOURCES[event["resource"]], actions, hint))
                number += 1

    def hint_of(self, plugin: str) -> Any:
        return lambda pod, old, new, cluster: Hint(self.said[pod.key][plugin])

    def run(self) -> None:
        for manifest in self.scenario.objects:
            self.objects.put(manifest)
        for pod in list(self.objects.cluster.pods.values()):
            if not pod.node_name and self.queue.is_ours(pod):
                self.queue.add(pod, self.scenario.start_ms)
        for step in self.outcome["steps"]:
            now_ms = UnixMs(self.scenario.start_ms + 1000 * step["t"])
            where = f"{self.scenario.name} at {step['t']}"
            if "attempt" in step:
                self.attempted(step["attempt"], now_ms, where)
            else:
                self.did(step, now_ms, where)
        places = {queued.pod.key: queued.place.value for queued in self.queue.pods() if queued.place is not None}
        assert places == {key: each["queue"] for key, each in self.outcome["pending"].items()}, self.scenario.name

    def attempted(self, recorded: Any, now_ms: UnixMs, where: str) -> None:
        popped = self.queue.pop()
        assert popped is not None, where
        queued = popped.queued
        assert (queued.pod.key, popped.place.value) == (recorded["pod"], recorded["from"]), where
        assert queued.attempts == recorded["n"], where
        if "node" in recorded:
            self.queue.done(queued)
            self.binding.add(recorded["pod"])
            return
        if recorded.get("postfilter", {}).get("mode") == "override":
            self.objects.cluster.nominate(recorded["pod"], recorded["postfilter"].get("nominated", ""))
        place = self.queue.failed(queued, tuple(recorded["rejectors"]), (), now_ms)
        assert place is not None, where
        assert place.value == recorded["to"], where

    def did(self, step: Any, now_ms: UnixMs, where: str) -> None:
        expected = {(each["pod"], each.get("from"), each["to"]) for each in step.get("moves", [])}
        self.said = {}
        for by_pod in step.get("hints", {}).values():
            for pod, by_plugin in by_pod.items():
                self.said.setdefault(pod, {}).update(by_plugin)
        noticed = self.applied(step, now_ms)
        moves = {told(move) for each in noticed for move in each.moves}
        if step["do"] == "bound":
            moves.discard((step["pod"], None, "out"))
        assert moves == expected, where
        events = [each.event.label for each in noticed if each.event is not None]
        assert sorted(dict.fromkeys(events)) == sorted(step.get("events", [])), where

    def applied(self, step: Any, now_ms: UnixMs) -> list[Noticed]:
        objects = self.objects
        match step["do"]:
            case "backoffDone":
                return [Noticed(None, self.queue.flush_backoff(now_ms))]
            case "script":
                action = self.scenario.script[step["script"]]
                if action.op == "flush":
                    return [Noticed(UNSCHEDULABLE_TIMEOUT, self.queue.flush_unschedulable(now_ms))]
                manifest = action.object
                kind = action.kind or manifest["kind"]
                key = action.name or key_of(manifest)
                return self.changed(kind, key, lambda: apply_action(objects, action), now_ms)
            case "object":
                return self.changed(
                    step["object"]["kind"], key_of(step["object"]), lambda: objects.put(step["object"]), now_ms
                )
            case "bound":
                return self.changed("Pod", step["pod"], lambda: objects.bind(step["pod"], step["node"], now_ms), now_ms)
            case "terminating":
                return self.changed("Pod", step["pod"], lambda: objects.terminate(step["pod"], now_ms), now_ms)
            case "deleted":
                return self.changed("Pod", step["pod"], lambda: objects.delete("Pod", step["pod"]), now_ms)
            case "nominated":
                return self.changed("Pod", step["pod"], lambda: objects.nominate(step["pod"], step["node"]), now_ms)
            case "status":
                return []
            case other:
                raise AssertionError(other)

    def changed(self, kind: str, key: str, change: Any, now_ms: UnixMs) -> list[Noticed]:
        before = self.objects.seen(kind, key)
        change()
        after = self.objects.seen(kind, key)
        match kind:
            case "Pod":
                assumed = before if key in self.binding else None
                if after is None or after.node_name:
                    self.binding.discard(key)
                return pod_changed(self.queue, before, after, now_ms, assumed=assumed)
            case "Node":
                return node_changed(self.queue, before, after, now_ms)
            case _:
                resource = next((each for each in EventResource if each.value.split("/")[-1] == kind), None)
                return object_changed(self.queue, resource, before, after, now_ms) if resource is not None else []


def told(move: Move) -> tuple[str, str | None, str]:
    return (move.pod, move.before.value if move.before else None, move.after.value if move.after else "out")
