"""TLS as a kubeconfig describes it: the server is verified, and the client shows its certificate."""

import shutil
import ssl

import pytest
import yaml
from aiohttp import web
from tests.support.pki import make_server_and_client

from headgate.adapters.kubernetes.credentials import load_credentials
from headgate.adapters.kubernetes.errors import TransportError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """An authority, a server certificate for `api.test` (not 127.0.0.1), a client certificate for `headgate`."""
    home = tmp_path_factory.mktemp("pki")
    make_server_and_client(home, "api.test", "headgate")
    return home


@pytest.fixture
async def server(pki, anyio_backend):
    """An HTTPS server that returns the subject of the client's certificate."""

    async def handle(request):
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        return web.json_response(dict(pair[0] for pair in peer["subject"]))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def access(tmp_path, pki, server, **cluster):
    path = tmp_path / "config"
    user = {"client-certificate": str(pki / "client.crt"), "client-key": str(pki / "client.key")}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "main",
                "clusters": [{"name": "c", "cluster": {"server": server} | cluster}],
                "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return resolve(kubeconfig=str(path), environ={})


async def test_the_certificates_of_a_kubeconfig_are_used(tmp_path, pki, server):
    """The server is verified under the name of the kubeconfig, and identifies us by our certificate."""
    options = {"certificate-authority": str(pki / "ca.crt"), "tls-server-name": "api.test"}
    async with open_transport(access(tmp_path, pki, server, **options)) as transport:
        response = await transport.request("GET", "/")
        assert response.status == 200
        assert b'"commonName": "headgate"' in response.body


@pytest.mark.parametrize("options", [{"tls-server-name": "api.test"}, {"certificate-authority": "ca.crt"}])
async def test_a_server_that_cannot_be_verified_gets_no_request(tmp_path, pki, server, options):
    """Neither an unknown authority nor another name is accepted, and nothing was sent."""
    found = {key: str(pki / value) if key == "certificate-authority" else value for key, value in options.items()}
    async with open_transport(access(tmp_path, pki, server, **found)) as transport:
        with pytest.raises(TransportError, match="certificate") as caught:
            await transport.request("POST", "/")
        assert not caught.value.maybe_applied


async def test_verification_can_be_switched_off_by_the_kubeconfig_only(tmp_path, pki, server):
    """`insecure-skip-tls-verify` is the operator's own decision."""
    async with open_transport(access(tmp_path, pki, server, **{"insecure-skip-tls-verify": True})) as transport:
        assert (await transport.request("GET", "/")).status == 200


async def test_the_service_account_of_a_pod_is_used_and_read_again(tmp_path, pki, monkeypatch):
    """The mounted token goes into the header, the mounted authority verifies the server."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("one")
    shutil.copy(pki / "ca.crt", account / "ca.crt")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    credentials = await load_credentials(resolve(service_account=account))
    assert await credentials.authorization() == "Bearer one"
    assert credentials.ssl_context is not None
    assert [each["subject"] for each in credentials.ssl_context.get_ca_certs()] == [((("commonName", "ca"),),)]
    (account / "token").write_text("two")
    monkeypatch.setattr("headgate.adapters.kubernetes.credentials.RENEWAL_INTERVAL_S", 0.0)
    assert await credentials.refused("Bearer one")
    assert await credentials.authorization() == "Bearer two"
