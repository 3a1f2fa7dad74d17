"""
Reading requests: from query parameters and bodies to what the registry takes.

Everything a client can get wrong before its object is looked at is refused here, with 400 or 415.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from headgate.testing.cluster import errors, protobuf
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.registry import Deletion, Write
from headgate.testing.cluster.routing import Target
from headgate.testing.cluster.watch import WatchStart

JsonObject = dict[str, Any]

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = "application/json"

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
"""The content type of the bodies that `protobuf` reads."""


class _YamlLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: timestamps stay text."""


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def natural(text: str, name: str) -> int:
    """A query parameter that counts. Raises ApiError 400 if it is no non-negative number."""
    if not text.isdigit():
        raise errors.bad_request(f'{name}: Invalid value: "{text}": must be a non-negative number')
    return int(text)


def continuation(token: str) -> tuple[int, tuple[str, str]]:
    """The revision and the last key of a continue token. Raises ApiError 400 if it is not one of ours."""
    try:
        rv, namespace, name = _decode(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError, msgspec.DecodeError):
        raise errors.bad_request("continue key is not valid") from None
    return rv, (namespace, name)


def watch_start(target: Target, query: Mapping[str, str]) -> WatchStart:
    """Where a watch starts and what it wants. Raises ApiError 400 on contradicting parameters."""
    text = query.get("resourceVersion", "")
    initial = query.get("sendInitialEvents")
    if initial is not None and query.get("resourceVersionMatch") != "NotOlderThan":
        raise errors.bad_request(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    timeout = query.get("timeoutSeconds")
    return WatchStart(
        rv=natural(text, "resourceVersion") if text else None,
        bookmarks=query.get("allowWatchBookmarks") in {"true", "1"},
        initial_events=None if initial is None else initial in {"true", "1"},
        timeout_ms=1000 * natural(timeout, "timeoutSeconds") if timeout else None,
        namespace=target.namespace,
        name=target.name,
    )


def write_options(target: Target, query: Mapping[str, str], user: str) -> Write:
    """The options of a write: dry run, field validation, field manager. Raises ApiError 400."""
    dry_run = query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        raise errors.bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    strictness = query.get("fieldValidation") or "Warn"
    if strictness not in {"Ignore", "Warn", "Strict"}:
        raise errors.bad_request(
            f'fieldValidation: Unsupported value: "{strictness}": supported values: "", "Ignore", "Strict", "Warn"'
        )
    return Write(
        version=target.version,
        manager=query.get("fieldManager") or user.partition("/")[0] or "unknown",
        dry_run=bool(dry_run),
        strictness=strictness,
        subresource=target.subresource,
    )


def deletion_options(kind: Kind, query: Mapping[str, str], options: JsonObject) -> tuple[Deletion, str]:
    """The deletion that query and body ask for, and the warning that goes with it."""
    preconditions = as_object(options.get("preconditions") or {})
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if options.get("orphanDependents") is not None and not propagation:
        propagation = "Orphan" if options["orphanDependents"] else "Background"
    if propagation not in {"", "Background", "Foreground", "Orphan"}:
        raise errors.bad_request(
            f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{propagation}": '
            'supported values: "Background", "Foreground", "Orphan"'
        )
    warning = ""
    if not propagation and kind.resource == "jobs.batch":
        propagation = "Orphan"
        warning = (
            "child pods are preserved by default when jobs are deleted; set "
            "propagationPolicy=Background to remove them or set "
            "propagationPolicy=Orphan to suppress this warning"
        )
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    dry_run = options.get("dryRun") or query.get("dryRun")
    deletion = Deletion(
        uid=preconditions.get("uid", ""),
        rv=preconditions.get("resourceVersion", ""),
        grace_s=None if grace is None else int(grace),
        propagation=propagation,
        dry_run=bool(dry_run),
    )
    return deletion, warning


def decoded(body: Any, content_type: str) -> Any:
    """A body as JSON, or as YAML where the content type allows it; a body given decoded is returned as it is."""
    if not isinstance(body, bytes):
        return body
    if content_type == PROTOBUF:
        try:
            return protobuf.decode(body)
        except ValueError as error:
            raise errors.bad_request(f"error decoding the protobuf body: {error}") from None
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        if "yaml" not in content_type:
            raise errors.bad_request(f"error decoding the request body: {error}") from None
    try:
        return yaml.load(body, Loader=_YamlLoader)  # noqa: S506 - a SafeLoader without timestamps
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from None


def as_object(value: Any) -> JsonObject:
    """A decoded body that must be an object. Raises ApiError 400."""
    if not isinstance(value, dict):
        raise errors.bad_request("the request body must be a JSON object")
    return value


def document_body(target: Target, body: Any, content_type: str | None) -> JsonObject:
    """The object of a POST or PUT. Raises ApiError 400 or 415."""
    media = (content_type or _JSON).partition(";")[0].strip()
    if media not in {_JSON, "application/yaml", PROTOBUF}:
        raise errors.unsupported_media_type((_JSON, "application/yaml", PROTOBUF))
    if body is None:
        raise errors.bad_request(f"the request to {target.kind.resource} has no body")
    return as_object(decoded(body, media))


def check_type(target: Target, obj: JsonObject, *, needed: bool = False) -> None:
    """Refuse a body of another type than the path's. Raises ApiError 400."""
    kind = target.kind
    expected = f"{kind.group}/{target.version}" if kind.group else target.version
    given, name = obj.get("apiVersion", "" if needed else expected), obj.get("kind", "" if needed else kind.kind)
    if not given or not name:
        raise errors.bad_request(f"Object 'Kind' is missing in '{_encode(obj).decode()[:200]}'")
    if name != kind.kind:
        group_version = given if "/" in given else f"/{given}"
        raise errors.bad_request(
            f'{kind.kind} in version "{target.version}" cannot be handled as a {kind.kind}: '
            f"no kind {name!r} is registered for this resource ({group_version})"
        )
    if given != expected:
        raise errors.bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({expected})"
        )


def in_storage_version(target: Target, obj: JsonObject) -> JsonObject:
    """A patched object, which may have changed its version but not its kind. Raises ApiError 400."""
    if obj.get("kind") != target.kind.kind:
        raise errors.bad_request("the kind of an object cannot be patched")
    return obj
