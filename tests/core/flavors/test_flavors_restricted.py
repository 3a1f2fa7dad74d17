"""Flavor assignment under restrictions: a first nomination, allowed flavors, a replaced slice, undeclared resources."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.assigning import Held, assign, assigner, flavors, two_flavors
from tests.support.cells import Cell, cluster_queue, cohort, pod_set

from headgate.core.config.feature_gates import effective
from headgate.core.flavors import Assigner, Assignment, Mode, allowed_flavors
from headgate.core.flavors.catalog import Catalog
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import Workload
from headgate.core.workload.pod_requests import pod_set_requests
from headgate.events.configuration import Configuration, ResourcesConfiguration
from headgate.events.facts import ConfigurationObserved, NodeObserved, TopologyObserved
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Node,
    PodSet,
    ResourceFlavorSpec,
    Taint,
    Toleration,
    TopologyLevel,
    TopologyRequest,
    TopologySpec,
    WorkloadSpec,
)

FULL: Held = {"cq": {("one", "gpu"): 4}, "other": {("one", "gpu"): 4}}


def test_a_second_look_is_held_to_the_flavors_of_the_first() -> None:
    """Flavor two would fit, but flavor one was nominated; what is not, is named."""
    nomination = assign(two_flavors(), pod_set({"gpu": 3})).nomination
    assert nomination == {"main": {"gpu": "one"}}
    again = assign(two_flavors(), pod_set({"gpu": 3}), held=FULL, only=nomination)
    assert (again.mode, flavors(again.pod_sets[0])) == (Mode.PREEMPT, {"gpu": "one"})
    assert "skipping flavor two as it is not found in the nomination mapping for resource gpu" in again.message


def test_a_nomination_that_names_nothing_holds_to_nothing() -> None:
    """As that of a workload that fitted nowhere."""
    assert flavors(assign(two_flavors(), pod_set({"gpu": 3}), held=FULL, only={}).pod_sets[0]) == {"gpu": "two"}


def test_only_allowed_flavors_are_looked_at() -> None:
    """With none left the workload matches no flavor, and each that was passed over is named."""
    only_two = assign(two_flavors(), pod_set({"gpu": 3}), allowed=frozenset({"two"}))
    assert flavors(only_two.pod_sets[0]) == {"gpu": "two"}
    nothing = assign(two_flavors(), pod_set({"gpu": 3}), allowed=frozenset())
    assert (nothing.mode, nothing.no_fit_reason) == (Mode.NO_FIT, "NoMatchingFlavor")
    assert nothing.message == (
        "couldn't assign flavors to pod set main: "
        "skipping flavor one due to WorkloadAllowedResourceFlavorAnnotation annotation, "
        "skipping flavor two due to WorkloadAllowedResourceFlavorAnnotation annotation"
    )


@pytest.mark.parametrize(
    ("annotation", "allowed"),
    [
        (None, None),
        ("a, b", frozenset({"a", "b"})),
        ("", frozenset()),
        (" ", frozenset()),
        ("a,", frozenset({"a", ""})),
    ],
)
def test_the_annotation_of_allowed_flavors_is_a_list_by_commas(
    annotation: str | None, allowed: frozenset[str] | None
) -> None:
    """It counts under the gate ConcurrentAdmission only."""
    workload = Workload(
        key=WorkloadKey("a/w"),
        uid=Uid("u"),
        created_ms=UnixMs(0),
        spec=WorkloadSpec(),
        annotations={} if annotation is None else {"kueue.x-k8s.io/workload-allowed-resource-flavors": annotation},
    )
    assert allowed_flavors(workload, Configuration(feature_gates={"ConcurrentAdmission": True})) == allowed
    assert allowed_flavors(workload, Configuration()) is None


def test_a_slice_that_replaces_another_is_charged_the_difference() -> None:
    """In the same flavor, though the first of the queue has room: its pods run there already."""
    before = {"main": {("two", "gpu"): 2}}
    held: Held = {"cq": {("two", "gpu"): 2}, "other": {("two", "gpu"): 4}}
    result = assign(two_flavors(), pod_set({"gpu": 4}), held=held, replaced=before)
    assert (result.mode, result.usage) == (Mode.FIT, {("two", "gpu"): 2})
    assert result.pod_sets[0].requests == {"gpu": 4}
    too_much = assign(two_flavors(), pod_set({"gpu": 5}), held=held, replaced=before)
    assert too_much.mode is Mode.PREEMPT
    assert too_much.message == (
        "couldn't assign flavors to pod set main: could not assign one flavor since the original workload is assigned: "
        "two, insufficient unused quota for gpu in flavor two, 1 more needed"
    )


def test_undeclared_resources_never_fit_unless_they_are_ignored() -> None:
    """With quotaCheckStrategy IgnoreUndeclared they get no flavor and are not charged."""
    asked = pod_set({"gpu": 1, "licenses": 3})
    ignoring = ResourcesConfiguration(quota_check_strategy="IgnoreUndeclared")
    assert assign(two_flavors(), asked).mode is Mode.NO_FIT
    result = assign(two_flavors(), asked, configuration=Configuration(resources=ignoring))
    assert (result.mode, result.usage) == (Mode.FIT, {("one", "gpu"): 1})
    assert assigner(two_flavors(), asked, configuration=Configuration(resources=ignoring)).ways()
    gated = Configuration(resources=ignoring, feature_gates={"QuotaCheckStrategy": False})
    assert assign(two_flavors(), asked, configuration=gated).mode is Mode.NO_FIT


def test_what_was_considered_and_not_simply_taken_is_told() -> None:
    """Flavor by flavor with mode, level and reasons, as Kueue's event of the reservation has it."""
    held: Held = {"cq": {("two", "gpu"): 4}, "other": {("one", "gpu"): 8}}
    result = assign(two_flavors(), pod_set({"gpu": 3}), held=held)
    assert result.considered == (
        "main: one(preemptionMode=NoCandidates;insufficient unused quota for gpu in flavor one, 3 more needed), "
        "two(Fit;borrow=1)"
    )
    assert assign(two_flavors(), pod_set({"gpu": 3})).considered == ""


