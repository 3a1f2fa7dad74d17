"""The bridge records its watch positions in the log, and resumes there: never too far, and without listing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import START_MS, TestLog
from tests.support.playing import node

from headgate.core.log.cluster_anchors import anchor_of
from headgate.core.machine.contract import (
    Append,
    Call,
    Changed,
    Command,
    Committed,
    Listed,
    Progressed,
    Resumed,
    Settled,
    WakeAt,
)
from headgate.core.reading.decoding import READING, RESOURCES
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.ids import UnixMs
from headgate.events.registry import Event
from headgate.machines.informer_bridge import decide
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.informer_bridge.marks import MARK_IDLE_MS, MARK_MS

BRIDGE = Producer.INFORMER_BRIDGE
Json = dict[str, Any]


def raw(manifest: Json, **metadata: Any) -> bytes:
    meta = {"uid": "u", "creationTimestamp": "2026-01-15T10:00:00Z", **manifest["metadata"], **metadata}
    return msgspec.json.encode({**manifest, "metadata": meta})


def system(uid: str) -> bytes:
    """The namespace by which clusters are distinguished."""
    return raw({"metadata": {"name": "kube-system"}}, uid=uid)


class Bridge:
    """One term of a bridge: `settle` appends what it returns and passes it the commit."""

    def __init__(self, log: TestLog | None = None) -> None:
        self.log = log or TestLog()
        self.machine = InformerBridge(self.log.state)

    @property
    def marks(self) -> dict[str, str]:
        return self.log.state.resource_versions

    def list_all(self, version: str = "1", **objects: list[bytes]) -> None:
        for resource in RESOURCES:
            self.machine.decide(Listed(resource, tuple(objects.get(resource, ())), version))

    def resume_all(self) -> None:
        for resource, version in list(self.marks.items()):
            self.machine.decide(Resumed(resource, version))

    def change(self, name: str, cpu: str, version: str, kind: str = "MODIFIED") -> None:
        self.machine.decide(Changed("nodes", kind, raw(node(name, cpu=cpu)), version))

    def decide(self, after_ms: int = 0) -> list[Command]:
        self.log.now_ms = UnixMs(self.log.now_ms + after_ms)
        return self.machine.decide(Settled(self.log.now_ms))

    def settle(self, after_ms: int = 0) -> tuple[Event, ...]:
        """What was appended after so much time."""
        for command in self.decide(after_ms):
            if isinstance(command, Append):
                self.say(*command.events)
                return command.events
        return ()

    def calls(self) -> list[Call]:
        return [command for command in self.decide() if isinstance(command, Call)]

    def anchor(self) -> None:
        """Let the log have an anchor already, as after some time in which things have changed."""
        self.say(facts.InformersSynced(anchor="nodes 2 ADDED 00"))

    def say(self, *events: EventBase) -> None:
        assert self.machine.decide(Committed(self.log.append(BRIDGE, *events))) == []


def synced(version: str = "1", **objects: list[bytes]) -> Bridge:
    bridge = Bridge()
    bridge.list_all(version, **objects)
    bridge.settle()
    assert bridge.machine.synced
    return bridge


def mark(events: tuple[Event, ...]) -> dict[str, str]:
    """The versions that a commit marks, at its end."""
    assert not any(isinstance(event, facts.InformersSynced) for event in events[:-1])
    return events[-1].resource_versions if events and isinstance(events[-1], facts.InformersSynced) else {}


# --- when ----------------------------------------------------------------------------------------------------------


def test_the_first_sync_marks_every_resource() -> None:
    """With the version of its list."""
    assert synced("7").marks == dict.fromkeys(RESOURCES, "7")


def test_a_mark_rides_along_with_facts_but_not_with_each_commit() -> None:
    """Two marks are the declared time apart; the mark is the last event of its commit."""
    bridge = synced()
    bridge.anchor()
    bridge.change("n1", "1", "11")
    assert [type(event) for event in bridge.settle()] == [facts.NodeObserved]
    bridge.change("n1", "2", "12")
    events = bridge.settle(MARK_MS)
    assert [type(event) for event in events] == [facts.NodeObserved, facts.InformersSynced]
    assert mark(events) == {"nodes": "12"}
    assert bridge.marks == {**dict.fromkeys(RESOURCES, "1"), "nodes": "12"}


def test_changes_without_news_are_marked_in_time() -> None:
    """The version moves though nothing is appended; the bridge requests a wake-up, once, and appends a mark alone."""
    bridge = synced(nodes=[raw(node("n1", cpu="1"))])
    bridge.anchor()
    bridge.change("n1", "1", "11")
    assert bridge.decide(1) == [WakeAt(UnixMs(START_MS + MARK_MS))]
    assert bridge.decide(1) == []
    assert mark(bridge.settle(MARK_MS)) == {"nodes": "11"}


def test_bookmarks_are_marked_seldom() -> None:
    """A cluster in which nothing happens costs next to nothing."""
    bridge = synced()
    bridge.machine.decide(Progressed("pods", "500"))
    assert bridge.decide(MARK_MS) == [WakeAt(UnixMs(START_MS + MARK_IDLE_MS))]
    assert mark(bridge.settle(MARK_IDLE_MS)) == {"pods": "500"}


def test_where_nothing_moves_nothing_is_marked() -> None:
    """However much time passes, and whatever is decided on meanwhile."""
    bridge = synced()
    assert bridge.decide(10 * MARK_IDLE_MS) == []
    bridge.machine.decide(Progressed("pods", "1"))
    assert bridge.decide(10 * MARK_IDLE_MS) == []


def test_a_list_is_marked_at_once() -> None:
    """It was expensive, and is not to be repeated because of a crash right after."""
    bridge = synced()
    bridge.machine.decide(Listed("pods", (), "30"))
    assert mark(bridge.settle()) == {"pods": "30"}


# --- anchors -------------------------------------------------------------------------------------------------------


def test_the_first_change_after_the_lists_anchors_the_marks_at_once() -> None:
    """Until then the history cannot be distinguished from another, and a restart has to list."""
    bridge = synced("7")
    assert bridge.log.state.anchor == ""
    bridge.change("n1", "1", "11", "ADDED")
    assert mark(bridge.settle()) == {"nodes": "11"}
    assert bridge.log.state.anchor == str(anchor_of("nodes", "11", "ADDED", raw(node("n1", cpu="1"))))


def test_a_mark_takes_the_newest_change_along() -> None:
    """Whatever resource it is of: one storage, one history."""
    bridge = synced()
    bridge.anchor()
    bridge.change("n1", "1", "11")
    bridge.change("n1", "2", "12")
    bridge.settle(MARK_MS)
    assert bridge.log.state.anchor == str(anchor_of("nodes", "12", "MODIFIED", raw(node("n1", cpu="2"))))


def test_a_change_that_is_older_than_a_list_is_no_anchor() -> None:
    """The list's mark would rest on more than the anchor vouches for; a list takes the old anchor away, too."""
    bridge = synced()
    bridge.change("n1", "1", "11")
    bridge.settle(MARK_MS)
    assert bridge.log.state.anchor != ""
    bridge.machine.decide(Listed("pods", (), "30"))
    bridge.change("n1", "2", "29")
    bridge.settle(MARK_MS)
    assert bridge.log.state.anchor == ""
    bridge.change("n1", "3", "31")
    bridge.settle()
    assert bridge.log.state.anchor.startswith("nodes 31 ")


