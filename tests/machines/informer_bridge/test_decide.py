"""The bridge's machine: bursts become few facts, lists become deletions, Jobs get their Workloads."""

from typing import Any

import msgspec
import pytest
from tests.support.cell import drive
from tests.support.logs import TestLog
from tests.support.playing import cluster_queue, flavor, job, local_queue, namespace, node

from headgate.core import fold
from headgate.core.config import feature_gates
from headgate.core.config import reader as reading
from headgate.core.config.reader import read_document
from headgate.core.machine.contract import Call, Changed, Committed, Completed, Listed, Resumed, Settled
from headgate.core.reading.decoding import RESOURCES
from headgate.events import effects, facts
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration, FairSharingConfiguration
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import JobKey, Uid
from headgate.events.objects import Admission, LabelSelector, PodSetAssignment
from headgate.events.queueing import WorkloadEvicted, WorkloadReleased
from headgate.machines.informer_bridge import decide
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.processes.runtime.configuration_files import KUEUES_DEFAULTS, KUEUES_DOCUMENT

BRIDGE = Producer.INFORMER_BRIDGE
Json = dict[str, Any]


def raw(manifest: Json, **metadata: Any) -> bytes:
    meta = {"uid": "u", "creationTimestamp": "2026-01-15T10:00:00Z", **manifest["metadata"], **metadata}
    return msgspec.json.encode({**manifest, "metadata": meta})


def observed(configuration: Configuration | None) -> facts.ConfigurationObserved | None:
    """A configuration that comes from no file."""
    return None if configuration is None else facts.ConfigurationObserved(configuration=configuration)


class Bridge:
    """A bridge and its log: `settle` appends what it returns and passes it the commit."""

    def __init__(
        self,
        log: TestLog | None = None,
        configuration: Configuration | None = None,
        new_log: Configuration | None = None,
    ) -> None:
        self.log = log or TestLog()
        self.machine = InformerBridge(self.log.state, observed(configuration), new_log=observed(new_log))

    def change(self, resource: str, manifest: Json, kind: str = "MODIFIED", **metadata: Any) -> None:
        assert self.machine.decide(Changed(resource, kind, raw(manifest, **metadata), "")) == []

    def list_all(self, **objects: list[bytes]) -> None:
        for resource in RESOURCES:
            self.machine.decide(Listed(resource, tuple(objects.get(resource, ())), "1"))

    def settle(self) -> tuple[tuple[EventBase, ...], list[Call]]:
        events, calls = drive(self.machine, Settled(self.log.now_ms))
        if events:
            self.say(*events)
        return events, calls

    def say(self, *events: EventBase) -> None:
        logged = self.log.append(BRIDGE, *events)
        assert self.machine.decide(Committed(logged)) == []

    def all_calls(self) -> list[Call]:
        calls: list[Call] = []
        while True:
            events, more = self.settle()
            calls += more
            if not events and not more:
                return calls


def synced(**objects: list[bytes]) -> Bridge:
    bridge = Bridge()
    bridge.list_all(**objects)
    bridge.settle()
    assert bridge.machine.synced
    return bridge


def resumed(log: TestLog) -> Bridge:
    """A bridge of a later term, that continues where the one before it has ended."""
    bridge = Bridge(log)
    for resource in RESOURCES:
        bridge.machine.decide(Resumed(resource, "1"))
    return bridge


# --- facts ---------------------------------------------------------------------------------------------------------


def test_many_changes_of_one_object_are_one_fact() -> None:
    """Of what waits for a key only the newest is read."""
    bridge = Bridge()
    for cpu in range(10):
        bridge.change("nodes", node("n1", cpu=str(cpu)))
    events, _ = bridge.settle()
    assert [event.node.allocatable["cpu"] for event in events] == ["9"]  # type: ignore[attr-defined]
    bridge.change("nodes", node("n1", cpu="9"))
    assert bridge.settle() == ((), [])


def test_what_came_and_went_between_is_never_told() -> None:
    """An object that was deleted before it was read leaves no trace."""
    bridge = Bridge()
    bridge.change("nodes", node("n1"), "ADDED")
    bridge.change("nodes", node("n1"), "DELETED")
    assert bridge.settle() == ((), [])


