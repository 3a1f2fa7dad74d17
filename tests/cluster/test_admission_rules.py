"""Kueue's defaults and refusals on the simulated API server: those of the webhook server, at the same places."""

import copy
from typing import Any

import pytest

from headgate.core.admission.settings import AdmissionSettings
from headgate.testing.cluster import Cluster

SETTINGS = AdmissionSettings(frameworks=("batch/job", "pod"))
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
GATE = {"name": "kueue.x-k8s.io/admission"}
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
Json = dict[str, Any]
TEMPLATE: Json = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}


def cluster(settings: AdmissionSettings | None = SETTINGS) -> Cluster:
    return Cluster(lambda: 1_767_225_600_000, controllers=None, admission=settings)


def post(at: Cluster, path: str, obj: Json, status: int = 201) -> Json:
    response = at.request("POST", path, {}, copy.deepcopy(obj), "application/json")
    found: Json = response.json()
    assert response.status == status, found
    return found


def pod(name: str, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, **TEMPLATE}


def job(name: str, **metadata: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **metadata},
        "spec": {"template": TEMPLATE},
    }


def cluster_queue(quota: str) -> Json:
    resources = [{"name": "cpu", "nominalQuota": quota}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "one", "resources": resources}]}]
    metadata = {"name": "all"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": metadata,
        "spec": {"namespaceSelector": {}, "resourceGroups": groups},
    }


def test_a_pod_that_names_a_queue_waits() -> None:
    """With the gate, the label and the finalizer; a pod without a queue runs at once."""
    at = cluster()
    found = post(at, PODS, pod("a", labels=QUEUE))
    assert GATE in found["spec"]["schedulingGates"]
    assert found["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert found["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
    assert "schedulingGates" not in post(at, PODS, pod("b"))["spec"]


def test_a_job_that_names_a_queue_is_suspended() -> None:
    """Before anybody can start its pods."""
    at = cluster()
    assert post(at, JOBS, job("a", labels=QUEUE))["spec"]["suspend"] is True
    assert not post(at, JOBS, job("b"))["spec"].get("suspend")


def test_kinds_that_are_not_enabled_are_left_alone() -> None:
    """And so is everything where no settings are given."""
    only_jobs = cluster(AdmissionSettings())
    assert "schedulingGates" not in post(only_jobs, PODS, pod("a", labels=QUEUE))["spec"]
    plain = cluster(None)
    assert not post(plain, JOBS, job("a", labels=QUEUE))["spec"].get("suspend")


@pytest.mark.parametrize(("queue_of_job", "waits"), [({}, True), (QUEUE, False)])
def test_a_pod_of_a_job_that_is_managed_does_not_wait_itself(queue_of_job: Json, waits: bool) -> None:
    """The job is admitted for it."""
    at = cluster()
    above = post(at, JOBS, job("above", labels=queue_of_job))
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "above",
        "uid": above["metadata"]["uid"],
        "controller": True,
    }
    found = post(at, PODS, pod("a", labels=QUEUE, ownerReferences=[owner]))
    assert (GATE in found["spec"].get("schedulingGates", [])) is waits


def test_what_the_rules_refuse_is_refused_in_the_words_of_a_webhook() -> None:
    """With the field as a cause, on creation and on update; nothing is stored."""
    at = cluster()
    found = post(at, QUEUES, cluster_queue("-1"), status=403)
    assert found["message"].startswith('admission webhook "vclusterqueue.kb.io" denied the request: ')
    field = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert [each["field"] for each in found["details"]["causes"]] == [field]
    stored = post(at, QUEUES, cluster_queue("1"))
    assert stored["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    patch = [{"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": "-1"}]
    refused = at.request("PATCH", f"{QUEUES}/all", {}, patch, "application/json-patch+json")
    assert refused.status == 403
    assert at.request("GET", f"{QUEUES}/all").json() == stored


def test_updates_by_headgate_itself_are_left_alone() -> None:
    """Its processes stop and start what is admitted."""
    at = cluster()
    post(at, JOBS, job("a", labels=QUEUE))
    patch = {"spec": {"suspend": False}, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    started = at.request("PATCH", f"{JOBS}/a", {"fieldManager": "headgate"}, patch, "application/merge-patch+json")
    assert started.status == 200
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "third"}}}
    moved = at.request("PATCH", f"{JOBS}/a", {"fieldManager": "kubectl"}, patch, "application/merge-patch+json")
    assert (moved.status, "vjob.kb.io" in moved.json()["message"]) == (403, True)


def test_a_manifest_is_applied_again_without_conflict_unless_it_suspends_a_job_that_headgate_has_started() -> None:
    """What the rules set is nobody's, and then Headgate's: only a manifest that says otherwise is in conflict."""
    at = cluster()

    def apply(manifest: Json) -> tuple[int, Json]:
        path = f"{JOBS}/{manifest['metadata']['name']}"
        sent = copy.deepcopy(manifest)
        answer = at.request("PATCH", path, {"fieldManager": "kubectl"}, sent, "application/apply-patch+yaml")
        return answer.status, answer.json()

    plain, says = job("plain", labels=QUEUE), job("says", labels=QUEUE)
    says["spec"] = {**says["spec"], "suspend": True}
    for manifest in (plain, says):
        status, made = apply(manifest)
        assert (status, made["spec"]["suspend"]) == (201, True)
        path, patch = f"{JOBS}/{made['metadata']['name']}", {"spec": {"suspend": False}}
        at.request("PATCH", path, {"fieldManager": "headgate"}, patch, "application/merge-patch+json")
    status, again = apply(plain)
    assert (status, again["spec"]["suspend"]) == (200, False)
    status, refused = apply(says)
    assert (status, [each["field"] for each in refused["details"]["causes"]]) == (409, [".spec.suspend"])
    assert 'conflict with "headgate"' in refused["message"]