# --- never too far -------------------------------------------------------------------------------------------------


def test_a_mark_leaves_out_what_still_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of a burst is marked when the last of it is appended; what has nothing waiting is marked already."""
    monkeypatch.setattr(decide, "FACTS_MAX", 10)
    bridge = synced()
    bridge.machine.decide(Progressed("pods", "40"))
    for number in range(25):
        bridge.change(f"n{number:02}", "1", str(10 + number))
    assert mark(bridge.settle(MARK_MS)) == {"pods": "40"}
    assert mark(bridge.settle(MARK_MS)) == {}
    assert mark(bridge.settle(MARK_MS)) == {"nodes": "34"}


def test_nothing_is_marked_of_what_was_neither_listed_nor_resumed() -> None:
    """A change proves nothing about what was before it."""
    bridge = synced()
    again = Bridge(bridge.log)
    again.change("n1", "1", "50")
    again.settle(MARK_MS)
    assert bridge.marks["nodes"] == "1"


def test_a_crash_between_facts_and_mark_repeats_no_fact() -> None:
    """What is shown again from the older mark on is in the log, and is no news."""
    bridge = synced()
    bridge.anchor()
    bridge.change("n1", "1", "11")
    bridge.change("n2", "1", "12")
    assert len(bridge.settle()) == 2
    again = Bridge(bridge.log)
    again.resume_all()
    assert again.marks["nodes"] == "1"
    again.change("n1", "1", "11", "ADDED")
    again.change("n2", "1", "12", "ADDED")
    (only,) = again.settle()
    assert isinstance(only, facts.InformersSynced)
    assert (only.resources, only.resource_versions) == (RESOURCES, {"nodes": "12"})


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What happens, step by step: a write, something is shown, a decision, a crash, a compaction."""
    step = st.sampled_from(["write", "write", "delete", "show", "show", "settle", "lose", "crash", "forget"])
    return draw(st.lists(st.tuples(step, st.integers(0, 2)), max_size=60))