def test_configuration_stands_before_workloads_and_these_before_jobs() -> None:
    """Inside a commit what is referred to comes first, in whatever order it was seen."""
    bridge = Bridge()
    for resource, manifest in (
        ("jobs", job()),
        ("localqueues", local_queue()),
        ("clusterqueues", cluster_queue()),
        ("resourceflavors", flavor()),
        ("nodes", node("n1")),
        ("namespaces", namespace()),
    ):
        bridge.change(resource, manifest)
    events, _ = bridge.settle()
    assert [type(event) for event in events] == [
        facts.NamespaceObserved,
        facts.NodeObserved,
        facts.ResourceFlavorObserved,
        facts.ClusterQueueObserved,
        facts.LocalQueueObserved,
        facts.JobObserved,
    ]


def test_a_configuration_that_is_news_is_told_before_everything() -> None:
    """The decisions after it are made by it; the same configuration again makes no event."""
    configuration = Configuration(fair_sharing=FairSharingConfiguration())
    bridge = Bridge(configuration=configuration)
    bridge.change("namespaces", namespace())
    events, _ = bridge.settle()
    assert [type(event) for event in events] == [facts.ConfigurationObserved, facts.NamespaceObserved]
    assert bridge.log.state.configuration == configuration
    bridge.change("nodes", node("n1"))
    assert [type(event) for event in bridge.settle()[0]] == [facts.NodeObserved]
    again = Bridge(bridge.log, configuration)
    assert again.settle() == ((), [])


def test_without_a_configuration_the_logs_stays() -> None:
    """A bridge that is started again without its file resets nothing."""
    configuration = Configuration(feature_gates={"PartialAdmission": False})
    first = Bridge(configuration=configuration)
    first.settle()
    again = Bridge(first.log)
    again.list_all()
    events, _ = again.settle()
    assert facts.ConfigurationObserved not in {type(event) for event in events}
    assert again.log.state.configuration == configuration
    changed = Bridge(first.log, Configuration())
    changed.settle()
    assert changed.log.state.configuration == Configuration()


