"""What running pods and jobs become, and why others are refused: Kueue's cmd/importer, and jobs beside it."""

from typing import Any

import msgspec
import pytest
import yaml

from headgate.core.api.job_kinds import BATCH_JOB, POD
from headgate.core.importing.checking import Importable, Importer, Refused, Skipped, Verdict
from headgate.core.importing.rules import rules_for_label
from headgate.core.plan.log import PlanLog
from headgate.core.plan.reading import read_objects
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.events.ids import UnixMs

Json = dict[str, Any]

NOW = "2026-01-15T10:00:00Z"
RULES = rules_for_label("team", {"a": "main", "b": "other", "c": "stopped", "d": "checked", "e": "racked", "x": "none"})
QUEUE = "kueue.x-k8s.io/queue-name"

CLUSTER = """
- {kind: Namespace, apiVersion: v1, metadata: {name: ns, labels: {of: us}}}
- {kind: ResourceFlavor, metadata: {name: spot}}
- {kind: ResourceFlavor, metadata: {name: steady}}
- {kind: ResourceFlavor, metadata: {name: racks}, spec: {topologyName: racks, nodeLabels: {a: b}}}
- {kind: Topology, metadata: {name: racks}, spec: {levels: [{nodeLabel: rack}]}}
- {kind: AdmissionCheck, metadata: {name: slow}, spec: {controllerName: c},
   status: {conditions: [{type: Active, status: "True"}]}}
- kind: ClusterQueue
  metadata: {name: cq}
  spec:
    namespaceSelector: {}
    resourceGroups: &groups
    - coveredResources: [cpu, memory]
      flavors:
      - {name: spot, resources: [{name: cpu, nominalQuota: 1}, {name: memory, nominalQuota: 1Gi}]}
      - {name: steady, resources: [{name: cpu, nominalQuota: 9}, {name: memory, nominalQuota: 9Gi}]}
    - coveredResources: [gpu]
      flavors: [{name: steady, resources: [{name: gpu, nominalQuota: 4}]}]
- {kind: ClusterQueue, metadata: {name: held}, spec: {stopPolicy: Hold, namespaceSelector: {}, resourceGroups: *groups}}
- kind: ClusterQueue
  metadata: {name: checked}
  spec:
    namespaceSelector: {matchLabels: {of: us}}
    admissionChecksStrategy: {admissionChecks: [{name: slow}]}
    resourceGroups: *groups
- kind: ClusterQueue
  metadata: {name: racked}
  spec:
    namespaceSelector: {}
    resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: racks, resources: [{name: cpu, nominalQuota: 1}]}]
- {kind: LocalQueue, metadata: {name: main, namespace: ns}, spec: {clusterQueue: cq}}
- {kind: LocalQueue, metadata: {name: other, namespace: ns}, spec: {clusterQueue: missing}}
- {kind: LocalQueue, metadata: {name: stopped, namespace: ns}, spec: {clusterQueue: held}}
- {kind: LocalQueue, metadata: {name: checked, namespace: ns}, spec: {clusterQueue: checked}}
- {kind: LocalQueue, metadata: {name: racked, namespace: ns}, spec: {clusterQueue: racked}}
- {kind: PriorityClass, apiVersion: scheduling.k8s.io/v1, metadata: {name: high}, value: 100}
"""


def cluster(*more: Json) -> State:
    """The state of the cluster above, and of further objects."""
    objects = [*yaml.safe_load(CLUSTER), *more]
    complete = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            **each,
            "metadata": {"uid": str(number), "creationTimestamp": NOW, **each["metadata"]},
        }
        for number, each in enumerate(objects)
    ]
    log = PlanLog(UnixMs(0))
    observed = ConfigurationObserved(configuration=Configuration())
    log.append(Producer.INFORMER_BRIDGE, [observed, *read_objects(complete)])
    return log.state


def pod(team: str = "a", requests: Json | None = None, **meta: Any) -> Json:
    """A pod that runs."""
    spec = meta.pop("spec", {})
    status = meta.pop("status", {"phase": "Running"})
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {"cpu": "500m", "memory": "1Gi"}}}
    labels = {"team": team, **meta.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": NOW, "labels": labels, **meta},
        "spec": {"nodeName": "n", "containers": [container], **spec},
        "status": status,
    }


