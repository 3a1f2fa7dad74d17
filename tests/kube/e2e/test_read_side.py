"""The read side in a cluster: a caller with a token sees what RBAC allows."""

from typing import Any

import aiohttp
import pytest
from tests.kube.e2e.cells import KUEUE, Deployment
from tests.support.waiting import until

from headgate.processes.runtime.settings import HttpSettings

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


async def ask(session: aiohttp.ClientSession, url: str, token: str | None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.get(url, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_user_of_a_namespace_sees_that_namespace(deployment: Deployment) -> None:
    """By TokenReview and SubjectAccessReview of a real API server; without a token nothing is shown."""
    namespace, other = deployment.fresh("seeing"), deployment.fresh("unseen")
    plane = deployment.plane
    for each in (namespace, other):
        await plane.kubectl("create", "namespace", each)
        queue = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": each}}
        await deployment.apply({**queue, "spec": {"clusterQueue": "absent"}})
    await plane.kubectl("create", "serviceaccount", "dev", "-n", namespace)
    await plane.kubectl(
        "create", "role", "dev", "-n", namespace, "--verb=get,list", "--resource=workloads.kueue.x-k8s.io"
    )
    await plane.kubectl(
        "create", "rolebinding", "dev", "-n", namespace, "--role=dev", f"--serviceaccount={namespace}:dev"
    )
    token = (await plane.kubectl("create", "token", "dev", "-n", namespace)).stdout.strip()
    http = HttpSettings(authentication="kubernetes")
    async with deployment.cell(namespace, http=http) as cell, aiohttp.ClientSession() as session:
        url = cell.runners["snapshotter"].url
        for path in ("/queues", "/state", f"/pending?localQueue={namespace}/lq"):
            assert (await ask(session, url + path, None))[0] == 401
            assert (await ask(session, url + path, "forged"))[0] == 401

        async def sees_it() -> bool:
            return (await ask(session, f"{url}/pending?localQueue={namespace}/lq", token))[0] == 200

        await until(sees_it)  # as soon as the bridge has seen the LocalQueue
        status, body = await ask(session, f"{url}/pending?localQueue={other}/lq", token)
        assert status == 403
        assert f"system:serviceaccount:{namespace}:dev may not list workloads" in body["error"]
        assert (await ask(session, f"{url}/state", token))[0] == 403
        assert (await ask(session, f"{url}/readyz", None))[0] == 200
