"""Pods run, Jobs finish: the controllers of the cluster under a virtual clock."""

import pytest

from headgate.testing.cluster import BY_PLURAL

PODS = BY_PLURAL[("", "pods")]
JOBS = BY_PLURAL[("batch", "jobs")]


def pods(client):
    return client.cluster.objects(PODS)


def binding_of(name):
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}


def phases(client):
    return sorted(pod["status"]["phase"] for pod in pods(client))


def conditions(obj):
    return {c["type"]: (c["status"], c["reason"]) for c in obj["status"].get("conditions", ())}


@pytest.fixture
def nodes(client, node):
    """Two nodes of four CPUs."""
    for name in ("n1", "n2"):
        client.create({**node, "metadata": {"name": name}})
    client.settle(until_ms=0)
    return client


def test_a_node_becomes_ready_with_its_labels_and_capacity(nodes, node):
    """The kubelet completes what was not set."""
    seen = nodes.get(node)
    assert conditions(seen)["Ready"] == ("True", "KubeletReady")
    assert seen["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert seen["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}


def test_a_bound_pod_runs_for_its_time_and_succeeds(nodes, pod):
    """Pending, Running and Ready, Succeeded, at the times that its annotations say."""
    pod["metadata"]["annotations"] = {"headgate.dev/start-ms": "500", "headgate.dev/run-ms": "2000"}
    watch = nodes.cluster.watch("/api/v1/pods", {"resourceVersion": str(nodes.cluster.store.rv)})
    nodes.create(pod)
    nodes.settle(until_ms=499)
    assert phases(nodes) == ["Pending"]
    nodes.settle(until_ms=2499)
    assert phases(nodes) == ["Running"]
    assert conditions(
        {"status": {"conditions": [{"reason": "", **c} for c in nodes.get(pod)["status"]["conditions"]]}}
    )["Ready"] == ("True", "")
    nodes.settle()
    assert phases(nodes) == ["Succeeded"]
    assert nodes.clock.now_ms == 1_700_000_000_000 + 2500
    assert [obj["status"]["phase"] for _, obj in watch.poll_events()][-2:] == ["Running", "Succeeded"]