class Server:
    """The nodes of an API server, with the history that a watch is served from."""

    def __init__(self) -> None:
        self.version = 1
        self.forgotten = 1
        self.nodes: dict[str, str] = {}
        self.history: list[tuple[int, str, str, str]] = []

    def write(self, name: str, cpu: str | None) -> None:
        self.version += 1
        if cpu is None:
            last = self.nodes.pop(name, None)
            if last is not None:
                self.history.append((self.version, "DELETED", name, last))
        else:
            self.history.append((self.version, "MODIFIED" if name in self.nodes else "ADDED", name, cpu))
            self.nodes[name] = cpu


class Follower:
    """A bridge that follows the server's nodes, resuming where it can; every other resource is empty."""

    def __init__(self, server: Server, log: TestLog) -> None:
        self.server, self.bridge = server, Bridge(log)
        self.shown = 0
        for resource in RESOURCES:
            mark = self.bridge.marks.get(resource, "")
            if resource == "nodes" and mark and int(mark) >= server.forgotten:
                self.shown = int(mark)
                self.bridge.machine.decide(Resumed(resource, mark))
            elif resource == "nodes":
                self.shown = server.version
                objects = tuple(raw(node(name, cpu=cpu)) for name, cpu in server.nodes.items())
                self.bridge.machine.decide(Listed(resource, objects, str(server.version)))
            elif mark:
                self.bridge.machine.decide(Resumed(resource, mark))
            else:
                self.bridge.machine.decide(Listed(resource, (), "1"))

    def show(self) -> bool:
        for version, kind, name, cpu in self.server.history:
            if version > self.shown:
                self.shown = version
                self.bridge.change(name, cpu, str(version), kind)
                return True
        return False


@given(histories(), st.sampled_from([0, MARK_MS]))
def test_whatever_happens_the_log_ends_with_what_the_server_has(steps: list[tuple[str, int]], pace_ms: int) -> None:
    """Crashes at any point, lost appends and forgotten versions: resuming from the marks misses nothing."""
    server, log = Server(), TestLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "FACTS_MAX", 1)
        play(steps, pace_ms, server, log)
    assert {name: each.allocatable["cpu"] for name, each in log.state.nodes.items()} == server.nodes


def play(steps: list[tuple[str, int]], pace_ms: int, server: Server, log: TestLog) -> None:
    """Take the steps, then let the last bridge see everything and append it."""
    follower = Follower(server, log)
    for number, (step, which) in enumerate(steps):
        match step:
            case "write":
                server.write(f"n{which}", str(number + 1))
            case "delete":
                server.write(f"n{which}", None)
            case "show":
                follower.show()
            case "settle":
                follower.bridge.settle(pace_ms)
            case "lose":
                # The process dies after it has requested an append, and the append is lost with it.
                follower.bridge.decide(pace_ms)
                follower = Follower(server, log)
            case "crash":
                follower = Follower(server, log)
            case "forget":
                server.forgotten = server.version
    while follower.show():
        pass
    while follower.bridge.settle(MARK_MS):
        pass


# --- after a restart -----------------------------------------------------------------------------------------------


def test_a_resumed_term_appends_nothing_but_that_it_is_synced() -> None:
    """An object of the state that no list shows is not gone; the marks do not change."""
    bridge = synced("5", nodes=[raw(node("n1")), raw(node("n2"))])
    again = Bridge(bridge.log)
    again.resume_all()
    assert again.settle() == (facts.InformersSynced(resources=RESOURCES),)
    assert list(bridge.log.state.nodes) == ["n1", "n2"]
    assert again.settle(10 * MARK_IDLE_MS) == ()