def test_a_version_with_other_defaults_appends_what_is_in_effect_now_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in the log is read again with the defaults of that version; what it sets itself stays."""
    document = {**KUEUES_DOCUMENT, "featureGates": {"PartialAdmission": False}}
    log = TestLog()
    log.append(Producer.INFORMER_BRIDGE, read_document(document))
    assert Bridge(log).settle() == ((), [])
    monkeypatch.setitem(feature_gates.DEFAULTS, feature_gates.RECLAIMABLE_PODS, False)
    known = msgspec.structs.replace(feature_gates.KNOWN[feature_gates.RECLAIMABLE_PODS], is_on=False)
    monkeypatch.setitem(feature_gates.KNOWN, feature_gates.RECLAIMABLE_PODS, known)
    monkeypatch.setattr(reading, "DEFAULTS", msgspec.structs.replace(reading.DEFAULTS, timeout_ms=1))
    newer = Bridge(log)
    (event,), _ = newer.settle()
    assert isinstance(event, facts.ConfigurationObserved)
    assert event.document == document
    assert not event.configuration.feature_gates[feature_gates.RECLAIMABLE_PODS]
    assert not event.configuration.feature_gates[feature_gates.PARTIAL_ADMISSION]
    assert event.configuration.wait_for_pods_ready is not None
    assert event.configuration.wait_for_pods_ready.timeout_ms == 1
    assert Bridge(log).settle() == ((), [])


def test_a_file_in_the_log_that_cannot_be_read_any_more_changes_nothing() -> None:
    """A version that refuses what an earlier one accepted keeps the configuration, and reports why."""
    log = TestLog()
    configuration = Configuration(fair_sharing=FairSharingConfiguration())
    document = {**KUEUES_DOCUMENT, "queueVisibility": {}}
    log.append(Producer.INFORMER_BRIDGE, facts.ConfigurationObserved(configuration=configuration, document=document))
    bridge = Bridge(log)
    assert bridge.settle() == ((), [])
    assert bridge.machine.unread.startswith("queueVisibility: Kueue has no such field")


def test_a_new_log_begins_with_kueues_defaults() -> None:
    """What Kueue does without a Configuration, before everything; a file that is given counts instead, and stays."""
    bridge = Bridge(new_log=KUEUES_DEFAULTS)
    bridge.change("namespaces", namespace())
    assert [type(event) for event in bridge.settle()[0]] == [facts.ConfigurationObserved, facts.NamespaceObserved]
    assert bridge.log.state.configuration == KUEUES_DEFAULTS
    assert Bridge(bridge.log, new_log=KUEUES_DEFAULTS).settle() == ((), [])
    given = Configuration(fair_sharing=FairSharingConfiguration())
    named = Bridge(configuration=given, new_log=KUEUES_DEFAULTS)
    named.settle()
    assert named.log.state.configuration == given
    again = Bridge(named.log, new_log=KUEUES_DEFAULTS)
    again.list_all()
    again.settle()
    assert again.log.state.configuration == given


def test_a_log_from_before_there_were_configurations_decides_as_it_has() -> None:
    """Objects were observed and no configuration: an upgrade does not start to wait for pods; a file does."""
    former = synced()
    assert former.log.state.configuration == Configuration()
    upgraded = Bridge(former.log, new_log=KUEUES_DEFAULTS)
    upgraded.list_all()
    upgraded.settle()
    assert upgraded.log.state.configuration == Configuration()
    named = Bridge(former.log, KUEUES_DEFAULTS, new_log=KUEUES_DEFAULTS)
    named.settle()
    assert named.log.state.configuration == KUEUES_DEFAULTS


def test_a_burst_is_cut_into_commits_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest follows in the next commits, nothing is lost, and synced comes with the last of it."""
    monkeypatch.setattr(decide, "FACTS_MAX", 10)
    bridge = Bridge()
    bridge.list_all(nodes=[raw(node(f"n{number:02}")) for number in range(25)])
    sizes = []
    while events := bridge.settle()[0]:
        sizes.append(len(events))
        assert isinstance(events[-1], facts.InformersSynced) == (len(sizes) == 3)
    assert sizes == [10, 10, 6]
    assert len(bridge.log.state.nodes) == 25


def test_synced_waits_for_every_resource() -> None:
    """One list that is missing may hold what forbids an admission."""
    bridge = Bridge()
    for resource in RESOURCES[:-1]:
        bridge.machine.decide(Listed(resource, (), "1"))
    assert bridge.settle() == ((), [])
    bridge.machine.decide(Listed(RESOURCES[-1], (), "1"))
    assert [type(event) for event in bridge.settle()[0]] == [facts.InformersSynced]
    bridge.machine.decide(Listed(RESOURCES[-1], (), "1"))
    assert bridge.settle() == ((), [])


def test_what_a_list_lacks_is_gone() -> None:
    """After a restart or a lost watch, the list is all there is."""
    bridge = synced(nodes=[raw(node("n1")), raw(node("n2"))], jobs=[raw(job())])
    again = Bridge(bridge.log)
    again.list_all(nodes=[raw(node("n2"))])
    events, _ = again.settle()
    assert events[:2] == (
        facts.NodeDeleted(name="n1"),
        facts.JobDeleted(job=JobKey("batch/Job/team-a/train"), uid=Uid("u"), gone=True),
    )
    assert list(bridge.log.state.nodes) == ["n2"]


def test_a_list_also_removes_what_was_on_its_way_when_it_came() -> None:
    """The list is compared with the state that holds our own last append, not with the one before it."""
    bridge = Bridge()
    bridge.change("nodes", node("n1"))
    events, _ = drive(bridge.machine, Settled(bridge.log.now_ms))
    bridge.machine.decide(Listed("nodes", (), "2"))
    bridge.say(*events)
    assert bridge.settle()[0] == (facts.NodeDeleted(name="n1"),)


