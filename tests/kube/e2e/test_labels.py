"""Labels that Workloads get from their jobs, and labels that metrics show, on a real control plane."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.kube.e2e.cells import Cell, Deployment, Json
from tests.kube.e2e.objects import furnished, job
from tests.kube.e2e.seeing import has, workload_of
from tests.kube.e2e.test_admission import configured
from tests.kube.e2e.test_pods import grouped
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, EVENTS, PODS, WORKLOADS
from headgate.core.workload.pod_groups import LABELS_DIFFER

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

LONG_MS = 600_000
K = "kueue.x-k8s.io/"


def labelled(manifest: Json, **labels: str) -> Json:
    manifest["metadata"].setdefault("labels", {}).update(labels)
    return manifest


def own(found: Json) -> dict[str, str]:
    """The labels of a Workload that are not Kueue's."""
    labels = found["metadata"].get("labels", {})
    return {key: value for key, value in labels.items() if not key.startswith(K)}


def rewrite(file: str, document: Json) -> None:
    """The bridge reads its file again and again."""
    Path(file).write_text(yaml.safe_dump(document))


async def named(deployment: Deployment, team: str, prefix: str) -> Json:
    """The Workload whose name begins so, once there is one."""

    async def found() -> list[Json]:
        return [each for each in await deployment.all(WORKLOADS, team) if each["metadata"]["name"].startswith(prefix)]

    await until(found)
    (workload,) = await found()
    return workload


async def shows(cell: Cell, metric: str, **labels: str) -> None:
    """Wait until a metric has a value with these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]

    async def is_shown() -> bool:
        async with aiohttp.ClientSession() as session, session.get(f"{cell.runners['snapshotter'].url}/metrics") as got:
            lines = [line for line in (await got.text()).splitlines() if line.startswith(f"{metric}{{")]
        return any(all(each in line for each in wanted) for line in lines)

    await until(is_shown)


async def test_labels_go_from_jobs_to_their_workloads_and_a_changed_file_names_others(deployment: Deployment) -> None:
    """A group waits while its pods differ; what the file names later is read of pods that were there before."""
    team = deployment.fresh("team")
    parts: Json = {"integrations": {"frameworks": ["batch/job", "pod"], "labelKeysToCopy": ["team"]}}
    with configured(**parts) as bridge:
        async with deployment.cell(team, bridge=bridge) as cell:
            queues = furnished(team)
            queues[3]["spec"]["stopPolicy"] = "Hold"
            await deployment.apply(*queues)
            train = job(team, "train", run_ms=LONG_MS, labels={"team": "red", "other": "x"})
            two = [grouped(team, name, 2, run_ms=LONG_MS) for name in ("a", "b")]
            await deployment.apply(train, labelled(two[0], team="red"), labelled(two[1], team="blue", cost="7"))
            assert own(await named(deployment, team, "job-train-")) == {"team": "red"}

            async def is_told() -> bool:
                return any(each.get("message") == LABELS_DIFFER for each in await deployment.all(EVENTS, team))

            await until(is_told)
            assert [each for each in await deployment.all(WORKLOADS, team) if each["metadata"]["name"] == "gang"] == []

            parts["integrations"]["labelKeysToCopy"] = ["team", "cost"]
            header = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
            rewrite(bridge.configuration, {**header, **parts})
            await until(
                lambda: cell.holds(lambda state: len(state.configuration.integrations.label_keys_to_copy or ()) == 2)
            )
            await deployment.merge(PODS, "b", team, {"metadata": {"labels": {"team": "red"}}})
            assert own(await named(deployment, team, "gang")) == {"team": "red", "cost": "7"}


async def test_metrics_show_labels_of_queues_and_workloads_as_they_change(deployment: Deployment) -> None:
    """Under the names that the file gives them; the label of a job reaches them by its Workload."""
    team = deployment.fresh("team")
    labels = [
        {"name": "team"},
        {"name": "stage", "sourceKind": "LocalQueue", "sourceAnnotationKey": "example.com/stage"},
        {"name": "tier", "sourceKind": "Workload", "trackedValues": ["gold"]},
    ]
    parts: Any = {"featureGates": {"CustomMetricLabels": True}, "metrics": {"customLabels": labels}}
    with configured(**parts) as bridge:
        async with deployment.cell(team, bridge=bridge) as cell:
            queues = furnished(team)
            labelled(queues[2], team="red")
            queues[3]["metadata"]["annotations"] = {"example.com/stage": "prod"}
            await deployment.apply(*queues, job(team, "train", run_ms=LONG_MS, labels={"tier": "gold"}))
            await workload_of(deployment, team, has("Admitted"))
            await shows(cell, "kueue_admitted_workloads_total", cluster_queue=team, custom_team="red")
            await shows(cell, "kueue_admitted_active_workloads", cluster_queue=team, custom_tier="gold")
            await shows(cell, "kueue_local_queue_admitted_workloads_total", namespace=team, custom_stage="prod")
            await deployment.merge(CLUSTER_QUEUES, team, None, {"metadata": {"labels": {"team": "blue"}}})
            await shows(cell, "kueue_admitted_active_workloads", cluster_queue=team, custom_team="blue")
            await shows(cell, "kueue_admitted_workloads_total", cluster_queue=team, custom_team="red")
