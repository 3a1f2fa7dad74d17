"""What workloads with a topology assignment occupy is indexed from reservation to end, and rebuilt alike."""

from typing import Any

from tests.support.cells import NAMESPACE, Cell, cluster_queue, pod_set

from headgate.core import fold
from headgate.core.state.tables import DomainUsage
from headgate.core.topology.assignments import HOSTNAME, Domain, Placement
from headgate.core.topology.encoding import compressed
from headgate.events.base import Producer
from headgate.events.decisions import QuotaReserved
from headgate.events.effects import ObjectQuarantined
from headgate.events.facts import LimitRangeDeleted, LimitRangeObserved
from headgate.events.ids import Uid, WorkloadKey
from headgate.events.objects import Admission, LimitRangeItem, PodSet, PodSetAssignment, ResourceFlavorSpec
from headgate.events.queueing import WorkloadFinished

W = WorkloadKey(f"{NAMESPACE}/w")
PLACEMENT = Placement((HOSTNAME,), (Domain(("x",), 2), Domain(("y",), 1)))


def cell_of(*pod_sets: PodSet) -> Cell:
    """A cell in which a workload holds quota, with three pods on two hosts."""
    cell = Cell(cluster_queue("cq", {"tas": {"cpu": 9}}), flavors={"tas": ResourceFlavorSpec(topology_name="default")})
    cell.submit("cq", "w", *pod_sets)
    reserve(cell)
    return cell


def reserve(cell: Cell) -> None:
    """Two pods on the host x, one on y."""
    assignment = PodSetAssignment(
        name="main",
        count=3,
        flavors={"cpu": "tas"},
        resource_usage={"cpu": "3"},
        topology_assignment=compressed(PLACEMENT, by_hostname_prefix=True),
    )
    reserved = QuotaReserved(
        workload=W,
        uid=Uid("uid-w"),
        cluster_queue="cq",
        admission=Admission(cluster_queue="cq", pod_set_assignments=(assignment,)),
        message="",
    )
    cell.log.append(Producer.SCHEDULER, reserved, decided_at=cell.state.position)


def indexed(state: Any) -> Any:
    """The indexes of what is occupied."""
    return state.index.topology_usage, state.index.topology_usage_of


def assert_rebuilt_alike(cell: Cell) -> None:
    """A state that is restored from a snapshot has the same indexes."""
    assert indexed(fold.restore(cell.state.cell, fold.encode(cell.state))) == indexed(cell.state)


def test_a_reserved_workload_occupies_its_domains_until_it_ends() -> None:
    """Per pod what its template requests, and one of `pods`; nothing when it is finished."""
    cell = cell_of(pod_set({"cpu": "500m"}, 3))
    per_pod = (("cpu", 500),)
    assert indexed(cell.state) == (
        {"tas": {("x",): {"cpu": 1000, "pods": 2}, ("y",): {"cpu": 500, "pods": 1}}},
        {W: (DomainUsage("tas", ("x",), per_pod, 2), DomainUsage("tas", ("y",), per_pod, 1))},
    )
    assert_rebuilt_alike(cell)
    seen = cell.state.index.topology_changes
    cell.log.append(
        Producer.QUEUE_MANAGER, WorkloadFinished(workload=W, uid=Uid("uid-w"), reason="Succeeded", message="")
    )
    assert indexed(cell.state) == ({}, {})
    assert sorted(key for key, change in cell.state.index.topology_changed.items() if change > seen) == [
        ("tas", ("x",)),
        ("tas", ("y",)),
    ]


def test_defaults_of_limit_ranges_count_while_they_are_there() -> None:
    """A pod without requests occupies what a LimitRange gives it; when that changes, so does what is occupied."""
    cell = cell_of(pod_set({}, 3))
    assert indexed(cell.state)[0] == {"tas": {("x",): {"pods": 2}, ("y",): {"pods": 1}}}
    limits = (LimitRangeItem(type="Container", default_request={"cpu": "1"}),)
    cell.log.append(Producer.INFORMER_BRIDGE, LimitRangeObserved(limit_range=f"{NAMESPACE}/defaults", limits=limits))
    assert indexed(cell.state)[0] == {"tas": {("x",): {"cpu": 2000, "pods": 2}, ("y",): {"cpu": 1000, "pods": 1}}}
    assert_rebuilt_alike(cell)
    cell.log.append(Producer.INFORMER_BRIDGE, LimitRangeDeleted(limit_range=f"{NAMESPACE}/defaults"))
    assert indexed(cell.state)[0] == {"tas": {("x",): {"pods": 2}, ("y",): {"pods": 1}}}
    assert_rebuilt_alike(cell)


def test_domains_that_are_reserved_for_a_workload_in_quarantine_are_occupied() -> None:
    """The scheduler had decided it before: the pods may run. They are free when nothing of it runs any more."""
    cell = Cell(cluster_queue("cq", {"tas": {"cpu": 9}}), flavors={"tas": ResourceFlavorSpec(topology_name="default")})
    cell.submit("cq", "w", pod_set({"cpu": "500m"}, 3))
    aside = ObjectQuarantined(kind="Workload", name=W, error="e", where="w", version="v", uid=Uid("uid-w"))
    cell.log.append(Producer.QUEUE_MANAGER, aside)
    assert indexed(cell.state) == ({}, {})
    reserve(cell)
    assert cell.state.index.topology_usage == {
        "tas": {("x",): {"cpu": 1000, "pods": 2}, ("y",): {"cpu": 500, "pods": 1}}
    }
    assert_rebuilt_alike(cell)
    cell.log.append(Producer.INFORMER_BRIDGE, LimitRangeObserved(limit_range=f"{NAMESPACE}/l", limits=()))
    assert_rebuilt_alike(cell)
    finished = WorkloadFinished(workload=W, uid=Uid("uid-w"), reason="Succeeded", message="")
    cell.log.append(Producer.QUEUE_MANAGER, finished)
    assert indexed(cell.state) == ({}, {})
    assert_rebuilt_alike(cell)
