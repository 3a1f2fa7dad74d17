"""
Middleware of the read side: headers for browsers, limits, and readable errors.

- A browser may run the page's own script and nothing else, show it in no frame, and send it nowhere (`headers_of`).
- At most `REQUESTS_MAX` answers are in progress at a time, and a client that does not take one for `WRITE_TIMEOUT_S` is
  disconnected; streams of events have separate limits (`headgate.web.streams`).
- Errors are JSON, `{"error": ...}`, and on the visibility API's paths a `v1` Status; they contain the remedy.

/healthz, /readyz and /metrics are exempt: they are for kubelets and Prometheus, which present no token, and contain no
names of workloads.
"""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from headgate.core.views.explain import UnknownWorkloadError
from headgate.web import visibility
from headgate.web.access import ForbiddenError, NoAnswerError, UnauthorizedError

REQUESTS_MAX: Final = 64
WRITE_TIMEOUT_S: Final = 20.0
UNBOUNDED: Final = frozenset({"/healthz", "/readyz", "/metrics", "/events"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BadRequestError(ValueError):
    """Raised when a query parameter is invalid; the message shows the valid form."""


class NotReadyError(Exception):
    """Raised while the process is not connected to the log, or has not folded it yet. Retry later."""


def headers_of(page: str) -> dict[str, str]:
    """The headers of every answer; `page` is the one whose inline script and style may be used."""

    def sources(tag: str) -> str:
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    policy = {
        "default-src": "'none'",
        "script-src": sources("script"),
        "style-src": sources("style"),
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def install(app: web.Application, page: str) -> None:
    """Add the middleware to an application."""
    headers = headers_of(page)

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        for name, value in headers.items():
            response.headers.setdefault(name, value)

    app.on_response_prepare.append(add_headers)
    app.middlewares.append(ResponseLimits().middleware)
    app.middlewares.append(errors_in_words)


class ResponseLimits:
    """Answers in progress, and how long each may take to be received."""

    def __init__(self) -> None:
        self.busy = 0

    @property
    def middleware(self) -> Middleware:
        """For an application."""

        @web.middleware
        async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._answer(request, handler)

        return bounded

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in UNBOUNDED:
            return await handler(request)
        if self.busy >= REQUESTS_MAX:
            return to_json({"error": f"{REQUESTS_MAX} answers are under way already; ask again later"}, status=503)
        self.busy += 1
        try:
            response = await handler(request)
            # Written here, within the limits, and not after the middleware.
            with anyio.move_on_after(WRITE_TIMEOUT_S) as scope:
                await response.prepare(request)
                await response.write_eof()
            if scope.cancelled_caught and request.transport is not None:
                request.transport.abort()
            return response
        finally:
            self.busy -= 1


@web.middleware
async def errors_in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns the exceptions of handlers into answers."""
    try:
        return await handler(request)
    except visibility.StatusError as error:
        return to_json(error.status(), status=error.code)
    except BadRequestError as error:
        return to_json({"error": str(error)}, status=400)
    except (LookupError, UnknownWorkloadError) as error:
        return to_json({"error": str(error.args[0])}, status=404)
    except UnauthorizedError as error:
        return _refused(request, 401, "Unauthorized", str(error), {"WWW-Authenticate": "Bearer"})
    except ForbiddenError as error:
        return _refused(request, 403, "Forbidden", str(error), {})
    except (NotReadyError, NoAnswerError) as error:
        return _refused(request, 503, "ServiceUnavailable", str(error), {})


def _refused(request: web.Request, code: int, reason: str, text: str, headers: dict[str, str]) -> web.Response:
    is_status = request.path.startswith("/apis")
    body = visibility.StatusError(code, reason, text).status() if is_status else {"error": text}
    response = to_json(body, status=code)
    response.headers.update(headers)
    return response


def to_json(body: Any, *, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=msgspec.json.encode(body) + b"\n", status=status, content_type="application/json")
