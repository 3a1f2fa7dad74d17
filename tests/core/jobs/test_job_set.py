"""JobSet: the pod sets, states and patches of Kueue's integration (pkg/controller/jobs/jobset)."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.job_kinds import (
    FLAVOR,
    admitted,
    applied,
    given,
    job_object,
    pod_template,
    read,
    started,
    stopped,
)

from headgate.core.jobs.integration import LeftBehind, PodSetMismatchError
from headgate.core.jobs.job_set import JobSet

IT = JobSet()


def replicated(name: str, replicas: int = 1, template: Any = None, **job: Any) -> dict[str, Any]:
    pods = pod_template() if template is None else template
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": pods, **job}}}


def job_set(*jobs: dict[str, Any], status: Any = None, **spec: Any) -> dict[str, Any]:
    given = jobs or (replicated("Driver"), replicated("workers", 2, parallelism=4, completions=3))
    return job_object("JobSet", {"suspend": True, "replicatedJobs": list(given), **spec}, status)


def test_each_replicated_job_is_a_pod_set() -> None:
    """As many pods as its Jobs run at a time, named in lower case; its topology knows the Jobs as groups."""
    job = read(IT, job_set())
    assert IT.pod_counts(job) == {"driver": 1, "workers": 6}
    workers = job.pod_sets[1].topology_request
    assert workers is not None
    assert (workers.sub_group_count, workers.sub_group_index_label) == (2, "jobset.sigs.k8s.io/job-index")
    assert workers.pod_index_label == "batch.kubernetes.io/job-completion-index"


def test_the_log_has_of_a_template_what_scheduling_needs_and_the_workload_has_all() -> None:
    """Images, and labels that are not Kueue's, are in the Workload only."""
    obj = job_set()
    job = read(IT, obj)
    (driver, _) = job.pod_sets
    assert driver.template.metadata.labels == {}
    assert driver.template.spec.containers[0].resources.requests == {"cpu": "1"}
    made = IT.pod_sets(job, msgspec.json.encode(obj))
    assert [each["template"] for each in made] == [pod_template(), pod_template()]
    assert [each["count"] for each in made] == [1, 6]


def test_a_start_puts_every_pod_set_on_its_flavor_and_a_restore_gives_back_what_was_there() -> None:
    """Selectors, tolerations, labels and annotations go and come; the author's own are never touched."""
    template = pod_template(nodeSelector={"arch": "arm"}, tolerations=[{"key": "a", "operator": "Exists"}])
    before = job_set(replicated("Driver", template=template), replicated("workers", 2))
    running = started(IT, before)
    assert running["spec"]["suspend"] is False
    for each in running["spec"]["replicatedJobs"]:
        pods = each["template"]["spec"]["template"]
        assert pods["spec"]["nodeSelector"].items() >= FLAVOR.items()
        assert (
            pods["metadata"]["labels"].items() >= {"mine": "1", "kueue.x-k8s.io/podset": each["name"].lower()}.items()
        )
    assert stopped(IT, running, before) == before


def test_a_restore_leaves_no_node_selector_of_a_flavor_that_nothing_knows_any_more() -> None:
    """A deactivated Workload is in no ClusterQueue, which could name the flavors."""
    before = job_set()
    running = started(IT, before)
    nothing = LeftBehind(labels=(), annotations=(), node_selector=())
    states = [replace(each, left_behind=nothing) for each in given(read(IT, before).pod_sets)]
    patch = IT.restore(read(IT, running), states, msgspec.json.encode(running))
    for each in applied(running, patch)["spec"]["replicatedJobs"]:
        assert "nodeSelector" not in each["template"]["spec"]["template"]["spec"]


def test_a_start_is_for_the_version_that_was_read() -> None:
    """Lists are replaced as a whole: a JobSet that has changed since refuses the patch."""
    obj = job_set()
    job = read(IT, obj)
    (patch,) = IT.start(job, admitted(job.pod_sets), msgspec.json.encode(obj))
    assert patch.body["metadata"] == {"uid": "j", "resourceVersion": "7"}
    assert IT.stop(job).body == {"metadata": {"uid": "j"}, "spec": {"suspend": True}}


def test_a_job_set_with_other_pod_sets_than_its_workload_is_not_started() -> None:
    """Neither by number nor by name: its templates would get another's nodes."""
    job = read(IT, job_set(replicated("a"), replicated("b")))
    other = job_set(replicated("a"), replicated("c"))
    with pytest.raises(PodSetMismatchError, match="it has the pod sets a, c, and its Workload a, b"):
        IT.start(job, admitted(job.pod_sets), msgspec.json.encode(other))


@pytest.mark.parametrize(
    ("conditions", "finished", "message"),
    [
        ([{"type": "Completed", "status": "True", "message": "all done"}], "Complete", "all done"),
        ([{"type": "Failed", "status": "True", "message": "one failed"}], "Failed", "one failed"),
        ([{"type": "Completed", "status": "False"}, {"type": "Suspended", "status": "True"}], None, ""),
    ],
)
def test_its_conditions_say_how_it_has_ended(conditions: Any, finished: str | None, message: str) -> None:
    """Completed and Failed, when they are true."""
    job = read(IT, job_set(status={"conditions": conditions}))
    assert (job.finished, job.message) == (finished, message)


def test_its_jobs_are_ready_when_all_of_them_are_ready_or_have_succeeded() -> None:
    """Kueue counts Jobs, not pods."""

    def status(ready: int, succeeded: int, active: int = 0) -> dict[str, Any]:
        return {
            "replicatedJobsStatus": [
                {"name": "Driver", "ready": 1, "active": active},
                {"name": "workers", "ready": ready, "succeeded": succeeded},
            ]
        }

    assert read(IT, job_set(status=status(1, 1))).pods_ready
    assert not read(IT, job_set(status=status(1, 0))).pods_ready
    assert [read(IT, job_set(status=status(0, 0, active))).active for active in (0, 3)] == [0, 1]


def test_jobs_that_have_succeeded_give_their_pods_back() -> None:
    """Those of a replicated job by the number of its Jobs that are done; more than there are count as none."""

    def done(succeeded: int) -> dict[str, int]:
        status = {"replicatedJobsStatus": [{"name": "workers", "succeeded": succeeded}]}
        return IT.reclaimable(read(IT, job_set(status=status)))

    assert done(1) == {"driver": 0, "workers": 3}
    assert done(2) == {"driver": 0, "workers": 6}
    assert done(3) == {"driver": 0, "workers": 0}
