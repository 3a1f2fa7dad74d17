"""Reading API objects: what matters becomes a fact, errors name what cannot be read, no change is no fact."""

from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.logs import TestLog
from tests.support.playing import cluster_queue, flavor, job, local_queue, namespace, node

from headgate.core.reading.decoding import RESOURCES, UnreadableObjectError, key_of, read
from headgate.events.base import Producer
from headgate.events.effects import PodBound
from headgate.events.facts import (
    ClusterQueueObserved,
    JobObserved,
    NamespaceObserved,
    NodeObserved,
    PodObserved,
    WorkloadObserved,
)
from headgate.events.ids import PodKey, Uid, WorkloadKey
from headgate.events.queueing import WorkloadFinished
from headgate.machines.informer_bridge import diff

BRIDGE, MANAGER, BINDER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.BINDER
Json = dict[str, Any]


def raw(manifest: Json, **metadata: Any) -> bytes:
    meta = {"uid": "u", "creationTimestamp": "2026-01-15T10:00:00Z", **manifest["metadata"], **metadata}
    return msgspec.json.encode({**manifest, "metadata": meta})


def pod(name: str = "p", phase: str = "Pending", annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec},
        "status": {"phase": phase},
    }


def workload(**status: Any) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team-a", "labels": {"kueue.x-k8s.io/job-uid": "j", "app": "x"}},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": {"spec": {}}}]},
        "status": status,
    }


def observed(resource: str, manifest: Json, **metadata: Any) -> Any:
    return read(resource, raw(manifest, **metadata)).fact


# --- what matters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "matters"),
    [
        (pod(nodeName="n1", schedulerName="default-scheduler"), True),
        (pod(nodeName="n1", phase="Succeeded"), False),
        (pod(nodeName="n1", phase="Failed"), False),
        (pod(schedulerName="headgate"), True),
        (pod(schedulerName="default-scheduler"), False),
        (pod(schedulerName="default-scheduler", annotations={"kueue.x-k8s.io/workload": "w"}), True),
        (pod(schedulerGates=[], schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), True),
        (pod(schedulingGates=[{"name": "example.com/other"}]), False),
    ],
)
def test_a_pod_matters_while_it_holds_room_or_waits_for_us(manifest: Json, matters: bool) -> None:
    """Bound and unfinished, or ours to bind or ungate; everybody else's waiting pods are not our business."""
    assert (observed("pods", manifest) is not None) == matters


def test_a_running_pod_is_the_same_fact_as_a_bound_one() -> None:
    """That a bound pod starts changes nothing that scheduling depends on."""
    assert observed("pods", pod(nodeName="n1")) == observed("pods", pod(nodeName="n1", phase="Running"))


def test_a_job_without_a_queue_does_not_concern_us() -> None:
    """Only the label, or the old annotation of the same name, selects a queue."""
    asking = job()
    assert observed("jobs", asking).spec.queue_name == "main"
    asking["metadata"]["labels"] = {}
    assert observed("jobs", asking) is None
    asking["metadata"]["annotations"] = {"kueue.x-k8s.io/queue-name": "old"}
    assert observed("jobs", asking).spec.queue_name == "old"


def test_a_job_is_read_with_what_its_labels_and_annotations_ask_for() -> None:
    """Priority class, partial admission and execution time; nonsense in a number counts as not given."""
    annotations = {
        "kueue.x-k8s.io/job-min-parallelism": "2",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    }
    labels = {"kueue.x-k8s.io/priority-class": "high", "kueue.x-k8s.io/max-exec-time-seconds": "60"}
    spec = observed("jobs", job(labels=labels, annotations=annotations)).spec
    assert (spec.priority_class, spec.min_parallelism, spec.max_execution_time_seconds) == ("high", 2, 60)
    assert spec.completions_equal_parallelism
    spec = observed("jobs", job(annotations={"kueue.x-k8s.io/job-min-parallelism": "9" * 5000})).spec
    assert spec.min_parallelism is None
    spec = observed("jobs", job(annotations={"kueue.x-k8s.io/job-min-parallelism": "many"})).spec
    assert spec.min_parallelism is None


def test_the_end_of_a_job_is_its_true_condition() -> None:
    """Complete or Failed with its message; a condition that is False ends nothing."""
    failed = job()
    failed["status"] = {
        "conditions": [
            {"type": "Complete", "status": "False"},
            {"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"},
        ]
    }
    spec = observed("jobs", failed).spec
    assert (spec.finished, spec.message) == ("Failed", "Job has reached the specified backoff limit")


