"""
Placement against recorded runs of the kube-scheduler: profiles, attempts from the recorded state, and whole runs.

A few small scenarios of each class are part of the repository (`tests/conformance/data/README.md`); all of them are
compared where the recordings are at hand.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.conformance import ROOT

from headgate.core.placement.attempt import nodes_to_find
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.testing.reference.placement.comparing import FIELDS, RUN_FIELDS, differing_fields, differing_run_fields
from headgate.testing.reference.placement.recorded import Following
from headgate.testing.reference.placement.running import outcome_of
from headgate.testing.reference.placement.scenario import read_placement_scenario
from headgate.testing.reference.placement.telling import told_profiles

DATA = Path(__file__).parent / "data" / "placement"
ALL = ROOT / "placement"
CLASSES = ("resources", "nodes", "interpod", "spread", "preemption", "profiles", "queue", "volumes")

each_class = pytest.mark.parametrize("name", CLASSES)
with_recordings = pytest.mark.skipif(not ALL.exists(), reason="the recordings are not at hand")


Json = dict[str, Any]


def records(file: Path) -> Iterator[Json]:
    with gzip.open(file) as lines:
        yield from map(json.loads, lines)


def tables() -> Any:
    return json.loads((DATA / "tables.json").read_bytes())


def attempts_agree(file: Path) -> None:
    for record in records(file):
        following = Following(read_placement_scenario(record), record["outcome"]["steps"])
        for ours, recorded in following.attempts():
            differing = differing_fields(ours, recorded)
            assert not differing, (record["scenario"]["name"], recorded["pod"], recorded["n"], differing)


def runs_agree(file: Path) -> None:
    for record in records(file):
        ours = json.loads(json.dumps(outcome_of(read_placement_scenario(record))))
        differing = differing_run_fields(ours, record["outcome"])
        assert not differing, (record["scenario"]["name"], differing)


@each_class
def test_attempts_of_small_scenarios_decide_as_recorded(name: str) -> None:
    """Each attempt from the recorded state: filters, scores, the best nodes, what else each filter says, messages."""
    attempts_agree(DATA / f"{name}.jsonl.gz")


@with_recordings
@each_class
def test_attempts_decide_as_recorded(name: str) -> None:
    """The same of all scenarios."""
    attempts_agree(ALL / f"{name}.jsonl.gz")


@each_class
def test_small_scenarios_run_as_recorded(name: str) -> None:
    """Under a virtual clock, with our own decisions: every step, and who is where at the end."""
    runs_agree(DATA / f"{name}.jsonl.gz")


@with_recordings
@each_class
def test_scenarios_run_as_recorded(name: str) -> None:
    """The same of all scenarios."""
    runs_agree(ALL / f"{name}.jsonl.gz")


@with_recordings
@each_class
def test_configurations_amount_to_the_recorded_profiles(name: str) -> None:
    """Plugins per extension point in order, weights, and arguments with their defaults."""
    for record in records(ALL / f"{name}.jsonl.gz"):
        profiles = read_profiles(record["scenario"]["config"], REGISTRY)
        told = json.loads(json.dumps(told_profiles(profiles)))
        assert told == record["outcome"]["profiles"], record["scenario"]["name"]


def test_the_default_profile_is_that_of_the_table() -> None:
    """Plugins in order at each point, weights, and arguments."""
    told = json.loads(json.dumps(told_profiles(read_profiles(None, REGISTRY))))
    assert told == {"default-scheduler": tables()["defaultProfile"]}


@pytest.mark.parametrize(("nodes", "percentage", "of_profile", "expected"), tables()["nodesToFind"]["rows"])
def test_the_search_ends_after_so_many_feasible_nodes(
    nodes: int, percentage: int, of_profile: int | None, expected: int
) -> None:
    """The percentage of the profile overrides that of the configuration."""
    assert nodes_to_find(nodes, percentage if of_profile is None else of_profile) == expected


def test_every_field_of_an_attempt_is_compared() -> None:
    """The fields that are compared are those that recorded attempts have, beside who was tried."""
    named = {field.split(".")[0] for field in FIELDS}
    for name in CLASSES:
        for record in records(DATA / f"{name}.jsonl.gz"):
            for step in record["outcome"]["steps"]:
                fields = set(step.get("attempt", {})) - {"pod", "profile", "n", "from", "to", "nominated", "reason"}
                assert fields - {"nominatedRejected"} <= named
    assert set(RUN_FIELDS) >= {"bound", "pending", "stop", "profiles"}
