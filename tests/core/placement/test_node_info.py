"""Room on nodes: the index places as the naive search would, and a pod that fits nowhere costs nothing."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import amount
from headgate.core.kubernetes.selectors import matches_node, untolerated_taint
from headgate.core.placement import node_info as room_module
from headgate.core.placement.node_info import Room, ask_of
from headgate.core.state.tables import PodRecord
from headgate.events.ids import PodKey, UnixMs
from headgate.events.objects import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Requirement,
    Resources,
    Taint,
    Toleration,
)

TAINT = Taint(key="gpu", effect="NoSchedule")


def node(name: str, cpu: int = 4, pods: int = 3, *, tier: str = "a", tainted: bool = False, ready: bool = True) -> Node:
    return Node(
        name=name,
        labels={"tier": tier},
        taints=(TAINT,) if tainted else (),
        allocatable={"cpu": str(cpu), "pods": str(pods)},
        ready=ready,
    )


def spec(cpu: int = 1, *, tier: str = "", tolerates: bool = False, only: str = "") -> PodSpec:
    term = NodeSelectorTerm(match_fields=(Requirement(key="metadata.name", operator="In", values=(only,)),))
    selector = NodeSelector(node_selector_terms=(term,))
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
    return PodSpec(
        containers=(Container(resources=Resources(requests={"cpu": str(cpu)})),),
        node_selector={"tier": tier} if tier else {},
        tolerations=(Toleration(key="gpu", operator="Exists"),) if tolerates else (),
        affinity=affinity if only else None,
    )


class Naive:
    """First fit by looking at everything each time."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.held: dict[str, tuple[str, PodSpec]] = {}

    def first_fit(self, wanted: PodSpec) -> str | None:
        for name in sorted(self.nodes):
            there = self.nodes[name]
            fits = there.ready and not there.unschedulable and matches_node(wanted, there.labels, name)
            if fits and untolerated_taint(there.taints, wanted.tolerations) is None and self._has_room(name, wanted):
                return name
        return None

    def _has_room(self, name: str, wanted: PodSpec) -> bool:
        free = {resource: amount(resource, value) for resource, value in self.nodes[name].allocatable.items()}
        for where, held in [*self.held.values(), (name, wanted)]:
            if where == name:
                for resource, value in {**pod_requests(held), "pods": 1}.items():
                    free[resource] = free.get(resource, 0) - value
        # Only requested resources count (kube-scheduler's NodeResourcesFit): a node may hold more than it has now.
        asked = [resource for resource, value in {**pod_requests(wanted), "pods": 1}.items() if value > 0]
        return all(free[resource] >= 0 for resource in asked)


names = st.sampled_from([f"n{number}" for number in range(5)])
keys = st.sampled_from([f"t/p{number}" for number in range(6)])
nodes = st.builds(
    node,
    names,
    st.integers(0, 4),
    st.integers(0, 3),
    tier=st.sampled_from("ab"),
    tainted=st.booleans(),
    ready=st.booleans(),
)
specs = st.builds(
    spec,
    st.integers(0, 3),
    tier=st.sampled_from(["", "a", "b"]),
    tolerates=st.booleans(),
    only=st.sampled_from(["", "n1"]),
)
steps = st.one_of(
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("no node"), names),
    st.tuples(st.just("place"), keys, specs),
    st.tuples(st.just("no pod"), keys),
)


@settings(max_examples=300)
@given(st.lists(steps, max_size=40))
def test_the_index_places_as_a_naive_search_does(history: list[tuple[object, ...]]) -> None:
    """Whatever comes and goes, each pod goes to the node that looking at everything would have found."""
    room, naive = Room(), Naive()
    for step in history:
        match step:
            case ("node", Node() as there):
                room.observe_node(there.name, there)
                naive.nodes[there.name] = there
            case ("no node", str(name)):
                room.observe_node(name, None)
                naive.nodes.pop(name, None)
            case ("no pod", str(key)):
                room.observe_pod(PodKey(key), None)
                naive.held.pop(key, None)
            case ("place", str(key), PodSpec() as wanted) if key not in naive.held:
                found = room.first_fit(wanted, ask_of(wanted))
                assert found == naive.first_fit(wanted)
                if found:
                    room.hold(PodKey(key), found, ask_of(wanted))
                    naive.held[key] = (found, wanted)
            case _:
                pass


def test_a_pod_that_fits_nowhere_is_not_looked_for_again(monkeypatch: object) -> None:
    """After one look at all nodes, a kind of pod costs nothing until a node gains room; then only that one is tried."""
    looks = 0
    room = Room()
    for number in range(100):
        room.observe_node(f"n{number:03}", node(f"n{number:03}", cpu=1))

    def counted(self: Room, name: str, ask: object) -> bool:
        nonlocal looks
        looks += 1
        return original(self, name, ask)  # type: ignore[arg-type]

    original = Room._has_room
    monkeypatch.setattr(Room, "_has_room", counted)  # type: ignore[attr-defined]
    wanted = spec(cpu=2)
    assert [room.first_fit(wanted, ask_of(wanted)) for _ in range(50)] == [None] * 50
    assert looks == 100
    room.observe_node("n042", node("n042", cpu=2))
    assert room.first_fit(wanted, ask_of(wanted)) == "n042"
    assert looks == 101


def test_room_is_held_until_the_state_says_so_and_no_longer() -> None:
    """A placed pod counts once, before and after its event is folded, and its room is free when it is gone."""
    room = Room()
    room.observe_node("n1", node("n1", cpu=1))
    wanted = spec(cpu=1)
    key = PodKey("t/p")
    room.hold(key, "n1", ask_of(wanted))
    record = PodRecord(pod=Pod(uid="u", created_ms=UnixMs(0), spec=wanted), placed="n1")
    assert not room.observe_pod(key, record)
    assert room.first_fit(wanted, ask_of(wanted)) is None
    assert room.observe_pod(key, msgspec.structs.replace(record, placed=""))
    assert room.first_fit(wanted, ask_of(wanted)) == "n1"


def test_remembered_kinds_are_bounded(monkeypatch: object) -> None:
    """More kinds of pods than are remembered cost time and give the same answers."""
    monkeypatch.setattr(room_module, "KINDS_MAX", 3)  # type: ignore[attr-defined]
    room = Room()
    for number in range(5):
        room.observe_node(f"n{number}", node(f"n{number}", cpu=number))
    for _ in range(3):
        for cpu in range(1, 6):
            wanted = spec(cpu=cpu)
            assert room.first_fit(wanted, ask_of(wanted)) == (f"n{cpu}" if cpu < 5 else None)
