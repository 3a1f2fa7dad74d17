"""
Reading writes: from the query and the body of a request to what the registry takes.

Everything a client can get wrong before its object is looked at is refused here, with 400, 415 or 422, in the order and
the words of k8s.io/apiserver's handlers and serializers.
"""
# Over 400 lines: each way in which a client gets a body wrong, in the order in which the API server finds it.

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from headgate.testing.cluster import errors
from headgate.testing.cluster.api import protobuf
from headgate.testing.cluster.api.routing import ResourcePath
from headgate.testing.cluster.api.writes import Deletion, Write
from headgate.testing.cluster.errors import FieldError, forbidden_field, invalid_value, not_supported, too_long
from headgate.testing.cluster.kinds import BY_KIND, Kind

JsonObject = dict[str, Any]

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = "application/json"
_OPERATIONS_MAX: Final = 10_000
_MANAGER_MAX: Final = 128
_TRUE: Final = frozenset({"true", "1"})
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
"""The content type of the bodies that `protobuf` reads."""

_MAP: Final = "map[string]interface {}"
_TYPE_META: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


class _YamlLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: timestamps stay text."""


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


# -- options


def write_options(method: str, target: ResourcePath, query: Mapping[str, str], user: str, media: str = "") -> Write:
    """
    The options of a write: dry run, field validation, field manager. Raises ApiStatusError 422.

    `media` is the content type of a patch.
    """
    options = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(method, "PatchOptions")
    strictness, manager = query.get("fieldValidation") or "Warn", query.get("fieldManager", "")
    found: list[FieldError] = []
    if options == "PatchOptions":
        found += _apply_errors(query, is_apply="apply-patch" in media)
    found += _manager_errors(manager)
    found += _dry_run_errors(query.get("dryRun", ""))
    if strictness not in {"Ignore", "Warn", "Strict"}:
        found.append(not_supported("fieldValidation", strictness, ("", "Ignore", "Strict", "Warn")))
    if found:
        raise errors.invalid_options(options, found)
    return Write(
        version=target.version,
        manager=manager or user.partition("/")[0] or "unknown",
        dry_run=bool(query.get("dryRun")),
        strictness=strictness,
        subresource=target.subresource,
    )


def _apply_errors(query: Mapping[str, str], *, is_apply: bool) -> list[FieldError]:
    if is_apply and not query.get("fieldManager"):
        return [errors.required("fieldManager", "is required for apply patch")]
    if not is_apply and query.get("force"):
        return [forbidden_field("force", "may not be specified for non-apply patch")]
    return []


def _manager_errors(manager: str) -> list[FieldError]:
    if len(manager.encode()) > _MANAGER_MAX:
        return [too_long("fieldManager", _MANAGER_MAX)]
    for index, letter in enumerate(manager):
        if not letter.isprintable():
            text = f"invalid character U+{ord(letter):04X} (at position {index})"
            return [invalid_value("fieldManager", manager, text)]
    return []


def _dry_run_errors(dry_run: str | list[str]) -> list[FieldError]:
    given = [dry_run] if isinstance(dry_run, str) else dry_run
    return [not_supported("dryRun", given, ("All",))] if any(item not in {"", "All"} for item in given) else []


def deletion_options(kind: Kind, query: Mapping[str, str], body: Any, content_type: str | None) -> tuple[Deletion, str]:
    """The deletion that query and body ask for, and the warning that goes with it. Raises ApiStatusError 400 or 422."""
    options: JsonObject = _delete_options(body, content_type or _JSON) if body else dict(query)
    preconditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy") or ""
    orphan = options.get("orphanDependents")
    found: list[FieldError] = []
    if propagation and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        found.append(invalid_value("propagationPolicy", propagation, text))
    if propagation not in {"", *_PROPAGATIONS}:
        found.append(not_supported("propagationPolicy", propagation, (*_PROPAGATIONS, "nil")))
    dry_run = options.get("dryRun") or ""
    found += _dry_run_errors(dry_run)
    if found:
        raise errors.invalid_options("DeleteOptions", found)
    if orphan is not None and not propagation:
        propagation = "Orphan" if str(orphan).lower() in _TRUE else "Background"
    warning = ""
    if not propagation and kind.resource == "jobs.batch":
        propagation = "Orphan"
        warning = (
            "child pods are preserved by default when jobs are deleted; set "
            "propagationPolicy=Background to remove them or set "
            "propagationPolicy=Orphan to suppress this warning"
        )
    grace = options.get("gracePeriodSeconds")
    deletion = Deletion(
        uid=preconditions.get("uid", ""),
        rv=preconditions.get("resourceVersion", ""),
        grace_s=None if grace is None else max(int(grace), 0),
        propagation=propagation,
        dry_run=bool(dry_run),
    )
    return deletion, warning


_DELETE_FIELDS: Final[Mapping[str, tuple[type, str]]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}


def _delete_options(body: Any, media: str) -> JsonObject:
    """The options in a body, checked as far as they are used. Raises ApiStatusError 400."""
    try:
        found = decoded(body, media)
    except errors.ApiStatusError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error.message}") from None
    if not isinstance(found, dict):
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {_mismatch(found, _TYPE_META)}")
    kind = found.get("kind", "DeleteOptions")
    if kind != "DeleteOptions":
        version = found.get("apiVersion", "v1")
        raise errors.bad_request(_unregistered(kind, version))
    for name, (type_, go_type) in _DELETE_FIELDS.items():
        value = found.get(name)
        if value is not None and type(value) is not type_:
            raise errors.bad_request(_mismatch(value, go_type, f"Go struct field DeleteOptions.{name}"))
    return found


def _unregistered(kind: str, version: str) -> str:
    return f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'


# -- bodies


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
    except msgspec.DecodeError:
        if "yaml" not in content_type:
            raise errors.bad_request(json_problem(body)) from None
    try:
        return yaml.load(body, Loader=_YamlLoader)  # noqa: S506 - a SafeLoader without timestamps
    except yaml.YAMLError as error:
        raise errors.bad_request(_yaml_problem(error)) from None


def document_body(target: ResourcePath, body: Any, content_type: str | None, write: Write) -> JsonObject:
    """The object of a POST or PUT; what it has twice is noted in `write`. Raises ApiStatusError 400 or 415."""
    media = (content_type or _JSON).partition(";")[0].strip()
    if media not in {_JSON, "application/yaml", PROTOBUF}:
        raise errors.unsupported_media_type((_JSON, "application/yaml", PROTOBUF))
    if body is None:
        body = b""
    try:
        found = decoded(body, media)
    except errors.ApiStatusError as error:
        if media == PROTOBUF or not isinstance(body, bytes):
            raise
        prefix = "" if "yaml" in media else "couldn't get version/kind; json parse error: "
        raise errors.unrecognized(target.kind, prefix + error.message, body) from None
    if not isinstance(found, dict):
        why = f"couldn't get version/kind; json parse error: {_mismatch(found, _TYPE_META)}"
        raise errors.unrecognized(target.kind, why, body if isinstance(body, bytes) else _encode(body))
    if isinstance(body, bytes) and media == _JSON:
        write.repeated = repeated_fields(body, found)
    check_type(target, found, body)
    return found


def patch_body(body: Any, media: str) -> Any:
    """The decoded body of a merge, strategic or JSON patch. Raises ApiStatusError 400 or 413."""
    prefix = "" if "strategic" in media else "error decoding patch: "
    try:
        patch = decoded(body if body is not None else b"", _JSON)
    except errors.ApiStatusError as error:
        raise errors.bad_request(prefix + error.message) from None
    if media == "application/json-patch+json":
        if not isinstance(patch, list):
            raise errors.bad_request(prefix + _mismatch(patch, "[]handlers.jsonPatchOp"))
        for operation in patch:
            if not isinstance(operation, dict):
                raise errors.bad_request(prefix + _mismatch(operation, "handlers.jsonPatchOp"))
        if len(patch) > _OPERATIONS_MAX:
            text = f"The allowed maximum operations in a JSON patch is {_OPERATIONS_MAX}, got {len(patch)}"
            raise errors.body_too_large(text)
    elif not isinstance(patch, dict):
        raise errors.bad_request(prefix + _mismatch(patch, _MAP))
    return patch


def apply_body(body: Any) -> JsonObject:
    """The configuration of an apply. Raises ApiStatusError 400."""
    try:
        found = decoded(body if body is not None else b"", "application/yaml")
    except errors.ApiStatusError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error.message}") from None
    if not isinstance(found, dict):
        raise errors.bad_request(
            f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {_mismatch(found, _MAP)}"
        )
    return found


def check_configuration(target: ResourcePath, config: JsonObject) -> None:
    """Refuse a configuration of another type than the path's. Raises ApiStatusError 400."""
    kind = target.kind
    expected = f"{kind.group}/{target.version}" if kind.group else target.version
    given, name = config.get("apiVersion", ""), config.get("kind", "")
    if given != expected or name != kind.kind:
        raise errors.bad_request(f"invalid object type: {given if '/' in given else f'/{given}'}, Kind={name}")


