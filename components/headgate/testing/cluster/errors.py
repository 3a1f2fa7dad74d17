"""
The errors of the API server.

Owns the Kubernetes `Status` bodies: one exception, `ApiStatusError`, that carries the HTTP code, the machine-readable
reason and the details, and one constructor per refusal so that the wording is in a single place. Every layer of the
simulated cluster raises these; `Cluster.request` is the only place that turns them into responses.

The wording follows `k8s.io/apimachinery/pkg/api/errors` and `.../util/validation/field`, because clients (and people)
match on it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from headgate.testing.cluster.kinds import Kind

_SHOWN_BYTES: Final = 30
_STORED: Final = {"nodes": "minions"}
JsonObject = dict[str, Any]
"""A decoded JSON object. Stored ones are immutable by convention: replace, never write into them."""


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of a 422: the machine reason, the field path and the text that follows the path."""

    reason: str
    field: str
    message: str


def required(field: str, detail: str = "") -> FieldError:
    """The field must be given."""
    return FieldError(
        reason="FieldValueRequired", field=field, message=f"Required value: {detail}" if detail else "Required value"
    )


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    """The value has the right type but not an allowed content."""
    return FieldError(reason="FieldValueInvalid", field=field, message=f"Invalid value: {_shown(value)}: {detail}")


def bare_value(field: str, detail: str, *, shown: str = "") -> FieldError:
    """The value is refused by a rule; `shown` is how it is quoted, if at all. An empty field is shown as `<nil>`."""
    value = f"{shown}: " if shown else ""
    return FieldError(reason="FieldValueInvalid", field=field or "<nil>", message=f"Invalid value: {value}{detail}")


def wrong_type(field: str, value: object, expected: str, *, shown: str | None = None) -> FieldError:
    """The value has another JSON type than in the schema. `shown` is the field as the text names it."""
    type_, where = f'"{json_type(value)}"', field if shown is None else shown
    return FieldError(
        reason="FieldValueTypeInvalid",
        field=field,
        message=f"Invalid value: {type_}: {where} in body must be of type {expected}: {type_}",
    )


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    """The value is not a member of the enumeration."""
    names = ", ".join(f'"{name}"' for name in supported)
    return FieldError(
        reason="FieldValueNotSupported",
        field=field,
        message=f"Unsupported value: {_shown(value)}: supported values: {names}",
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    """The field must not be given, or not be changed, here."""
    return FieldError(reason="FieldValueForbidden", field=field, message=f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """The value occurs twice in a list that is a set or a map."""
    return FieldError(reason="FieldValueDuplicate", field=field, message=f"Duplicate value: {_shown(value)}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """The list has more items than allowed."""
    return FieldError(
        reason="FieldValueTooMany", field=field, message=f"Too many: {actual}: must have at most {limit} items"
    )


def too_long(field: str, limit: int) -> FieldError:
    """The string is longer than allowed."""
    return FieldError(reason="FieldValueTooLong", field=field, message=f"Too long: may not be more than {limit} bytes")


def json_type(value: object) -> str:
    """The JSON Schema name of a decoded value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


class ApiStatusError(Exception):
    """A refusal by the API server; `status()` is the body that the client sees."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        retry_after_s: int | None = None,
        token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.token = token

    def status(self) -> JsonObject:
        """The `Status` object of this refusal."""
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.token} if self.token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(kind: "Kind", name: str) -> JsonObject:
    details: JsonObject = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def not_found(kind: "Kind", name: str) -> ApiStatusError:
    """404: the object does not exist."""
    return ApiStatusError(404, "NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name))


def unknown_path() -> ApiStatusError:
    """404: no such API path."""
    return ApiStatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(kind: "Kind", name: str) -> ApiStatusError:
    """409: create of a name that is taken."""
    return ApiStatusError(
        409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=_details(kind, name)
    )


def conflict(kind: "Kind", name: str, why: str = "") -> ApiStatusError:
    """409: the write was based on another state than the stored one; read again and retry."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return ApiStatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}',
        details=_details(kind, name),
    )


def precondition_failed(kind: "Kind", namespace: str, name: str, why: str) -> ApiStatusError:
    """409: the object is not the one that the write is about."""
    where = "/".join(part for part in (namespace, name) if part)
    key = f"/registry/{f'{kind.group}/' if '.' in kind.group else ''}{_STORED.get(kind.plural, kind.plural)}/{where}"
    return conflict(
        kind, name, f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    )


def another_object(kind: "Kind", name: str, why: str) -> ApiStatusError:
    """409: the object is not the one that the deletion is about."""
    details = _details(kind, name) | {"kind": kind.kind}
    return ApiStatusError(
        409, "Conflict", f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}', details=details
    )


def apply_conflict(causes: list[JsonObject]) -> ApiStatusError:
    """409: server-side apply met fields that other managers own with another value; force or drop them."""
    plural = "s" if len(causes) > 1 else ""
    managers: dict[str, list[str]] = {}
    for cause in causes:
        managers.setdefault(str(cause["message"]).removeprefix("conflict with "), []).append(cause["field"])
    if len(causes) == 1:
        (manager,) = managers
        text = f"conflict with {manager}: {causes[0]['field']}"
    else:
        text = "conflicts with " + "\nconflicts with ".join(
            f"{manager}:\n" + "\n".join(f"- {field}" for field in fields) for manager, fields in managers.items()
        )
    return ApiStatusError(
        409, "Conflict", f"Apply failed with {len(causes)} conflict{plural}: {text}", details={"causes": causes}
    )


def bad_request(message: str) -> ApiStatusError:
    """400: the request itself cannot be understood."""
    return ApiStatusError(400, "BadRequest", message)


def another_name(given: str, name: str) -> ApiStatusError:
    """400: the object in the body has another name than the path."""
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def internal(message: str) -> ApiStatusError:
    """500 without a reason: the storage's error for a request that passed every earlier check."""
    return ApiStatusError(500, "", message)


def unrecognized(kind: "Kind", why: str, body: bytes) -> ApiStatusError:
    """400: the body does not even say what it is."""
    shown = body.decode(errors="replace") if body.startswith(b"{") else body.hex()
    if len(body) > _SHOWN_BYTES:
        head = body[:_SHOWN_BYTES]
        shown = (head.decode(errors="replace") if body.startswith(b"{") else head.hex()) + " ..."
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): {why} ({shown or '<empty>'})"
    )


