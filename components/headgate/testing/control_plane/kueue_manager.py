"""
Kueue itself on a control plane: its manifests as `kubectl apply -k config/default` installs them, and its manager.

    kueue = await install_kueue(plane, folder)
    await kueue.start()
    ...
    await kueue.stop()

The manager is a process on this machine. Its Services are of the type ExternalName, so that the API server reaches its
webhooks there, and its certificate, which it keeps in a Secret, is written where a kubelet would mount it. Everything
else is as in a cluster: definitions with conversion webhook, webhook configurations with the bundles that Kueue writes
into them, leader election, finalizers.

Called by tests marked `kube` which change from Kueue to Headgate and back.
"""

import base64
import json
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import yaml

from headgate.testing.control_plane.component import Component
from headgate.testing.control_plane.flags import HOST
from headgate.testing.control_plane.kueue_programs import MANAGER, find_manifests, find_program
from headgate.testing.control_plane.plane import ControlPlane
from headgate.testing.control_plane.ports import free_ports

NAMESPACE: Final = "kueue-system"
DEPLOYMENT: Final = "kueue-controller-manager"
FRAMEWORKS: Final = ("batch/job", "pod", "jobset.x-k8s.io/jobset")

_WEBHOOKS: Final = "kueue-webhook-service"
_SECRET: Final = "kueue-webhook-server-cert"  # noqa: S105 - a name
_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.1

Json = dict[str, Any]


class Kueue:
    """Kueue's manager, which can be started and stopped as its Deployment is scaled. Made by `install_kueue`."""

    def __init__(self, plane: ControlPlane, folder: Path, manifests: list[Json]) -> None:
        self.api_services = [each for each in manifests if each["kind"] == "APIService"]
        """The APIServices of its manifests. They are not installed: the visibility server has a fixed port."""
        self._plane = plane
        self._certificates = folder / "certificates"
        self._manifests = [each for each in manifests if each["kind"] != "APIService"]
        args = [
            str(find_program(MANAGER)),
            f"--kubeconfig={plane.kubeconfig}",
            f"--config={folder / 'configuration.json'}",
            "--feature-gates=VisibilityOnDemand=false",
            "--zap-log-level=2",
        ]
        self.log_file = folder / "kueue.log"
        self._process = Component(MANAGER, args, self.log_file, self._is_ready)

    async def apply_manifests(self) -> None:
        """As `kubectl apply --server-side` does. Raises ControlPlaneError, also for fields that others own."""
        items = {"apiVersion": "v1", "kind": "List", "items": self._manifests}
        await self._plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(items))

    async def start(self) -> None:
        """Scale its Deployment to one and start the manager; returns when it leads and its webhooks answer."""
        await self._plane.kubectl("-n", NAMESPACE, "scale", "deployment", DEPLOYMENT, "--replicas=1")
        await anyio.Path(self.log_file).write_text("")
        self._process.launch()
        await self._process.wait_ready()

    async def stop(self) -> None:
        """Scale its Deployment to zero, and end the manager as a kubelet does."""
        await self._plane.kubectl("-n", NAMESPACE, "scale", "deployment", DEPLOYMENT, "--replicas=0")
        await self._process.stop()

    async def _is_ready(self) -> bool:
        await self._mount()
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "ready"}}
        answered = await self._plane.kubectl(
            "create", "--dry-run=server", "-f", "-", stdin=json.dumps(flavor), check=False
        )
        log = await anyio.Path(self.log_file).read_text(errors="replace")
        leads = "successfully acquired lease" in log.lower() and "Starting workers" in log
        return answered.returncode == 0 and leads

    async def _mount(self) -> None:
        """Write the Secret of its certificate as a kubelet mounts it."""
        found = await self._plane.kubectl("-n", NAMESPACE, "get", "secret", _SECRET, "-o", "json", check=False)
        if found.returncode != 0:
            return
        folder = anyio.Path(self._certificates)
        await folder.mkdir(parents=True, exist_ok=True)
        for name, value in (msgspec.json.decode(found.stdout).get("data") or {}).items():
            await (folder / name).write_bytes(base64.b64decode(value))


async def install_kueue(plane: ControlPlane, folder: Path, **configuration: Any) -> Kueue:
    """
    Install Kueue's manifests; the manager does not run yet. `configuration` are further fields of its Configuration.

    Raises NoAssetsError when Kueue is not built.
    """
    find_program(MANAGER)
    webhooks, health = free_ports(2)
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    rendered = (await plane.kubectl("kustomize", str(find_manifests() / "default"))).stdout
    manifests = [_reachable(each, webhooks) for each in yaml.safe_load_all(rendered) if each]
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": webhooks, "certDir": str(folder / "certificates")},
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "c1f6bfd2.kueue.x-k8s.io",
            "resourceNamespace": NAMESPACE,
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": list(FRAMEWORKS)},
        **configuration,
    }
    await anyio.Path(folder / "configuration.json").write_text(json.dumps(settings))
    kueue = Kueue(plane, folder, manifests)
    await kueue.apply_manifests()
    return kueue


def _reachable(each: Json, port: int) -> Json:
    """An object of the manifests, with the webhooks of the manager where it listens on this machine."""
    match each["kind"]:
        case "Service" if each["metadata"]["name"] == _WEBHOOKS:
            return {**each, "spec": {"type": "ExternalName", "externalName": HOST}}
        case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            for hook in each["webhooks"]:
                hook["clientConfig"]["service"]["port"] = port
        case "CustomResourceDefinition":
            client = (each["spec"].get("conversion") or {}).get("webhook", {}).get("clientConfig")
            if client is not None:
                client["service"]["port"] = port
        case "Deployment":
            del each["spec"]["replicas"]  # it is scaled
        case _:
            pass
    return each