def check_type(target: ResourcePath, obj: JsonObject, body: Any) -> None:
    """Refuse a body of another type than the path's. Raises ApiStatusError 400 or 422."""
    kind = target.kind
    expected = f"{kind.group}/{target.version}" if kind.group else target.version
    if kind.custom:
        _check_custom_type(kind, expected, obj, body)
        return
    expected, wanted, internal = _ACTIONS.get(target.subresource, (expected, kind.kind, "core"))
    given, name = obj.get("apiVersion", expected), obj.get("kind", wanted)
    if given == expected and name == wanted:
        return
    group, _, version = given.rpartition("/")
    other = BY_KIND.get((group, name))
    if given != expected or other is None:
        why = _unregistered(name, given)
    else:
        why = f"converting ({_go_version(group, version)}.{name}) to ({internal}.{wanted}): unknown conversion"
    raise errors.bad_request(f'{name} in version "{version}" cannot be handled as a {wanted}: {why}')


_ACTIONS: Final = {"binding": ("v1", "Binding", "core"), "eviction": ("policy/v1", "Eviction", "policy")}
"""The types of the bodies that are no documents: version, kind, and the package that the server has them in."""


def _go_version(group: str, version: str) -> str:
    return version if not group else f"{group.partition('.')[0]}{version}"


