"""
The compressed form of topology assignments, in which the API has them.

`compressed` is the inverse of `expand`. The API (v1beta2) has slices of domains: per level one value that all domains
of a slice share, or the roots of their values between a common prefix and a common suffix; and one number of pods, or
one for each. Kueue writes all domains as one slice, or, with the gate TASAssignmentsEncodingByHostnamePrefix,
one slice for each run of host names with a prefix in common (`pool-a-`), whichever is the shorter JSON
(pkg/util/tas/tas_assignment.go). The order of the domains is kept: ranks follow it.

Called by the scheduling cycle.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from headgate.core.topology.assignments import HOSTNAME, Domain, Placement
from headgate.events.objects import DomainCounts, LevelNames, LevelValues, TopologyAssignment, TopologySlice

DOMAINS_MAX: Final = 100_000
"""The most domains in one slice that the API accepts."""

SLICES_MAX: Final = 1000
"""The most slices in one assignment that the API accepts."""

_encoder: Final = msgspec.json.Encoder()


def compressed(placement: Placement, *, by_hostname_prefix: bool) -> TopologyAssignment:
    """
    A placement as the API has it. `by_hostname_prefix` is the gate of that name.

    Without it, all domains are one slice, however many there are.
    """
    levels, domains = placement
    if not domains:
        return TopologyAssignment(levels=levels, slices=())
    whole = TopologyAssignment(levels=levels, slices=(_slice(levels, domains),))
    if not by_hostname_prefix:
        return whole
    split = TopologyAssignment(levels=levels, slices=_by_prefix(levels, domains))
    if len(split.slices) == 1 or len(domains) > DOMAINS_MAX:
        return split
    return whole if len(_encoder.encode(whole)) < len(_encoder.encode(split)) else split


# --- runs of host names --------------------------------------------------------------------------------------------


def _by_prefix(levels: tuple[str, ...], domains: Sequence[Domain]) -> tuple[TopologySlice, ...]:
    runs = _runs(domains, _prefixes(levels, domains))
    return tuple(
        _slice(levels, run[start : start + DOMAINS_MAX]) for run in runs for start in range(0, len(run), DOMAINS_MAX)
    )


def _runs(domains: Sequence[Domain], prefixes: Sequence[str]) -> Iterable[list[Domain]]:
    """Consecutive domains of one prefix."""
    for _, pairs in groupby(zip(prefixes, domains, strict=True), key=_first):
        yield [domain for _, domain in pairs]


def _first(pair: tuple[str, Domain]) -> str:
    return pair[0]


def _prefixes(levels: tuple[str, ...], domains: Sequence[Domain]) -> list[str]:
    """
    For each domain the longest prefix of its host name that others share; "" for all where no choice fits the API.

    A prefix ends with a hyphen. Where the longest ones make too many slices, shorter ones are tried.
    """
    if len(domains) < 2 or levels[-1:] != (HOSTNAME,):
        return [""] * len(domains)
    candidates = [_candidates(domain.values[-1]) for domain in domains]
    found: dict[str, int] = {}
    for prefixes in candidates:
        for prefix in prefixes:
            found[prefix] = found.get(prefix, 0) + 1
    for depth in range(max(map(len, candidates)), 0, -1):
        chosen = [next((each for each in reversed(some[:depth]) if found[each] > 1), "") for some in candidates]
        if sum(-(-len(run) // DOMAINS_MAX) for run in _runs(domains, chosen)) <= SLICES_MAX:
            return chosen
    return [""] * len(domains)


def _candidates(name: str) -> list[str]:
    """Every prefix of a host name that ends with a hyphen and is not all of it, shortest first."""
    return [name[: end + 1] for end, character in enumerate(name[:-1]) if character == "-"]


# --- one slice -----------------------------------------------------------------------------------------------------


def _slice(levels: tuple[str, ...], domains: Sequence[Domain]) -> TopologySlice:
    first = domains[0].pods
    same = all(domain.pods == first for domain in domains)
    return TopologySlice(
        domain_count=len(domains),
        values_per_level=tuple(_level([domain.values[number] for domain in domains]) for number in range(len(levels))),
        pod_counts=DomainCounts(universal=first)
        if same
        else DomainCounts(individual=tuple(domain.pods for domain in domains)),
    )


def _level(values: list[str]) -> LevelValues:
    """One value for all, or what lies between their longest common prefix and suffix, which do not overlap."""
    prefix = _common(values)
    shortest, longest = min(map(len, values)), max(map(len, values))
    if len(prefix) == longest:
        return LevelValues(universal=prefix)
    suffix = _common([value[::-1] for value in values])[::-1]
    prefix = prefix[: min(len(prefix), shortest - len(suffix))]
    roots = tuple(value[len(prefix) : len(value) - len(suffix)] for value in values)
    return LevelValues(individual=LevelNames(roots=roots, prefix=prefix or None, suffix=suffix or None))


def _common(values: list[str]) -> str:
    """The longest common prefix: that of the first and the last in order."""
    low, high = min(values), max(values)
    for place, character in enumerate(low):
        if high[place] != character:
            return low[:place]
    return low
