"""The certificate that replicas share in a Secret, and the bundles in the objects that name the server."""

import base64
import datetime as dt
from typing import Any

import pytest
from tests.support.doors import Answering

from headgate.adapters.certificates import CERTIFICATE_LIFETIME
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.render import CA_FROM
from headgate.adapters.kubernetes.errors import TransportError
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.processes.runtime.serving_certificates import (
    FileCertificates,
    NoCertificateError,
    ServingCertificates,
    certificates_of,
    names_of,
)
from headgate.processes.runtime.settings import VisibilitySettings, WebhookSettings

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NAME = "headgate-webhook.headgate-system.svc"
REASONS = {404: "NotFound", 409: "Conflict", 422: "Invalid"}


class ApiServer(Answering):
    """The Secret, one webhook configuration, and a switch for the connection. Writes need the version that is there."""

    def __init__(self) -> None:
        self.secret: Json | None = None
        self.webhooks: Json = {
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "w", "resourceVersion": "1", "labels": {CA_FROM: "s"}},
            "webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {"caBundle": "old"}}],
        }
        self.is_up = True
        self.writes = 0
        self.changes = 0
        """How often the configuration is still changed by somebody between a list and the patch that follows it."""

    @property
    def version(self) -> str:
        found: str = self.webhooks["metadata"]["resourceVersion"]
        return found

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Json]:
        if not self.is_up:
            raise TransportError("connection refused", maybe_applied=False)
        if "/secrets" in path:
            return self._secret(method, body)
        if method == "PATCH":
            if self.changes:
                self.changes -= 1
                self.webhooks["metadata"]["resourceVersion"] += "1"
            if body[0] != {"op": "test", "path": "/metadata/resourceVersion", "value": self.version}:
                return 422, _status(422)
            for each in body[1:]:
                index = int(each["path"].split("/")[2])
                self.webhooks["webhooks"][index]["clientConfig"]["caBundle"] = each["value"]
            return 200, self.webhooks
        items = [self.webhooks] if "validatingwebhookconfigurations" in path else []
        return 200, {"metadata": {"resourceVersion": "1"}, "items": items}

    def _secret(self, method: str, body: Any) -> tuple[int, Json]:
        if method == "GET":
            return (404, _status(404)) if self.secret is None else (200, self.secret)
        found = (self.secret or {}).get("metadata", {}).get("resourceVersion")
        if (method == "POST") is not (self.secret is None) or body["metadata"].get("resourceVersion") != found:
            return 409, _status(409)
        self.writes += 1
        body["metadata"]["resourceVersion"] = str(self.writes)
        self.secret = body
        return 201, body


def _status(code: int) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": REASONS[code]}


def replica(server: ApiServer, now: list[dt.datetime]) -> ServingCertificates:
    client = KubeClient(InProcessTransport(server))
    return ServingCertificates(client, namespace="n", secret="s", names=[NAME], now=lambda: now[0])


async def test_replicas_share_one_certificate() -> None:
    """The first makes it, the others use it, whoever was first."""
    server, now = ApiServer(), [NOW]
    replicas = [replica(server, now) for _ in range(3)]
    for each in replicas:
        await each.round()
    assert server.writes == 1
    assert {each.expires for each in replicas} == {NOW + CERTIFICATE_LIFETIME}
    assert [each.renewals for each in replicas] == [1, 0, 0]


async def test_a_race_has_one_winner() -> None:
    """A replica whose write comes second takes what the first has written."""
    server, now = ApiServer(), [NOW]
    first, second = replica(server, now), replica(server, now)
    read = second._read

    async def read_before_the_other() -> Json | None:
        found = await read()
        second._read = read  # type: ignore[method-assign]
        await first.round()
        return found

    second._read = read_before_the_other  # type: ignore[method-assign]
    await second.round()
    assert server.writes == 1
    assert first._loaded == second._loaded


