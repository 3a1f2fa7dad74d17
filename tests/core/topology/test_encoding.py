"""Topology assignments in the compressed form of the API."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.topology import encoding
from headgate.core.topology.assignments import HOSTNAME, Domain, Placement, expand
from headgate.core.topology.encoding import compressed
from headgate.events.objects import LevelNames, LevelValues

hosts = st.text("ab-", max_size=6)


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Domains of one to three levels, the lowest of which may be that of host names; they may repeat and be empty."""
    depth = draw(st.integers(1, 3))
    lowest = draw(st.sampled_from([HOSTNAME, "rack"]))
    values = st.tuples(*[hosts] * depth)
    domains = draw(st.lists(st.builds(Domain, values, st.integers(1, 3)), max_size=12))
    return Placement((*(f"level-{number}" for number in range(depth - 1)), lowest), tuple(domains))


@given(placements(), st.booleans())
def test_a_compressed_placement_expands_to_itself(placement: Placement, by_hostname_prefix: bool) -> None:
    """The same domains with the same pods in the same order, whatever the encoding."""
    assignment = compressed(placement, by_hostname_prefix=by_hostname_prefix)
    assert expand(assignment) == placement
    assert sum(each.domain_count for each in assignment.slices) == len(placement.domains)


@given(placements())
def test_the_gate_never_makes_an_assignment_longer(placement: Placement) -> None:
    """Prefixes of host names are used where they make it shorter, or where one slice is all there is."""
    with_gate, without = (
        len(msgspec.json.encode(compressed(placement, by_hostname_prefix=on))) for on in (True, False)
    )
    assert with_gate <= without


@given(placements(), st.integers(1, 3), st.integers(1, 4))
def test_no_more_slices_and_no_larger_ones_are_made_than_the_api_accepts(
    placement: Placement, domains_max: int, slices_max: int
) -> None:
    """Shorter prefixes are tried when the longest make too many slices; more domains than fit one slice are split."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "DOMAINS_MAX", domains_max)
        patch.setattr(encoding, "SLICES_MAX", slices_max)
        assignment = compressed(placement, by_hostname_prefix=True)
    assert expand(assignment) == placement
    if len(placement.domains) > domains_max:
        assert all(each.domain_count <= domains_max for each in assignment.slices)
        least = -(-len(placement.domains) // domains_max)
        assert len(assignment.slices) <= max(slices_max, least)


def on_hosts(*names: str) -> Placement:
    return Placement((HOSTNAME,), tuple(Domain((name,), 1) for name in names))


def test_values_are_written_between_their_common_prefix_and_suffix() -> None:
    """Prefix and suffix do not overlap in the shortest value; equal values and equal counts are written once."""
    same = compressed(
        Placement(("block", "rack"), (Domain(("b", "r1"), 2), Domain(("b", "r2"), 1))), by_hostname_prefix=False
    )
    assert msgspec.json.decode(msgspec.json.encode(same)) == {
        "levels": ["block", "rack"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"universal": "b"}, {"individual": {"roots": ["1", "2"], "prefix": "r"}}],
                "podCounts": {"individual": [2, 1]},
            }
        ],
    }
    overlapping = compressed(on_hosts("ababa", "aba"), by_hostname_prefix=False)
    (level,) = overlapping.slices[0].values_per_level
    assert level == LevelValues(individual=LevelNames(roots=("ab", ""), suffix="aba"))


def test_many_hosts_of_two_pools_are_two_slices() -> None:
    """The prefix of a pool is written once, and not with each host."""
    names = [f"gke-cluster-pool-{pool}-node-{number:02}" for pool in ("accelerated", "general") for number in range(20)]
    assignment = compressed(on_hosts(*names), by_hostname_prefix=True)
    assert [
        level.individual.prefix for each in assignment.slices for level in each.values_per_level if level.individual
    ] == [
        "gke-cluster-pool-accelerated-node-",
        "gke-cluster-pool-general-node-",
    ]
