"""The wire, both over HTTP and in process: the responses, and the error without one."""

import socket
from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.kubernetes.errors import ApiError, StreamSilent, TransportError
from headgate.adapters.kubernetes.http_transport import LineSplitter, TransportSettings, open_transport
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess
from headgate.adapters.kubernetes.transport import InProcessTransport, Request, Response, Transport

pytestmark = pytest.mark.anyio


async def read_all(transport: Transport, read_timeout_s: float | None = None) -> list[bytes]:
    async with transport.stream("/watch", query={"watch": "true"}, read_timeout_s=read_timeout_s) as lines:
        return [line async for line in lines]


async def test_any_answer_comes_back_with_lower_case_headers(fake, transport):
    """A refusal is an answer like any other; deciding what it means is not the transport's business."""
    fake.script = [fake.answer(418, {"kind": "Status"}, Retry_After="7")]
    response = await transport.request("POST", "/a%2Fb", query={"x": "1 &=2"}, body=b"{}", content_type="application/x")
    assert response.status == 418
    assert response.headers["retry-after"] == "7"
    assert response.body == b'{"kind": "Status"}'
    [seen] = fake.seen
    assert (seen.method, seen.path, seen.query, seen.body) == ("POST", "/a%2Fb", {"x": "1 &=2"}, b"{}")
    assert seen.headers["Content-Type"] == "application/x"
    assert "Authorization" not in seen.headers


async def test_a_redirect_is_not_followed(fake, transport):
    """API servers do not redirect; a server that does must not get the request."""
    fake.script = [fake.answer(302, {}, Location="/elsewhere")]
    assert (await transport.request("GET", "/")).status == 302
    assert len(fake.seen) == 1


async def test_a_refused_connection_was_not_applied(anyio_backend):
    """Without a listener the request has had no effect, and the error states it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        access = ClusterAccess(server=f"http://127.0.0.1:{unused.getsockname()[1]}")
        async with open_transport(access) as transport:
            with pytest.raises(TransportError) as caught:
                await transport.request("POST", "/")
            assert not caught.value.maybe_applied
            with pytest.raises(TransportError):
                await read_all(transport)
            assert transport.failures == 2


async def test_a_reset_connection_may_have_been_applied(fake, transport):
    """The server may have acted before the connection broke."""
    fake.script = [fake.reset()]
    with pytest.raises(TransportError) as caught:
        await transport.request("POST", "/")
    assert caught.value.maybe_applied
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_is_never_repeated_behind_the_callers_back(fake, transport, method):
    """On a connection that served before and then broke, only a GET is sent again."""
    fake.script = [fake.answer(200), fake.reset(), fake.answer(200), fake.reset(), fake.answer(200)]
    await transport.request("GET", "/warm-up")
    with pytest.raises(TransportError) as caught:
        await transport.request(method, "/")
    assert caught.value.maybe_applied
    await transport.request("GET", "/warm-up")
    assert (await transport.request("GET", "/")).status == 200
    assert [seen.method for seen in fake.seen] == ["GET", method, "GET", "GET", "GET"]


async def test_a_server_that_does_not_answer_times_out(fake):
    """A request ends, whatever the server does."""
    fake.script = [fake.hang()]
    settings = TransportSettings(request_timeout_s=0.05)
    async with open_transport(ClusterAccess(server=fake.url), settings) as transport:
        with pytest.raises(TransportError, match="timed out") as caught:
            await transport.request("GET", "/")
        assert caught.value.maybe_applied


@pytest.mark.parametrize(
    "parts",
    [
        (b"one\ntwo\nthree\n",),
        (b"on", b"e\ntwo", b"\nthree", b"\n"),
        (b"one\n\n", b"\n", b"two\nth", b"r", b"ee\n"),
    ],
)
async def test_lines_do_not_depend_on_chunks(fake, transport, parts):
    """Lines are what is between line feeds, however the bytes arrive; empty ones are dropped."""
    fake.script = [fake.chunks(*parts)]
    assert await read_all(transport) == [b"one", b"two", b"three"]


async def test_a_line_longer_than_the_read_buffer_arrives_whole(fake, transport):
    """The largest objects exceed aiohttp's own line limit."""
    long = b"x" * (5 * 2**20)
    fake.script = [fake.chunks(long + b"\nshort\n")]
    assert await read_all(transport) == [long, b"short"]


