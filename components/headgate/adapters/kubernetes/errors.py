"""
Errors of an API server, classified once.

A request fails in one of two ways. The server answers with something other than success: that is an `ApiError`, and it
carries the parts of the `Status` object that callers decide by. Or no answer arrives: that is a `TransportError`, and
it records whether the request may have been carried out all the same. Both are `KubernetesError`s, both keep their
cause.

The rest of the package retries by `is_operating_error`: an operating error does not concern the request itself and is
resolved without a change of it, possibly by an operator; everything else is the server's final answer. Errors that need
an operator contain the remedy: a refused credential names the presented identity, a missing permission the verb and the
resource, a resource that is not served what to install.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.adapters.kubernetes.resources import KUEUE_GROUP, asked_for


class KubernetesError(Exception):
    """Any error that kept a request to the API server from succeeding."""


class KubeConfigurationError(KubernetesError, ValueError):
    """The flags, the environment or a kubeconfig file do not identify a cluster. The operator must correct it."""


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
    """A watch sent nothing for longer than allowed: the connection is considered half-open. Watch again."""


class StreamGarbled(TransportError):  # noqa: N818  (the same)
    """A line of a watch is no watch event, so the lines after it cannot be trusted either. Watch again."""


def kind_of(error: KubernetesError) -> str:
    """The kind of a failure, logged once per kind. Each missing permission or resource is a separate kind."""
    if not isinstance(error, ApiError):
        return type(error).__name__
    return str(error) if error.status in {403, 404} else str(error.status)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `Status.details.causes`: the field, and its error."""

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
        is_from_api: the body was a `Status`: the API itself refused, and not its HTTP front or something in between.

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
        is_from_api: bool = True,
        next_move: str = "",
    ) -> None:
        where = f" to {request}" if request else ""
        fields = "".join(f"; {cause.field}: {cause.message}" for cause in causes if cause.field)
        then = f"; {next_move}" if next_move else ""
        super().__init__(f"{status} {reason}{where}: {message}{fields}{then}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after
        self.is_from_api = is_from_api

    @property
    def is_not_found(self) -> bool:
        """The object, or the whole resource, is not there."""
        return self.status == 404

    @property
    def is_unserved(self) -> bool:
        """The path leads nowhere: the resource is not installed. Says nothing about any object of it."""
        return self.status == 404 and (not self.is_from_api or self.message.startswith(_UNSERVED))

    @property
    def is_access_denied(self) -> bool:
        """The authorizer refused: a permission is missing. An admission plugin words its (final) 403 differently."""
        return self.status == 403 and _DENIED.search(self.message) is not None

    @property
    def is_unappliable(self) -> bool:
        """The body of a server-side apply contradicts itself, as with two entries of one key: as good as a 422."""
        return self.status == 500 and self.message.startswith(_UNTYPED)

    @property
    def is_budget_exhausted(self) -> bool:
        """An eviction that a PodDisruptionBudget does not allow now. Not load: the caller decides whether it waits."""
        return self.status == 429 and any(cause.reason == "DisruptionBudget" for cause in self.causes)

    @property
    def is_over_budgeted(self) -> bool:
        """An eviction of a pod that several PodDisruptionBudgets cover, which the API server does not support."""
        return self.status == 500 and _OVER_BUDGETED in self.message

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

# The reasons of Kubernetes itself, for answers of a proxy in between without a Status body.
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

# The form of every authorizer's refusal, whatever the authorizer's own reason behind it.
_DENIED: Final = re.compile(r'(?:^|is forbidden: )User "[^"]*" cannot ')

# The API server's message when the body of an apply does not match its type. It sends that with a 500 and no reason.
_UNSERVED: Final = "the server could not find the requested resource"
"""Of a resource or a version that an API group of the server does not have; for an object, it is named."""
_UNTYPED: Final = "failed to create typed patch object"

# The API server's message when a pod that is to be evicted has several budgets, also with a 500.
_OVER_BUDGETED: Final = "more than one PodDisruptionBudget, which the eviction subresource does not support"

_CAUSELESS: Final = "the answer has no body"

#: Characters of an answer that is no Status object which are repeated in the error message.
_EXCERPT_MAX: Final = 200


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The `Retry-After` header in seconds; None if absent or not a plain number (API servers send whole seconds)."""
    value = headers.get("retry-after", "").strip()
    return float(value) if value.isdecimal() else None


def api_error(status: int, headers: Mapping[str, str], body: bytes, *, request: str = "", user: str = "") -> ApiError:
    """
    The error for a non-success answer.

    Args:
        status: HTTP status code of the answer.
        headers: its headers, names in lower case.
        body: its body: a `Status` object, or whatever a proxy in between wrote.
        request: method and path, to be named in the message.
        user: the identity that the request presented, to be named where that was refused.

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
    is_from_api = found.kind == "Status"
    message = found.message or excerpt or _CAUSELESS
    return ApiError(
        status=status,
        reason=found.reason or _REASONS.get(status, "Unknown"),
        message=message,
        causes=details.causes or (),
        retry_after=after,
        request=request,
        is_from_api=is_from_api,
        next_move=_next_move(status, request, user, is_from_api=is_from_api, is_denied=bool(_DENIED.search(message))),
    )


def _next_move(status: int, request: str, user: str, *, is_from_api: bool, is_denied: bool) -> str:
    """The operator's remedy for an answer that waiting alone does not change; "" for all others."""
    asked = asked_for(request)
    match status:
        case 401:
            return f"the credential of {user or 'an anonymous client'} is not accepted; renew it"
        case 403 if is_denied:
            who = f"{user} needs" if user else "it needs"
            return f"{who} an RBAC rule for {asked}" if asked else f"{who} an RBAC rule"
        case 404 if not is_from_api:
            install = "install it with `headgate crds install`" if KUEUE_GROUP in request else "check the server's URL"
            return f"the API server does not serve {asked.resource if asked else 'this path'}; {install}"
        case _:
            return ""


def watch_error(body: bytes, *, request: str = "") -> ApiError:
    """The error for an `ERROR` watch event. Its code is in the Status, because the HTTP answer was 200."""
    try:
        code = _STATUS.decode(body).code
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = None
    return api_error(code or 500, {}, body, request=request)


def is_operating_error(error: ApiError) -> bool:
    """
    Whether an answer does not concern the request itself and is worth a later retry.

    401 is one of them: the credential expired or the server's authenticator is failing, and either is repaired without
    changing the request. So is an authorizer's 403, which an RBAC rule repairs; that of an admission plugin is final.
    So is the 404 of a resource that is not installed: treating it as the absence of an object would lose the object. So
    is a redirect, because no API server sends one: a proxy in between does. A budget's 429 to an eviction is not: it is
    about the pod, and may last forever. Nor is the 500 to an invalid apply, and to an eviction that two budgets cover.
    """
    if error.is_unappliable or error.is_over_budgeted:
        return False
    status = error.status
    if status in {403, 404, 429}:
        return error.is_access_denied or error.is_unserved or (status == 429 and not error.is_budget_exhausted)
    return status >= 500 or status in {401, 408} or not 400 <= status < 500
