"""Kueue's finalizer: on ClusterQueues and flavors from the start, off when unused, finalizers of others kept."""

from typing import Any

import msgspec
import pytest
from tests.support.backoff import longest
from tests.support.conformance import fact_of
from tests.support.logs import TestLog
from tests.support.playing import cluster_queue

from headgate.core.api.names import FINALIZER
from headgate.core.config import feature_gates
from headgate.core.machine.contract import Append, Call, Committed, Completed, Settled
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration
from headgate.events.decisions import QuotaReserved
from headgate.events.effects import StatusApplied
from headgate.events.ids import JobKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    Job,
    OwnerReference,
    PodSet,
    PodSetAssignment,
    ResourceFlavorSpec,
    TopologySpec,
    WorkloadSpec,
)
from headgate.events.queueing import WorkloadFinished
from headgate.machines.binder.decide import Binder
from headgate.machines.informer_bridge.diff import news

BRIDGE, MANAGER, SCHEDULER, BINDER = (
    Producer.INFORMER_BRIDGE,
    Producer.QUEUE_MANAGER,
    Producer.SCHEDULER,
    Producer.BINDER,
)
ABOUT: dict[str, Any] = {"workload": WorkloadKey("team-a/w"), "uid": Uid("w")}
PATH = "/apis/kueue.x-k8s.io/v1beta2"


class Held:
    """A binder of which only the calls about finalizers are looked at."""

    def __init__(self, log: TestLog | None = None) -> None:
        self.log = log or TestLog()
        self.machine = Binder(self.log.state, "off")
        if log is None:
            self.say(BRIDGE, facts.InformersSynced())

    def say(self, producer: Producer, *events: EventBase) -> None:
        assert self.machine.decide(Committed(self.log.append(producer, *events))) == []

    def calls(self) -> list[Call]:
        commands = [*self.machine.decide(Settled(self.log.now_ms)), *self.machine.decide(Settled(self.log.now_ms))]
        return [each for each in commands if isinstance(each, Call) and each.id.startswith("finalizer/")]

    def answer(self, call: Call, code: int = 200, body: Any = None) -> None:
        self.machine.decide(Completed(call.id, code, msgspec.json.encode(body or {})))


def queue(**more: Any) -> EventBase:
    fact = fact_of({"kind": "ClusterQueue", **cluster_queue()})
    assert isinstance(fact, facts.ClusterQueueObserved)
    return msgspec.structs.replace(fact, uid=Uid("q"), **more)


def spot(**more: Any) -> EventBase:
    fact = fact_of({"kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": {}})
    assert isinstance(fact, facts.ResourceFlavorObserved)
    return msgspec.structs.replace(fact, uid=Uid("f"), **more)


def workload(*, owned: bool = True, **more: Any) -> facts.WorkloadObserved:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j") if owned else None
    spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=1),))
    return facts.WorkloadObserved(**ABOUT, created_ms=UnixMs(5), spec=spec, owner=owner, finalizer=True, **more)


def job(**more: Any) -> facts.JobObserved:
    return facts.JobObserved(job=JobKey("batch/Job/team-a/train"), spec=Job(uid="j", created_ms=UnixMs(5), **more))


def reserved() -> QuotaReserved:
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "2"}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    return QuotaReserved(**ABOUT, cluster_queue="cq", admission=admission, message="Quota reserved")


def removed(call: Call, before: list[str], after: list[str]) -> bool:
    """Whether a call takes the finalizer out of this list, and tests that it is this list."""
    at = "/metadata/finalizers"
    change = {"op": "replace", "path": at, "value": after} if after else {"op": "remove", "path": at}
    assert call.content_type == "application/json-patch+json"
    wanted: list[Any] = [{"op": "test", "path": at, "value": before}, change]
    return bool(wanted == call.body[1:])


def test_queues_and_flavors_get_it_once() -> None:
    """By server-side apply, which adds to a set; when it shows there is nothing left to do, also after a restart."""
    held = Held()
    held.say(BRIDGE, spot(), queue())
    for call in held.calls():
        assert call.body["metadata"]["finalizers"] == [FINALIZER]
        held.answer(call)
    assert held.calls() == []
    held.say(BRIDGE, spot(finalizer=True), queue(finalizer=True))
    assert held.calls() == []
    assert Held(held.log).calls() == []


def test_a_cluster_queue_stays_while_quota_is_held_in_it() -> None:
    """Kueue's ClusterQueueEmpty: it goes with the last workload that holds quota."""
    held = Held()
    held.say(BRIDGE, spot(finalizer=True), queue(finalizer=True), workload(owned=False))
    held.say(SCHEDULER, reserved())
    held.say(BRIDGE, queue(finalizer=True, deleting=True))
    assert [call.path for call in held.calls()] == []
    held.say(MANAGER, WorkloadFinished(**ABOUT, reason="Succeeded", message="m"))
    paths = {call.path: call for call in held.calls()}
    assert removed(paths[f"{PATH}/clusterqueues/cq"], [FINALIZER], [])


def test_a_flavor_stays_while_a_cluster_queue_names_it() -> None:
    """Kueue's ClusterQueuesUsingFlavor."""
    held = Held()
    held.say(BRIDGE, spot(finalizer=True), queue(finalizer=True))
    held.say(BRIDGE, spot(finalizer=True, deleting=True))
    assert held.calls() == []
    held.say(BRIDGE, facts.ClusterQueueDeleted(name="cq"))
    (call,) = held.calls()
    assert call.path == f"{PATH}/resourceflavors/spot"
    assert removed(call, [FINALIZER], [])