def test_what_follows_a_list_is_newer_than_the_list() -> None:
    """A watch event after the list wins over the list's object, and over its absence."""
    bridge = synced(nodes=[raw(node("n1"))])
    bridge.machine.decide(Listed("nodes", (raw(node("n2", cpu="1")),), "2"))
    bridge.change("nodes", node("n1", cpu="8"), "ADDED")
    bridge.change("nodes", node("n2", cpu="2"))
    bridge.settle()
    assert {name: each.allocatable["cpu"] for name, each in bridge.log.state.nodes.items()} == {"n1": "8", "n2": "2"}


def test_an_unreadable_object_counts_as_absent_and_is_reported() -> None:
    """It is removed if it was known, the rest continues, and the process finds the problem to log."""
    bridge = synced(nodes=[raw(node("n1"))])
    bridge.change("nodes", node("n1", cpu="two"))
    bridge.change("nodes", node("n2"))
    bridge.machine.decide(Changed("nodes", "ADDED", b"{", ""))
    events, _ = bridge.settle()
    assert [type(event) for event in events] == [facts.NodeDeleted, facts.NodeObserved]
    assert [(problem.name, problem.field) for problem in bridge.machine.problems] == [
        ("", ""),
        ("n1", "status.allocatable.cpu"),
    ]


# --- Workloads for Jobs --------------------------------------------------------------------------------------------


def answer(bridge: Bridge, call: Call, status: int, **body: Any) -> tuple[EventBase, ...]:
    bridge.machine.decide(Completed(call.id, status, msgspec.json.encode(body)))
    return bridge.settle()[0]


def test_nothing_is_made_before_everything_was_listed() -> None:
    """A Workload may exist that has not been seen."""
    bridge = Bridge()
    bridge.change("jobs", job())
    assert bridge.all_calls() == []
    bridge.list_all(jobs=[raw(job())])
    assert [call.method for call in bridge.all_calls()] == ["POST"]


@pytest.mark.parametrize("status", [201, 409])
def test_a_job_gets_one_workload(status: int) -> None:
    """One call is made; AlreadyExists counts as success."""
    bridge = synced(jobs=[raw(job())])
    (call,) = bridge.all_calls()
    assert call.path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads"
    (created,) = answer(bridge, call, status)
    assert isinstance(created, effects.WorkloadCreated)
    assert bridge.all_calls() == []
    bridge.change("jobs", {**job(), "status": {"active": 1}})
    assert bridge.all_calls() == []


def test_jobs_get_workloads_only_in_managed_namespaces() -> None:
    """managedJobsNamespaceSelector; a namespace whose labels come to match has its Jobs looked at again."""
    selector = LabelSelector(match_labels={"batch": "yes"})
    bridge = Bridge(configuration=Configuration(managed_jobs_namespace_selector=selector))
    bridge.list_all(jobs=[raw(job())], namespaces=[raw(namespace())])
    assert bridge.all_calls() == []
    labelled = namespace()
    labelled["metadata"]["labels"] = {"batch": "yes"}
    bridge.change("namespaces", labelled)
    assert [call.method for call in bridge.all_calls()] == ["POST"]


def test_a_refused_workload_is_recorded_and_tried_again_when_the_job_changes() -> None:
    """The API server's words are in the log; asking again and again would not change them."""
    bridge = synced(jobs=[raw(job())])
    (call,) = bridge.all_calls()
    (event,) = answer(bridge, call, 403, reason="Forbidden", message="namespace is being terminated")
    assert isinstance(event, effects.WorkloadCreateRejected)
    assert (event.code, event.reason, event.message) == (403, "Forbidden", "namespace is being terminated")
    assert bridge.all_calls() == []
    assert Bridge(bridge.log).all_calls() == []
    bridge.change("jobs", job(labels={"kueue.x-k8s.io/queue-name": "other"}))
    assert len(bridge.all_calls()) == 1


