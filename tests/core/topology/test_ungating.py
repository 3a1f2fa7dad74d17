"""Ungating: each gated pod gets the domain of its rank, or a place that is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.topology.assignments import HOSTNAME, Domain, Placement
from headgate.core.topology.ungating import PodInSet, Ranks, domains_of_gated, ranks_of
from headgate.events.ids import PodKey
from headgate.events.objects import PodSet, PodSetAssignment, TopologyRequest

INDEXED = TopologyRequest(pod_index_label="index")
NESTED = TopologyRequest(pod_index_label="index", sub_group_index_label="job", sub_group_count=2)


def placement(text: str) -> Placement:
    """`a:2 b:1`: two pods on node a, one on node b."""
    domains = (each.partition(":") for each in text.split())
    return Placement((HOSTNAME,), tuple(Domain((name,), int(pods)) for name, _, pods in domains))


def pods(text: str) -> list[PodInSet]:
    """
    `p0 p1@a p2>b`: a gated pod, one without a gate on node a, and a gated one that was given node b.

    The number in its name is its index.
    """
    found: list[PodInSet] = []
    for each in text.split():
        name, _, node = each.replace("@", ">").partition(">")
        index = {"index": int(name[1:])} if name[1:].isdigit() else {}
        found.append(PodInSet(PodKey(f"ns/{name}"), "@" not in each, (node,) if node else None, index))
    return found


def given_nodes(
    places: str, of: str, request: TopologyRequest | None = INDEXED, count: int = 4, failed: tuple[str, ...] = ()
) -> str:
    """The nodes that the gated pods get, by pod."""
    found = domains_of_gated(placement(places), count, pods(of), request, Ranks(0, count), failed)
    return " ".join(f"{key.removeprefix('ns/')}:{domain[0]}" for key, domain in sorted(found.items()))


@pytest.mark.parametrize(
    ("of", "nodes"),
    [
        ("p0 p1 p2 p3", "p0:a p1:a p2:b p3:c"),
        ("p3 p0", "p0:a p3:c"),
        ("p0@a p2", "p2:b"),
        ("p2>a", "p2:b"),
    ],
)
def test_a_pod_gets_the_domain_of_its_rank(of: str, nodes: str) -> None:
    """Whichever pods were created before, and whatever was chosen for it before."""
    assert given_nodes("a:2 b:1 c:1", of) == nodes


@pytest.mark.parametrize(
    ("of", "nodes", "why"),
    [
        ("x y", "x:a y:a", "a pod without an index"),
        ("p0 p4", "p0:a p4:a", "an index out of range"),
        ("p0@b p1", "p1:a", "a pod that runs elsewhere than its rank says"),
        ("p0@a p1 q1", "p1:a q1:b", "two pods with one index"),
    ],
)
def test_without_valid_ranks_pods_fill_the_domains_in_order(of: str, nodes: str, why: str) -> None:
    """One pod without a valid rank is enough."""
    assert given_nodes("a:2 b:1 c:1", of) == nodes, why
    assert given_nodes("a:2 b:1 c:1", of, None) == nodes


def test_ranks_beyond_the_assignment_do_not_count() -> None:
    """An assignment may have fewer pods than the pod set: those that fit are sent."""
    assert given_nodes("a:2", "p0 p1 p2 p3") == "p0:a p1:a"


def test_a_pod_that_is_created_again_gets_the_place_that_is_free() -> None:
    """The pod before it has ended and is not counted; one that still terminates is."""
    assert given_nodes("a:1 b:1", "x@a z", None) == "z:b"
    assert given_nodes("a:1 b:1", "x@a y@b z", None) == ""


def test_a_pod_keeps_the_domain_that_was_chosen_for_it() -> None:
    """Its patch may have been carried out though the log does not show it yet."""
    assert given_nodes("a:1 b:1", "x y>a", None) == "x:b y:a"
    assert given_nodes("a:1 b:1", "x>a y@a", None) == "x:b"


@pytest.mark.parametrize("request_", [INDEXED, None])
def test_no_pod_is_sent_to_a_failed_node(request_: TopologyRequest | None) -> None:
    """It stays gated until the node is replaced or has recovered."""
    assert given_nodes("a:1 b:1", "p0 p1", request_, failed=("a",)) == "p1:b"


def test_a_domain_that_is_no_node_cannot_be_a_failed_one() -> None:
    """A rack may have the name of a node."""
    racks = Placement(("rack",), (Domain(("a",), 1),))
    assert domains_of_gated(racks, 1, pods("p0"), INDEXED, Ranks(0, 1), ("a",)) == {"ns/p0": ("a",)}


def test_in_a_pod_set_of_several_jobs_the_job_comes_first() -> None:
    """Rank = index + job * size, as of a JobSet's replicated jobs."""
    of = [PodInSet(PodKey(f"ns/{j}-{i}"), True, None, {"job": j, "index": i}) for j in range(2) for i in range(2)]
    found = domains_of_gated(placement("a:2 b:1 c:1"), 4, of, NESTED, Ranks(0, 4))
    assert found == {"ns/0-0": ("a",), "ns/0-1": ("a",), "ns/1-0": ("b",), "ns/1-1": ("c",)}


@pytest.mark.parametrize("groups", [None, 0])
def test_without_the_number_of_jobs_there_are_no_ranks(groups: int | None) -> None:
    """Pods fill the domains in order instead."""
    request = TopologyRequest(pod_index_label="index", sub_group_index_label="job", sub_group_count=groups)
    of = [PodInSet(PodKey("ns/x"), True, None, {"job": 1, "index": 1})]
    assert domains_of_gated(placement("a:2 b:2"), 4, of, request, Ranks(0, 4)) == {"ns/x": ("a",)}


def test_the_leader_of_a_group_has_the_first_rank() -> None:
    """Its workers' indexes begin behind it; an annotation shifts those of its pods further."""
    grouped = TopologyRequest(pod_index_label="index", pod_set_group_name="g")
    pod_sets = [PodSet(name=name, topology_request=grouped) for name in ("workers", "leader")]
    assignments = [PodSetAssignment(name="workers", count=3), PodSetAssignment(name="leader", count=1)]
    ranks = ranks_of(pod_sets, assignments)
    assert ranks == {"workers": Ranks(1, 4), "leader": Ranks(0, 1)}
    found = domains_of_gated(placement("a:2 b:1"), 3, pods("p1 p3"), grouped, ranks["workers"])
    assert found == {"ns/p1": ("a",), "ns/p3": ("b",)}
    assert Ranks(0, 3).shifted(1) == Ranks(1, 4)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 9)), max_size=12),
    st.booleans(),
)
def test_no_domain_gets_more_pods_than_it_was_assigned(
    counts: list[int], drawn: list[tuple[bool, int, int]], ranked: bool
) -> None:
    """Unless pods without a gate exceed that already; and as many pods are sent as there is room for."""
    places = Placement((HOSTNAME,), tuple(Domain((f"n{i}",), count) for i, count in enumerate(counts)))
    of = [
        PodInSet(PodKey(f"ns/p{i}"), gated, (f"n{node}",), {"index": index})
        for i, (gated, node, index) in enumerate(drawn)
    ]
    found = domains_of_gated(places, sum(counts), of, INDEXED if ranked else None, Ranks(0, sum(counts)))
    room = 0
    for domain in places.domains:
        there = sum(not pod.is_gated and pod.domain == domain.values for pod in of)
        sent = sum(values == domain.values for values in found.values())
        assert sent == 0 or there + sent <= domain.pods
        room += max(0, domain.pods - there)
    assert len(found) == min(room, sum(pod.is_gated for pod in of))
