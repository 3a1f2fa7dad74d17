"""Calls of extenders, against a real HTTP and HTTPS server: what is sent, how TLS is set up, and honest errors."""

import asyncio
import base64
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from aiohttp import web
from tests.support.pki import make_certificate, make_server_and_client

from headgate.adapters import extenders as client_module
from headgate.adapters.extenders import ExtenderClient
from headgate.core.config.fields import ConfigurationError
from headgate.core.machine.contract import AskExtender
from headgate.core.placement.configuration.types import Extender, ExtenderTls
from headgate.core.placement.extenders.answers import read_answer
from headgate.core.placement.extenders.requests import ExtenderAsk
from headgate.core.state.attribution import ObjectFailedError
from headgate.events.extenders import ExtenderFailed
from headgate.events.ids import PodKey

pytestmark = pytest.mark.anyio
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Served:
    """A server that answers by path, and remembers what it was sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.peers: set[Any] = set()
        """The ports that calls have come from: one for each connection."""
        self.url = ""
        self.held = anyio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.requests.append((request.method, request.path, dict(request.headers), await request.json()))
        match request.path.rpartition("/")[2]:
            case "echo":
                return web.json_response(await request.json())
            case "busy":
                return web.Response(status=503, text="busy")
            case "silent":
                await self.held.wait()
                return web.Response()
            case "moved":
                return web.Response(status=307, headers={"Location": f"{self.url}/echo"})
            case "cut":
                request.transport.close()
                return web.Response()
            case "peer":
                peer = request.transport.get_extra_info("peercert")
                return web.json_response(dict(pair[0] for pair in peer["subject"]) if peer else None)
            case _:
                return web.Response(body=b"x" * 100_000)


async def serve(context: ssl.SSLContext | None = None):
    served = Served()
    runner = web.ServerRunner(web.Server(served.handle), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    served.url = f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    served.held.set()
    await runner.cleanup()


@pytest.fixture
async def server(anyio_backend):
    async for served in serve():
        yield served


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """An authority, a server certificate for `extender.test` (not 127.0.0.1), and a client certificate."""
    home = tmp_path_factory.mktemp("pki")
    make_server_and_client(home, "extender.test", "scheduler")
    return home


@pytest.fixture
async def secure(pki, anyio_backend):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    async for served in serve(context):
        yield served


async def call(extender: Extender, path: str = "", body: Any = None) -> tuple[int, bytes]:
    client = ExtenderClient([extender])
    try:
        ask = AskExtender(
            id="1",
            pod=PodKey("ns/p"),
            extender=extender.url_prefix,
            path=path or extender.filter_verb,
            body={} if body is None else body,
        )
        completed = await client.ask(ask)
        assert completed.call_id == "1"
        return completed.status, completed.body
    finally:
        await client.aclose()


async def test_a_call_is_a_post_of_json(server):
    """To the prefix and the verb, with one slash between them."""
    body = {"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["n1", "n2"]}
    answer = await call(Extender(url_prefix=f"{server.url}/api//", filter_verb="echo"), body=body)
    assert (answer[0], json.loads(answer[1])) == (200, body)
    method, path, headers, sent = server.requests[0]
    assert (method, path, headers["Content-Type"], sent) == ("POST", "/api/echo", "application/json", body)


async def test_a_status_is_returned_without_a_body(server):
    """What it means is for who reads the answer."""
    assert await call(Extender(url_prefix=server.url, filter_verb="busy")) == (503, b"")


async def test_a_redirect_is_followed(server):
    """As Go's client does: 307 sends the body again."""
    answer = await call(Extender(url_prefix=server.url, filter_verb="moved"), body={"a": 1})
    assert answer == (200, b'{"a": 1}')


async def test_an_extender_that_does_not_answer_in_time(server):
    """The call ends after `httpTimeout`, once, and says so; the answer that is read names the extender."""
    extender = Extender(url_prefix=server.url, filter_verb="silent", http_timeout="50ms")
    status, why = await call(extender)
    assert (status, why.decode()) == (0, f'Post "{server.url}/silent": no answer within 50 ms (httpTimeout)')
    assert len(server.requests) == 1
    read = read_answer(ExtenderAsk(server.url, "filter", "silent", "", {"NodeNames": None}), status, why)
    assert read == ExtenderFailed(error=why.decode())


async def test_a_connection_that_breaks_is_not_tried_again(server):
    """The extender may have acted on the call."""
    status, why = await call(Extender(url_prefix=server.url, filter_verb="cut"))
    assert status == 0
    assert why.decode().startswith(f'Post "{server.url}/cut": ')
    assert len(server.requests) == 1


async def test_an_extender_that_is_not_there():
    """Its URL and the reason, without the password that the URL has."""
    status, why = await call(Extender(url_prefix="http://user:secret@127.0.0.1:1", filter_verb="f"))
    assert status == 0
    assert why.decode().startswith('Post "http://127.0.0.1:1/f": ')
    assert b"secret" not in why