def test_contested_is_what_somebody_would_have_to_leave() -> None:
    """The flavor-resources in mode PREEMPT, not those that fit."""
    cell = Cell(cluster_queue("cq", {"one": {"gpu": 4, "cpu": 9}}))
    result = assign(cell, pod_set({"gpu": 3, "cpu": 1}), held={"cq": {("one", "gpu"): 4}})
    assert (result.mode, result.contested) == (Mode.PREEMPT, frozenset({("one", "gpu")}))
    assert result.usage == {("one", "gpu"): 3, ("one", "cpu"): 1000}


# --- topology ------------------------------------------------------------------------------------------------------


def racks(*flavors: str, **quota: dict[str, int]) -> Cell:
    """Flavors of which these place pods on racks."""
    specs = {name: ResourceFlavorSpec(topology_name="racks" if name in flavors else None) for name in quota}
    topology = TopologyObserved(name="racks", spec=TopologySpec(levels=(TopologyLevel(node_label="rack"),)))
    resources = {resource for each in quota.values() for resource in each}
    groups = [{name: each for name, each in quota.items() if resource in each} for resource in sorted(resources)]
    room: dict[str, str | int | float] = {"pods": 10, **dict.fromkeys(sorted(resources), 8)}
    node = NodeObserved(name="n", node=Node(name="n", labels={"rack": "r"}, allocatable=room))
    gates = ConfigurationObserved(configuration=Configuration(feature_gates=effective({})))
    return Cell(gates, topology, node, cluster_queue("cq", *groups), flavors=specs)


def on_rack(requests: dict[str, int], name: str = "main", **topology: Any) -> PodSet:
    template = pod_set(requests).template
    return PodSet(name=name, template=template, topology_request=TopologyRequest(required="rack", **topology))


def test_a_leader_without_requests_is_placed_where_its_group_is() -> None:
    """It gets the group's flavor and is charged nothing."""
    cell = racks("a", a={"gpu": 4}, b={"gpu": 4})
    leader, worker = (
        on_rack({}, "leader", pod_set_group_name="g"),
        on_rack({"gpu": 1}, "worker", pod_set_group_name="g"),
    )
    result = assign(cell, leader, worker)
    assert [flavors(each) for each in result.pod_sets] == [{"gpu": "a"}, {"gpu": "a"}]
    assert (result.mode, result.usage) == (Mode.FIT, {("a", "gpu"): 1})


