"""
The HTTPS server of webhooks: AdmissionReview and ConversionReview in, the same with a response out.

A handler is a function of the decoded review. A body that is no JSON object is 400; a handler that fails is 500,
and is logged with the review's uid: the API server then follows the failure policy, and the object is unchanged. While
the server is not ready (no certificate, or the facts are not complete), reviews are answered 503, so that nothing is
decided on a part of the facts. Paths that need no facts are answered nevertheless: an object that is stored in v1beta1
has to be converted before the facts can be read.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from headgate.adapters.telemetry import Metrics
from headgate.processes.webhook.handlers import HANDLERS, Handler, Json

_LOG: Final = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""A list comes as one ConversionReview with all its objects, some 5 KiB for each Workload."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Reviews:
    """Answers reviews with the handler of their path, and counts them."""

    def __init__(
        self, handlers: Mapping[str, Handler], metrics: Metrics, problem: Callable[[], str | None] = lambda: None
    ) -> None:
        """`problem` is why no review can be answered at the moment, or None, but for those of `HANDLERS`."""
        self._handlers = handlers
        self._problem = problem
        self._requests = metrics.tally(
            "headgate_webhook_requests_total", "Reviews answered, by path and result.", ("path", "result")
        )
        self._seconds = metrics.histogram(
            "headgate_webhook_request_seconds", "How long the answer to a review took, in seconds.", SECONDS, ("path",)
        )

    def application(self) -> web.Application:
        """The routes: POST for each handler."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        for path, handler in self._handlers.items():
            app.router.add_post(path, self._route(path, handler))
        return app

    def _route(self, path: str, handler: Handler) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            begun = time.perf_counter()
            body = await request.read()
            response, result = await self._answer(path, handler, body)
            self._requests.add(path, result)
            self._seconds.record(time.perf_counter() - begun, {"path": path})
            return response

        return answer

    async def _answer(self, path: str, handler: Handler, body: bytes) -> tuple[web.Response, str]:
        problem = self._problem() if path not in HANDLERS else None
        if problem is not None:
            return web.Response(status=503, text=f"the webhook is not ready: {problem}\n"), "unready"
        try:
            review = msgspec.json.decode(body, type=dict)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return web.Response(status=400, text=f"the body is no review: {error}\n"), "malformed"
        try:
            answering = handler(review)
            answered = await answering if isinstance(answering, Awaitable) else answering
        except Exception:  # noqa: BLE001 - one object that a rule cannot read must not end the server
            uid = (review.get("request") or {}).get("uid", "")
            _LOG.exception("%s: the review %s failed", path, uid)
            return web.Response(status=500, text=f"the review {uid} failed; the webhook's log says why\n"), "failed"
        return web.Response(body=msgspec.json.encode(answered), content_type="application/json"), _result(answered)


def _result(answered: Json) -> str:
    response = answered.get("response") or {}
    if "allowed" in response:
        return "allowed" if response["allowed"] else "refused"
    return str((response.get("result") or {}).get("status", "")).lower() or "answered"