def test_a_non_zero_exit_code_fails_the_pod(nodes, pod):
    """With restart policy Never."""
    pod["metadata"]["annotations"] = {"headgate.dev/exit-code": "3"}
    nodes.create(pod)
    nodes.settle()
    assert phases(nodes) == ["Failed"]
    assert nodes.get(pod)["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_pod_beyond_the_nodes_capacity_is_rejected(nodes, pod):
    """OutOfcpu with the amounts, as from a kubelet."""
    pod["spec"] |= {"schedulerName": "mine"}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    for name in ("p", "q"):
        nodes.create({**pod, "metadata": {"name": name}})
        nodes.call("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding_of(name))
    nodes.settle(until_ms=0)
    rejected = [p for p in pods(nodes) if p["status"]["phase"] == "Failed"]
    assert [p["status"]["reason"] for p in rejected] == ["OutOfcpu"]
    assert "cpu, requested: 3000, used: 3000, capacity: 4000" in rejected[0]["status"]["message"]


def test_a_pod_on_a_node_it_does_not_select_is_rejected(nodes, pod):
    """NodeAffinity; and a NoExecute taint that it does not tolerate."""
    pod["spec"] |= {"schedulerName": "mine", "nodeSelector": {"zone": "x"}}
    nodes.create(pod)
    nodes.call("POST", "/api/v1/namespaces/default/pods/p/binding", binding_of("p"))
    nodes.settle(until_ms=0)
    assert nodes.get(pod)["status"]["reason"] == "NodeAffinity"


def test_the_first_fit_scheduler_fills_nodes_in_order(nodes, pod):
    """Four one-CPU pods on the first node, the next on the second, the ninth waits for room."""
    for number in range(9):
        nodes.create({**pod, "metadata": {"name": f"p{number}"}})
    nodes.settle(until_ms=0)
    assert [p["spec"].get("nodeName") for p in pods(nodes)] == ["n1"] * 4 + ["n2"] * 4 + [None]
    nodes.settle()
    assert phases(nodes) == ["Succeeded"] * 9


def test_a_deleted_running_pod_vanishes_after_its_stop_time(nodes, pod):
    """Terminating until its containers have ended, within the grace period."""
    pod["metadata"]["annotations"] = {"headgate.dev/stop-ms": "3000", "headgate.dev/run-ms": "60000"}
    nodes.create(pod)
    nodes.settle(until_ms=1000)
    deleted = nodes.delete(pod)
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    nodes.settle(until_ms=3999)
    assert len(pods(nodes)) == 1
    nodes.settle(until_ms=4000)
    assert pods(nodes) == []


def test_a_stopped_node_freezes_its_pods(nodes, pod, node):
    """NotReady and unreachable; what was due happens after it is back."""
    nodes.create(pod)
    nodes.settle(until_ms=0)
    kubelet = nodes.cluster.controllers.kubelet
    kubelet.stop_node("n1", nodes.clock.now_ms)
    nodes.settle(until_ms=5000)
    assert phases(nodes) == ["Running"]
    seen = nodes.get(node)
    assert conditions(seen)["Ready"][0] == "Unknown"
    assert {taint["key"] for taint in seen["spec"]["taints"]} == {"node.kubernetes.io/unreachable"}
    kubelet.start_node("n1", nodes.clock.now_ms)
    nodes.settle()
    assert phases(nodes) == ["Succeeded"]
    assert nodes.get(node)["spec"].get("taints", []) == []


def test_pods_of_a_deleted_node_are_removed(nodes, pod, node):
    """The pod garbage collector's part."""
    nodes.create({**pod, "spec": {**pod["spec"], "restartPolicy": "Always"}})
    nodes.settle()
    nodes.delete(node)
    nodes.settle()
    assert pods(nodes) == []


def test_a_job_runs_to_completion(nodes, job):
    """At most `parallelism` at a time, `completions` in all; the conditions and counts of a finished Job."""
    job["spec"] |= {"parallelism": 2, "completions": 5}
    created = nodes.create(job)
    uid = created["metadata"]["uid"]
    assert created["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    nodes.settle(until_ms=0)
    assert nodes.get(job)["status"]["active"] == 2
    assert pods(nodes)[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert pods(nodes)[0]["metadata"]["ownerReferences"][0]["uid"] == uid
    nodes.settle()
    done = nodes.get(job)["status"]
    assert done["succeeded"] == 5
    assert "active" not in done
    assert done["completionTime"] == "2023-11-14T22:13:23Z"
    assert conditions(nodes.get(job)) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }


def test_an_indexed_job_completes_each_index(nodes, job):
    """Pods are named and labelled by their index."""
    job["spec"] |= {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    nodes.create(job)
    nodes.settle()
    assert nodes.get(job)["status"]["completedIndexes"] == "0-2"
    labels = [p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for p in pods(nodes)]
    assert labels == ["0", "1", "2"]
    assert all(p["metadata"]["name"].startswith(f"j-{index}-") for index, p in enumerate(pods(nodes)))


def test_a_failing_job_backs_off_and_gives_up(nodes, job):
    """BackoffLimit 2: three failures, ten and twenty seconds apart."""
    job["spec"]["backoffLimit"] = 2
    job["spec"]["template"]["metadata"] = {"annotations": {"headgate.dev/exit-code": "1"}}
    nodes.create(job)
    nodes.settle()
    seen = nodes.get(job)
    assert seen["status"]["failed"] == 3
    assert conditions(seen) == {
        "FailureTarget": ("True", "BackoffLimitExceeded"),
        "Failed": ("True", "BackoffLimitExceeded"),
    }
    assert nodes.clock.now_ms == 1_700_000_000_000 + 33_000


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_suspended_job_has_no_pods_and_starts_anew(nodes, job, policy):
    """Suspension deletes the active pods and counts them neither way; resumption sets a new start."""
    job["spec"]["suspend"] = True
    job["spec"]["template"]["spec"]["restartPolicy"] = policy
    nodes.create(job)
    nodes.settle(until_ms=0)
    seen = nodes.get(job)
    assert conditions(seen) == {"Suspended": ("True", "JobSuspended")}
    assert "startTime" not in seen["status"]
    assert pods(nodes) == []
    nodes.patch(job, "merge", {"spec": {"suspend": False}})
    nodes.settle(until_ms=500)
    assert conditions(nodes.get(job)) == {"Suspended": ("False", "JobResumed")}
    assert phases(nodes) == ["Running"]
    nodes.patch(job, "merge", {"spec": {"suspend": True}})
    nodes.settle(until_ms=600)
    assert pods(nodes) == []
    assert "failed" not in nodes.get(job)["status"]
    assert "succeeded" not in nodes.get(job)["status"]
    nodes.patch(job, "merge", {"spec": {"suspend": False}})
    nodes.settle()
    assert nodes.get(job)["status"]["succeeded"] == 1


def test_a_jobs_scheduling_directives_are_open_while_it_is_suspended(nodes, job):
    """Before it starts, and again after it was suspended; never while it runs, and nothing else of the template."""
    job["spec"]["suspend"] = True
    nodes.create(job)
    nodes.settle(until_ms=0)
    directives = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}}}}
    nodes.patch(job, "strategic", directives)
    assert nodes.status == 200
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}}
    assert nodes.patch(job, "strategic", image)["details"]["causes"][0]["field"] == "spec.template.spec"
    nodes.patch(job, "merge", {"spec": {"suspend": False}})
    nodes.settle(until_ms=0)
    assert [p["spec"]["nodeName"] for p in pods(nodes)] == ["n2"]
    other = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}}}}
    assert nodes.patch(job, "merge", other)["reason"] == "Invalid"
    nodes.patch(job, "merge", {"spec": {"suspend": True}})
    nodes.settle(until_ms=100)
    nodes.patch(job, "merge", other)
    assert nodes.status == 200