def topology(**more: Any) -> EventBase:
    return facts.TopologyObserved(name="racks", spec=TopologySpec(), uid=Uid("t"), **more)


def with_topologies(*, on: bool = True) -> EventBase:
    gates = {feature_gates.TOPOLOGY_AWARE_SCHEDULING: on}
    return facts.ConfigurationObserved(configuration=Configuration(feature_gates=gates))


def test_a_topology_stays_while_a_flavor_names_it() -> None:
    """One Topology serves several flavors; it goes with the last of them."""
    held = Held()
    tas = ResourceFlavorSpec(topology_name="racks", node_labels={"pool": "a"})
    held.say(BRIDGE, with_topologies(), topology())
    (call,) = held.calls()
    assert call.path == f"{PATH}/topologies/racks"
    assert call.body["metadata"]["finalizers"] == [FINALIZER]
    held.answer(call)
    held.say(
        BRIDGE, topology(finalizer=True), spot(spec=tas, finalizer=True), spot(name="more", spec=tas, finalizer=True)
    )
    held.say(BRIDGE, topology(finalizer=True, deleting=True))
    assert held.calls() == []
    held.say(BRIDGE, facts.ResourceFlavorDeleted(name="spot"))
    assert held.calls() == []
    held.say(BRIDGE, facts.ResourceFlavorDeleted(name="more"))
    (call,) = held.calls()
    assert removed(call, [FINALIZER], [])


def test_without_topology_aware_scheduling_topologies_are_left_alone() -> None:
    """As in Kueue, whose controller of Topologies does not run then. Turned on, they get it."""
    held = Held()
    held.say(BRIDGE, with_topologies(on=False), topology())
    assert held.calls() == []
    held.say(BRIDGE, with_topologies())
    assert [call.path for call in held.calls()] == [f"{PATH}/topologies/racks"]


def test_a_finished_workload_loses_it_at_once() -> None:
    """As in Kueue: its deletion does not wait. The call comes after that of its status."""
    held = Held()
    held.say(BRIDGE, workload(), job())
    assert held.calls() == []
    held.say(MANAGER, WorkloadFinished(**ABOUT, reason="Succeeded", message="m"))
    (call,) = held.calls()
    assert removed(call, [FINALIZER], [])
    assert call.lane == "team-a/w"
    held.answer(call)
    assert held.calls() == []
    # The log does not show it yet: after a restart the call is repeated, and answered with 404.
    (again,) = Held(held.log).calls()
    assert again.body == call.body


@pytest.mark.parametrize(("code", "is_removed"), [(200, True), (404, True), (403, False)])
def test_the_log_hears_of_it_with_the_last_status(code: int, is_removed: bool) -> None:
    """One event for both, so what comes back through the watch is no news, and a restart has nothing left to do."""
    held = Held()
    held.say(BRIDGE, workload(), job())
    held.say(MANAGER, WorkloadFinished(**ABOUT, reason="Succeeded", message="m"))
    calls = [each for each in held.machine.decide(Settled(held.log.now_ms)) if isinstance(each, Call)]
    (status,) = [each for each in calls if each.id.startswith("status/")]
    (removal,) = [each for each in calls if each.id.startswith("finalizer/")]
    assert (removal.lane, calls.index(status) < calls.index(removal)) == (status.lane, True)
    held.answer(status)
    assert held.machine.decide(Settled(held.log.now_ms)) == []
    held.answer(removal, code)
    (append,) = [each for each in held.machine.decide(Settled(held.log.now_ms)) if isinstance(each, Append)]
    (applied,) = append.events
    assert isinstance(applied, StatusApplied)
    assert applied.finalizer_removed is is_removed
    held.say(BINDER, applied)
    assert bool(Held(held.log).calls()) is not is_removed
    assert news(held.log.state, msgspec.structs.replace(workload(), finalizer=False)) is None


@pytest.mark.parametrize("more", [{"suspended": False}, {"suspended": True, "active": 1}])
def test_a_deleted_workload_keeps_it_while_its_job_may_run(more: dict[str, Any]) -> None:
    """Its quota stays charged as long as there may be pods."""
    held = Held()
    held.say(BRIDGE, job(**more), workload(deleting=True))
    assert held.calls() == []
    held.say(BRIDGE, job(suspended=True))
    (call,) = held.calls()
    assert removed(call, [FINALIZER], [])


def test_the_finalizers_of_others_stay() -> None:
    """The test in the patch fails, so the list is read, and the same done with it in hand."""
    held = Held()
    held.say(BRIDGE, workload(owned=False, deleting=True))
    (call,) = held.calls()
    held.answer(call, 422, {"reason": "Invalid"})
    (reading,) = held.calls()
    assert reading.body == {"metadata": {"uid": "w"}}
    both = ["example.com/other", FINALIZER]
    held.answer(reading, 200, {"metadata": {"uid": "w", "finalizers": both}})
    (again,) = held.calls()
    assert removed(again, both, ["example.com/other"])
    # It has changed once more meanwhile: later.
    held.answer(again, 422, {"reason": "Invalid"})
    assert held.calls() == []
    held.log.now_ms = UnixMs(held.log.now_ms + longest(1000))
    assert len(held.calls()) == 1


def test_an_object_that_is_gone_or_has_it_no_more_ends_it() -> None:
    """404, and a list without it, are as good."""
    for code, body in ((404, {"reason": "NotFound"}), (422, {"reason": "Invalid"})):
        held = Held()
        held.say(BRIDGE, workload(owned=False, deleting=True))
        (call,) = held.calls()
        held.answer(call, code, body)
        for reading in held.calls():
            held.answer(reading, 200, {"metadata": {"uid": "w"}})
        assert held.calls() == []
