"""Every kind of jobs has an integration, and what the machines ask of one is answered for each pod set."""

from typing import Any

import msgspec
import pytest

from headgate.core.api import job_kinds
from headgate.core.jobs.batch_job import BatchJob
from headgate.core.jobs.integration import Directives, LeftBehind, PodSetState
from headgate.core.jobs.registry import integration_of
from headgate.core.reading.decoding import watched
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.ids import JobKey, UnixMs
from headgate.events.objects import Job

NOTHING = PodSetState(
    "main",
    2,
    Directives(labels={}, annotations={}, node_selector={}, tolerations=[], scheduling_gates=[]),
    LeftBehind((), (), ()),
)


def job(**more: Any) -> Job:
    return Job(uid="j", created_ms=UnixMs(1), queue_name="main", **{"parallelism": 3, "completions": 5, **more})


@pytest.mark.parametrize("kind", job_kinds.JOB_KINDS, ids=lambda kind: kind.gvk)
def test_every_kind_is_watched_and_has_an_integration(kind: job_kinds.JobKind) -> None:
    """What is listed as a kind is read from the API server, and answered for by one integration."""
    configuration = Configuration(integrations=IntegrationsConfiguration(frameworks=(kind.framework,)))
    assert "pods" in watched(configuration) if kind.of_pods else kind.resource in watched(configuration)
    assert integration_of(kind.key("team-a", "train")).kind == kind


def test_a_job_of_another_kind_has_no_integration() -> None:
    """How to start it is not guessed: the error names the job and the supported kinds."""
    with pytest.raises(KeyError, match=r"batch\.volcano\.sh/Job/team-a/train: this version does not run jobs of this"):
        integration_of(JobKey("batch.volcano.sh/Job/team-a/train"))


def test_a_job_answers_for_the_pod_sets_of_its_workload() -> None:
    """The Workload is made with the pod sets, and the counts, with which the job is compared later."""
    raw = msgspec.json.encode({"spec": {"template": {"spec": {"containers": []}}}})
    for each in (BatchJob(),):
        made = {pod_set["name"]: pod_set["count"] for pod_set in each.pod_sets(job(), raw)}
        assert made == each.pod_counts(job())
        assert list(each.reclaimable(job())) == list(made)


def test_what_runs_by_the_dozen_is_no_news() -> None:
    """Counters from which nothing follows are left out of what matters; an end, or what it gives back, is not."""
    it = BatchJob()
    assert it.what_matters(job(active=2, ready=1, failed=1)) == it.what_matters(job(active=3, ready=0))
    assert it.what_matters(job(succeeded=1)) == it.what_matters(job(succeeded=2))
    assert it.what_matters(job(succeeded=2)) != it.what_matters(job(succeeded=4))
    assert it.what_matters(job(active=1)) != it.what_matters(job(active=0))


def test_every_patch_is_for_this_object_only() -> None:
    """The uid in a patch keeps it from a job that was recreated under the name."""
    it = BatchJob()
    patches = (*it.start(job(), [NOTHING]), it.stop(job()), it.restore(job(), [NOTHING]), it.reopen("j"))
    assert all(patch is not None and patch.body["metadata"] == {"uid": "j"} for patch in patches)