@pytest.mark.parametrize(
    ("placing", "requests", "error"),
    [
        (("a",), {}, "no TAS flavor assigned"),
        ((), {}, "workload requires Topology, but there is no TAS cache information"),
        (("a", "b"), {"gpu": 1, "tpu": 1}, "more than one TAS flavor assigned: a, b"),
    ],
)
def test_pods_that_no_single_flavor_can_place_fit_nowhere(
    placing: tuple[str, ...], requests: dict[str, int], error: str
) -> None:
    """A pod set is placed by one flavor; which is decided by quota, and it may turn out to be none or two."""
    cell = racks(*placing, a={"gpu": 4}, b={"tpu": 4}, c={"cpu": 4})
    result = assign(cell, on_rack(requests))
    assert result.mode is Mode.NO_FIT
    assert result.message == f"failed to assign flavors to pod set main: {error}"


# --- what is kept --------------------------------------------------------------------------------------------------

_RESOURCES = ("cpu", "memory", "gpu")
_asked = st.dictionaries(st.sampled_from(_RESOURCES), st.integers(0, 4), max_size=3)
_pod_sets = st.lists(
    st.tuples(_asked, st.integers(0, 3), st.booleans(), st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])),
    min_size=1,
    max_size=3,
)
_used = st.dictionaries(
    st.tuples(st.sampled_from(["cq", "other"]), st.sampled_from(["one", "two"]), st.sampled_from(_RESOURCES)),
    st.integers(0, 9),
)


def _cell() -> Cell:
    quota = {name: {"cpu": "8m", "memory": 8} for name in ("one", "two")}
    return Cell(
        cohort("co"),
        cluster_queue("cq", quota, {"one": {"gpu": 2}, "two": {"gpu": 6}}, cohort_name="co"),
        cluster_queue("other", quota, {"one": {"gpu": 2}}, cohort_name="co"),
        flavors={
            "one": ResourceFlavorSpec(node_labels={"zone": "a"}),
            "two": ResourceFlavorSpec(
                node_labels={"zone": "b"}, node_taints=(Taint(key="spot", value="", effect="NoSchedule"),)
            ),
        },
    )


CELL = _cell()


def _workload(pod_sets: list[tuple[dict[str, int], int, bool, dict[str, str]]]) -> Workload:
    tolerated = (Toleration(key="spot", operator="Exists"),)
    sets = tuple(
        pod_set(
            {name: f"{value}m" if name == "cpu" else value for name, value in asked.items()},
            count,
            f"set{number}",
            tolerations=tolerated if tolerates else (),
            node_selector=selector,
        )
        for number, (asked, count, tolerates, selector) in enumerate(pod_sets)
    )
    return Workload(key=WorkloadKey("team-a/w"), uid=Uid("u"), created_ms=UnixMs(0), spec=WorkloadSpec(pod_sets=sets))


def _decide(
    catalog: Catalog, workload: Workload, used: dict[tuple[str, str, str], int]
) -> tuple[Assignment, list[dict[tuple[str, str], int]]]:
    held: Held = {}
    for (queue, flavor, resource), value in used.items():
        held.setdefault(queue, {})[flavor, resource] = value
    view = catalog.queue("cq")
    assert view is not None
    requests = pod_set_requests(workload, {}, {}, Configuration())
    ledger = Ledger(catalog.forest.tree_of("cq"), held)
    it = Assigner(view, ledger, workload.spec.pod_sets, requests, configuration=Configuration())
    return it.assign(), it.ways()


KEPT = Catalog(CELL.state)


@given(_pod_sets, _used)
def test_what_a_catalog_remembers_changes_no_answer(
    pod_sets: list[tuple[dict[str, int], int, bool, dict[str, str]]], used: dict[tuple[str, str, str], int]
) -> None:
    """A catalog that has seen every workload before answers as a new one."""
    workload = _workload(pod_sets)
    assert _decide(KEPT, workload, used) == _decide(Catalog(CELL.state), workload, used)


@given(_pod_sets, _used)
def test_what_fits_is_charged_one_of_the_ways_or_more(
    pod_sets: list[tuple[dict[str, int], int, bool, dict[str, str]]], used: dict[tuple[str, str, str], int]
) -> None:
    """So a workload that waits for one of the alternatives is requeued as soon as it could be admitted."""
    assignment, ways = _decide(KEPT, _workload(pod_sets), used)
    if assignment.mode is Mode.FIT:
        assert any(all(assignment.usage.get(fr, 0) >= value for fr, value in way.items()) for way in ways)
    for fr, value in assignment.usage.items():
        assert value <= KEPT.forest.tree_of("cq").potential_available(KEPT.queue("cq").node, fr)  # type: ignore[union-attr, arg-type]