def test_a_workload_keeps_only_labels_of_kueue() -> None:
    """No decision depends on other labels, so they must not make facts."""
    assert observed("workloads", workload()).labels == {"kueue.x-k8s.io/job-uid": "j"}


def test_a_workload_is_owned_by_its_controller() -> None:
    """Of several owners the one with `controller` counts."""
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": "2", "controller": True},
    ]
    owner = observed("workloads", workload(), ownerReferences=owners).owner
    assert (owner.kind, owner.name, owner.uid) == ("Job", "b", "2")
    assert observed("workloads", workload(), ownerReferences=owners[:1]).owner is None


def test_only_what_others_write_into_a_status_is_read_from_it() -> None:
    """Check states that are decided or say something, reclaimable pods, the end; all only to be taken over."""
    checks = [
        {"name": "a", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-15T10:00:00Z"},
        {"name": "b", "state": "Ready", "message": "ok", "lastTransitionTime": "2026-01-15T10:00:00Z"},
    ]
    ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "m"}
    fact = observed("workloads", workload(admissionChecks=checks, conditions=[ended]))
    assert [check.name for check in fact.checks] == ["b"]
    reset = "Reset to Pending after eviction. Previously: Ready"
    says = [{**checks[0], "message": text} for text in ("two nodes to go", reset)]
    assert observed("workloads", workload(admissionChecks=says[:1])).checks[0].message == "two nodes to go"
    assert observed("workloads", workload(admissionChecks=says[1:])).checks == ()
    target = {"type": "DeactivationTarget", "status": "True", "reason": "Operator", "message": "m"}
    assert observed("workloads", workload(conditions=[target])).deactivation_target.reason == "Operator"
    assert fact.finished.reason == "Succeeded"
    assert fact.taken_over is not None
    assert observed("workloads", workload(admissionChecks=checks)).taken_over is None
    assert observed("workloads", workload(conditions=[{**ended, "status": "False"}])).finished is None


def test_a_node_is_ready_only_when_its_condition_says_so() -> None:
    """No Ready condition means not ready, as for Kueue and kube-scheduler."""
    ready = node("n1")
    assert observed("nodes", ready).node.ready
    ready["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert not observed("nodes", ready).node.ready
    ready["status"]["conditions"] = []
    assert not observed("nodes", ready).node.ready


# --- old versions --------------------------------------------------------------------------------------------------


def test_a_v1beta1_cluster_queue_is_read_as_its_v1beta2() -> None:
    """Cohort, admission checks and fungibility have moved; the fact is the same."""
    new = cluster_queue(
        cohortName="team",
        admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "b"}]},
        flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
    )
    old = cluster_queue(
        cohort="team",
        admissionChecks=["a", "b"],
        flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    )
    assert observed("clusterqueues", old) == observed("clusterqueues", new)


@pytest.mark.parametrize(
    ("source", "group", "kind"),
    [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ],
)
def test_a_v1beta1_workload_is_read_as_its_v1beta2(source: str, group: str, kind: str) -> None:
    """The priority class was two fields and is one reference."""
    old, new = workload(), workload()
    old["spec"] |= {"priorityClassName": "high", "priorityClassSource": source}
    new["spec"] |= {"priorityClassRef": {"group": group, "kind": kind, "name": "high"}}
    assert observed("workloads", old) == observed("workloads", new)


# --- what cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "manifest", "field", "why"),
    [
        ("workloads", workload() | {"spec": {"priority": "high"}}, "spec.priority", "Expected `int | null`"),
        ("nodes", node("w") | {"status": {"allocatable": {"cpu": "two"}}}, "status.allocatable.cpu", "no"),
        (
            "clusterqueues",
            cluster_queue("w", nominal="much"),
            "spec.resourceGroups[0].flavors.spot.cpu.nominal_quota",
            "'much' is not a quantity",
        ),
        (
            "clusterqueues",
            {"metadata": {"name": "w"}, "spec": {"fairSharing": {"weight": "9e999999999"}}},
            "spec.fairSharing.weight",
            "'9e999999999' is not a quantity",
        ),
        (
            "cohorts",
            {"metadata": {"name": "w"}, "spec": {"fairSharing": {"weight": "half"}}},
            "spec.fairSharing.weight",
            "'half' is not a quantity",
        ),
        (
            "localqueues",
            {"metadata": {"name": "w", "namespace": "team"}, "spec": {"fairSharing": {"weight": "half"}}},
            "spec.fairSharing.weight",
            "'half' is not a quantity",
        ),
        ("pods", pod("w", nodeName=7), "spec.nodeName", "Expected `str`"),
    ],
)
def test_an_unreadable_object_is_named_with_its_field(resource: str, manifest: Json, field: str, why: str) -> None:
    """The error names the object, the field, the fault, its effect and the remedy."""
    with pytest.raises(UnreadableObjectError) as caught:
        read(resource, raw(manifest))
    error = caught.value
    assert error.field == field
    assert why in error.why
    assert error.name.endswith("w")
    assert "treated as absent" in str(error)
    assert f"kubectl edit {resource}" in str(error)


