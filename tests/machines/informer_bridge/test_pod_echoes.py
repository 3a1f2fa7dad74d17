"""What a pod's object repeats of its binding waits for its start, and nothing else of it does."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.machines.informer_bridge.test_placement_objects import Placing, kinds_of, placing, pod
from tests.support.playing import node

from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.core.machine.contract import Changed
from headgate.events import decisions, effects, facts
from headgate.events.base import EventBase, Producer
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.machines.informer_bridge.marks import MARK_MS
from headgate.machines.informer_bridge.pod_echoes import WAIT_MS

Json = dict[str, Any]
PLACED = decisions.PodPlaced(pod=PodKey("a/p"), uid=Uid("uid-p"), node="n1")
BINDING: Json = {
    "metadata": {"labels": {"topology.kubernetes.io/zone": "z"}},
    "spec": {"nodeName": "n1"},
    "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
}
START: Json = {"status": {"phase": "Running", "startTime": "2026-01-15T10:00:01Z"}}
STARTED = merge_patched(BINDING, START)


class Pods(Placing):
    """A bridge that follows one pod, which the scheduler has placed on n1."""

    @classmethod
    def begun(cls) -> "Pods":
        self = cls(placing(nodes=[node("n1")], pods=[pod("p")]).log)
        self.list_all(nodes=[node("n1")], pods=[pod("p")])
        self.settle()
        # The next mark is not due for a while.
        self.log.now_ms = UnixMs(self.log.now_ms + MARK_MS)
        self.change("nodes", node("n1", cpu="7"), version="6")
        self.settle()
        self.log.append(Producer.SCHEDULER, PLACED)
        return self

    def after(self, ms: int) -> tuple[EventBase, ...]:
        self.log.now_ms = UnixMs(self.log.now_ms + ms)
        return self.settle()

    def shows(self, patch: Json, version: str = "7") -> tuple[EventBase, ...]:
        """What is appended when the pod's object has changed."""
        raw = msgspec.json.encode(merge_patched(pod("p"), patch))
        self.machine.decide(Changed("pods", "MODIFIED", raw, version))
        return of_pods(self.settle())


def of_pods(events: tuple[EventBase, ...]) -> tuple[EventBase, ...]:
    return tuple(each for each in events if isinstance(each, facts.ObjectObserved | facts.ObjectDeleted))


def test_a_binding_and_a_start_are_one_fact() -> None:
    bridge = Pods.begun()
    bridge.log.append(Producer.BINDER, effects.PodBound(pod=PLACED.pod, uid=PLACED.uid, node="n1"))
    assert bridge.shows(BINDING) == ()
    bridge.log.now_ms = UnixMs(bridge.log.now_ms + WAIT_MS // 2)
    assert bridge.shows(STARTED) == ()
    (fact,) = of_pods(bridge.after(WAIT_MS // 2))
    assert isinstance(fact, facts.ObjectObserved)
    shown = msgspec.json.decode(fact.object)
    assert (shown["spec"]["nodeName"], shown["status"]["startTime"]) == ("n1", "2026-01-15T10:00:01Z")
    assert bridge.log.state.placements == {}


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"nodeName": "n2"}},
        {"metadata": {"labels": {"app": "other"}}},
        {"metadata": {"deletionTimestamp": "2026-01-15T10:00:01Z"}},
        {"spec": {"schedulingGates": [{"name": "g"}]}},
        {"status": {"nominatedNodeName": "n2"}},
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}},
        {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}},
    ],
)
def test_any_other_change_is_appended_at_once(patch: Json) -> None:
    """With what has waited, which is void then."""
    bridge = Pods.begun()
    assert bridge.shows(BINDING) == ()
    assert len(bridge.shows(merge_patched(STARTED, patch))) == 1
    assert of_pods(bridge.after(WAIT_MS)) == ()


@pytest.mark.parametrize("end", ["DELETED", "Succeeded"])
def test_a_pod_that_is_over_has_no_echo(end: str) -> None:
    bridge = Pods.begun()
    assert bridge.shows(BINDING) == ()
    bridge.change("pods", pod("p", phase=end), "DELETED" if end == "DELETED" else "MODIFIED")
    assert kinds_of(of_pods(bridge.settle())) == ["ObjectDeleted"]
    assert of_pods(bridge.after(WAIT_MS)) == ()


def _settled(bridge: Pods) -> None:
    bridge.after(WAIT_MS)


def _listed(bridge: Pods) -> None:
    bridge.show("pods", merge_patched(pod("p"), BINDING), version="8")
    bridge.after(WAIT_MS)
    bridge.after(WAIT_MS)


@pytest.mark.parametrize("then", [_settled, _listed])
def test_a_mark_follows_what_has_waited(then: Callable[[Pods], None]) -> None:
    """Never before: the watch of the next term begins behind it."""
    bridge = Pods.begun()
    mark = bridge.log.state.resource_versions["pods"]
    assert bridge.shows(BINDING) == ()
    assert bridge.log.state.resource_versions["pods"] == mark
    then(bridge)
    bridge.after(MARK_MS)
    assert bridge.log.state.resource_versions["pods"] in {"7", "8"}
    assert bridge.objects["pods"]["a/p"]["spec"]["nodeName"] == "n1"


def test_where_a_mark_is_due_nothing_waits() -> None:
    """So marks go on where pods are bound all the time."""
    bridge = Pods.begun()
    bridge.log.now_ms = UnixMs(bridge.log.now_ms + MARK_MS)
    assert len(bridge.shows(BINDING)) == 1
    assert bridge.log.state.resource_versions["pods"] == "7"
