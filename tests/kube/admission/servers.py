"""Our webhook and our policies on real API servers."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
from tests.support.admission_cases import PLAIN, QUEUED
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, Resource
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS
from headgate.core.admission.kinds import JOBS, TARGETS
from headgate.core.admission.rules import AdmissionTarget
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.runtime.serving_certificates import ServingCertificates
from headgate.processes.runtime.settings import HttpSettings, KubernetesSettings, Settings, WebhookSettings
from headgate.processes.webhook.installing import Way, install_admission, objects
from headgate.processes.webhook.process import WebhookServer
from headgate.testing.control_plane import ControlPlane, Options

Json = dict[str, Any]
BARE = Options(controllers=False, kwok=False, nodes=0)
SETTINGS = AdmissionSettings(frameworks=tuple(each.framework for each in TARGETS if each.framework))
NAMESPACE = "headgate-system"
SECRET = WebhookSettings().secret
MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes" / "webhook"
RESOURCES = {
    each.kind: Resource(
        group=each.group,
        version=each.version,
        plural=each.plural,
        kind=each.kind,
        namespaced=each.kind not in ("ClusterQueue", "Cohort", "ResourceFlavor"),
    )
    for each in TARGETS
}


def definition(of: AdmissionTarget | Resource, scope: str = "Namespaced") -> Json:
    """A definition of a kind that takes everything: what is refused, our rules refuse."""
    names = {"kind": of.kind, "plural": of.plural, "singular": of.kind.lower()}
    version = {
        "name": of.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{of.plural}.{of.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": of.group, "scope": scope, "names": names, "versions": [version]},
    }


async def prepare(client: KubeClient) -> None:
    """Our definitions and those of jobs, two namespaces, one of them with a default queue, and a runtime."""
    async for _ in install(client):
        pass
    for target in JOBS:
        if "." in target.group:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(target))
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(TRAINING_RUNTIMES))
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(CLUSTER_TRAINING_RUNTIMES, "Cluster"))
    for each in (*(RESOURCES[target.kind] for target in JOBS), TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES):
        await until(partial(is_served, client, each))
    await client.create(CLUSTER_TRAINING_RUNTIMES, runtime("r"))
    for name in (PLAIN, QUEUED, NAMESPACE):
        await client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
    queue = {**kind, "metadata": {"name": "default"}, "spec": {"clusterQueue": "q"}}
    await client.request("POST", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{QUEUED}/localqueues", body=queue)


def runtime(name: str, kind: str = "ClusterTrainingRuntime", **annotations: str) -> Json:
    """A runtime of one Job of two nodes, whose pods have these annotations of Kueue's."""
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    asked = {f"kueue.x-k8s.io/podset-{key.replace('_', '-')}": value for key, value in annotations.items()}
    pods = {"metadata": {"annotations": asked}, "spec": {"containers": [{"name": "node", "image": "i"}]}}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    spec = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [job]}}}
    return {
        "apiVersion": TRAINING_RUNTIMES.api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def is_served(client: KubeClient, resource: Resource) -> bool:
    try:
        await client.list(resource, PLAIN if resource.namespaced else None)
    except ApiError:
        return False
    return True


def wanted(way: Way) -> list[Json]:
    return objects(way, SETTINGS, namespace=NAMESPACE, service="headgate-webhook", secret=SECRET)


async def is_effective(client: KubeClient) -> bool:
    """Whether the API server asks the webhook of all kinds yet: a moment after the configurations are there."""
    queued = {"metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": JOB_SPEC}
    path = f"/apis/batch/v1/namespaces/{PLAIN}/jobs"
    try:
        made = msgspec.json.decode(await client.request("POST", path, query={"dryRun": "All"}, body=queued))
    except ApiError:
        return False
    wrong = {"metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "A_B"}}, "spec": JOB_SPEC}
    try:
        await client.request("POST", path, query={"dryRun": "All"}, body=wrong)
    except ApiError:
        return bool(made["spec"]["suspend"])
    return False


JOB_SPEC = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}


@asynccontextmanager
async def with_webhook(
    plane: ControlPlane, client: KubeClient, admission: AdmissionSettings = SETTINGS
) -> AsyncIterator[WebhookServer]:
    """
    Our server on loopback, with the rights that it is deployed with.

    Its configurations name it by its URL, as there is no network of Services.
    """
    for file in ("deployment.yaml", "rbac.yaml", "network-policy.yaml"):
        await plane.kubectl("apply", "--server-side", "-f", str(MANIFESTS / file))  # two of them may start at once
    access = await plane.service_account_kubeconfig(NAMESPACE, "webhook")
    webhook = WebhookSettings(host="127.0.0.1", port=0, names="localhost")
    settings = Settings(kubernetes=KubernetesSettings(kubeconfig=str(access)), http=HttpSettings(), webhook=webhook)
    server = WebhookServer(settings, "test", admission)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        with anyio.fail_after(60):
            await server.serving.wait()
        made = [by_url(each, server.port) for each in wanted(Way.WEBHOOK)]
        async for _ in install_admission(client, made):
            pass
        assert isinstance(server.certificates, ServingCertificates)
        await server.certificates.round()
        yield server
        tasks.cancel_scope.cancel()


def by_url(configuration: Json, port: int) -> Json:
    made = copy.deepcopy(configuration)
    for each in made["webhooks"]:
        path = each["clientConfig"].pop("service")["path"]
        each["clientConfig"]["url"] = f"https://localhost:{port}{path}"
    return made
