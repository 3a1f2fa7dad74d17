"""
An operator as a child process on a control plane, outside of any cluster.

It is the cluster's administrator. Its webhooks, where it has some that its kind needs, are called at a URL on loopback:
the service that its manifests name would need a network of pods.
"""

import base64
import datetime as dt
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import yaml

from headgate.adapters.certificates import StoredCertificates, renewed
from headgate.testing.control_plane.component import Component
from headgate.testing.control_plane.flags import HOST
from headgate.testing.control_plane.operators.build import fetch_definitions
from headgate.testing.control_plane.operators.catalog import CRDS, WEBHOOKS, Operator, find_operator
from headgate.testing.control_plane.plane import ControlPlane
from headgate.testing.control_plane.ports import free_ports

_NAME: Final = "localhost"
_POD_LABELS: Final = {
    "jobset": "jobset.sigs.k8s.io/jobset-name",
    "lws": "leaderworkerset.sigs.k8s.io/name",
}
"""The label that the pods of an operator carry: its webhook for pods is called for these only."""

_DEFINED_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
_TRAINING_WEBHOOK: Final = "validator.training-operator.kubeflow.org"
_TRAINING_NAMESPACE: Final = "kubeflow"
_TRAINING_CERTIFICATES: Final = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 - it reads no other

Json = dict[str, Any]


@asynccontextmanager
async def operator(plane: ControlPlane, name: str, folder: Path) -> AsyncIterator[Component]:
    """
    An operator with its CustomResourceDefinitions, for as long as the block runs; `folder` is for its files and log.

    The definitions stay. Raises NoAssetsError when it is not built, StartError when it does not come up.
    """
    found = find_operator(name)
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    await _define(plane, found.folder / CRDS)
    health, webhooks = free_ports(2)
    hooks = await _prepare(plane, found, folder, webhooks)
    log_file = folder / f"{name}.log"

    async def ready() -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((HOST, webhooks if found.webhooks else _health_of(found, health))) == 0

    process = Component(name, _command(plane, found, folder, health, webhooks), log_file, ready)
    process.launch()
    try:
        await process.wait_ready()
        if hooks:
            await plane.kubectl(
                "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": hooks})
            )
        yield process
    finally:
        if hooks:
            names = [f"{each['kind']}/{each['metadata']['name']}" for each in hooks]
            await plane.kubectl("delete", "--ignore-not-found", *names)
        await process.stop()


async def define(plane: ControlPlane, name: str) -> None:
    """
    Give a control plane the CustomResourceDefinitions of an operator, which need not be built.

    Raises NoAssetsError, TimeoutError.
    """
    await _define(plane, await anyio.to_thread.run_sync(fetch_definitions, name))


async def _define(plane: ControlPlane, crds: Path) -> None:
    """Apply the definitions, and wait until their kinds are served. Raises TimeoutError."""
    await plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crds))
    with anyio.fail_after(_DEFINED_TIMEOUT_S):
        while True:
            # kubectl refuses to wait for an object without a status.
            waited = await plane.kubectl("wait", "--for=condition=Established", "-f", str(crds), check=False)
            if waited.returncode == 0:
                return
            await anyio.sleep(_POLL_S)


def _command(plane: ControlPlane, operator: Operator, folder: Path, health: int, webhooks: int) -> list[str]:
    """The program and its arguments."""
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    match operator.name:
        case "jobset" | "lws":
            group = "jobset" if operator.name == "jobset" else "lws"
            file = folder / "configuration.json"
            file.write_text(json.dumps(_configuration(group, folder, health, webhooks)))
            args = [kubeconfig, f"--config={file}"]
        case "mpi-operator":
            args = [f"--kubeConfig={plane.kubeconfig}", "--lock-namespace=default"]
        case "training-operator":
            args = [
                kubeconfig,
                "--metrics-bind-address=0",
                f"--health-probe-bind-address={HOST}:{health}",
                f"--webhook-server-port={webhooks}",
            ]
        case _:
            args = [
                kubeconfig,
                "--metrics-addr=0",
                f"--health-probe-bind-address={HOST}:{health}",
                "--enable-leader-election=false",
            ]
    return [str(operator.binary), *args]


def _configuration(group: str, folder: Path, health: int, webhooks: int) -> Json:
    return {
        "apiVersion": f"config.{group}.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "webhook": {"port": webhooks, "host": HOST, "certDir": str(folder)},
    }


def _health_of(operator: Operator, health: int) -> int:
    """The port on which it answers once it runs. The MPI operator's cannot be chosen."""
    return 8080 if operator.name == "mpi-operator" else health


async def _prepare(plane: ControlPlane, operator: Operator, folder: Path, port: int) -> list[Json]:
    """What has to be there before it starts; its webhooks, with a certificate that the API server can verify."""
    if operator.name == "training-operator":
        await _prepare_training_operator(plane)
        await _write_certificates(_TRAINING_CERTIFICATES)
    if operator.webhooks is None:
        return []
    certificates = await _write_certificates(folder)
    text = (operator.folder / WEBHOOKS).read_text()
    return [_at_url(each, operator, certificates, port) for each in yaml.safe_load_all(text) if each]


async def _write_certificates(folder: Path) -> StoredCertificates:
    """Write a new certificate and its key where an operator reads them."""
    made = renewed(None, dt.datetime.now(dt.UTC), [_NAME])
    where = anyio.Path(folder)
    await where.mkdir(parents=True, exist_ok=True)
    await (where / "tls.crt").write_bytes(made.certificate)
    await (where / "tls.key").write_bytes(made.key)
    return made


def _at_url(hooks: Json, operator: Operator, certificates: StoredCertificates, port: int) -> Json:
    """A webhook configuration of an operator's manifests, with its process in place of its service."""
    named = {**hooks, "metadata": {"name": f"{operator.name}-{hooks['metadata']['name']}"}}
    named["webhooks"] = []
    for hook in hooks["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        client = {"url": f"https://{_NAME}:{port}{path}", "caBundle": base64.b64encode(certificates.ca_bundle).decode()}
        hook = {**hook, "clientConfig": client}
        if any("pods" in rule["resources"] for rule in hook["rules"]):
            hook["objectSelector"] = {"matchExpressions": [{"key": _POD_LABELS[operator.name], "operator": "Exists"}]}
        named["webhooks"].append(hook)
    return named


async def _prepare_training_operator(plane: ControlPlane) -> None:
    """The Training Operator waits for the Secret and the webhook configuration of its manifests."""
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _TRAINING_NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert", "namespace": _TRAINING_NAMESPACE},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": _TRAINING_WEBHOOK},
            "webhooks": [],
        },
    ]
    for each in objects:
        await plane.kubectl("apply", "-f", "-", stdin=json.dumps(each))