async def test_every_client_gets_the_bundle() -> None:
    """Each webhook of a configuration, whatever it had."""
    server, now = ApiServer(), [NOW]
    await replica(server, now).round()
    assert server.secret is not None
    bundle = server.secret["data"]["ca.crt"]
    assert [each["clientConfig"]["caBundle"] for each in server.webhooks["webhooks"]] == [bundle, bundle]
    assert b"BEGIN CERTIFICATE" in base64.b64decode(bundle)


async def test_a_client_that_changes_meanwhile_gets_the_bundle_in_the_same_round() -> None:
    """The API server writes the status of a new APIService at once; without the bundle that stays off."""
    server, now = ApiServer(), [NOW]
    server.changes = 2
    await replica(server, now).round()
    assert server.secret is not None
    bundle = server.secret["data"]["ca.crt"]
    assert {each["clientConfig"]["caBundle"] for each in server.webhooks["webhooks"]} == {bundle}


async def test_a_client_that_changes_all_the_time_does_not_hold_the_round_up() -> None:
    """It is left to the next one; the certificate is in use."""
    server, now = ApiServer(), [NOW]
    server.changes = 100
    kept = replica(server, now)
    await kept.round()
    assert server.webhooks["webhooks"][0]["clientConfig"] == {}
    assert kept.problem is None
    server.changes = 0
    await kept.round()
    assert server.webhooks["webhooks"][0]["clientConfig"]["caBundle"]


async def test_an_expired_certificate_is_told_and_renewed_when_the_api_server_is_back() -> None:
    """Until it has ended it stays in use without a word of it."""
    server, now = ApiServer(), [NOW]
    kept = replica(server, now)
    await kept.round()
    server.is_up = False
    for days, is_problem in ((80, False), (91, True)):
        now[0] = NOW + dt.timedelta(days=days)
        with pytest.raises(TransportError) as caught:
            await kept.round()
        kept._failed(caught.value)
        assert (kept.problem is not None) is is_problem
    assert "ended at 2026-04-01" in str(kept.problem)
    server.is_up = True
    await kept.round()
    assert kept.problem is None
    assert kept.expires == now[0] + CERTIFICATE_LIFETIME


async def test_a_secret_that_somebody_has_emptied_is_filled_again() -> None:
    """A new authority, and all bundles with it."""
    server, now = ApiServer(), [NOW]
    kept = replica(server, now)
    await kept.round()
    assert server.secret is not None
    server.secret["data"] = {}
    await kept.round()
    assert server.secret["data"]["ca.crt"] == server.webhooks["webhooks"][0]["clientConfig"]["caBundle"]


@pytest.mark.parametrize(
    ("settings", "section"),
    [
        (WebhookSettings(tls_cert_file="/none/tls.crt", tls_key_file="/none/tls.key"), "webhook"),
        (VisibilitySettings(tls_cert_file="/none/tls.crt", tls_key_file="/none/tls.key"), "visibility"),
    ],
)
async def test_files_that_cannot_be_used_are_named_with_the_settings_that_name_them(
    settings: WebhookSettings | VisibilitySettings, section: str
) -> None:
    """The field of the section whose server it is, and the file."""
    kept = certificates_of(KubeClient(InProcessTransport(ApiServer())), settings)
    assert isinstance(kept, FileCertificates)
    with pytest.raises(NoCertificateError, match=rf"^{section}\.tls_cert_file, {section}\.tls_key_file: /none/tls.crt"):
        kept.load()


def test_both_servers_are_called_by_the_names_of_their_service() -> None:
    """And the webhook by those that it is given."""
    assert names_of(VisibilitySettings(service="v", namespace="n")) == ("v.n.svc", "v.n", "v.n.svc.cluster.local")
    given = WebhookSettings(service="w", namespace="n", names="a.example, b.example,")
    assert names_of(given) == ("w.n.svc", "w.n", "w.n.svc.cluster.local", "a.example", "b.example")
