"""JobSets with their operator on a real control plane: queued, run on their flavor, stopped and restored, finished."""

from pathlib import Path
from typing import Any

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import condition, flavor, furnished, job
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import configured
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, OF_JOBS, WORKLOADS
from headgate.testing.control_plane.operators import find_operator, operator

pytestmark = [pytest.mark.anyio, pytest.mark.kube, pytest.mark.operators]

JOB_SETS = OF_JOBS["jobsets"]
FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset"]
SELECTOR = {"kubernetes.io/os": "linux"}


def replicated(name: str, replicas: int, run_ms: int) -> Json:
    """Jobs of one pod each, of a tenth of a CPU."""
    spec = job("", name, run_ms=run_ms, cpu="100m", suspend=False)["spec"]
    del spec["suspend"]
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job_set(team: str, name: str, run_ms: int) -> Json:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": team, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "suspend": True,
            "replicatedJobs": [replicated("driver", 1, run_ms), replicated("workers", 2, run_ms)],
        },
    }


def templates(found: Json) -> list[Any]:
    return [each["template"]["spec"]["template"] for each in found["spec"]["replicatedJobs"]]


async def hold(deployment: Deployment, team: str, policy: str) -> None:
    await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": policy}})


async def test_a_job_set_lives_as_its_queue_lets_it(deployment: Deployment, tmp_path: Path) -> None:
    """
    Before its definition is installed the cell runs without it.

    Then: queued, admitted on the flavor, running, evicted and restored to the letter, admitted again, deleted; and
    another one finished.
    """
    find_operator("jobset")
    team = deployment.fresh("team")
    spot = flavor(team, nodeLabels=SELECTOR, tolerations=[{"key": "spot", "operator": "Exists"}])
    await deployment.plane.kubectl("label", "node", "--all", "kubernetes.io/os=linux", "--overwrite")
    with configured(integrations={"frameworks": FRAMEWORKS}) as bridge:
        async with deployment.cell(team, bridge=bridge), operator(deployment.plane, "jobset", tmp_path):
            await deployment.apply(*furnished(team), spot)
            await hold(deployment, team, "Hold")
            await deployment.apply(job_set(team, "train", run_ms=600_000))
            made = (await deployment.get(JOB_SETS, "train", team))["spec"]
            found = await workload_of(deployment, team)
            assert [(each["name"], each["count"]) for each in found["spec"]["podSets"]] == [
                ("driver", 1),
                ("workers", 2),
            ]
            assert found["metadata"]["name"].startswith("jobset-train-")

            await hold(deployment, team, "None")
            running = await becomes(deployment, JOB_SETS, "train", team, lambda it: it["spec"]["suspend"] is False)
            for each in templates(running):
                assert each["spec"]["nodeSelector"] == SELECTOR
                assert each["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
            assert [each["metadata"]["labels"]["kueue.x-k8s.io/podset"] for each in templates(running)] == [
                "driver",
                "workers",
            ]
            await becomes(deployment, JOB_SETS, "train", team, _are_ready)
            # The JobSet's own Jobs are none of ours: there is one Workload.
            await workload_of(deployment, team, has("Admitted"))

            await hold(deployment, team, "HoldAndDrain")
            await becomes(deployment, JOB_SETS, "train", team, lambda it: it["spec"] == made)
            await workload_of(deployment, team, has("QuotaReserved", "False"))

            await hold(deployment, team, "None")
            await becomes(deployment, JOB_SETS, "train", team, _are_ready)
            await deployment.client.delete(JOB_SETS, "train", team)

            async def is_gone() -> bool:
                return not await deployment.all(WORKLOADS, team)

            await until(is_gone, lambda: "the Workload of a JobSet that was deleted")

            await deployment.apply(job_set(team, "short", run_ms=200))
            ended = await workload_of(deployment, team, has("Finished"))
            assert condition(ended, "Finished") == ("True", "Succeeded")


def _are_ready(found: Json) -> bool:
    statuses = found.get("status", {}).get("replicatedJobsStatus", [])
    return found["spec"]["suspend"] is False and sum(each["ready"] for each in statuses) == 3