def test_a_time_that_is_none_is_named() -> None:
    """Queue order depends on creation times."""
    with pytest.raises(UnreadableObjectError, match=r"metadata\.creationTimestamp: 'yesterday' is not a time"):
        read("workloads", raw(workload(), creationTimestamp="yesterday"))


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"\xff", b"{}", b'{"metadata":{"name":""}}'])
def test_junk_is_refused_for_every_resource(junk: bytes) -> None:
    """Whatever arrives, the bridge gets the one error that it handles."""
    for resource in RESOURCES:
        with pytest.raises(UnreadableObjectError):
            read(resource, junk)
        with pytest.raises(UnreadableObjectError):
            key_of(resource, junk)


# --- news ----------------------------------------------------------------------------------------------------------


def manifests() -> list[tuple[str, Json]]:
    return [
        ("namespaces", namespace()),
        ("nodes", node("n1")),
        ("resourceflavors", flavor()),
        ("topologies", {"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}),
        ("admissionchecks", {"metadata": {"name": "c"}, "spec": {"controllerName": "x"}}),
        ("cohorts", {"metadata": {"name": "root"}, "spec": {"parentName": "top"}}),
        ("clusterqueues", cluster_queue()),
        ("localqueues", local_queue()),
        ("workloadpriorityclasses", {"metadata": {"name": "high"}, "value": 10}),
        ("priorityclasses", {"metadata": {"name": "high"}, "value": 10, "globalDefault": True}),
        ("limitranges", {"metadata": {"name": "l", "namespace": "team-a"}, "spec": {"limits": [{"type": "Pod"}]}}),
        ("runtimeclasses", {"metadata": {"name": "gvisor"}, "overhead": {"podFixed": {"cpu": "250m"}}}),
        ("provisioningrequestconfigs", {"metadata": {"name": "p"}, "spec": {"provisioningClassName": "c"}}),
        ("jobs", job()),
        ("workloads", workload(conditions=[{"type": "QuotaReserved", "status": "False"}])),
        ("provisioningrequests", {"metadata": owned("r"), "spec": {"podSets": []}}),
        ("podtemplates", {"metadata": owned("t", labels={"kueue.x-k8s.io/managed": "true"})}),
        ("pods", pod(schedulerName="headgate")),
    ]


def owned(name: str, **more: Any) -> Json:
    """The metadata of an object that a Workload owns."""
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "u", "controller": True}
    return {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "ownerReferences": [owner], **more}


def test_every_fact_is_news_once() -> None:
    """For each resource: first news, then known; deleted once, then unknown."""
    assert tuple(resource for resource, _ in manifests()) == RESOURCES
    log = TestLog()
    for resource, manifest in manifests():
        seen = read(resource, raw(manifest))
        assert seen.fact is not None
        news = diff.news(log.state, seen.fact)
        assert news is not None
        log.append(BRIDGE, news)
        assert diff.news(log.state, seen.fact) is None
        assert list(diff.known_keys(log.state, resource)) == [seen.key]
    for resource, manifest in manifests():
        key = key_of(resource, raw(manifest))
        gone = diff.deleted(log.state, resource, key)
        assert gone is not None
        log.append(BRIDGE, gone)
        assert diff.deleted(log.state, resource, key) is None


@pytest.mark.skipif(not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository")
def test_every_recorded_object_is_read_and_known_afterwards() -> None:
    """562 cases of real manifests: all are read, and once appended none of them is news."""
    suites = sorted(path.name for path in conformance.CASES.iterdir())
    count = 0
    for case in conformance.cases("TestSchedule", *(suite for suite in suites if suite.startswith("TestAssign"))):
        log = TestLog()
        found = []
        for manifest in case.get("objects", ()):
            fact = conformance.fact_of(manifest)
            found.append(fact)
            news = diff.news(log.state, fact)  # type: ignore[arg-type]
            if news is not None:
                log.append(BRIDGE, news)
        assert [diff.news(log.state, fact) for fact in found] == [None] * len(found)  # type: ignore[arg-type]
        count += len(found)
    assert count > 1000


def test_our_own_binding_is_no_news() -> None:
    """A pod observed with the node that the binder gave it is no fact: the effect has recorded it already."""
    log = TestLog()
    log.append(BRIDGE, observed("pods", pod(schedulerName="headgate")))
    log.append(BINDER, PodBound(pod=PodKey("team-a/p"), uid=Uid("u"), node="n1"))
    assert diff.news(log.state, observed("pods", pod(schedulerName="headgate", nodeName="n1"))) is None
    assert diff.news(log.state, observed("pods", pod(schedulerName="headgate", nodeName="n2"))) is not None


def test_counters_without_consequence_are_no_news() -> None:
    """A third pod becoming ready changes nothing; the first active pod, the last ready one, given back quota do."""
    log = TestLog()
    running = job(parallelism=4)
    running["spec"] |= {"suspend": False, "completions": 8}
    log.append(BRIDGE, observed("jobs", running | {"status": {"active": 1}}))
    for status in ({"active": 4, "ready": 3}, {"active": 4, "ready": 2, "failed": 1}, {"active": 4, "succeeded": 3}):
        assert diff.news(log.state, observed("jobs", running | {"status": status})) is None
    for status in ({"active": 0}, {"active": 4, "ready": 4}, {"active": 2, "succeeded": 6}):
        assert diff.news(log.state, observed("jobs", running | {"status": status})) is not None


def test_the_end_that_we_wrote_ourselves_is_no_news() -> None:
    """The queue manager finishes a workload, the binder writes it, and the watch shows it."""
    log = TestLog()
    log.append(BRIDGE, observed("workloads", workload()))
    ended = workload(conditions=[{"type": "Finished", "status": "True", "reason": "Succeeded", "message": "m"}])
    assert diff.news(log.state, observed("workloads", ended)) is not None
    key = WorkloadKey("team-a/w")
    log.append(MANAGER, WorkloadFinished(workload=key, uid=Uid("u"), reason="Succeeded", message="m"))
    assert diff.news(log.state, observed("workloads", ended)) is None


def test_a_status_is_taken_over_at_first_sight_only() -> None:
    """What we know is not taken from the API server again; a Workload recreated under its name is."""
    log = TestLog()
    held = workload(conditions=[{"type": "QuotaReserved", "status": "False", "reason": "Pending"}])
    first = diff.news(log.state, observed("workloads", held))
    assert isinstance(first, WorkloadObserved)
    assert first.taken_over is not None
    log.append(BRIDGE, first)
    later = diff.news(log.state, observed("workloads", held, generation=2))
    assert isinstance(later, WorkloadObserved)
    assert later.taken_over is None
    anew = diff.news(log.state, observed("workloads", held, uid="u2"))
    assert isinstance(anew, WorkloadObserved)
    assert anew.taken_over is not None


def test_facts_are_of_the_types_that_their_resources_say() -> None:
    """A spot check that a resource's reader gives that resource's fact."""
    kinds = {resource: type(read(resource, raw(manifest)).fact) for resource, manifest in manifests()}
    assert kinds["namespaces"] is NamespaceObserved
    assert kinds["nodes"] is NodeObserved
    assert kinds["clusterqueues"] is ClusterQueueObserved
    assert kinds["jobs"] is JobObserved
    assert kinds["pods"] is PodObserved


@pytest.mark.parametrize(
    ("mode", "completed", "failed", "done"),
    [
        ("NonIndexed", "", "", None),
        ("Indexed", "", "", 0),
        ("Indexed", "0,2-4", "", 4),
        ("Indexed", "0-1", "1,3", 3),
        ("Indexed", "4-9", "12", 2),
        ("Indexed", "3-1,x,-,2-y", "", 0),
    ],
)
def test_the_indexes_that_will_not_run_again(mode: str, completed: str, failed: str, done: int | None) -> None:
    """As Kueue's terminalIndexesCount: completed or failed for good, each once, of those that there are."""
    manifest = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"completionMode": mode, "completions": 6, "parallelism": 3},
        "status": {"completedIndexes": completed, "failedIndexes": failed},
    }
    fact = read("jobs", msgspec.json.encode(manifest)).fact
    assert isinstance(fact, JobObserved)
    assert fact.spec.done_indexes == done
