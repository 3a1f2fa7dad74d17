"""
Outcomes: how machines read the final answers of the API server.

The message of a refusal comes from the `metav1.Status` in the answer's body.
"""

from typing import Final

import msgspec

from headgate.core.machine.contract import Completed

CONFLICT: Final = 409
NOT_FOUND: Final = 404
INVALID: Final = 422
"""The API server rejects the object as invalid."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A definite refusal: the HTTP status code, the machine-readable reason and the message."""

    code: int
    reason: str
    message: str


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def is_success(completed: Completed) -> bool:
    """Whether a call was carried out."""
    return completed.status < 300


def refusal(completed: Completed) -> Refusal:
    """The API server's message about a call that it refused. A body that is no Status is quoted."""
    try:
        status = msgspec.json.decode(completed.body, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = _Status(message=completed.body[:200].decode("utf-8", "replace"))
    return Refusal(code=completed.status, reason=status.reason, message=status.message)


def field_conflicts(completed: Completed) -> tuple[str, ...]:
    """The fields over which a server-side apply without force was refused, such as `.status.admission`; else none."""
    try:
        status = msgspec.json.decode(completed.body, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    causes = status.details.causes if status.details is not None else ()
    return tuple(cause.field for cause in causes if cause.reason == "FieldManagerConflict")
