"""
The HTTP server of a process: /healthz, /readyz, /metrics, and added routes.

`/healthz` is 200 while the loop runs; `/readyz` is 200 when the process leads or stands by and all its dependencies are
healthy, else 503, and in both cases reports the phase and since when what is wrong, as JSON; `/metrics` is in
Prometheus' text format. The caller that starts the snapshotter adds the read side (`headgate.web`), so that processes
need not import it.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.settings import HttpSettings

_LOG: Final = logging.getLogger(__name__)

Routes = Callable[[web.Application], None]
"""Adds routes to a process's server."""


class CannotListenError(Exception):
    """Raised when the address is not available: another process has the port, or the host is another machine."""


def application(status: Status, metrics: Callable[[], str]) -> web.Application:
    """The HTTP application of a process."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        report = status.report()
        body = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
        return web.Response(body=body, status=200 if report.ready else 503, content_type="application/json")

    async def serve_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics().encode(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", serve_metrics)
    return app


@asynccontextmanager
async def serving(app: web.Application, settings: HttpSettings, *, what: str) -> AsyncIterator[str]:
    """
    Serve while the block runs; returns the base URL, logs it, and writes it to the address file if one is named.

    Raises CannotListenError.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=_tls(settings))
        try:
            await site.start()
        except OSError as error:
            raise CannotListenError(
                f"http.host {settings.host}, http.port {settings.port}: {error.strerror or error}; "
                "name another port, or 0 for a free one"
            ) from error
        host, port = runner.addresses[0][:2]
        scheme = "https" if settings.tls_cert_file else "http"
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        _LOG.info("%s serves %s", what, url, extra={"url": url})
        if settings.address_file:
            _write(Path(settings.address_file), url)
        yield url
    finally:
        await runner.cleanup()


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    """The context of the certificate, if there is one. Raises CannotListenError when it cannot be used."""
    if not settings.tls_cert_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise CannotListenError(
            f"http.tls_cert_file {settings.tls_cert_file}, http.tls_key_file {settings.tls_key_file}: "
            f"they cannot be used: {error}"
        ) from error
    return context


def _write(file: Path, url: str) -> None:
    """Write atomically: a client waits for the file to appear."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    partial.write_text(url + "\n")
    partial.replace(file)
