"""
What can go wrong with an API server, translated once.

Two things can happen to a request. The server answers with something other than success: that is an `ApiError`, and it
carries the parts of the `Status` object that callers decide by. Or no answer arrives: that is a `TransportError`, and
it says whether the request may have been carried out all the same. Both are `KubernetesError`s, both keep their cause.

`is_operating_error` draws the line that the rest of the package retries by: an operating error says nothing about the
request and goes away by itself or by an operator's hand; everything else is the server's considered answer.
"""

from collections.abc import Mapping
from typing import Final

import msgspec


class KubernetesError(Exception):
    """Anything that kept a request to the API server from succeeding."""


class ConfigurationError(KubernetesError, ValueError):
    """The flags, the environment or a kubeconfig file do not say which cluster to use. The operator must correct it."""


class TransportError(KubernetesError):
    """
    No (complete) answer arrived: connection refused, reset, cut, or silent for too long. Try again later.

    `maybe_applied` is true when the request may have reached the server, so that a repeated create can find its own
    object already there. It is false only when the connection was never established.
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class StreamSilent(TransportError):  # noqa: N818  (the name states what was seen, and TransportError says it is an error)
    """A watch sent nothing for longer than it may: the connection is taken for half-open. Watch again."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `Status.details.causes`: which field, and what is wrong with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(KubernetesError):
    """
    The API server answered, and the answer was not success.

    Attributes:
        status: the HTTP status code.
        reason: the `Status` reason in Kubernetes' words (`Conflict`, `AlreadyExists`, `NotFound`, `Expired`, ...), or
            the HTTP phrase of the code when the body was no `Status`.
        message: the server's message for people.
        causes: the field-level causes of an `Invalid` answer.
        retry_after: seconds the server asks us to wait, if it does.

    """

    def __init__(
        self,
        *,
        status: int,
        reason: str,
        message: str,
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
        request: str = "",
    ) -> None:
        where = f" to {request}" if request else ""
        fields = "".join(f"; {cause.field}: {cause.message}" for cause in causes if cause.field)
        super().__init__(f"{status} {reason}{where}: {message}{fields}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after

    @property
    def is_not_found(self) -> bool:
        """The object, or the whole resource, is not there."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """The object changed since it was read. Read it again and decide again."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def is_already_exists(self) -> bool:
        """An object of this name is there already."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_expired(self) -> bool:
        """The resource version or the continue token is too old. List again."""
        return self.status == 410 or self.reason in {"Expired", "Gone"}

    @property
    def is_invalid(self) -> bool:
        """The object breaks the resource's rules; `causes` says where."""
        return self.status == 422


class _Details(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `Status` object that callers decide by. Every field may be missing or null."""

    kind: str = ""
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)

# The reasons Kubernetes itself gives where a proxy in between answered without a Status body.
_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}

#: Characters of an answer that is no Status object which are repeated in the error message.
_EXCERPT_MAX: Final = 200


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The `Retry-After` header in seconds; None if absent or not a plain number (API servers send whole seconds)."""
    value = headers.get("retry-after", "").strip()
    return float(value) if value.isdecimal() else None


def api_error(status: int, headers: Mapping[str, str], body: bytes, *, request: str = "") -> ApiError:
    """
    The error that a non-success answer stands for.

    Args:
        status: HTTP status code of the answer.
        headers: its headers, names in lower case.
        body: its body: a `Status` object, or whatever a proxy in between wrote.
        request: method and path, to be named in the message.

    """
    try:
        found = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _Status()
    details = found.details or _Details()
    after = retry_after_seconds(headers)
    if after is None and details.retry_after_seconds:
        after = float(details.retry_after_seconds)
    excerpt = body[:_EXCERPT_MAX].decode(errors="replace").strip()
    return ApiError(
        status=status,
        reason=found.reason or _REASONS.get(status, "Unknown"),
        message=found.message or excerpt or "the answer has no body",
        causes=details.causes or (),
        retry_after=after,
        request=request,
    )


def watch_error(body: bytes, *, request: str = "") -> ApiError:
    """The error that an `ERROR` watch event stands for. Its code is in the Status, for the HTTP answer was 200."""
    try:
        code = _STATUS.decode(body).code
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = None
    return api_error(code or 500, {}, body, request=request)


def is_operating_error(status: int) -> bool:
    """
    Whether an answer says nothing about the request itself and is worth another try later.

    401 is one of them: the credential expired or the server's authenticator is unwell, and either is repaired without
    touching the request. 403 is not: admission plugins refuse with it, for good. A redirect is one too, for no API
    server sends one: something between us and it does.
    """
    return status >= 500 or status in {401, 408, 429} or not (200 <= status < 300 or 400 <= status < 500)