def test_a_job_waits_for_its_priority_class() -> None:
    """The log has what is missing, once; the class's appearance makes the Workload, also after a restart."""
    bridge = synced(jobs=[raw(job(labels={"kueue.x-k8s.io/priority-class": "high"}))])
    assert bridge.all_calls() == []
    record = bridge.log.state.jobs["batch/Job/team-a/train"]  # type: ignore[index]
    assert 'workloadpriorityclasses.kueue.x-k8s.io "high" not found' in record.refused
    position = bridge.log.state.position
    assert bridge.all_calls() == []
    assert bridge.log.state.position == position
    for each in (bridge, Bridge(bridge.log)):
        if each is not bridge:
            each.list_all(
                jobs=[raw(job(labels={"kueue.x-k8s.io/priority-class": "high"}))],
                workloadpriorityclasses=[raw({"metadata": {"name": "high"}, "value": 10})],
            )
        else:
            each.change("workloadpriorityclasses", {"metadata": {"name": "high"}, "value": 10})
        (call,) = each.all_calls()
        assert call.body["spec"]["priority"] == 10


def test_a_crash_between_the_call_and_its_effect_asks_again() -> None:
    """The new machine has no record of the call; the name makes the repetition harmless."""
    bridge = synced(jobs=[raw(job())])
    (first,) = bridge.all_calls()
    again = Bridge(bridge.log)
    assert again.all_calls() == []  # the Job is still to be listed
    again.list_all(jobs=[raw(job())])
    (second,) = again.all_calls()
    assert first.body == second.body


WHOLE = {"image": "example.com/train:1", "env": [{"name": "RATE", "value": "0.1"}], "command": ["python", "train.py"]}


def whole_job() -> Json:
    """A Job whose container has more fields than scheduling depends on."""
    manifest = job()
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container |= WHOLE
    return manifest


def test_a_workload_carries_its_jobs_whole_template_and_the_log_does_not() -> None:
    """Images, environment and commands, from the Job as the API server has shown it."""
    bridge = synced(jobs=[raw(whole_job())])
    (call,) = bridge.all_calls()
    (container,) = call.body["spec"]["podSets"][0]["template"]["spec"]["containers"]
    assert WHOLE.items() <= container.items()
    assert b"RATE" not in fold.encode(bridge.log.state)


def test_a_job_that_is_not_shown_after_a_resume_is_read_first() -> None:
    """The log lacks the rest of its template; a Job that was recreated in the meantime comes by its watch."""
    bridge = synced(jobs=[raw(whole_job())])
    (first,) = bridge.all_calls()
    again = Bridge(bridge.log)
    for resource in RESOURCES:
        again.machine.decide(Resumed(resource, "1"))
    (read,) = again.all_calls()
    assert (read.method, read.path) == ("GET", "/apis/batch/v1/namespaces/team-a/jobs/train")
    again.machine.decide(Completed(read.id, 200, raw(whole_job(), uid="another")))
    assert again.all_calls() == []
    again.machine.decide(Resumed("jobs", "1"))
    (read,) = again.all_calls()
    again.machine.decide(Completed(read.id, 200, raw(whole_job())))
    (second,) = again.all_calls()
    assert second.body == first.body


def test_a_job_that_may_not_be_read_is_recorded() -> None:
    """As when its Workload is refused: the API server's words are in the log, until the Job changes."""
    bridge = synced(jobs=[raw(whole_job())])
    again = Bridge(bridge.log)
    for resource in RESOURCES:
        again.machine.decide(Resumed(resource, "1"))
    (read,) = again.all_calls()
    (event,) = answer(again, read, 403, reason="Forbidden", message="no")
    assert isinstance(event, effects.WorkloadCreateRejected)
    assert again.all_calls() == []


def test_a_workload_that_was_made_is_not_made_again_after_a_restart() -> None:
    """It is in the log as created; only when a whole list lacks it is it recreated."""
    bridge = synced(jobs=[raw(job())])
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    again = Bridge(bridge.log)
    assert again.all_calls() == []
    made = {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}
    again.list_all(jobs=[raw(job())], workloads=[raw(made)])
    assert again.all_calls() == []
    lost = Bridge(bridge.log)
    lost.list_all(jobs=[raw(job())])
    assert len(lost.all_calls()) == 1


@pytest.mark.parametrize(
    "status",
    [{"conditions": [{"type": "Complete", "status": "True"}]}, {"conditions": [{"type": "Failed", "status": "True"}]}],
)
def test_a_finished_job_needs_no_workload(status: Json) -> None:
    """It has nothing to wait for."""
    assert synced(jobs=[raw({**job(), "status": status})]).all_calls() == []