@pytest.mark.parametrize("end", ["well", "reset"])
async def test_a_stream_cut_inside_a_line_keeps_the_whole_lines_and_fails(fake, transport, end):
    """Half an object is never handed over, whether the stream was ended or the connection broken."""
    fake.script = [fake.chunks(b"one\n", b"half of t", end=end)]
    async with transport.stream("/watch") as lines:
        assert await anext(lines) == b"one"
        with pytest.raises(TransportError):
            await anext(lines)


async def test_a_half_open_stream_is_noticed(fake, transport):
    """Nothing for the read time-out means that the other side may be gone."""
    fake.script = [fake.chunks(b"one\n", end="hang"), fake.hang()]
    with pytest.raises(StreamSilent):
        await read_all(transport, read_timeout_s=0.05)
    with pytest.raises(StreamSilent):
        await read_all(transport, read_timeout_s=0.05)


async def test_a_refused_stream_raises_what_the_server_said(fake, transport):
    """A watch that is refused is an ApiError with the server's reason and wish to wait."""
    fake.script = [fake.status(429, "TooManyRequests", Retry_After="3")]
    with pytest.raises(ApiError) as caught:
        await read_all(transport)
    assert (caught.value.status, caught.value.reason, caught.value.retry_after) == (429, "TooManyRequests", 3.0)


async def test_leaving_a_stream_early_leaves_nothing_behind(fake, transport):
    """A reader may stop in the middle of a stream that would continue."""
    fake.script = [fake.chunks(b"one\ntwo\n", end="hang"), fake.answer(200, {})]
    async with transport.stream("/watch") as lines:
        assert await anext(lines) == b"one"
    assert (await transport.request("GET", "/")).status == 200


class Server:
    """An in-process API server that answers everything alike."""

    def __init__(self, *lines: bytes, refuse: Response | None = None, hang: bool = False) -> None:
        self.lines, self.refuse, self.hang = lines, refuse, hang
        self.requests: list[Request] = []
        self.closed = False

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(status=200, headers={}, body=request.body or b"")

    async def watch(self, request: Request) -> Response | AsyncIterator[bytes]:
        self.requests.append(request)
        return self.refuse or self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            for line in self.lines:
                yield line
            if self.hang:
                await anyio.sleep_forever()
        finally:
            self.closed = True


async def test_in_process_requests_reach_the_server_unchanged():
    """Without a socket the same request arrives."""
    server = Server()
    transport = InProcessTransport(server)
    response = await transport.request("PATCH", "/x", query={"force": "true"}, body=b"[]", content_type="t")
    assert response.body == b"[]"
    assert server.requests == [
        Request(method="PATCH", path="/x", query={"force": "true"}, headers={}, body=b"[]", content_type="t")
    ]


async def test_in_process_watches_behave_like_those_on_the_wire():
    """Lines lose their line feeds, silence is noticed, a refusal is an ApiError, and the server's watcher is closed."""
    server = Server(b"one\n", b"two")
    assert await read_all(InProcessTransport(server), read_timeout_s=5) == [b"one", b"two"]
    assert server.closed
    server = Server(b"one\n", hang=True)
    with pytest.raises(StreamSilent):
        await read_all(InProcessTransport(server), read_timeout_s=0.01)
    assert server.closed
    refusal = Response(status=410, headers={}, body=b'{"kind":"Status","reason":"Expired","code":410}')
    with pytest.raises(ApiError) as caught:
        await read_all(InProcessTransport(Server(refuse=refusal)))
    assert caught.value.is_expired


@given(lines=st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b and b"\r" not in b)), data=st.data())
def test_splitting_is_the_inverse_of_joining(lines, data):
    """Whatever the chunk borders, the lines read are the lines written."""
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    splitter = LineSplitter()
    read: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        read += splitter.feed(whole[start:end])
    assert read == lines
    assert splitter.rest == b""