def undecodable(kind: "Kind", version: str, why: str, *, given: str = "") -> ApiStatusError:
    """400: the body, of the kind that it gives, cannot be decoded into the kind, or not strictly."""
    return bad_request(f'{given or kind.kind} in version "{version}" cannot be handled as a {kind.kind}: {why}')


def unpatchable(quoted: str, why: str) -> ApiStatusError:
    """422: what a patch makes of the object cannot be decoded; `quoted` is the patched object, or the patch."""
    text = f"Invalid value: {msgspec.json.encode(quoted).decode()}: {why}"
    return ApiStatusError(
        422,
        "Invalid",
        f' "" is invalid: patch: {text}',
        details={"causes": [{"reason": "FieldValueInvalid", "message": text, "field": "patch"}]},
    )


def inapplicable_patch() -> ApiStatusError:
    """422: an operation of a JSON patch has nothing to work on, or its test failed."""
    return ApiStatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def body_too_large(why: str) -> ApiStatusError:
    """413: more than the server takes."""
    return ApiStatusError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def invalid_options(options: str, errors: Sequence[FieldError]) -> ApiStatusError:
    """422: the query or the options of a request; `options` is their kind, such as `PatchOptions`."""
    return _invalid(f'{options}.meta.k8s.io ""', {"group": "meta.k8s.io", "kind": options}, errors)


def forbidden(kind: "Kind", name: str, why: str, causes: list[JsonObject] | None = None) -> ApiStatusError:
    """403: admission refuses."""
    details = _details(kind, name)
    if causes:
        details["causes"] = causes
    return ApiStatusError(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def invalid(kind: "Kind", name: str, errors: Sequence[FieldError], *, as_resource: bool = False) -> ApiStatusError:
    """422: the object is well-formed and wrong; `details.causes` has one entry per field."""
    details = _details(kind, name)
    details["kind"] = kind.plural if as_resource else kind.kind
    return _invalid(f'{kind.resource if as_resource else kind.qualified} "{name}"', details, errors)


def another_kind(api_version: str, kind: str, name: str, field: str, value: str, expected: str) -> ApiStatusError:
    """422: a custom resource's body has another apiVersion or kind."""
    group, slash, _ = api_version.partition("/")
    details: JsonObject = {"name": name} | ({"group": group} if slash else {}) | {"kind": kind}
    qualified = f"{kind}.{group}" if slash else kind
    return _invalid(f'{qualified} "{name}"', details, [invalid_value(field, value, f"must be {expected}")])


def _invalid(what: str, details: JsonObject, errors: Sequence[FieldError]) -> ApiStatusError:
    texts = list(dict.fromkeys(f"{error.field}: {error.message}" for error in errors))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    return ApiStatusError(422, "Invalid", f"{what} is invalid: {text}", details={**details, "causes": causes})


def expired(message: str, *, token: str = "") -> ApiStatusError:
    """410: the version or continue token is older than the history; list again, or continue with `token`."""
    return ApiStatusError(410, "Expired", message, token=token)


def too_old(resource_version: int, oldest: int) -> ApiStatusError:
    """410 of a watch or list whose start is no longer in the history."""
    return expired(f"too old resource version: {resource_version} ({oldest})")


def too_large(resource_version: int, current: int) -> ApiStatusError:
    """504: a resource version from the future."""
    return ApiStatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {resource_version}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        retry_after_s=1,
    )


def too_many_requests(
    message: str, *, causes: list[JsonObject] | None = None, retry_after_s: int | None = None
) -> ApiStatusError:
    """429: not now; wait and try again."""
    details: JsonObject = {}
    if causes:
        details["causes"] = causes
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return ApiStatusError(429, "TooManyRequests", message, details=details, retry_after_s=retry_after_s)


class PageNotFoundError(ApiStatusError):
    """404 in plain text: no part of the server answers for the path."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def method_not_allowed() -> ApiStatusError:
    """405: the path exists, the verb does not."""
    return ApiStatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def not_acceptable(message: str) -> ApiStatusError:
    """406: no representation that the client takes is served."""
    return ApiStatusError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiStatusError:
    """415: the content type of a write is not one this kind takes."""
    return ApiStatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )


def no_patch_type() -> ApiStatusError:
    """415: the content type of a PATCH is no patch at all, and routing itself refuses it."""
    return ApiStatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
