"""Pods and Jobs that run before Headgate is there, imported: their quota counts, they run on, their end frees it."""

from typing import Any

import anyio.to_thread
import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import furnished, job
from tests.kube.e2e.seeing import becomes, has
from tests.kube.e2e.test_admission import configured
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import JOBS, NODES, PODS, WORKLOADS
from headgate.cli.main import run

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

FOR_EVER_MS = 10**9
QUEUE = "kueue.x-k8s.io/queue-name"


def unqueued_pod(team: str, name: str, node: str, app: str = "web") -> Json:
    container = {"name": "main", "image": "registry/web:1", "resources": {"requests": {"cpu": "500m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": team,
            "labels": {"app": app},
            "annotations": {"headgate.dev/run-ms": str(FOR_EVER_MS)},
        },
        "spec": {"restartPolicy": "Never", "nodeName": node, "containers": [container]},
    }


def unqueued_job(team: str, name: str, node: str) -> Json:
    made = job(team, name, run_ms=FOR_EVER_MS, suspend=False, cpu="500m")
    made["metadata"]["labels"] = {"app": "train"}
    made["spec"]["template"]["spec"]["nodeName"] = node
    del made["spec"]["template"]["spec"]["schedulerName"]
    return made


async def headgate(deployment: Deployment, *args: str) -> int:
    line = ["import", *args, "--kubeconfig", str(deployment.plane.kubeconfig)]
    return await anyio.to_thread.run_sync(run, line)


async def running(deployment: Deployment, team: str) -> dict[str, tuple[str, Any]]:
    """By name, the uid and the restarts of the pods that run."""
    return {
        each["metadata"]["name"]: (each["metadata"]["uid"], each["status"]["containerStatuses"][0]["restartCount"])
        for each in await deployment.all(PODS, team)
        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    }


async def test_what_runs_is_imported_counts_and_frees_its_quota_at_its_end(deployment: Deployment) -> None:
    """Two pods and a Job fill a queue; what is queued behind them runs when a pod is deleted, and when the Job is."""
    team = deployment.fresh("team")
    node = (await deployment.all(NODES))[0]["metadata"]["name"]
    await deployment.apply(
        *furnished(team),
        *(unqueued_pod(team, name, node) for name in ("web-1", "web-2")),
        unqueued_pod(team, "other", node, app="other"),
        unqueued_job(team, "train", node),
    )

    async def all_run() -> bool:
        return len(await running(deployment, team)) == 4

    await until(all_run, lambda: "three pods and the Job's run")
    before = await running(deployment, team)
    mapping = ("-n", team, "--queuelabel", "app", "--queuemapping", "web=main,train=main")
    assert await headgate(deployment, *mapping) == 1  # the pod `other` belongs nowhere
    rules = deployment.plane.folder / "rules.yaml"
    rules.write_text(
        "- {match: {labels: {app: other}}, skip: true}\n"
        "- {match: {labels: {app: web}}, toLocalQueue: main}\n"
        "- {match: {labels: {app: train}}, toLocalQueue: main}\n"
    )
    by_rules = ("-n", team, "--queuemapping-file", str(rules))
    assert await headgate(deployment, *by_rules) == 0
    assert await deployment.all(WORKLOADS, team) == []
    assert await headgate(deployment, *by_rules, "--dry-run=false") == 0
    imported = {each["metadata"]["name"]: each for each in await deployment.all(WORKLOADS, team)}
    assert len(imported) == 3

    with configured(integrations={"frameworks": ["batch/job", "pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge) as cell:
            await until(
                lambda: cell.holds(lambda state: state.index.usage.get(team) == {(team, "cpu"): 1500}),
                lambda: cell.state and cell.state.index.usage.get(team),
            )
            # Half a CPU is left: the second has to wait. Were both there at once, either could be the first.
            await deployment.apply(job(team, "fits", run_ms=FOR_EVER_MS, cpu="500m"))
            await becomes(deployment, JOBS, "fits", team, lambda found: found["status"].get("ready"))
            await deployment.apply(job(team, "waits", run_ms=FOR_EVER_MS, cpu="500m"))
            await until(
                lambda: cell.holds(
                    lambda state: any(
                        key.startswith(f"{team}/job-waits-") and each.verdict is not None
                        for key, each in state.workloads.items()
                    )
                ),
                lambda: "a verdict on the second",
            )
            assert (await deployment.get(JOBS, "waits", team))["spec"]["suspend"]
            assert before.items() <= (await running(deployment, team)).items()
            assert await headgate(deployment, *by_rules, "--dry-run=false") == 0  # what is queued is left alone
            await deployment.client.delete(PODS, "web-1", team)
            await becomes(deployment, JOBS, "waits", team, lambda found: found["status"].get("ready"))
            await deployment.client.delete(JOBS, "train", team, propagation=Propagation.BACKGROUND)
            await deployment.apply(job(team, "last", run_ms=200, cpu="500m"))
            await becomes(deployment, JOBS, "last", team, has("Complete"))
            after = await running(deployment, team)
            assert {name: after[name] for name in ("web-2", "other")} == {
                name: before[name] for name in ("web-2", "other")
            }
