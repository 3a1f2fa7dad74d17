"""The HTTP front of a process: over TLS where a certificate is named, and never on half of one."""

import shutil
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.pki import make_authority, make_certificate

from headgate.processes.runtime.http import CannotListenError, serving
from headgate.processes.runtime.settings import HttpSettings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


def application() -> web.Application:
    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", ok)
    return app


async def test_tokens_can_be_shown_over_tls(tmp_path: Path) -> None:
    """With a certificate and its key the front serves TLS alone, and its address is https."""
    make_authority(tmp_path)
    make_certificate(tmp_path, "server", subject="/CN=headgate", extension="subjectAltName=IP:127.0.0.1")
    settings = HttpSettings(tls_cert_file=str(tmp_path / "server.crt"), tls_key_file=str(tmp_path / "server.key"))
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with serving(application(), settings, what="test") as url, aiohttp.ClientSession() as session:
        assert url.startswith("https://")
        async with session.get(f"{url}/healthz", ssl=trusted) as answer:
            assert await answer.text() == "ok"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{url.replace('https://', 'http://')}/healthz")


async def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """One line with both files, before anything is served in plain text."""
    settings = HttpSettings(tls_cert_file=str(tmp_path / "absent.crt"), tls_key_file=str(tmp_path / "absent.key"))
    with pytest.raises(CannotListenError, match=r"http\.tls_cert_file .*absent\.crt"):
        async with serving(application(), settings, what="test"):
            pytest.fail("served")
