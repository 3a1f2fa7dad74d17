"""What the tests of kinds that serve have in common: our policies, which gate pods, and what is seen of the pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.kube.e2e.cells import NAMESPACE, Deployment, Json
from tests.kube.e2e.test_admission import configured
from tests.kube.policies import in_effect
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import PODS, Resource
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.webhook.installing import Way, objects

K: Final = "kueue.x-k8s.io/"
SELECTOR: Final = {"tier": "spot"}
TOLERATION: Final = {"key": "spot", "operator": "Exists"}
LABELS: Final = {f"{K}queue-name": "main"}


@asynccontextmanager
async def serving(deployment: Deployment, team: str, framework: str, resource: Resource) -> AsyncIterator[None]:
    """Our policies for a kind, and a cell that runs it."""
    settings = AdmissionSettings(frameworks=(framework,))
    made = objects(Way.POLICY, settings, namespace=NAMESPACE, service="", secret="")
    async with in_effect(deployment.client, made, resource):
        with configured(integrations={"frameworks": ["batch/job", framework]}) as bridge:
            async with deployment.cell(team, bridge=bridge):
                yield


def template(*, cpu: str, run_ms: int = 0, **metadata: Json) -> Json:
    """A template of pods that run until they are deleted, unless they say when they end."""
    annotations = {"headgate.dev/run-ms": str(run_ms)} if run_ms else {}
    container = {"name": "main", "image": "registry/serve:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {**metadata, "annotations": annotations | metadata.get("annotations", {})},
        "spec": {"schedulerName": "headgate", "containers": [container], "terminationGracePeriodSeconds": 0},
    }


async def seen(deployment: Deployment, team: str) -> dict[str, str]:
    """Each pod of a namespace: gated, or its phase."""
    found = {}
    for each in await deployment.all(PODS, team):
        gates = [gate["name"] for gate in each["spec"].get("schedulingGates", [])]
        found[each["metadata"]["name"]] = "gated" if f"{K}admission" in gates else each["status"].get("phase", "")
    return found


async def pods_are(deployment: Deployment, team: str, expected: dict[str, str]) -> list[Json]:
    """Wait until the pods of a namespace are these; them."""
    last: dict[str, str] = {}

    async def holds() -> bool:
        nonlocal last
        last = await seen(deployment, team)
        return last == expected

    await until(holds, lambda: f"{last} is not {expected}")
    return await deployment.all(PODS, team)


def is_on_flavor(pod: Json) -> bool:
    """Whether a pod has the selector and the toleration of the flavor."""
    spec = pod["spec"]
    return bool(spec["nodeSelector"].items() >= SELECTOR.items()) and TOLERATION in spec["tolerations"]
