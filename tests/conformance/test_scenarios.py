"""
Recorded scenarios of Kueue's, run by `headgate plan`'s core: the same manifests for the same number of cycles.

One test per strictness and scenario: who holds quota at the end, who is admitted, preempted and evicted in each cycle,
the queues after it, how each head was evaluated, every message, and the whole outcome with counts, usage and
shares.
"""

import gzip
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from tests.support import conformance

from headgate.testing.reference.outcome import outcome_of
from headgate.testing.reference.rhythm import ReferencePlan
from headgate.testing.reference.scenario import read_scenario
from headgate.testing.reference.stopping import run

Json = dict[str, Any]


def _records() -> Iterator[Any]:
    for kind in "abcdefg":
        with gzip.open(conformance.SCENARIOS / f"{kind}.jsonl.gz") as lines:
            for line in lines:
                name = msgspec.json.decode(line)["scenario"]["name"]
                yield pytest.param(line, id=name)


each_scenario = pytest.mark.parametrize("line", list(_records()))


@cache
def played(line: bytes) -> tuple[Json, Json]:
    """The outcome here and the recorded one, with what upstream leaves open made alike."""
    record = msgspec.json.decode(line)
    scenario = read_scenario(record["scenario"])
    rhythm = ReferencePlan(scenario.facts, scenario.configuration, scenario.now_ms)
    stop = run(rhythm, scenario.cycles_max)
    got = msgspec.json.decode(msgspec.json.encode(outcome_of(scenario.name, rhythm, stop)))
    want = record["outcome"]
    if "fairSharing" in record["scenario"]["config"]:
        trees = dict(rhythm.state.index.trees)
        for cycle in (*got["trace"], *want["trace"]):
            cycle["evaluated"].sort(key=lambda each: trees[each["clusterQueue"]])
    return got, want


def _each_cycle(outcome: Json, *fields: str) -> list[Json]:
    return [{field: cycle.get(field) for field in fields} for cycle in outcome["trace"]]


@each_scenario
def test_the_same_workloads_hold_the_same_quota_at_the_end(line: bytes) -> None:
    """State, ClusterQueue, counts and flavors of every workload."""
    got, want = ({key: _placed(each) for key, each in end["final"]["workloads"].items()} for end in played(line))
    assert got == want


def _placed(workload: Json) -> Json:
    return {field: workload.get(field) for field in ("state", "clusterQueue", "podSets")}


@each_scenario
def test_each_cycle_admits_preempts_and_evicts_the_same(line: bytes) -> None:
    """Cycle by cycle, and as many of them, with whom it was for, reasons and messages."""
    got, want = (_each_cycle(each, "cycle", "time", "admitted", "preempted", "evicted") for each in played(line))
    assert got == want


@each_scenario
def test_the_queues_stand_the_same_after_each_cycle(line: bytes) -> None:
    """Heaps and what is set aside, in queue order."""
    got, want = (_each_cycle(each, "queued", "inadmissible") for each in played(line))
    assert got == want


@each_scenario
def test_heads_are_evaluated_the_same_in_the_same_order(line: bytes) -> None:
    """Mode, borrowing, flavors, targets, status and reasons; of unrelated trees with fair sharing in either order."""
    got, want = (_each_cycle(each, "evaluated") for each in played(line))
    assert got == want


@each_scenario
def test_every_message_is_worded_the_same(line: bytes) -> None:
    """Conditions at the end, those that cycles changed, evaluations, Kubernetes Events."""
    got, want = (Counter(_messages(each)) for each in played(line))
    assert got == want


def _messages(outcome: Json) -> Iterator[tuple[object, ...]]:
    for key, workload in outcome["final"]["workloads"].items():
        for kind, each in workload["conditions"].items():
            yield ("final", key, kind, *sorted(each.items()))
    for told in outcome["initialEvents"]:
        yield ("initial", *sorted(told.items()))
    for cycle in outcome["trace"]:
        for key, each in cycle.get("pending", {}).items():
            yield (cycle["cycle"], key, each["reason"], each["message"])
        for each in cycle["evaluated"]:
            yield (cycle["cycle"], each["workload"], each.get("message"))
        for told in cycle["events"]:
            yield (cycle["cycle"], *sorted(told.items()))


@each_scenario
def test_the_outcome_is_the_recorded_one(line: bytes) -> None:
    """All of it: usage, counts, shares, evictions, transition times, and why and when it stopped."""
    got, want = played(line)
    assert got == want
