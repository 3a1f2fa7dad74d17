"""The fault proxy: what it refuses, before and after the server has received it, and what it cuts."""

from contextlib import asynccontextmanager
from random import Random

import pytest
import yaml

from headgate.adapters.kubernetes.errors import StreamSilent, TransportError
from headgate.adapters.kubernetes.http_transport import TransportSettings, open_transport
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess
from headgate.testing.control_plane.fault_proxy import ProxyFaults, Trouble, fault_proxy

pytestmark = pytest.mark.anyio

STATUS = {
    Trouble.CONFLICT: 409,
    Trouble.CONFLICT_AFTER: 409,
    Trouble.THROTTLED: 429,
    Trouble.THROTTLED_BARE: 429,
    Trouble.UNAVAILABLE: 503,
    Trouble.UNAVAILABLE_AFTER: 503,
    Trouble.RESET: None,
    Trouble.RESET_AFTER: None,
}


@asynccontextmanager
async def proxied(fake, faults=ProxyFaults(), settings=TransportSettings()):  # noqa: B008  (frozen)
    """A transport that reaches the fake server through a proxy, and the proxy."""
    async with (
        fault_proxy(ClusterAccess(server=fake.url), faults, Random(1)) as proxy,
        open_transport(ClusterAccess(server=proxy.url), settings) as transport,
    ):
        yield transport, proxy


@pytest.mark.parametrize("trouble", list(Trouble))
async def test_a_write_meets_each_trouble_before_or_after_it_is_carried_out(fake, trouble):
    """The client sees the same; only the server's state differs. Reads pass."""
    fake.script = [fake.answer(200, {"read": True}), fake.answer(200, {"written": True})]
    async with proxied(fake, ProxyFaults(writes=1.0, troubles=(trouble,))) as (transport, proxy):
        assert (await transport.request("GET", "/a")).body == b'{"read": true}'
        if STATUS[trouble] is None:
            with pytest.raises(TransportError) as broken:
                await transport.request("PUT", "/a", body=b"{}")
            assert broken.value.maybe_applied
        else:
            answer = await transport.request("PUT", "/a", body=b"{}")
            assert answer.status == STATUS[trouble]
            assert ("retry-after" in answer.headers) is (trouble is Trouble.THROTTLED)
        assert proxy.done == {"passed": 1, trouble.value: 1}
    assert [seen.method for seen in fake.seen] == (["GET", "PUT"] if trouble.is_after else ["GET"])


async def test_what_passes_is_not_changed(fake):
    """Method, path, query, body, the credential and the answer."""
    fake.script = [fake.answer(201, {"made": 1}, X_Told="yes")]
    async with proxied(fake) as (transport, _):
        answer = await transport.request(
            "POST",
            "/a%2Fb",
            query={"q": "x y"},
            body=b"{}",
            content_type="application/apply-patch+yaml",
            headers={"Authorization": "Bearer t"},
        )
    assert (answer.status, answer.body, answer.headers["x-told"]) == (201, b'{"made": 1}', "yes")
    (seen,) = fake.seen
    assert (seen.method, seen.path, seen.query, seen.body) == ("POST", "/a%2Fb", {"q": "x y"}, b"{}")
    assert seen.headers["Authorization"] == "Bearer t"
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"


async def test_a_stream_whose_time_is_up_dies_in_the_middle_of_a_line(fake):
    """The beginning of the data arrives, and no end."""
    fake.script = [fake.lines({"a": "whole line"}, end="hang")]
    async with proxied(fake, ProxyFaults(stream_s_mean=1e-9)) as (transport, proxy):
        async with transport.stream("/w", query={"watch": "true"}) as lines:
            with pytest.raises(TransportError):
                await anext(lines)
        assert proxy.done["cut in a line"] == 1


async def test_all_streams_can_be_cut_at_once(fake):
    """The client detects it, and the data before it has arrived."""
    fake.script = [fake.lines({"a": 1}, end="hang")]
    async with proxied(fake) as (transport, proxy):
        async with transport.stream("/w", query={"watch": "true"}) as lines:
            assert await anext(lines) == b'{"a": 1}'
            proxy.cut_all()
            with pytest.raises(TransportError):
                await anext(lines)
        assert proxy.done["cut"] == 1


async def test_a_half_open_proxy_accepts_and_says_nothing(fake):
    """Requests and streams wait for ever; with their own time-outs they notice. Afterwards all is as before."""
    fake.script = [fake.answer(200, {}) for _ in range(3)]
    async with proxied(fake, settings=TransportSettings(request_timeout_s=1.0)) as (transport, proxy):
        async with proxy.half_open():
            with pytest.raises(TransportError):
                await transport.request("GET", "/a")
            with pytest.raises(StreamSilent):
                async with transport.stream("/w", query={"watch": "true"}, read_timeout_s=0.2):
                    pass
        assert (await transport.request("GET", "/b")).status == 200
        assert proxy.done["swallowed"] == 2


async def test_the_kubeconfig_differs_in_the_server_alone(fake, tmp_path):
    """Credentials stay what they are: they pass through."""
    source, target = tmp_path / "source", tmp_path / "target"
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "/ca"}
    users = [{"name": "u", "user": {"token": "t"}}]
    source.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": cluster}], "users": users}))
    async with fault_proxy(ClusterAccess(server=fake.url), ProxyFaults(), Random(1)) as proxy:
        proxy.write_kubeconfig(source, target)
        written = yaml.safe_load(target.read_text())
        assert written == {"clusters": [{"name": "c", "cluster": {"server": proxy.url}}], "users": users}
