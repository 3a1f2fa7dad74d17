"""
What a list or a watch may ask for: its query parameters, read and held against each other as the API server does.

Sources: k8s.io/apimachinery/pkg/apis/meta/internalversion/{defaults.go,validation}, k8s.io/apiserver/pkg/storage
(continue.go). Called by `listing.py`, and by `reading.py` for watches.
"""

import base64
import posixpath
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.testing.cluster import errors
from headgate.testing.cluster.errors import ApiStatusError, FieldError

JsonObject = dict[str, Any]
Key = tuple[str, str]

INCONSISTENT: Final = -1
"""The version in a token that continues with whatever is there now."""

_FORM: Final = "meta.k8s.io/v1"
_FALSE: Final = frozenset({"false", "0"})
_MATCHES: Final = ("Exact", "NotOlderThan", "")
_encode: Final = msgspec.json.Encoder().encode


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a list, a watch or a deletion of a collection, as they were given."""

    limit: int = 0
    token: str = ""
    rv: str = ""
    match: str = ""
    initial_events: bool | None = None
    bookmarks: bool = False
    timeout_s: int | None = None


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    v: str = ""
    rv: int = 0
    start: str = ""


_decode_token: Final = msgspec.json.Decoder(_Token).decode


def read(query: Mapping[str, str], *, watching: bool = False) -> ListOptions:
    """
    The options in a query.

    Raises ApiStatusError: 400 for a number that is none, 422 for options that do not go together.
    """
    initial = query.get("sendInitialEvents")
    options = ListOptions(
        limit=_integer(query.get("limit", "")) or 0,
        token=query.get("continue", ""),
        rv=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        initial_events=None if not initial else initial not in _FALSE,
        bookmarks=is_true(query.get("allowWatchBookmarks", "")),
        timeout_s=_integer(query.get("timeoutSeconds", "")),
    )
    if watching and options.rv in {"", "0"} and options.initial_events is None and not options.match:
        # A watch from nowhere has always begun with what is there; it is a streaming list by another name.
        options = msgspec.structs.replace(options, initial_events=True, match="NotOlderThan")
    found = _watch_errors(options) if watching else _list_errors(options)
    if found:
        raise errors.invalid_options("ListOptions", found)
    return options


def is_true(text: str) -> bool:
    """A boolean parameter: whatever is given and is neither `false` nor `0` is true."""
    return bool(text) and text not in _FALSE


def _integer(text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _list_errors(options: ListOptions) -> list[FieldError]:
    found = []
    if options.match:
        if not options.rv:
            found.append(_match("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if options.token:
            found.append(_match("resourceVersionMatch is forbidden when continue is provided"))
        if options.match not in _MATCHES:
            found.append(errors.not_supported("resourceVersionMatch", options.match, _MATCHES))
        if options.match == "Exact" and options.rv == "0":
            found.append(_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if options.initial_events is not None:
        found.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return found


def _watch_errors(options: ListOptions) -> list[FieldError]:
    found = []
    if options.initial_events is not None and options.match != "NotOlderThan":
        found.append(_match("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if options.match:
        if options.initial_events is None:
            found.append(_match("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
        if options.match != "NotOlderThan":
            found.append(errors.not_supported("resourceVersionMatch", options.match, ("NotOlderThan",)))
        if options.token:
            found.append(_match("resourceVersionMatch is forbidden when continue is provided"))
    return found


def _match(why: str) -> FieldError:
    return errors.forbidden_field("resourceVersionMatch", why)


# --- versions and tokens


def version(text: str) -> int:
    """A resourceVersion as a number. Raises ApiStatusError 500 without a reason, as reading one object does."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(2**64)):
        return int(text)
    message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    raise ApiStatusError(500, "", message)


def list_version(text: str) -> int:
    """The resourceVersion of a list as a number. Raises ApiStatusError 400."""
    try:
        return version(text)
    except ApiStatusError as error:
        raise errors.bad_request(f"invalid resource version: {error.message}") from None


def token_after(rv: int, key: Key, namespace: str) -> str:
    """The continue token that continues behind an object; its key is relative to the collection that was listed."""
    space, name = key
    return _token(rv, "/" + name if namespace else f"/{space}/{name}" if space else name, "\0")


def token_now(token: str) -> str:
    """The token that continues where an expired one would have, with what is there now."""
    held = _held(token)
    return _token(INCONSISTENT, held.start.rstrip("\0").removeprefix("/"), "\0")


def _token(rv: int, start: str, end: str) -> str:
    text = _encode({"v": _FORM, "rv": rv, "start": start + end})
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def continuation(token: str, namespace: str) -> tuple[int, Key]:
    """The version of a continue token and the key it continues behind. Raises ApiStatusError 400 if it is not ours."""
    held = _held(token)
    start = held.start.rstrip("\0").removeprefix("/")
    if namespace:
        return held.rv, (namespace, start)
    space, _, name = start.rpartition("/")
    return held.rv, (space, name)


def _held(token: str) -> _Token:
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise _bad_token(": illegal base64 data at input byte 0") from None
    try:
        held = _decode_token(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        first = text[:1].decode("latin-1")
        raise _bad_token(f": invalid character '{first}' looking for beginning of value") from None
    if held.v != _FORM:
        raise _bad_token(f": server does not recognize this encoded version {held.v}")
    if held.rv == 0:
        raise _bad_token(f": incorrect encoded start resourceVersion (version {_FORM})")
    if not held.start:
        raise _bad_token(f": encoded start key empty (version {_FORM})")
    key = held.start if held.start.startswith("/") else "/" + held.start
    if posixpath.normpath(key) != key:
        raise _bad_token(f": {held.start}")
    return held


def _bad_token(why: str) -> ApiStatusError:
    return errors.bad_request(f"invalid continue token: continue key is not valid{why}")
