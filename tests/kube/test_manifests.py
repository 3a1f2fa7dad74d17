"""
A real API server accepts what is shipped in deploy/: its schemas do, and the restricted Pod Security Standard.

Nothing is created but the namespace: `kubectl apply --dry-run=server`, with every warning an error.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.rendering import DEPLOY, by_key, kustomized, overlay, rendered, with_keys

from headgate.testing.control_plane import (
    Assets,
    ControlPlane,
    ControlPlaneError,
    Options,
    control_plane,
)

pytestmark = [pytest.mark.kube, pytest.mark.anyio]

OF_OTHERS = ("monitoring.coreos.com/", "cert-manager.io/")
"""Kinds of operators that this cluster does not have."""
EVERYTHING = (
    "keys.enabled=true,policies.enabled=true,nats.enabled=true,webhook.enabled=true,webhook.certificates=cert-manager,"
    "visibility.enabled=true,monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,"
    "monitoring.dashboards.enabled=true,crds.admission=webhook,crds.conversion=webhook"
)


@pytest.fixture(scope="module")
async def cluster(
    anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A control plane with the namespace of Headgate."""
    async with control_plane(assets, tmp_path_factory.mktemp("control-plane"), options=Options(nodes=0)) as running:
        await running.kubectl("apply", "-f", str(DEPLOY / "kubernetes" / "base" / "namespace.yaml"))
        yield running


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kustomizations, with keys."""
    return with_keys(tmp_path_factory.mktemp("deploy"))


async def accepted(cluster: ControlPlane, objects: list[Any], folder: Path) -> list[Any]:
    """The objects as the API server would store them. Raises ControlPlaneError for a refusal or a warning."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all([each for each in objects if not each["apiVersion"].startswith(OF_OTHERS)]))
    flags = ("--dry-run=server", "--server-side", "--warnings-as-errors", "-o", "yaml")
    done = await cluster.kubectl("apply", *flags, "-f", str(file))
    found = yaml.safe_load(done.stdout)
    return list(found["items"]) if found["kind"] == "List" else [found]


def stored(objects: list[Any]) -> dict[Any, Any]:
    """Objects of an answer without what each request has of its own."""
    for each in objects:
        for key in ("uid", "creationTimestamp", "managedFields", "resourceVersion", "generation"):
            each["metadata"].pop(key, None)
        each.pop("status", None)
        spec = each.get("spec", {})
        if each["kind"] == "Job":  # the API server's own labels and selector hold the uid
            spec.pop("selector", None)
            spec["template"]["metadata"]["labels"] = {
                key: value
                for key, value in spec["template"]["metadata"]["labels"].items()
                if "controller-uid" not in key and "job-name" not in key
            }
            each["metadata"]["labels"] = {}
        if each["kind"] == "Service":
            for key in ("clusterIP", "clusterIPs"):
                spec.pop(key, None)
    return by_key(objects)


@pytest.mark.operators
async def test_the_chart_is_accepted_as_the_kustomization_is(
    cluster: ControlPlane, kubernetes: Path, tmp_path: Path
) -> None:
    """With the broker, users, keys and policies: the API server would store the same of both."""
    users = kubernetes / "nats" / "users" / "users.conf"
    objects = rendered(
        "--set", "nats.enabled=true,keys.enabled=true,policies.enabled=true", "--set-file", f"nats.users={users}"
    )
    chart = stored(await accepted(cluster, objects, tmp_path))
    manifests = stored(await accepted(cluster, kustomized(kubernetes / "nats"), tmp_path))
    assert chart == {key: each for key, each in manifests.items() if key[3] != "public-keys"}


@pytest.mark.operators
async def test_everything_that_the_chart_can_render_is_accepted(
    cluster: ControlPlane, kubernetes: Path, tmp_path: Path
) -> None:
    """All parts at once, and the Jobs that install definitions and rules."""
    users = kubernetes / "nats" / "users" / "users.conf"
    objects = rendered("--set", EVERYTHING, "--set-file", f"nats.users={users}", hooks=True)
    found = await accepted(cluster, objects, tmp_path)
    assert {each["kind"] for each in found} >= {
        "Deployment",
        "StatefulSet",
        "Job",
        "APIService",
        "ValidatingAdmissionPolicy",
    }


async def test_every_component_is_accepted(cluster: ControlPlane, kubernetes: Path, tmp_path: Path) -> None:
    """An overlay of one's own with all of them."""
    folder = overlay(
        kubernetes, "all", "webhook", "webhook-cert-manager", "monitoring", resources=("../nats", "../visibility")
    )
    assert await accepted(cluster, kustomized(folder), tmp_path)


async def test_a_pod_that_is_not_restricted_would_be_noticed(cluster: ControlPlane, tmp_path: Path) -> None:
    """The namespace's label makes the API server warn of it, and a warning is an error here."""
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "nats" / "nats.yaml").read_text()))
    (server,) = (each for each in objects if each["kind"] == "StatefulSet")
    server["metadata"]["namespace"] = "headgate-system"
    del server["spec"]["template"]["spec"]["securityContext"]
    with pytest.raises(ControlPlaneError, match="violate PodSecurity"):
        await accepted(cluster, [server], tmp_path)