def test_synced_waits_for_what_is_neither_listed_nor_resumed() -> None:
    """One resource without a mark is listed, and the others wait for it."""
    bridge = synced()
    again = Bridge(bridge.log)
    for resource in RESOURCES[:-1]:
        again.machine.decide(Resumed(resource, "1"))
    assert again.settle() == ()
    again.machine.decide(Listed(RESOURCES[-1], (), "9"))
    assert again.settle() == (facts.InformersSynced(resources=RESOURCES, resource_versions={RESOURCES[-1]: "9"}),)


def test_changes_and_deletions_while_the_bridge_was_down_are_facts() -> None:
    """The watch shows them from the mark on."""
    bridge = synced("5", nodes=[raw(node("n1")), raw(node("n2"))])
    again = Bridge(bridge.log)
    again.resume_all()
    again.change("n1", "4", "6", "DELETED")
    again.change("n3", "4", "7", "ADDED")
    assert [type(event) for event in again.settle()] == [
        facts.NodeDeleted,
        facts.NodeObserved,
        facts.InformersSynced,
    ]
    assert list(bridge.log.state.nodes) == ["n2", "n3"]
    assert again.marks["nodes"] == "7"


def test_a_list_after_a_resume_is_compared() -> None:
    """The version had expired after all: what the list lacks is gone, and its version is marked."""
    bridge = synced("5", nodes=[raw(node("n1")), raw(node("n2"))])
    again = Bridge(bridge.log)
    again.resume_all()
    again.settle()
    again.machine.decide(Listed("nodes", (raw(node("n2")),), "90"))
    assert again.settle() == (
        facts.NodeDeleted(name="n1"),
        facts.InformersSynced(resource_versions={"nodes": "90"}),
    )


def test_a_server_that_went_back_takes_its_mark_back_with_the_first_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash in the middle would resume from a version that means something else by then."""
    monkeypatch.setattr(decide, "FACTS_MAX", 2)
    bridge = synced("500", nodes=[raw(node("n0"))])
    again = Bridge(bridge.log)
    again.resume_all()
    again.settle()
    again.machine.decide(Listed("nodes", tuple(raw(node(f"m{number}")) for number in range(3)), "20"))
    assert mark(again.settle()) == {"nodes": ""}
    assert "nodes" not in again.marks
    assert mark(again.settle()) == {"nodes": "20"}


def test_a_server_that_went_back_takes_its_mark_back_also_before_the_first_sync() -> None:
    """The other resources may be listed much later."""
    bridge = synced("500")
    again = Bridge(bridge.log)
    again.machine.decide(Listed("nodes", (), "20"))
    assert mark(again.settle()) == {"nodes": ""}
    assert "nodes" not in again.marks


def test_another_cluster_voids_the_marks_of_the_one_before() -> None:
    """Also for a resource not yet requested: it has to be listed again before it is marked again."""
    bridge = synced("5", namespaces=[system("one")])
    assert bridge.log.state.cluster_id == "one 2026-01-15T10:00:00Z"
    assert bridge.log.state.reading == READING
    again = Bridge(bridge.log)
    again.resume_all()
    again.settle()
    again.machine.decide(Listed("namespaces", (system("two"),), "80"))
    again.settle()
    assert again.marks == {"namespaces": "80"}
    again.machine.decide(Progressed("nodes", "81"))
    again.settle(MARK_IDLE_MS)
    assert again.marks == {"namespaces": "80"}
    again.machine.decide(Listed("nodes", (), "82"))
    again.settle()
    assert again.marks == {"namespaces": "80", "nodes": "82"}


def test_facts_by_other_rules_void_the_marks() -> None:
    """The same object may give another fact now: what was marked before counts only when it was listed again."""
    bridge = synced("5")
    bridge.say(facts.InformersSynced(resource_versions={"nodes": "6"}, reading=READING + 1))
    assert bridge.marks == {"nodes": "6"}
    again = Bridge(bridge.log)
    again.list_all("7")
    again.settle()
    assert (again.marks, bridge.log.state.reading) == (dict.fromkeys(RESOURCES, "7"), READING)


def test_logs_without_marks_are_read() -> None:
    """An `informers.synced` of an older release has no versions."""
    old = msgspec.json.decode(b'{"type":"informers.synced","resources":["pods"]}', type=facts.InformersSynced)
    log = TestLog()
    log.append(BRIDGE, old)
    assert log.state.synced
    assert log.state.resource_versions == {}
