"""
The table of `tests/core/admission/cases.yaml` on real API servers: one asks our webhook, one has our policies.

Both must give the answer of the table, and so the same one.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.kube.admission.servers import (
    BARE,
    JOB_SPEC,
    RESOURCES,
    is_effective,
    prepare,
    runtime,
    wanted,
    with_webhook,
)
from tests.kube.policies import in_effect
from tests.support.admission_cases import PLAIN, Case, cases, field_of, found_at
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import TRAINING_RUNTIMES
from headgate.processes.webhook.installing import Way
from headgate.processes.webhook.process import WebhookServer
from headgate.testing.control_plane import Assets, control_plane

pytestmark = [pytest.mark.kube, pytest.mark.anyio]

Json = dict[str, Any]


class Answer(NamedTuple):
    """What became of a case: the fields of the refusal, or none and the object; `by_rules`: our rules refused it."""

    fields: tuple[str, ...]
    by_rules: bool
    object: Json
    text: str


class Server(NamedTuple):
    """An API server with one of the two ways."""

    client: KubeClient
    webhook: WebhookServer | None


@pytest.fixture(scope="module")
async def servers(
    anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[Way, Server]]:
    """Two API servers, one of each way."""
    async with AsyncExitStack() as stack:
        made = {}
        for way in (Way.WEBHOOK, Way.POLICY):
            folder = tmp_path_factory.mktemp(way.value)
            plane = await stack.enter_async_context(control_plane(assets, folder, options=BARE))
            client = KubeClient(await stack.enter_async_context(open_transport(plane.access())))
            await prepare(client)
            server = None
            if way is Way.WEBHOOK:
                server = await stack.enter_async_context(with_webhook(plane, client))
                await until(partial(is_effective, client))
            else:
                await stack.enter_async_context(in_effect(client, wanted(way), *RESOURCES.values()))
            made[way] = Server(client, server)
        yield made


async def answer(client: KubeClient, case: Case) -> Answer:
    """Carry out the steps of a case up to the first refusal."""
    resource = RESOURCES[case.kind]
    namespace = case.namespace if resource.namespaced else None
    name = case.object["metadata"]["name"]
    try:
        found = msgspec.json.decode(await client.create(resource, case.object, namespace))
        for subresource, patch in case.steps:
            raw = await client.patch(resource, name, patch, namespace, subresource=subresource or None)
            found = msgspec.json.decode(raw)
    except ApiError as error:
        return refusal(error)
    return Answer((), False, found, "")


def refusal(error: ApiError) -> Answer:
    """The fields of a refusal: causes, or in the message of a policy what comes before the error."""
    by_policy = error.message.rpartition("denied request: ")[2] if "denied request: " in error.message else ""
    fields = (by_policy.partition(": ")[0],) if by_policy else tuple(each.field for each in error.causes)
    return Answer(tuple(map(field_of, fields)), error.status == 403, {}, error.message)


@pytest.mark.parametrize("way", [Way.WEBHOOK, Way.POLICY])
@pytest.mark.parametrize("case", cases(), ids=str)
async def test_a_case_is_answered_as_kueue_answers_it(servers: dict[Way, Server], case: Case, way: Way) -> None:
    """Allowed, refused with this field, or changed like this: over the webhook as by the policies."""
    if case.by == "policy" and way is Way.WEBHOOK:
        pytest.skip("the webhook looks the owner up, and there is none")
    found = await answer(servers[way].client, case)
    if not case.refused or (case.by == "webhook" and way is Way.POLICY):
        assert found.text == ""
    else:
        assert field_of(case.refused) in found.fields, found.text
        assert found.by_rules is (case.by != "schema"), found.text
    for path, value in case.defaulted.items():
        assert in_any_order(found_at(found.object, path)) == in_any_order(value)


def in_any_order(value: Any) -> Any:
    """Policies are called in an order of their own, so what several of them add to a list is in any order."""
    return sorted(value, key=str) if isinstance(value, list) else value


@pytest.mark.parametrize("parent_waits", [True, False])
async def test_a_job_of_a_managed_parent_is_left_alone(servers: dict[Way, Server], parent_waits: bool) -> None:
    """The webhook looks the owner up: only if that names a queue, the Job that it makes does not wait itself."""
    client = servers[Way.WEBHOOK].client
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    name = f"parent-{parent_waits}".lower()
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    parent = {**kind, "metadata": {"name": name, "labels": labels if parent_waits else {}}, "spec": {}}
    made = msgspec.json.decode(await client.create(RESOURCES["JobSet"], parent, PLAIN))
    owner = {**kind, "name": name, "uid": made["metadata"]["uid"], "controller": True}
    job = {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": JOB_SPEC}
    found = msgspec.json.decode(await client.request("POST", f"/apis/batch/v1/namespaces/{PLAIN}/jobs", body=job))
    assert found["spec"]["suspend"] is not parent_waits


async def test_a_job_whose_owner_is_gone_is_refused(servers: dict[Way, Server]) -> None:
    """If it names a queue: it might have to wait for the owner."""
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    owner = {**kind, "name": "gone", "uid": "u", "controller": True}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    job = {"metadata": {"name": "orphan", "labels": labels, "ownerReferences": [owner]}, "spec": JOB_SPEC}
    with pytest.raises(ApiError) as caught:
        await servers[Way.WEBHOOK].client.request("POST", f"/apis/batch/v1/namespaces/{PLAIN}/jobs", body=job)
    assert "its owner JobSet gone cannot be read" in caught.value.message


async def test_a_job_whose_owner_has_gone_since_may_be_changed(servers: dict[Way, Server]) -> None:
    """Finalizers come off what a deleted owner leaves behind, as off the pods of a Job."""
    client = servers[Way.WEBHOOK].client
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    made = msgspec.json.decode(
        await client.create(RESOURCES["JobSet"], {**kind, "metadata": {"name": "brief"}, "spec": {}}, PLAIN)
    )
    owner = {**kind, "name": "brief", "uid": made["metadata"]["uid"], "controller": True}
    meta = {"name": "left", "ownerReferences": [owner], "finalizers": ["example.com/mine"]}
    path = f"/apis/batch/v1/namespaces/{PLAIN}/jobs"
    await client.request("POST", path, body={"metadata": meta, "spec": JOB_SPEC})
    await client.delete(RESOURCES["JobSet"], "brief", PLAIN)
    raw = await client.patch(RESOURCES["Job"], "left", {"metadata": {"finalizers": None}}, PLAIN)
    assert "finalizers" not in msgspec.json.decode(raw)["metadata"]


def train_job(name: str, of: str, kind: str = "TrainingRuntime") -> Json:
    meta = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    ref = {"name": of, "kind": kind}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": meta,
        "spec": {"runtimeRef": ref},
    }


async def test_a_train_job_is_refused_for_what_its_runtime_asks_of_topology(servers: dict[Way, Server]) -> None:
    """By the webhook, which reads the runtime; one that is not there refuses it too, and policies allow both."""
    wrong = {"slice_required_topology": "rack", "slice_size": "3"}
    for way, server in servers.items():
        client = server.client
        await client.create(TRAINING_RUNTIMES, runtime("sliced", "TrainingRuntime", **wrong), PLAIN)
        for name, of, said in (
            ("large", "sliced", "job[node].annotations[kueue.x-k8s.io/podset-slice-size]: Invalid value"),
            ("lost", "nowhere", "runtime 'nowhere' not found"),
        ):
            if way is Way.POLICY:
                await client.create(RESOURCES["TrainJob"], train_job(name, of), PLAIN)
                continue
            with pytest.raises(ApiError) as caught:
                await client.create(RESOURCES["TrainJob"], train_job(name, of), PLAIN)
            assert said in caught.value.message
    await servers[Way.WEBHOOK].client.create(
        RESOURCES["TrainJob"], train_job("fine", "r", "ClusterTrainingRuntime"), PLAIN
    )
