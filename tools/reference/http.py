"""The page of the HTTP API: the routes that the snapshotter serves, from the routes themselves."""

import re
from types import SimpleNamespace
from typing import Any, Final

from aiohttp import web

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.processes.runtime.http import application
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.settings import Settings
from headgate.web.routes import add_routes
from tools.reference.text import code, docstring, page, safe

INTRODUCTION: Final = """
Every process serves `/healthz`, `/readyz` and `/metrics`. The snapshotter serves the read side too: a page for people
and an HTTP API for tools. All requests are `GET`; nothing is written over HTTP. `http.host`, `http.port` and the
certificate are [settings](settings.md#http). `headgate up` prints the address.

`at` is a position (`812`) or a time (RFC 3339). Without it the live state answers. `namespace` takes several names,
separated by commas. Where `http.authentication` is `kubernetes`, a request needs a bearer token of the cluster, and
RBAC decides what it may see: see the [threat model](../../deploy/SECURITY.md).
"""
PROCESS: Final = {
    "/healthz": "200 while the process answers. It needs no token.",
    "/readyz": "200 when the process leads or stands by and everything that it depends on works, else 503. The body "
    "is JSON: the phase, the position, problems since when, objects in quarantine, and notices. It needs no token.",
    "/metrics": "[Metrics](metrics.md) in Prometheus' text format. It needs no token.",
}


def http_page() -> str:
    """`docs/reference/http.md`."""
    status = Status(process="snapshotter", cell="main", holder="reference", health=DependencyHealth())
    app = application(status, str)
    add_routes(app, SimpleNamespace(settings=Settings()))  # type: ignore[arg-type]
    routes = [route for route in app.router.routes() if route.method == "GET"]
    parts = [_route(route) for route in routes]
    return page("HTTP API", INTRODUCTION, *parts)


def _route(route: web.AbstractRoute) -> str:
    path = route.resource.canonical if route.resource is not None else ""
    about = PROCESS.get(path) or _about(route.handler)
    anchor = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-") or "page"
    return f"## {code(f'GET {path}')} {{ #{anchor} }}\n\n{safe(about)}"


def _about(handler: Any) -> str:
    """The handler's docstring without the request line that it repeats."""
    text = docstring(handler)
    assert text.startswith("GET "), f"{handler.__qualname__}: the docstring of a handler begins with its request"
    about = text.partition("\n\n")[2] or text.partition(": ")[2]
    return about[:1].upper() + about[1:]