def test_a_job_has_a_deadline_and_a_time_to_live(nodes, job):
    """DeadlineExceeded ends it; ttlSecondsAfterFinished removes it with its pods."""
    job["spec"] |= {"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 5}
    job["spec"]["template"]["metadata"] = {"annotations": {"headgate.dev/run-ms": "60000"}}
    nodes.create(job)
    nodes.settle(until_ms=1000)
    assert conditions(nodes.get(job))["Failed"] == ("True", "DeadlineExceeded")
    nodes.settle()
    assert nodes.cluster.objects(JOBS) == []
    assert pods(nodes) == []


def test_failures_are_counted_per_index(nodes, job):
    """backoffLimitPerIndex: the Job continues with the other indexes and fails at the end."""
    job["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0}
    nodes.create(job)
    nodes.settle(until_ms=0)
    first = pods(nodes)[0]
    failed = {**first["status"], "phase": "Failed"}
    nodes.patch(first, "merge", {"status": failed}, "status")
    nodes.settle()
    seen = nodes.get(job)
    assert (seen["status"]["completedIndexes"], seen["status"]["failedIndexes"]) == ("1", "0")
    assert conditions(seen)["Failed"] == ("True", "FailedIndexes")


def test_a_job_managed_elsewhere_is_left_alone(nodes, job):
    """ManagedBy names another controller."""
    job["spec"]["managedBy"] = "example.com/other"
    nodes.create(job)
    nodes.settle()
    assert pods(nodes) == []


def test_a_container_that_fails_is_restarted_with_back_off(nodes, pod):
    """Restart policy OnFailure: the pod stays Running and counts restarts."""
    pod["spec"]["restartPolicy"] = "OnFailure"
    pod["metadata"]["annotations"] = {"headgate.dev/exit-code": "1", "headgate.dev/run-ms": "1000"}
    nodes.create(pod)
    nodes.settle(until_ms=12_500)
    seen = nodes.get(pod)["status"]
    assert seen["phase"] == "Running"
    assert seen["containerStatuses"][0]["restartCount"] == 2


def test_nothing_is_due_when_everything_is_done(nodes, job):
    """A settled cluster needs no more steps; a step then writes nothing."""
    nodes.create(job)
    nodes.settle()
    assert nodes.cluster.next_due_ms() is None
    assert nodes.cluster.step(nodes.clock.now_ms) == 0


def test_a_job_whose_pods_are_refused_tries_again(nodes, job):
    """An absent priority class: no pod, no crash; once it exists the Job runs."""
    job["spec"]["template"]["spec"]["priorityClassName"] = "later"
    nodes.create(job)
    nodes.settle(until_ms=15_000)
    assert pods(nodes) == []
    later = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "later"}}
    nodes.create({**later, "value": 1})
    nodes.settle()
    assert nodes.get(job)["status"]["succeeded"] == 1
