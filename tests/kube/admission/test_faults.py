"""What users see while the webhook is down, and that it recovers; and two replicas at once."""

import sys
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
from tests.kube.admission.servers import BARE, JOB_SPEC, NAMESPACE, SECRET, is_effective, prepare, with_webhook
from tests.support.admission_cases import PLAIN
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.server_resources import SECRETS
from headgate.processes.webhook.installing import RESOURCES
from headgate.testing.control_plane import Assets, control_plane

pytestmark = [pytest.mark.kube, pytest.mark.anyio]

JOBS = "/apis/batch/v1/namespaces/{}/jobs"


def job(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": JOB_SPEC}


async def test_no_job_passes_while_the_webhook_is_down(
    assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A Job is refused with a clear error, others' namespaces are not; when it is back, Jobs wait in their queue."""
    folder = tmp_path_factory.mktemp("faults")
    async with control_plane(assets, folder, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        await prepare(client)
        async with with_webhook(plane, client):
            await until(partial(is_effective, client))
            before = msgspec.json.decode(await client.get(SECRETS, SECRET, NAMESPACE))
        with pytest.raises(ApiError) as caught:
            await client.request("POST", JOBS.format(PLAIN), body=job("down"))
        assert 'failed calling webhook "mjob.kb.io"' in caught.value.message
        await client.request("POST", JOBS.format("kube-system"), body=job("system"))
        async with with_webhook(plane, client), with_webhook(plane, client):
            await until(partial(is_effective, client))
            made = msgspec.json.decode(await client.request("POST", JOBS.format(PLAIN), body=job("again")))
            assert made["spec"]["suspend"]
            after = msgspec.json.decode(await client.get(SECRETS, SECRET, NAMESPACE))
        assert after["data"] == before["data"]


async def test_replicas_that_start_at_once_share_a_certificate(
    assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One of them makes it; the API server accepts the other one, too."""
    folder = tmp_path_factory.mktemp("replicas")
    async with control_plane(assets, folder, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        await prepare(client)
        expiries = set()

        async def run() -> None:
            async with with_webhook(plane, client) as server:
                await until(partial(is_effective, client))
                expiries.add(server.certificates.expires)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(run)
        assert len(expiries) == 1


async def test_the_command_changes_the_way(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is not wanted any more is removed; a dry run removes nothing; what others made stays."""
    folder = tmp_path_factory.mktemp("command")
    async with control_plane(assets, folder, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        await prepare(client)

        async def headgate(*way: str) -> None:
            arguments = ("crds", "install", "--admission", *way, "--kubeconfig", str(plane.kubeconfig))
            await anyio.run_process([sys.executable, "-m", "headgate.cli.main", *arguments])

        async def count() -> tuple[int, ...]:
            return tuple([len((await client.list(each)).items) for each in RESOURCES])

        await headgate("webhook")
        assert await count() == (1, 1, 0, 0, 0, 0)
        await headgate("policy", "--dry-run")
        assert await count() == (1, 1, 0, 0, 0, 0)
        await headgate("policy")
        webhooks, policies = (await count())[:2], (await count())[2:]
        assert webhooks == (0, 0)
        assert policies[0] == policies[1] > 0
        assert policies[2] == policies[3] > 0
        await headgate("off")
        assert await count() == (0, 0, 0, 0, 0, 0)
