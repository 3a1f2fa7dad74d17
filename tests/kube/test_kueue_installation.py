"""`headgate takeover` and `headgate handback` with Kueue's manifests on a real API server, cut off after any write."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread
import msgspec
import pytest
from tests.support.cutting_off import cut_off_after

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kueue_installation import (
    REGISTERED,
    Installation,
    Registration,
    find_installation,
    recorded,
)
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS
from headgate.cli.main import run
from headgate.testing.control_plane import Assets, ControlPlane, Options, control_plane
from headgate.testing.control_plane.kueue_manager import DEPLOYMENT, NAMESPACE, install_kueue
from headgate.testing.control_plane.kueue_programs import MANAGER, find_program

pytestmark = [pytest.mark.kube, pytest.mark.anyio, pytest.mark.operators]

Json = dict[str, Any]
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"


class Installed(NamedTuple):
    """Kueue's manifests on a control plane; its controller does not run."""

    plane: ControlPlane
    client: KubeClient
    before: Installation

    async def headgate(self, *args: str) -> int:
        return await anyio.to_thread.run_sync(run, [*args, "--kubeconfig", str(self.plane.kubeconfig)])

    async def until_done(self, patched: pytest.MonkeyPatch, *args: str) -> int:
        """Run a command again and again, cut off after one more write each time; how often it was cut off."""
        cut = 0
        while True:
            with patched.context() as each:
                cut_off_after(each, cut + 1)
                if await self.headgate(*args) == 0:
                    return cut
            cut += 1


@pytest.fixture
async def installed(anyio_backend: str, assets: Assets, tmp_path: Path) -> AsyncIterator[Installed]:
    """Everything of Kueue but the controller itself."""
    find_program(MANAGER)
    options = Options(controllers=False, kwok=False, nodes=0)
    async with control_plane(assets, tmp_path / "plane", options=options) as plane:
        kueue = await install_kueue(plane, tmp_path / "kueue")
        items = {"apiVersion": "v1", "kind": "List", "items": kueue.api_services}
        await plane.kubectl("apply", "--server-side", "-f", "-", stdin=msgspec.json.encode(items).decode())
        async with open_transport(plane.access()) as transport:
            client = KubeClient(transport)
            yield Installed(plane, client, await find_installation(client))


def shown(each: Registration) -> tuple[str, Json, list[Any]]:
    """An object, and who owns its fields."""
    owners = sorted((owner["manager"], owner["operation"], str(owner.get("fieldsV1"))) for owner in each.owners)
    return each.key, each.body, owners


async def scale(installed: Installed, replicas: int) -> None:
    await installed.plane.kubectl("-n", NAMESPACE, "scale", "deployment", DEPLOYMENT, f"--replicas={replicas}")


async def test_both_ways_can_be_cut_off_after_any_write(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end everything is as it was, with its former owners, and nothing of Headgate is left."""
    assert {each.kind for each in installed.before.registrations} == {
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "APIService",
        "CustomResourceDefinition",
    }
    assert installed.before.namespace == NAMESPACE
    await scale(installed, 0)
    assert await installed.until_done(monkeypatch, "takeover") > 3
    assert (await find_installation(installed.client)).registrations == ()
    kept = await recorded(installed.client)
    assert kept is not None
    before = {each.key: shown(each) for each in installed.before.registrations}
    assert {each.key: shown(each) for each in kept.registrations} == before
    assert await installed.until_done(monkeypatch, "handback") > 3
    after = await find_installation(installed.client)
    assert {each.key: shown(each) for each in after.registrations} == before
    assert await recorded(installed.client) is None
    for resource in (*REGISTERED, CUSTOM_RESOURCE_DEFINITIONS):
        for raw in (await installed.client.list(resource)).items:
            managers = {each["manager"] for each in msgspec.json.decode(raw)["metadata"]["managedFields"]}
            assert not any(each.startswith("headgate") for each in managers), resource.kind


async def test_a_kueue_that_runs_is_left_alone(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Deployment has replicas, or somebody renews its Lease; the message has the command that stops it."""
    await scale(installed, 1)
    assert await installed.headgate("takeover") == 1
    assert f"kubectl -n {NAMESPACE} scale deployment {DEPLOYMENT} --replicas=0" in capsys.readouterr().err
    await scale(installed, 0)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "vm", "leaseDurationSeconds": 3600, "renewTime": "2100-01-01T00:00:00.000000Z"},
    }
    await installed.plane.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(lease).decode())
    assert await installed.headgate("takeover") == 1
    assert "vm has renewed the Lease" in capsys.readouterr().err
    assert await find_installation(installed.client) == installed.before


async def test_objects_that_only_kueue_could_read_keep_their_conversion(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a webhook nobody converts: what may be stored in v1beta1 has to be migrated first."""
    await scale(installed, 0)
    found = msgspec.json.decode(await installed.client.get(CUSTOM_RESOURCE_DEFINITIONS, CLUSTER_QUEUES))
    found["status"]["storedVersions"] = ["v1beta1", "v1beta2"]
    await installed.client.update(CUSTOM_RESOURCE_DEFINITIONS, CLUSTER_QUEUES, found, subresource="status")
    assert await installed.headgate("takeover", "--admission", "off", "--conversion", "none") == 1
    error = capsys.readouterr().err
    assert CLUSTER_QUEUES in error
    assert "headgate crds migrate" in error
    assert await recorded(installed.client) is None
    assert await installed.headgate("takeover", "--admission", "off", "--dry-run") == 0
    assert await find_installation(installed.client) == installed.before


async def test_without_a_record_only_headgate_is_removed(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has removed Kueue's webhooks by hand is told what to do; what is in quarantine is released."""
    await installed.plane.kubectl("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f", "annotations": {"headgate.dev/retry": "1", "theirs": "2"}},
    }
    await installed.plane.kubectl("apply", "--server-side", "-f", "-", stdin=msgspec.json.encode(flavor).decode())
    assert await installed.headgate("handback") == 1
    out, error = capsys.readouterr()
    assert "no takeover is recorded" in error
    assert "resourceflavor/f cleaned" in out + error
    path = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/f"
    kept = msgspec.json.decode(await installed.client.request("GET", path))
    assert kept["metadata"]["annotations"] == {"theirs": "2"}