async def test_an_answer_without_end_is_cut(server, monkeypatch):
    """Memory is bounded, whatever an extender sends."""
    monkeypatch.setattr(client_module, "RESPONSE_BYTES_MAX", 10_000)
    status, why = await call(Extender(url_prefix=server.url, filter_verb="large"))
    assert (status, why.decode()) == (0, f'Post "{server.url}/large": the answer has more than 10000 bytes')


async def test_a_call_of_an_extender_that_is_not_configured():
    """A log of another configuration does not end the process."""
    client = ExtenderClient([])
    completed = await client.ask(AskExtender(id="1", pod=PodKey("ns/p"), extender="http://gone", path="f", body={}))
    assert (completed.status, b"http://gone" in completed.body) == (0, True)


async def test_a_body_that_cannot_be_sent_is_attributed_to_the_pod(server):
    """It costs the pod, not the process."""
    with pytest.raises(ObjectFailedError) as raised:
        await call(Extender(url_prefix=server.url, filter_verb="echo"), body={"wrong": object()})
    assert (raised.value.kind, raised.value.key) == ("Pod", "ns/p")


async def test_several_extenders_with_one_prefix(server):
    """Each is called with its own time-out, by its verb."""
    client = ExtenderClient(
        [
            Extender(url_prefix=server.url, filter_verb="silent", http_timeout="50ms"),
            Extender(url_prefix=server.url, prioritize_verb="echo", http_timeout="0s"),
        ]
    )
    asks = [AskExtender(id=p, pod=PodKey("ns/p"), extender=server.url, path=p, body={}) for p in ("silent", "echo")]
    assert [(await client.ask(ask)).status for ask in asks] == [0, 200]
    await client.aclose()


@pytest.mark.parametrize(("no_proxy", "proxied"), [("", True), ("extender.test", False)])
async def test_the_proxy_of_the_environment(server, monkeypatch, no_proxy, proxied):
    """As in Go: `HTTP_PROXY`, but for the hosts of `NO_PROXY`."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", no_proxy)
    status, _ = await call(Extender(url_prefix="http://extender.test:1", filter_verb="echo", http_timeout="2s"))
    assert (status == 200, bool(server.requests)) == (proxied, proxied)


# --- connections -----------------------------------------------------------------------------------------------------


def asks(url: str, path: str, count: int) -> list[AskExtender]:
    return [AskExtender(id=str(n), pod=PodKey("ns/p"), extender=url, path=path, body={}) for n in range(count)]


async def test_a_connection_is_used_again(server):
    """Calls one after the other need one connection; another status leaves it usable too."""
    client = ExtenderClient([Extender(url_prefix=server.url, filter_verb="echo", prioritize_verb="busy")])
    for ask in (*asks(server.url, "echo", 3), *asks(server.url, "busy", 2)):
        await client.ask(ask)
    assert len(server.requests) == 5
    assert len(server.peers) == 1
    await client.aclose()


async def test_connections_are_bounded_and_waiting_for_one_is_not_time_lost(server, monkeypatch):
    """Of two calls at one connection the second is sent when the first has timed out, and has all of its own time."""
    monkeypatch.setattr(client_module, "CONNECTIONS_MAX", 1)
    client = ExtenderClient([Extender(url_prefix=server.url, filter_verb="silent", http_timeout="100ms")])
    async with anyio.create_task_group() as tasks:
        for ask in asks(server.url, "silent", 2):
            tasks.start_soon(client.ask, ask)
    assert len(server.requests) == 2
    await client.aclose()


async def test_many_calls_at_once_share_the_connections(server, monkeypatch):
    """All are answered."""
    monkeypatch.setattr(client_module, "CONNECTIONS_MAX", 4)
    client = ExtenderClient([Extender(url_prefix=server.url, bind_verb="echo")])
    statuses = []

    async def one(ask: AskExtender) -> None:
        statuses.append((await client.ask(ask)).status)

    async with anyio.create_task_group() as tasks:
        for ask in asks(server.url, "echo", 100):
            tasks.start_soon(one, ask)
    assert statuses == [200] * 100
    assert len(server.peers) <= 4
    await client.aclose()


@asynccontextmanager
async def scripted(*connections: list[bytes]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that answers the calls on each connection with these bytes, in order, and then closes it unasked."""
    calls: list[int] = []
    scripts = iter(connections)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script, number = next(scripts), len(set(calls))
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                return
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            calls.append(number)
            answer = script.pop(0) if script else b""
            writer.write(answer)
            if not script and answer != OK:
                writer.close()
                return

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", calls
    finally:
        listening.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"


