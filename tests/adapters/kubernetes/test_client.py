"""The verbs of the API: what they send, and what they make of the answer."""

import json

import pytest

from headgate.adapters.kubernetes.client import AnswerUndecodableError, KubeClient, PatchType, Propagation
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import NODES, PODS, WORKLOADS
from headgate.adapters.kubernetes.retry import RateLimiter

pytestmark = pytest.mark.anyio


async def test_lists_and_watches_begin_no_faster_than_the_limiter_lets_them(fake, transport, sleeps, make):
    """Beyond the burst each page, and each stream, is put off by one more interval."""
    fake.script = [
        fake.answer(200, make.page(make.pod("a", 1), version=5, token="t")),
        fake.answer(200, make.page(make.pod("b", 2), version=5)),
        fake.lines({"a": 1}),
    ]
    limiter = RateLimiter(qps=10, burst=1, clock=lambda: 0.0, sleep=sleeps)
    client = KubeClient(transport, limiter)
    assert len((await client.list(PODS)).items) == 2
    async with client.stream("/w", query={"watch": "true"}, read_timeout_s=None) as lines:
        assert [line async for line in lines] == [b'{"a": 1}']
    assert sleeps == pytest.approx([0.1, 0.2])


@pytest.fixture
def client(transport):
    return KubeClient(transport)


async def test_a_list_joins_its_pages(fake, client, make):
    """Every page is requested with the token of the one before, the same limit and the same selectors."""
    fake.script = [
        fake.answer(200, make.page(make.pod("a", 1), make.pod("b", 2), version=9, token="t/1")),
        fake.answer(200, make.page(version=9)),
    ]
    page = await client.list(PODS, "team-a", label_selector="x=y", limit=2)
    assert [json.loads(bytes(item))["metadata"]["name"] for item in page.items] == ["a", "b"]
    assert (page.resource_version, page.continue_token) == ("9", "")
    assert [seen.query for seen in fake.seen] == [
        {"labelSelector": "x=y", "limit": "2"},
        {"labelSelector": "x=y", "limit": "2", "continue": "t/1"},
    ]
    assert fake.seen[0].path == "/api/v1/namespaces/team-a/pods"


async def test_an_answer_that_is_no_list_is_said_to_be_none(fake, client):
    """A proxy's welcome page with status 200 is not an empty cluster."""
    fake.script = [fake.answer(200, b"<html>")]
    with pytest.raises(AnswerUndecodableError, match="/api/v1/nodes"):
        await client.list(NODES)


@pytest.mark.parametrize(
    ("patch_type", "content_type"),
    [
        (PatchType.MERGE, "application/merge-patch+json"),
        (PatchType.JSON, "application/json-patch+json"),
        (PatchType.APPLY, "application/apply-patch+yaml"),
    ],
)
async def test_each_patch_type_has_its_content_type(fake, client, patch_type, content_type):
    """The server distinguishes patches by their content type alone."""
    fake.script = [fake.answer(200, {})]
    await client.patch(
        WORKLOADS, "w", {"status": {}}, "a", patch_type=patch_type, subresource="status", field_manager="headgate"
    )
    [seen] = fake.seen
    assert seen.headers["Content-Type"] == content_type
    assert seen.path.endswith("/workloads/w/status")
    assert seen.query == {"fieldManager": "headgate"}
    assert json.loads(seen.body) == {"status": {}}


async def test_patches_that_the_server_would_misread_are_refused(client):
    """An apply without an owner, and a forced patch that is no apply."""
    with pytest.raises(ValueError, match="field manager"):
        await client.patch(NODES, "n", {}, patch_type=PatchType.APPLY)
    with pytest.raises(ValueError, match="forced"):
        await client.patch(NODES, "n", {}, force=True)


async def test_create_and_update_return_what_is_stored(fake, client):
    """Bytes go out as they are, anything else as JSON, and the stored object comes back."""
    fake.script = [fake.answer(201, {"a": 1}), fake.answer(200, {"a": 2}), fake.answer(200, {"a": 3})]
    assert json.loads(await client.create(PODS, b'{"raw":1}', "a")) == {"a": 1}
    assert json.loads(await client.update(PODS, "p", {"b": 1}, "a", subresource="status")) == {"a": 2}
    assert json.loads(await client.get(PODS, "p", "a")) == {"a": 3}
    assert [(seen.method, seen.body) for seen in fake.seen] == [
        ("POST", b'{"raw":1}'),
        ("PUT", b'{"b":1}'),
        ("GET", b""),
    ]


async def test_delete_sends_only_the_options_that_are_given(fake, client):
    """Preconditions keep a delete from hitting an object of the same name that came later."""
    fake.script = [fake.answer(200, {}), fake.answer(200, {})]
    await client.delete(NODES, "n")
    await client.delete(PODS, "p", "a", uid="u", propagation=Propagation.FOREGROUND, grace_period_s=0)
    assert fake.seen[0].body == b""
    assert json.loads(fake.seen[1].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


async def test_binding_and_eviction_name_the_pod_they_mean(fake, client):
    """Both carry the pod's uid, so that a pod of the same name is left alone."""
    fake.script = [fake.answer(201, {"kind": "Status"}), fake.answer(201, {"kind": "Status"})]
    await client.bind("p", "a", "n1", uid="u")
    await client.evict("p", "a", uid="u", grace_period_s=5)
    binding, eviction = (json.loads(seen.body) for seen in fake.seen)
    assert binding["metadata"] == {"name": "p", "namespace": "a", "uid": "u"}
    assert binding["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert eviction["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert eviction["deleteOptions"]["gracePeriodSeconds"] == 5
    assert [seen.path.rsplit("/", 1)[1] for seen in fake.seen] == ["binding", "eviction"]


async def test_a_refusal_is_an_error_that_names_the_request(fake, client):
    """The log line has the request and the reason of the refusal."""
    fake.script = [fake.status(409, "Conflict")]
    with pytest.raises(ApiError, match="409 Conflict to PUT /api/v1/nodes/n: no") as caught:
        await client.update(NODES, "n", {})
    assert caught.value.is_conflict