def job(team: str = "a", pods: int = 2, **spec: Any) -> Json:
    """A Job that runs."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "gpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j", "namespace": "ns", "uid": "u", "creationTimestamp": NOW, "labels": {"team": team}
        },
        "spec": {
            "suspend": False, "parallelism": pods, "completions": pods,
            "template": {"metadata": {}, "spec": {"containers": [container]}}, **spec,
        },
        "status": {"active": pods},
    }  # fmt: skip


def check(found: Json, *more: Json, **labels: str) -> Verdict:
    """What becomes of an object."""
    importer = Importer(cluster(*more), RULES, (BATCH_JOB, POD), labels, NOW)
    return importer.check(POD if found["kind"] == "Pod" else BATCH_JOB, msgspec.json.encode(found))


def importable(found: Json, *more: Json, **labels: str) -> Importable:
    verdict = check(found, *more, **labels)
    assert isinstance(verdict, Importable), verdict
    return verdict


def refusal(found: Json, *more: Json) -> str:
    verdict = check(found, *more)
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def skipped(found: Json, *more: Json) -> str:
    verdict = check(found, *more)
    assert isinstance(verdict, Skipped), verdict
    return verdict.why


def test_a_pod_becomes_a_workload_admitted_with_the_first_flavor_that_covers_each_resource() -> None:
    """Whatever quota that has left: it runs already. Its conditions have Kueue's reason and message."""
    made = importable(pod(requests={"cpu": "3", "memory": "2Gi", "gpu": "1"}))
    assert (made.queue, made.cluster_queue) == ("main", "cq")
    assert made.labels == {QUEUE: "main", "kueue.x-k8s.io/managed": "true"}
    assert made.status["admission"] == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {"cpu": "spot", "memory": "spot", "gpu": "steady"},
                "resourceUsage": {"cpu": "3", "memory": "2Gi", "gpu": "1"},
                "count": 1,
            }
        ],
    }
    assert [(each["type"], each["status"], each["reason"], each["message"]) for each in made.status["conditions"]] == [
        (kind, "True", "Imported", "Imported into ClusterQueue cq") for kind in ("QuotaReserved", "Admitted")
    ]
    assert made.workload["spec"]["queueName"] == "main"
    assert made.workload["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made.workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["image"] == "i"


def test_a_job_is_imported_whole_and_its_pods_count_with_it() -> None:
    """Its Workload has all its pods; they need none of their own, and keep their labels."""
    made = importable(job(pods=3))
    assert made.labels == {QUEUE: "main"}
    (assignment,) = made.status["admission"]["podSetAssignments"]
    assert (assignment["count"], assignment["resourceUsage"]) == (3, {"cpu": "3", "gpu": "3"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    assert skipped(pod(ownerReferences=[owner])) == "it counts with Job ns/j"


def test_labels_are_added_to_the_object_and_its_workload() -> None:
    """What --add-labels names."""
    made = importable(pod(), src="old")
    assert made.labels["src"] == "old"
    assert made.workload["metadata"]["labels"]["src"] == "old"


def test_a_priority_class_gives_the_workload_its_priority() -> None:
    """That of the pods, as for every job."""
    made = importable(pod(spec={"priorityClassName": "high", "priority": 100}))
    assert made.workload["spec"]["priority"] == 100
    assert made.workload["spec"]["priorityClassRef"]["name"] == "high"


def test_checks_of_the_cluster_queue_are_ready_for_what_runs() -> None:
    """No check can hold it back any more; while one was Pending, the pod would be stopped."""
    made = importable(pod(team="d"))
    assert [(each["name"], each["state"]) for each in made.status["admissionChecks"]] == [("slow", "Ready")]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod(team="unknown"), "no rule matches"),
        (pod(team="x"), "there is no LocalQueue ns/none"),
        (pod(team="b"), "LocalQueue ns/other, field spec.clusterQueue: there is no missing"),
        (pod(team="c"), "ClusterQueue held is inactive (Stopped)"),
        (pod(team="e", requests={"cpu": "1"}), "racks, is of Topology racks"),
        (pod(requests={"tpu": "1"}), "field spec.resourceGroups: no flavor for resource tpu"),
        (pod(spec={"priorityClassName": "gone"}), 'priorityclasses.scheduling.k8s.io "gone" not found'),
        (pod(labels={QUEUE: "elsewhere"}), "it names the LocalQueue elsewhere, and its rule main"),
        (pod(labels={"kueue.x-k8s.io/pod-group-name": "g"}), "it is of a pod group"),
        (job(team="unknown"), "no rule matches"),
    ],
)
def test_what_cannot_stay_admitted_is_refused_with_object_field_and_remedy(found: Json, why: str) -> None:
    """The reasons of Kueue's importer, and those for which what is imported would be evicted again."""
    assert why in refusal(found)


def test_a_cluster_queue_must_select_the_namespace() -> None:
    """Its selector is the administrator's word on who may use it."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    local = {
        "kind": "LocalQueue",
        "metadata": {"name": "checked", "namespace": "other"},
        "spec": {"clusterQueue": "checked"},
    }
    assert "does not select namespace other" in refusal(pod(team="d", namespace="other"), namespace, local)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod(status={"phase": "Succeeded"}), "it has ended"),
        (pod(deletionTimestamp=NOW), "it is being deleted"),
        (pod(team="unknown", labels={QUEUE: "main"}), "no rule matches, and it names a queue already"),
        (job(suspend=True), "it is suspended: label it with its queue, and it is queued"),
    ],
)
def test_what_needs_no_workload_is_skipped(found: Json, why: str) -> None:
    """It is no error either."""
    assert skipped(found) == why


def test_what_is_imported_needs_nothing_more_and_what_is_half_imported_only_the_rest() -> None:
    """A former run may have ended behind the Workload, behind its admission, or behind the labels."""
    made = importable(pod())
    metadata = {**made.workload["metadata"], "uid": "w", "creationTimestamp": NOW}
    created = {**made.workload, "metadata": metadata}
    assert not importable(pod(), created).is_admitted
    admitted = {**created, "status": made.status}
    assert importable(pod(), admitted).is_admitted
    assert "it is imported" in skipped(pod(labels=made.labels), admitted)
