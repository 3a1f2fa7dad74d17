"""AdmissionReviews answered: when owners are looked up, and how far."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.doors import Answering

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.core.admission.rules import Params
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.webhook.admission import AdmissionHandlers

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
JOB_SET = "jobset.x-k8s.io/v1alpha2"


class Facts:
    """A cluster without queues called `default`."""

    def default_of(self, kind: Params, namespace: str) -> Json | None:
        return None

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return {}


class Owners(Answering):
    """An API server with these owners, that counts the reads."""

    def __init__(self, *owners: Json) -> None:
        self.owners = {each["metadata"]["name"]: each for each in owners}
        self.reads: list[str] = []

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Json]:
        name = path.rpartition("/")[2]
        self.reads.append(name)
        found = self.owners.get(name)
        missing = {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound", "details": {"name": name}}
        return (200, found) if found else (404, missing)


def owned(name: str, by: str = "", **labels: str) -> Json:
    """An object, and the JobSet that controls it."""
    metadata: Json = {"name": name, "uid": name, "labels": labels}
    if by:
        metadata["ownerReferences"] = [
            {"apiVersion": JOB_SET, "kind": "JobSet", "name": by, "uid": by, "controller": True}
        ]
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}


async def answered(server: Owners, job: Json, *frameworks: str, before: Json | None = None) -> Json:
    """The answer of the defaults to a new Job, or with `before` to a changed one."""
    client = KubeClient(InProcessTransport(server))
    settings = AdmissionSettings(frameworks=("batch/job", *frameworks))
    handlers = AdmissionHandlers(settings, Facts(), client).handlers()
    request = {"uid": "1", "operation": "UPDATE" if before else "CREATE", "namespace": "a", "object": job}
    answer = handlers["/mutate-batch-v1-job"]({"request": {**request, "oldObject": before}})
    assert not isinstance(answer, dict)
    response: Json = (await answer)["response"]
    return response


async def test_owners_are_not_read_where_nothing_depends_on_them() -> None:
    """A Job without a queue is left as it is, whoever owns it."""
    server = Owners(owned("above", **QUEUE))
    assert (await answered(server, owned("j", "above"), "jobset.x-k8s.io/jobset"))["allowed"]
    assert server.reads == []


async def test_the_first_owner_that_is_managed_ends_the_search() -> None:
    """The Job is run by it, and not suspended."""
    server = Owners(owned("above", "top", **QUEUE), owned("top", **QUEUE))
    response = await answered(server, owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert (response["allowed"], "patch" in response, server.reads) == (True, False, ["above"])


async def test_an_owner_without_a_queue_is_followed_to_its_own() -> None:
    """The Job is suspended if none of them is managed."""
    server = Owners(owned("above", "top"), owned("top"))
    response = await answered(server, owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert ("patch" in response, server.reads) == (True, ["above", "top"])


async def test_an_owner_of_a_kind_that_is_not_enabled_manages_nothing() -> None:
    """Though it names a queue: its Job is one of its own, as for Kueue."""
    server = Owners(owned("above", **QUEUE))
    assert "patch" in await answered(server, owned("j", "above", **QUEUE))


async def test_an_owner_that_cannot_be_read_refuses_the_object() -> None:
    """It might be one that has to wait; so do owners that own each other."""
    response = await answered(Owners(), owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert (response["allowed"], "its owner JobSet above cannot be read" in response["status"]["message"]) == (
        False,
        True,
    )
    server = Owners(owned("above", "top"), owned("top", "above"))
    response = await answered(server, owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert (response["allowed"], "without end" in response["status"]["message"]) == (False, True)


async def test_the_owner_of_an_object_that_was_there_before_may_be_gone() -> None:
    """The object can be changed: somebody has to take its finalizers off."""
    job = owned("j", "above", **QUEUE)
    assert (await answered(Owners(), job, "jobset.x-k8s.io/jobset", before=job))["allowed"]