def _check_custom_type(kind: Kind, expected: str, obj: JsonObject, body: Any) -> None:
    given, name = obj.get("apiVersion", ""), obj.get("kind", "")
    if not name:
        raw = body if isinstance(body, bytes) else _encode(obj)
        why = f"Object 'Kind' is missing in '{raw.decode(errors='replace')}'"
        raise errors.unrecognized(kind, why, raw)
    if given != expected:
        raise errors.bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({expected})"
        )
    if name != kind.kind:
        raise another_type(kind, obj, "kind", name, kind.kind)


def another_type(kind: Kind, obj: JsonObject, field: str, value: str, expected: str) -> errors.ApiStatusError:
    """The refusal of a custom resource with another apiVersion or kind."""
    metadata = obj.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    api_version = str(obj.get("apiVersion", kind.api_version))
    return errors.another_kind(api_version, str(obj.get("kind", kind.kind)), name, field, value, expected)


def check_patched_type(target: ResourcePath, obj: JsonObject, write: Write) -> None:
    """Refuse a patch that changes what an object is. Raises ApiStatusError 422."""
    kind = target.kind
    expected = f"{kind.group}/{target.version}" if kind.group else target.version
    given, name = obj.get("apiVersion"), obj.get("kind")
    if given in {expected, kind.api_version, None} and name in {kind.kind, None}:
        return
    if kind.custom and given in {expected, kind.api_version}:
        raise another_type(kind, obj, "kind", str(name), kind.kind)
    if kind.custom:
        raise another_type(kind, obj, "apiVersion", str(given), expected)
    raise write.undecodable(kind, _unregistered(str(name), str(given)))


# -- what Go's decoders say


def json_problem(body: bytes) -> str:
    """The error of Go's JSON decoder for a body that is no JSON."""
    text = body.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        at, problem = error.pos, error.msg
    else:
        return "invalid character in string literal"
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if at >= len(text) or problem.startswith("Unterminated"):
        return "unexpected end of JSON input"
    return f"invalid character {_quoted(text[at])} {_place(problem, text[:at])}"


def _quoted(letter: str) -> str:
    return {"'": r"'\''", '"': "'\"'"}.get(letter) or repr(letter)


def _place(problem: str, before: str) -> str:
    if problem.startswith("Expecting property name"):
        return "looking for beginning of object key string"
    if problem.startswith("Expecting ':'"):
        return "after object key"
    if problem.startswith("Expecting ','"):
        return "after object key:value pair" if _in_object(before) else "after array element"
    if problem.startswith("Extra data"):
        return "after top-level value"
    if problem.startswith("Invalid"):
        return "in string literal"
    return "looking for beginning of value"


def _in_object(text: str) -> bool:
    """Whether the innermost bracket that a text leaves open is an object's; the brackets in strings do not count."""
    opened, quoted, escaped = [], False, False
    for letter in text:
        if quoted:
            quoted, escaped = (escaped or letter != '"'), letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{[":
            opened.append(letter)
        elif letter in "}]" and opened:
            opened.pop()
    return bool(opened) and opened[-1] == "{"


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f"line {max(mark.line, 1)}: " if mark is not None else ""
    problem = str(getattr(error, "problem", "") or error)
    return f"yaml: {line}{'did not find expected node content' if 'node content' in problem else problem}"


def _mismatch(value: Any, go_type: str, where: str = "Go value") -> str:
    word = {"integer": "number", "boolean": "bool"}.get(errors.json_type(value), errors.json_type(value))
    return f"json: cannot unmarshal {word} into {where} of type {go_type}"


def repeated_fields(body: bytes, found: Any) -> list[str]:
    """The paths of the fields that a JSON body has more than once, in its order."""
    # As many keys in as out: nothing was lost. Only the bodies that spell keys otherwise are looked at more closely.
    if body.count(b'":') == _encode(found).count(b'":'):
        return []
    paths: list[str] = []
    _collect_repeated(json.loads(body, object_pairs_hook=_Pairs), "", paths)
    return paths


class _Pairs(list[tuple[str, Any]]):
    """An object as its members, in order, repeated ones included."""


def _collect_repeated(value: Any, path: str, out: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            where = f"{path}.{name}" if path else name
            if name in seen:
                out.append(where)
            seen.add(name)
            _collect_repeated(item, where, out)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect_repeated(item, f"{path}[{index}]", out)