@pytest.mark.parametrize(
    ("connections", "statuses", "called"),
    [
        pytest.param(([OK], [OK]), [200, 200], [0, 0, 1], id="closed while kept"),
        pytest.param(([OK], [b""]), [200, 0], [0, 0, 1], id="and broken anew"),
        pytest.param(([OK, CUT],), [200, 0], [0, 0], id="broken in the answer"),
        pytest.param(([b""],), [0], [0], id="broken at first"),
    ],
)
async def test_a_call_on_a_connection_that_the_server_has_given_up_is_made_once_more(connections, statuses, called):
    """On a new one, if nothing was answered; any other call is made once."""
    async with scripted(*connections) as (url, calls):
        client = ExtenderClient([Extender(url_prefix=url, filter_verb="f", http_timeout="10s")])
        answers = [await client.ask(ask) for ask in asks(url, "f", len(statuses))]
        assert [answer.status for answer in answers] == statuses
        assert all(answer.status or answer.body.startswith(f'Post "{url}/f": '.encode()) for answer in answers)
        assert calls == called
        await client.aclose()


# --- TLS -------------------------------------------------------------------------------------------------------------


@needs_openssl
@pytest.mark.parametrize("as_data", [False, True])
async def test_the_certificates_of_the_configuration_are_used(pki, secure, as_data):
    """From files or as data: the server is verified under `serverName`, and sees our certificate."""
    names = {"ca": "ca.crt", "cert": "client.crt", "key": "client.key"}
    fields: dict[str, Any]
    if as_data:
        fields = {f"{name}_data": base64.b64encode((pki / file).read_bytes()).decode() for name, file in names.items()}
    else:
        fields = {f"{name}_file": str(pki / file) for name, file in names.items()}
    tls = ExtenderTls(server_name="extender.test", **fields)
    extender = Extender(url_prefix=secure.url, filter_verb="peer", enable_https=True, tls_config=tls)
    status, body = await call(extender)
    assert (status, json.loads(body)["commonName"]) == (200, "scheduler")


@needs_openssl
@pytest.mark.parametrize("fields", [{"server_name": "extender.test"}, {"ca_file": "ca.crt"}])
async def test_a_server_that_cannot_be_verified_gets_nothing(pki, secure, fields):
    """Neither an unknown authority nor another name is accepted; the pod is not sent."""
    found: dict[str, Any] = {name: str(pki / value) if name == "ca_file" else value for name, value in fields.items()}
    status, why = await call(Extender(url_prefix=secure.url, filter_verb="echo", tls_config=ExtenderTls(**found)))
    assert status == 0
    assert b"certificate verify failed" in why
    assert not secure.requests


@needs_openssl
@pytest.mark.parametrize(
    "fields", [{"enable_https": True}, {"tls_config": ExtenderTls(insecure=True, server_name="extender.test")}]
)
async def test_a_server_that_is_not_to_be_verified(secure, fields):
    """`insecure`, and `enableHTTPS` without an authority, as in Go."""
    assert (await call(Extender(url_prefix=secure.url, filter_verb="echo", **fields)))[0] == 200


@needs_openssl
async def test_certificates_are_read_again_when_their_files_change(pki, secure, tmp_path):
    """A rotated certificate takes effect without a restart; one that cannot be read fails the call, not the process."""
    for name in ("client.crt", "client.key"):
        shutil.copy(pki / name, tmp_path / name)
    tls = ExtenderTls(insecure=True, cert_file=str(tmp_path / "client.crt"), key_file=str(tmp_path / "client.key"))
    client = ExtenderClient([Extender(url_prefix=secure.url, filter_verb="peer", tls_config=tls)])

    async def peer() -> tuple[int, bytes]:
        ask = AskExtender(id="1", pod=PodKey("ns/p"), extender=secure.url, path="peer", body={})
        completed = await client.ask(ask)
        return completed.status, completed.body

    assert json.loads((await peer())[1])["commonName"] == "scheduler"
    (tmp_path / "client.crt").write_text("no certificate")
    status, why = await peer()
    assert (status, b"extenders[0].tlsConfig: certificate and key cannot be used" in why) == (0, True)
    make_certificate(pki, "rotated", subject="/CN=rotated", extension="extendedKeyUsage=clientAuth")
    for name in ("crt", "key"):
        (pki / f"rotated.{name}").replace(tmp_path / f"client.{name}")
    assert json.loads((await peer())[1])["commonName"] == "rotated"
    await client.aclose()


@needs_openssl
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"ca_file": "/no/such"}, "extenders[0].tlsConfig: /no/such cannot be read: No such file or directory"),
        ({"ca_data": "%%"}, "extenders[0].tlsConfig.caData: it is no base64"),
        ({"ca_data": "aGVsbG8="}, "extenders[0].tlsConfig.caData: no certificate can be read"),
        ({"cert_data": "aGVsbG8=", "key_data": "aGVsbG8="}, "extenders[0].tlsConfig: certificate and key cannot be"),
    ],
)
async def test_tls_that_cannot_be_set_up_is_an_error_of_the_configuration(fields, error):
    """When the process starts, with the field."""
    with pytest.raises(ConfigurationError) as raised:
        ExtenderClient([Extender(url_prefix="https://x", filter_verb="f", tls_config=ExtenderTls(**fields))])
    assert str(raised.value).startswith(error)
