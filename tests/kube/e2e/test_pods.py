"""Plain pods on a real control plane, gated as admission leaves them: run and finished."""

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import furnished, job
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import configured

from headgate.adapters.kubernetes.resources import PODS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

K = "kueue.x-k8s.io/"


def pod(team: str, name: str, *, run_ms: int) -> Json:
    """A pod of half a CPU."""
    template = job(team, name, run_ms=run_ms, cpu="500m")["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": team,
            "labels": {f"{K}queue-name": "main", f"{K}managed": "true"},
            "annotations": template["metadata"]["annotations"],
            "finalizers": [f"{K}managed"],
        },
        "spec": {**template["spec"], "schedulingGates": [{"name": f"{K}admission"}]},
    }


async def test_a_plain_pod_runs_to_its_end_and_loses_its_finalizer(deployment: Deployment) -> None:
    """It is ungated on its admission; the ungater may remove the finalizer of a pod without a gate."""
    team = deployment.fresh("team")
    with configured(integrations={"frameworks": ["pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*furnished(team), pod(team, "one", run_ms=500))
            await becomes(
                deployment,
                PODS,
                "one",
                team,
                lambda found: found["status"].get("phase") == "Succeeded",
                lambda found: not found["metadata"].get("finalizers"),
            )
            await workload_of(deployment, team, has("Finished", reason="Succeeded"))
