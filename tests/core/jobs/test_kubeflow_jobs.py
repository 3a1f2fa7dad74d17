"""The Training Operator's kinds and MPIJob, as in Kueue's integrations (pkg/controller/jobs/kubeflow, mpijob)."""

from typing import Any

import pytest
from tests.support.job_kinds import FLAVOR, job_object, pod_template, read, started, stopped

from headgate.core.jobs.kubeflow_jobs import KUBEFLOW_JOBS, KubeflowJob
from headgate.core.workload.job_workload import pod_priority_class

ORDERS = {
    "PyTorchJob": ("pytorchReplicaSpecs", ["Master", "Worker"]),
    "TFJob": ("tfReplicaSpecs", ["Chief", "Master", "PS", "Worker", "Evaluator"]),
    "XGBoostJob": ("xgbReplicaSpecs", ["Master", "Worker"]),
    "PaddleJob": ("paddleReplicaSpecs", ["Master", "Worker"]),
    "JAXJob": ("jaxReplicaSpecs", ["Worker"]),
    "MPIJob": ("mpiReplicaSpecs", ["Launcher", "Worker"]),
}
"""The field of the replica types of each kind, and the order of its pod sets: fields of their Go types."""

kinds = pytest.mark.parametrize("it", KUBEFLOW_JOBS, ids=lambda it: it.kind.kind)


def job_of(it: KubeflowJob, status: Any = None, policy: Any = None, **replicas: Any) -> dict[str, Any]:
    field, types = ORDERS[it.kind.kind]
    # Not in the order of the kind: a map of an API object has none.
    specs = {each: {"replicas": len(each), "template": pod_template()} for each in reversed(types)} | replicas
    return job_object(it.kind.kind, {"runPolicy": {"suspend": True, **(policy or {})}, field: specs}, status)


@kinds
def test_each_replica_type_is_a_pod_set_in_the_order_of_the_kind(it: KubeflowJob) -> None:
    """Named in lower case, with its number of replicas; its pods are numbered by the operator's label."""
    job = read(it, job_of(it))
    assert list(it.pod_counts(job).items()) == [(each.lower(), len(each)) for each in ORDERS[it.kind.kind][1]]
    requests = [each.topology_request for each in job.pod_sets]
    assert {each.pod_index_label for each in requests if each is not None} == {"training.kubeflow.org/replica-index"}


@kinds
def test_a_replica_type_that_is_not_there_is_no_pod_set(it: KubeflowJob) -> None:
    """Null is as missing; a number of replicas that is missing is one."""
    job = read(it, job_of(it, Worker={"template": pod_template()}, Master=None))
    assert it.pod_counts(job)["worker"] == 1
    assert "master" not in it.pod_counts(job)


@kinds
def test_a_start_puts_every_replica_type_on_its_flavor_and_a_restore_gives_back_what_was_there(it: KubeflowJob) -> None:
    """The run policy resumes it; templates are as before after the stop."""
    before = job_of(it, policy={"cleanPodPolicy": "None"})
    running = started(it, before)
    assert running["spec"]["runPolicy"] == {"suspend": False, "cleanPodPolicy": "None"}
    for each in running["spec"][ORDERS[it.kind.kind][0]].values():
        assert each["template"]["spec"]["nodeSelector"] == FLAVOR
    assert read(it, running).injected
    assert stopped(it, running, before) == before


@kinds
@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        ([{"type": "Created", "status": "True"}, {"type": "Succeeded", "status": "True", "message": "m"}], "Complete"),
        ([{"type": "Failed", "status": "True", "message": "m"}], "Failed"),
        ([{"type": "Failed", "status": "False"}, {"type": "Running", "status": "True"}], None),
    ],
)
def test_its_conditions_say_how_it_has_ended(it: KubeflowJob, conditions: Any, finished: str | None) -> None:
    """Succeeded and Failed, when they are true; their message is the end's."""
    job = read(it, job_of(it, {"conditions": conditions}))
    assert (job.finished, job.message) == (finished, "m" if finished else "")
    assert it.reclaimable(job) == dict.fromkeys(it.pod_counts(job), 0)


@kinds
def test_it_runs_while_a_replica_type_has_active_pods_and_is_ready_when_it_says_so(it: KubeflowJob) -> None:
    """Its pods are ready by the condition Running (Kueue's PodsReady)."""
    running = {"conditions": [{"type": "Running", "status": "True"}], "replicaStatuses": {"Worker": {"active": 1}}}
    assert [(job.pods_ready, job.active) for job in (read(it, job_of(it, running)), read(it, job_of(it)))] == [
        (True, 1),
        (False, 0),
    ]


@kinds
def test_its_priority_class_is_that_of_the_scheduling_policy_before_those_of_the_templates(it: KubeflowJob) -> None:
    """Of these, the first in the order of the pod sets."""
    worker = {"template": pod_template(priorityClassName="of-the-worker")}
    assert pod_priority_class(read(it, job_of(it, Worker=worker))) == "of-the-worker"
    policy = {"schedulingPolicy": {"priorityClass": "of-the-policy"}}
    assert pod_priority_class(read(it, job_of(it, policy=policy, Worker=worker))) == "of-the-policy"
    assert pod_priority_class(read(it, job_of(it))) == ""
