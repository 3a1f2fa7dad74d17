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


def is_about_another(completed: Completed) -> bool:
    """
    Whether a call was refused because the object of this name has another uid than the one that the call is for.

    A patch is refused as a change of an immutable field, a deletion and an eviction by their precondition.
    """
    if completed.status not in (CONFLICT, INVALID):
        return False
    try:
        status = msgspec.json.decode(completed.body, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    causes = status.details.causes if status.details is not None else ()
    if completed.status == INVALID:
        return any(cause.field == "metadata.uid" for cause in causes)
    return any(text in status.message for text in _OTHER_UID)


_OTHER_UID: Final = ("UID in the precondition", "UID in precondition")
"""What the API server's refusals of an operation with another uid contain."""