# --- Workloads follow their Jobs -----------------------------------------------------------------------------------


def with_workload() -> Bridge:
    bridge = synced(jobs=[raw(job())])
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    made = {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}
    bridge.change("workloads", made, "ADDED")
    assert bridge.all_calls() == []
    return bridge


def test_a_pending_workload_follows_its_job_to_another_queue() -> None:
    """One call, also when refused; a restart repeats it, which is harmless."""
    bridge = with_workload()
    bridge.change("workloadpriorityclasses", {"metadata": {"name": "high"}, "value": 10})
    moved = job(labels={"kueue.x-k8s.io/queue-name": "other", "kueue.x-k8s.io/priority-class": "high"})
    bridge.change("jobs", moved)
    (call,) = bridge.all_calls()
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    assert call.body == {
        "metadata": {"uid": "w"},
        "spec": {"queueName": "other", "priority": 10, "priorityClassRef": reference},
    }
    bridge.machine.decide(Completed(call.id, 422, b"{}"))
    assert bridge.all_calls() == []
    (again,) = resumed(bridge.log).all_calls()
    assert again.body == call.body


def test_an_elastic_job_gets_its_next_slice_though_the_first_showed_before_its_answer() -> None:
    """A watch may be faster than the answer to the POST; the Job is scaled once its Workload holds quota."""

    def elastic(parallelism: int) -> Json:
        return job(parallelism=parallelism, annotations={"kueue.x-k8s.io/elastic-job": "true"})

    bridge = synced(jobs=[raw(elastic(1), generation=1)])
    (call,) = bridge.all_calls()
    made = {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}
    bridge.change("workloads", made, "ADDED")
    assert bridge.all_calls() == []
    answer(bridge, call, 201)
    (workload,) = bridge.log.state.workloads.values()
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "1"}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    bridge.log.append(
        Producer.SCHEDULER,
        QuotaReserved(workload=workload.key, uid=workload.uid, cluster_queue="cq", admission=admission, message="m"),
    )
    bridge.change("jobs", elastic(3), generation=2)
    (following,) = bridge.all_calls()
    assert following.method == "POST"
    assert following.body["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] == workload.key


def test_a_workload_that_holds_quota_stays_where_it_is() -> None:
    """Its queue is immutable until it has given its quota back."""
    bridge = with_workload()
    (workload,) = bridge.log.state.workloads.values()
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "2"}, count=2)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    reserved = QuotaReserved(
        workload=workload.key, uid=workload.uid, cluster_queue="cq", admission=admission, message="m"
    )
    bridge.log.append(Producer.SCHEDULER, reserved)
    bridge.change("jobs", job(labels={"kueue.x-k8s.io/queue-name": "other"}))
    assert bridge.all_calls() == []
    about: Json = {"workload": workload.key, "uid": workload.uid, "reason": "Deactivated", "message": "m"}
    bridge.log.append(Producer.QUEUE_MANAGER, WorkloadEvicted(**about))
    logged = bridge.log.append(Producer.QUEUE_MANAGER, WorkloadReleased(**about, requeued=False))
    bridge.machine.decide(Committed(logged))
    (call,) = bridge.all_calls()
    assert call.body["spec"] == {"queueName": "other"}


def test_a_workload_is_held_back_with_its_job() -> None:
    """The annotation admission-gated-by goes with the Job, when it is set and when it is taken away."""
    gate = "kueue.x-k8s.io/admission-gated-by"
    bridge = synced(jobs=[raw(job(), annotations={gate: "example.com/budget"})])
    (call,) = bridge.all_calls()
    assert call.body["metadata"]["annotations"][gate] == "example.com/budget"
    answer(bridge, call, 201)
    made = {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}
    bridge.change("workloads", made, "ADDED")
    assert bridge.all_calls() == []
    bridge.change("jobs", job())
    (call,) = bridge.all_calls()
    assert call.body == {"metadata": {"uid": "w", "annotations": {gate: None}}}
