"""What placement reads is in the log while pods are placed: complete before the configuration, gone with it."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machines.informer_bridge.test_foreign_pods import WITH_TOPOLOGIES
from tests.support.cell import drive
from tests.support.logs import TestLog
from tests.support.playing import flavor, namespace, node

from headgate.core.machine.contract import Changed, Committed, Listed, Resumed, Settled
from headgate.core.placement.objects.kinds import KINDS, WATCHED
from headgate.core.reading.decoding import RESOURCES
from headgate.core.state.manifests import decoded
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.identity import CellRestored
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.informer_bridge.placement_objects import OWN, SCHEDULER_CONFIGURATIONS
from headgate.processes.informer_bridge.process import Warned, report

Json = dict[str, Any]
DOCUMENT: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "headgate"}],
}
OTHER: Json = {**DOCUMENT, "podMaxBackoffSeconds": 30}
WITH: tuple[str, ...] = (*RESOURCES[:-1], *OWN, "pods")


def pod(name: str, **status: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"schedulerName": "headgate", "containers": [{"name": "c", "image": "i"}]},
        "status": status,
    }


def claim(name: str, phase: str = "Pending") -> Json:
    return {"metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"}, "status": {"phase": phase}}


class Placing:
    """A bridge on a log, and what the test shows it."""

    def __init__(self, log: TestLog | None = None, document: Json | None = DOCUMENT) -> None:
        self.log = log or TestLog()
        self.machine = InformerBridge(self.log.state, placing=document)

    def show(self, resource: str, *manifests: Json, version: str = "1") -> None:
        objects = tuple(msgspec.json.encode(each) for each in manifests)
        assert self.machine.decide(Listed(resource, objects, version)) == []

    def list_all(self, resources: Iterable[str] = WITH, **objects: list[Json]) -> None:
        for resource in resources:
            self.show(resource, *objects.get(resource, ()))

    def change(self, resource: str, manifest: Json, kind: str = "MODIFIED", version: str = "") -> None:
        assert self.machine.decide(Changed(resource, kind, msgspec.json.encode(manifest), version)) == []

    def place_by(self, document: Json) -> None:
        self.change(SCHEDULER_CONFIGURATIONS, document)

    def settle(self) -> tuple[EventBase, ...]:
        events, _ = drive(self.machine, Settled(self.log.now_ms))
        if events:
            self.say(*events)
        return events

    def say(self, *events: EventBase) -> None:
        logged = self.log.append(Producer.INFORMER_BRIDGE, *events)
        assert self.machine.decide(Committed(logged)) == []

    @property
    def objects(self) -> dict[str, dict[str, Json]]:
        found = self.log.state.objects
        return {resource: {key: decoded(each) for key, each in of.items()} for resource, of in found.items()}


def placing(**objects: list[Json]) -> Placing:
    """A bridge that places pods, and has shown these objects."""
    bridge = Placing()
    bridge.list_all(WITH, **objects)
    bridge.settle()
    assert bridge.machine.synced
    assert bridge.log.state.scheduler_configuration == DOCUMENT
    return bridge


def names(events: Iterable[EventBase]) -> list[str]:
    """The objects of these events, in order."""
    return [
        f"{'-' if isinstance(each, facts.ObjectDeleted) else ''}{each.resource}/{each.name}"
        for each in events
        if isinstance(each, facts.ObjectObserved | facts.ObjectDeleted)
    ]


# --- on and off ----------------------------------------------------------------------------------------------------


def test_the_configuration_follows_on_all_objects() -> None:
    """As long as the log has a configuration, it has what is decided by."""
    bridge = Placing()
    bridge.list_all(WITH[:-1], nodes=[node("n1")], namespaces=[namespace("a")])
    first = bridge.settle()
    assert names(first) == ["namespaces/a", "nodes/n1"]
    assert not any(isinstance(each, facts.SchedulerConfigurationObserved) for each in first)
    bridge.show("pods", pod("p"))
    second = bridge.settle()
    assert [type(each).__name__ for each in second] == [
        "ObjectObserved",
        "PodObserved",
        "SchedulerConfigurationObserved",
        "InformersSynced",
    ]
    assert bridge.log.state.scheduler_configuration == DOCUMENT
    assert bridge.settle() == ()


def test_without_a_configuration_nothing_is_recorded_or_watched() -> None:
    bridge = Placing(document=None)
    assert bridge.machine.resources == RESOURCES
    bridge.list_all(RESOURCES, nodes=[node("n1")], pods=[pod("p")])
    assert names(bridge.settle()) == []
    assert bridge.machine.synced


def test_without_a_file_the_log_counts() -> None:
    log = placing(services=[claim("s")]).log
    again = Placing(log, document=None)
    again.list_all()
    assert again.machine.resources == WITH
    assert names(again.settle()) == ["-services/a/s"]
    assert log.state.scheduler_configuration == DOCUMENT


def test_a_changed_configuration_is_appended_at_once_and_lists_nothing() -> None:
    bridge = placing()
    bridge.place_by(OTHER)
    assert bridge.settle() == (facts.SchedulerConfigurationObserved(document=OTHER),)
    assert bridge.machine.listed_anew() == ()
    bridge.place_by(OTHER)
    assert bridge.settle() == ()


def test_turned_off_the_log_has_no_objects_any_more() -> None:
    bridge = placing(nodes=[node("n1")], pods=[pod("p")], services=[claim("s")])
    bridge.place_by({})
    assert bridge.settle() == (facts.SchedulerConfigurationObserved(),)
    assert (bridge.objects, bridge.log.state.scheduler_configuration) == ({}, {})
    assert bridge.machine.resources == RESOURCES
    # What the watches still had to show.
    bridge.change("services", claim("t"))
    bridge.show("services", claim("t"))
    bridge.change("nodes", node("n1", cpu="7"))
    assert [type(each).__name__ for each in bridge.settle()] == ["NodeObserved"]


def test_turned_on_while_it_runs_everything_is_listed_before_the_configuration_is_appended() -> None:
    bridge = Placing(document=None)
    bridge.list_all(RESOURCES, nodes=[node("n1")], pods=[pod("p")], namespaces=[namespace("a")])
    bridge.settle()
    bridge.place_by(DOCUMENT)
    assert bridge.settle() == ()
    bridge.list_all(("namespaces", *OWN, "pods"), namespaces=[namespace("a")], pods=[pod("p")])
    assert names(bridge.settle()) == ["namespaces/a", "pods/a/p"]
    assert bridge.log.state.scheduler_configuration == {}
    bridge.show("nodes", node("n1"), version="9")
    events = bridge.settle()
    assert names(events) == ["nodes/n1"]
    assert bridge.log.state.scheduler_configuration == DOCUMENT
    # The marks of the watches before are void.
    assert bridge.log.state.resource_versions["nodes"] in {"", "9"}


def test_a_start_that_was_broken_off_begins_anew_or_is_cleared() -> None:
    broken = Placing()
    broken.list_all(WITH[:-1], nodes=[node("n1")])
    broken.settle()
    assert set(Placing(broken.log).machine.listed_anew()) == set(WATCHED)
    without = Placing(broken.log, document=None)
    assert without.settle() == (facts.SchedulerConfigurationObserved(),)
    assert without.objects == {}


def test_a_term_that_places_resumes_from_its_marks() -> None:
    bridge = placing(services=[claim("s")])
    marks = bridge.log.state.resource_versions
    assert set(marks) == set(WITH)
    again = Placing(bridge.log)
    assert again.machine.listed_anew() == ()
    for resource in WITH:
        again.machine.decide(Resumed(resource, "1"))
    again.change("services", claim("t"))
    assert names(again.settle()) == ["services/a/t"]


def test_after_a_restore_everything_is_listed_and_what_is_gone_is_deleted() -> None:
    """The backup is older than the cluster."""
    log = placing(services=[claim("s"), claim("t")], pods=[pod("p")]).log
    log.append(Producer.INFORMER_BRIDGE, CellRestored(backup="b", position=log.state.position, stream="new"))
    assert log.state.resource_versions == {}
    again = Placing(log, document=None)
    again.list_all(WITH, services=[claim("t")])
    assert names(again.settle()) == ["-services/a/s", "-pods/a/p"]
    assert set(log.state.objects) == {"services"}
    assert again.machine.synced


def test_the_sync_waits_for_what_placement_reads() -> None:
    bridge = Placing()
    bridge.list_all(RESOURCES)
    bridge.settle()
    assert not bridge.machine.synced
    bridge.list_all(OWN)
    bridge.settle()
    assert bridge.machine.synced


# --- objects -------------------------------------------------------------------------------------------------------


def test_only_what_placement_reads_is_a_fact() -> None:
    bridge = placing(persistentvolumeclaims=[claim("c")])
    bridge.change(
        "persistentvolumeclaims", {**claim("c"), "status": {"phase": "Pending", "capacity": {"storage": "1"}}}
    )
    assert bridge.settle() == ()
    bridge.change("persistentvolumeclaims", claim("c", "Bound"))
    assert names(bridge.settle()) == ["persistentvolumeclaims/a/c"]


def test_a_list_deletes_what_it_lacks() -> None:
    bridge = placing(persistentvolumeclaims=[claim("c"), claim("d")], nodes=[node("n1")], pods=[pod("p")])
    bridge.show("persistentvolumeclaims", claim("d"))
    bridge.show("nodes")
    bridge.show("pods")
    assert names(bridge.settle()) == ["-nodes/n1", "-persistentvolumeclaims/a/c", "-pods/a/p"]
    assert bridge.objects == {"persistentvolumeclaims": {"a/d": bridge.objects["persistentvolumeclaims"]["a/d"]}}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_deleted(phase: str) -> None:
    bridge = placing(pods=[pod("p")])
    bridge.change("pods", pod("p", phase=phase))
    assert "-pods/a/p" in names(bridge.settle())
    bridge.change("pods", pod("q", phase=phase))
    assert names(bridge.settle()) == []


def test_what_the_kubelet_reports_of_a_pod_is_no_fact() -> None:
    """Its phase, the readiness of its containers, what they were given: all as asked."""
    asked = {"requests": {"cpu": "1"}}
    manifest = pod("p")
    manifest["spec"]["containers"][0]["resources"] = asked
    bridge = placing(pods=[manifest])
    report = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
        "containerStatuses": [
            {"name": "c", "resources": asked, "allocatedResources": asked["requests"], "restartCount": 3}
        ],
    }
    bridge.change("pods", {**manifest, "status": report})
    assert names(bridge.settle()) == []
    report["containerStatuses"][0]["allocatedResources"] = {"cpu": "2"}  # type: ignore[index]
    bridge.change("pods", {**manifest, "status": report})
    assert names(bridge.settle()) == ["pods/a/p"]


def test_an_object_with_a_mistake_is_reported_once_and_counts_as_absent() -> None:
    bridge = placing(persistentvolumeclaims=[claim("c")])
    bridge.change("persistentvolumeclaims", {**claim("c"), "status": {"phase": 7.5}})
    assert names(bridge.settle()) == ["-persistentvolumeclaims/a/c"]
    (problem,) = bridge.machine.problems
    assert (problem.resource, problem.name, problem.field) == ("persistentvolumeclaims", "a/c", "status.phase")
    bridge.machine.problems.clear()
    bridge.change("nodes", {"metadata": {"name": "n1"}, "spec": {"taints": 7}})
    bridge.settle()
    assert len(bridge.machine.problems) == 1


def test_fields_that_the_api_server_writes_as_null_are_absent() -> None:
    """A CSINode without drivers."""
    bridge = placing()
    bridge.change("csinodes", {"metadata": {"name": "n1"}, "spec": {"drivers": None}})
    bridge.settle()
    assert bridge.objects["csinodes"] == {"n1": {"metadata": {"name": "n1"}, "spec": {}}}
    assert not bridge.machine.problems


def test_stateful_sets_are_watched_under_a_name_of_their_own() -> None:
    """The resource's own name is that of a kind of jobs."""
    bridge = placing()
    bridge.change("statefulsets.apps", claim("s"))
    assert names(bridge.settle()) == ["statefulsets/a/s"]


