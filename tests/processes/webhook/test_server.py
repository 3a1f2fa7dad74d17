"""The webhook server: what it answers to reviews, and to what is none."""

import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headgate.adapters.certificates import renewed
from headgate.adapters.telemetry import Metrics
from headgate.processes.runtime.serving_certificates import listening, load_pair, new_context
from headgate.processes.runtime.settings import WebhookSettings
from headgate.processes.webhook.handlers import HANDLERS
from headgate.processes.webhook.server import Reviews

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
NAME = "headgate-webhook.headgate-system.svc"


def echo(review: Json) -> Json:
    return {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}


def fail(review: Json) -> Json:
    raise KeyError("a rule that cannot read the object")


class Server:
    """A running server and a client that trusts it by the Service's name."""

    def __init__(self, port: int, trusted: ssl.SSLContext, metrics: Metrics) -> None:
        self.port = port
        self.trusted = trusted
        self.metrics = metrics
        self.problem: str | None = None

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self.port}{path}"
        data = body if isinstance(body, bytes) else None
        async with aiohttp.ClientSession() as session:
            request = session.post(url, data=data, json=None if data else body, ssl=self.trusted, server_hostname=NAME)
            async with request as answer:
                return answer.status, await answer.text()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    stored = renewed(None, dt.datetime.now(dt.UTC), [NAME])
    context = new_context()
    load_pair(context, stored.certificate, stored.key)
    trusted = ssl.create_default_context(cadata=stored.ca_bundle.decode())
    metrics = Metrics()
    server = Server(0, trusted, metrics)
    reviews = Reviews({"/echo": echo, "/fail": fail, **HANDLERS}, metrics, lambda: server.problem)
    async with listening(reviews.application(), context, WebhookSettings(host="127.0.0.1", port=0)) as port:
        server.port = port
        yield server
    metrics.close()


async def test_a_review_is_answered_over_tls() -> None:
    """By the handler of its path, to a client that trusts the authority and calls the Service's name."""
    async with serving() as server:
        status, text = await server.post("/echo", {"request": {"uid": "1"}})
        assert (status, '"allowed":true' in text) == (200, True)
        assert 'headgate_webhook_requests_total{path="/echo",result="allowed"} 1' in server.metrics.render()


async def test_what_is_no_review_is_refused() -> None:
    """Bytes that are no JSON, JSON that is no object, and a path without a handler."""
    async with serving() as server:
        assert (await server.post("/echo", b"not json"))[0] == 400
        assert (await server.post("/echo", b"[]"))[0] == 400
        assert (await server.post("/other", {}))[0] == 404


async def test_a_handler_that_fails_fails_its_review_only() -> None:
    """The API server is told so, and follows the failure policy; the next review is answered."""
    async with serving() as server:
        status, text = await server.post("/fail", {"request": {"uid": "u-1"}})
        assert (status, "u-1" in text) == (500, True)
        assert (await server.post("/echo", {"request": {"uid": "2"}}))[0] == 200


async def test_nothing_is_decided_on_a_part_of_the_facts() -> None:
    """Until the lists are read, reviews are answered 503 with the reason."""
    async with serving() as server:
        server.problem = "waiting for the list of localqueues"
        status, text = await server.post("/echo", {"request": {"uid": "1"}})
        assert (status, "localqueues" in text) == (503, True)


async def test_objects_are_converted_before_the_facts_are_there() -> None:
    """They may be stored in v1beta1, and the facts are read in v1beta2."""
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": "x"}}
    request = {"uid": "1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [cohort]}
    async with serving() as server:
        server.problem = "waiting for the list of localqueues"
        status, text = await server.post("/convert", {"kind": "ConversionReview", "request": request})
        assert (status, '"status":"Success"' in text) == (200, True)


async def test_a_client_that_does_not_trust_it_gets_nothing(tmp_path: Path) -> None:
    """The certificate is signed by an authority of our own."""
    async with serving() as server:
        server.trusted = ssl.create_default_context()
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await server.post("/echo", {"request": {"uid": "1"}})