def test_a_pod_for_headgate_without_a_profile_is_noted() -> None:
    bridge = Placing(document={**DOCUMENT, "profiles": [{"schedulerName": "other"}]})
    bridge.list_all(pods=[pod("p")])
    bridge.settle()
    assert bridge.machine.unplaced == "a/p"
    assert Placing(bridge.log, document={}).machine.unplaced == "a/p"
    assert Placing(bridge.log).machine.unplaced == ""


@pytest.mark.parametrize(
    ("log_has", "what"),
    [
        ({}, "Headgate places no pods without a KubeSchedulerConfiguration. Give the informer bridge one"),
        ({**DOCUMENT, "profiles": [{"schedulerName": "other"}]}, "no profile of the KubeSchedulerConfiguration"),
    ],
)
def test_the_operator_is_told_once_of_a_pod_that_nobody_places(
    log_has: Json, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which pod, that it stays pending, and what to set."""
    bridge = Placing(document=log_has)
    bridge.list_all(pods=[pod("p")]) if log_has else bridge.list_all(RESOURCES, pods=[pod("p")])
    bridge.settle()
    warned = Warned()
    for _ in range(2):
        report(warned, bridge.machine)
    (told,) = caplog.messages
    assert told.startswith("the pod a/p names the scheduler headgate and stays pending: ")
    assert what in told
    assert told.endswith("`profiles: [{schedulerName: headgate}]`")


# --- whatever happens ----------------------------------------------------------------------------------------------


def _namespace(name: str, label: str) -> Json:
    return {"metadata": {"name": name, "labels": {"label": label}}}


_MANIFESTS: dict[str, st.SearchStrategy[Json]] = {
    "namespaces": st.builds(_namespace, st.sampled_from("ab"), st.sampled_from("xy")),
    "nodes": st.builds(lambda name, cpu: node(name, cpu=str(cpu)), st.sampled_from("mn"), st.integers(0, 3)),
    "pods": st.builds(
        lambda name, phase, node_name, reason: {
            **pod(
                name,
                phase=phase,
                nominatedNodeName=node_name,
                conditions=[{"type": "PodScheduled", "status": "False", "reason": reason}],
            ),
        },
        st.sampled_from("pq"),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.sampled_from(["", "m"]),
        st.sampled_from(["", "Unschedulable"]),
    ),
    "persistentvolumeclaims": st.builds(claim, st.sampled_from("cd"), st.sampled_from(["Pending", "Bound"])),
    "statefulsets.apps": st.builds(claim, st.sampled_from("cd"), st.just("")),
}


def _key(manifest: Json) -> str:
    meta = manifest["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


class _Cluster:
    """A cluster of a few objects, whose changes a bridge is shown, and the log."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {resource: {} for resource in WITH}
        self.document: Json = {}
        self.bridge = Placing(document=None)
        self._list(RESOURCES)

    def _list(self, resources: Iterable[str]) -> None:
        for resource in resources:
            self.bridge.show(resource, *self.objects[resource].values())

    def put(self, resource: str, manifest: Json) -> None:
        self.objects[resource][_key(manifest)] = manifest
        self.bridge.change(resource, manifest)

    def drop(self, resource: str, number: int) -> None:
        found = list(self.objects[resource])
        if found:
            gone = self.objects[resource].pop(found[number % len(found)])
            self.bridge.change(resource, gone, "DELETED")

    def relist(self, resource: str) -> None:
        self._list([resource])

    def place_by(self, document: Json) -> None:
        before = bool(self.document)
        self.document = document
        self.bridge.place_by(document)
        if document and not before:
            self._list(WATCHED)
        if before and not document:
            self._list(["pods"])

    def restart(self) -> None:
        """A term that lists everything."""
        self.bridge = Placing(self.bridge.log, document=self.document)
        self._list(self.bridge.machine.resources)

    def settle(self) -> None:
        while self.bridge.settle():
            pass

    def expected(self) -> dict[str, dict[str, msgspec.Raw]]:
        """The reduced objects of the cluster."""
        found: dict[str, dict[str, msgspec.Raw]] = {}
        for kind in KINDS.values() if self.document else ():
            for key, manifest in self.objects[kind.name].items():
                reduced = kind.shown(msgspec.json.encode(manifest))
                if reduced is not None:
                    found.setdefault(kind.plural, {})[key] = reduced
        return found


_STEPS = st.one_of(
    *(st.tuples(st.just("put"), st.just(resource), made) for resource, made in _MANIFESTS.items()),
    st.tuples(st.just("drop"), st.sampled_from(sorted(_MANIFESTS)), st.integers(0, 3)),
    st.tuples(st.just("relist"), st.sampled_from(sorted(_MANIFESTS))),
    st.tuples(st.just("place_by"), st.sampled_from([{}, DOCUMENT, OTHER])),
    st.tuples(st.just("restart")),
    st.tuples(st.just("settle")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_STEPS, max_size=25))
def test_the_state_has_the_reduced_objects_of_the_cluster(steps: list[tuple[Any, ...]]) -> None:
    """After any sequence of changes, lists, restarts and configurations; folded again from the log, too."""
    cluster = _Cluster()
    for name, *arguments in steps:
        getattr(cluster, name)(*arguments)
    cluster.settle()
    state = cluster.bridge.log.state
    assert state.objects == cluster.expected()
    assert state.scheduler_configuration == cluster.document
    assert cluster.bridge.log.refold().objects == state.objects


# --- pods that are none of ours ------------------------------------------------------------------------------------


def foreign(name: str, on: str = "n1", **metadata: Any) -> Json:
    """A running pod of another scheduler."""
    made = pod(name, phase="Running")
    spec = {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}
    return {**made, "metadata": made["metadata"] | metadata, "spec": spec}


def kinds_of(events: Iterable[EventBase]) -> list[str]:
    return [type(each).__name__ for each in events if not isinstance(each, facts.InformersSynced)]


def test_a_foreign_pod_has_one_fact_while_pods_are_placed() -> None:
    """Its object. What Headgate queues or schedules itself has two."""
    bridge = placing(nodes=[node("n1")])
    bridge.change("pods", foreign("p"))
    assert kinds_of(bridge.settle()) == ["ObjectObserved"]
    bridge.change("pods", foreign("p"), "DELETED")
    assert kinds_of(bridge.settle()) == ["ObjectDeleted"]
    bridge.change("pods", pod("mine"))
    bridge.change("pods", foreign("queued", annotations={"kueue.x-k8s.io/workload": "w"}))
    assert sorted(kinds_of(bridge.settle())) == ["ObjectObserved", "ObjectObserved", "PodObserved", "PodObserved"]


def test_the_first_topology_finds_what_foreign_pods_use_in_their_objects() -> None:
    """After a restart too, and while their watch shows nothing."""
    log = placing(nodes=[node("n1")], pods=[foreign("p"), foreign("q"), foreign("waiting", on="")]).log
    assert log.state.pods == {}
    log.append(Producer.INFORMER_BRIDGE, WITH_TOPOLOGIES)
    again = Placing(log)
    for resource in WITH:
        again.machine.decide(Resumed(resource, "1"))
    again.change("resourceflavors", flavor("spot", nodeLabels={"pool": "a"}, topologyName="t"))
    while again.settle():
        pass
    assert log.state.node_usage == {"n1": {"cpu": 200, "pods": 2}}


def test_without_placement_foreign_pods_have_facts_again() -> None:
    """Turned off while it runs, or by a restart: pods are listed, and nothing waits for it."""
    bridge = placing(nodes=[node("n1")], pods=[foreign("p")])
    assert Placing(bridge.log, document={}).machine.listed_anew() == ("pods",)
    bridge.place_by({})
    bridge.settle()
    bridge.machine.decide(Resumed("pods", "1"))
    assert bridge.settle() == ()
    bridge.show("pods", foreign("p"))
    assert kinds_of(bridge.settle()) == ["PodObserved"]
