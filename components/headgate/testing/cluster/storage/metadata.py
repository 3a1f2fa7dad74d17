"""
What holds for the metadata of every kind: names, labels, owner references, finalizers.

Pure checks in the words of k8s.io/apimachinery/pkg/api/validation, and the merge of a client's metadata with the
fields that only the server sets.
"""

import re
from typing import Any, Final

from headgate.testing.cluster.errors import FieldError, forbidden_field, invalid_value, json_type, too_long
from headgate.testing.cluster.kinds import Kind

JsonObject = dict[str, Any]

_SUBDOMAIN: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_QUALIFIED: Final = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_VALUE: Final = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_QUALIFIED_KEY_TEXT: Final = (
    _QUALIFIED_TEXT.replace("name part must", "a valid label key must")
    + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""How large all annotations of an object may be together."""

SYSTEM_FIELDS: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""The fields of metadata that an update cannot change, in the order in which they are written."""

CLIENT_FIELDS: Final = ("labels", "annotations", "ownerReferences", "finalizers")
"""The fields of metadata that clients write."""

KNOWN_FIELDS: Final = frozenset({*SYSTEM_FIELDS, *CLIENT_FIELDS, "managedFields", "selfLink"})


def is_subdomain(name: str) -> bool:
    """Whether a text is a DNS subdomain name of at most 253 characters."""
    return len(name) <= 253 and _SUBDOMAIN.match(name) is not None


def name_errors(name: str, *, label: bool = False, field: str = "metadata.name") -> list[FieldError]:
    """What is wrong with an object's name: a DNS subdomain, or a DNS label for namespaces."""
    limit, pattern, text = (63, _LABEL, _LABEL_TEXT) if label else (253, _SUBDOMAIN, _SUBDOMAIN_TEXT)
    errors = []
    if len(name) > limit:
        errors.append(invalid_value(field, name, f"must be no more than {limit} characters"))
    if pattern.match(name) is None:
        dotted = label and is_subdomain(name)
        errors.append(invalid_value(field, name, "must not contain dots" if dotted else text))
    return errors


def label_errors(labels: Any, field: str) -> list[FieldError]:
    """What is wrong with a set of labels."""
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        errors += qualified_name_errors(key, field)
        if not isinstance(value, str):
            errors.append(invalid_value(field, value, "must be a string"))
        elif len(value) > 63:
            errors.append(invalid_value(field, value, "must be no more than 63 bytes"))
        elif _VALUE.match(value) is None:
            errors.append(invalid_value(field, value, _VALUE_TEXT))
    return errors


def qualified_name_errors(key: str, field: str) -> list[FieldError]:
    """What is wrong with a label key, an annotation key or a finalizer."""
    if key.count("/") > 1:
        return [invalid_value(field, key, _QUALIFIED_KEY_TEXT)]
    prefix, slash, name = key.rpartition("/")
    errors = []
    if slash and not prefix:
        errors.append(invalid_value(field, key, "prefix part must be non-empty"))
    elif slash and not is_subdomain(prefix):
        errors.append(invalid_value(field, key, f"prefix part {_SUBDOMAIN_TEXT}"))
    if not name:
        errors.append(invalid_value(field, key, "name part must be non-empty"))
    elif len(name) > 63:
        errors.append(invalid_value(field, key, "name part must be no more than 63 bytes"))
    if _QUALIFIED.match(name) is None:
        errors.append(invalid_value(field, key, _QUALIFIED_TEXT))
    return errors


_TEXTS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")
_REFERENCE: Final = ("apiVersion", "kind", "name", "uid")
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_WORDS: Final = {"integer": "number", "boolean": "bool"}


# Large: one case for each field, in the order in which Go's decoder meets them.
def type_problem(kind: Kind, metadata: Any) -> str:
    """The error of Go's decoder for the first part of a client's metadata that cannot be decoded, or none."""
    if not isinstance(metadata, dict):
        place = "Go value" if kind.custom else f"Go struct field {kind.kind}.metadata"
        return _mismatch(metadata, place, "v1.ObjectMeta")
    if not metadata:
        return ""

    # The metadata of a custom resource is decoded by itself, that of the others within their struct.
    where = "Go struct field ObjectMeta." + ("" if kind.custom else "metadata.")
    for name in _TEXTS:
        if not isinstance(metadata.get(name) or "", str):
            return _mismatch(metadata[name], where + name, "types.UID" if name == "uid" else "string")
    for name in ("labels", "annotations"):
        if (given := metadata.get(name)) and (problem := _map_problem(given, where + name)):
            return problem
    for name, item_type, go_type in (
        ("finalizers", str, "string"),
        ("ownerReferences", dict, "v1.OwnerReference"),
    ):
        given = metadata.get(name)
        if given is None:
            continue
        if not isinstance(given, list):
            return _mismatch(given, where + name, f"[]{go_type}")
        for item in given:
            if not isinstance(item, item_type):
                return _mismatch(item, where + name, go_type)
    for owner in metadata.get("ownerReferences") or []:
        for key in _REFERENCE:
            if not isinstance(owner.get(key, ""), str):
                place = where.replace("ObjectMeta", "OwnerReference")
                return _mismatch(owner[key], f"{place}ownerReferences.{key}", "string")
    return ""


def _map_problem(value: Any, where: str) -> str:
    if not isinstance(value, dict):
        return _mismatch(value, where, "map[string]string")
    return next((_mismatch(item, where, "string") for item in value.values() if not isinstance(item, str)), "")


def _mismatch(value: Any, where: str, go_type: str) -> str:
    word = json_type(value)
    return f"json: cannot unmarshal {_WORDS.get(word, word)} into {where} of type {go_type}"


def metadata_errors(kind: Kind, metadata: JsonObject, before: JsonObject | None) -> list[FieldError]:
    """What is wrong with the parts of metadata that clients write; parts that are as before are skipped."""
    old = before or {}
    errors: list[FieldError] = []
    labels = metadata.get("labels")
    if labels and labels is not old.get("labels"):
        errors += label_errors(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations and annotations is not old.get("annotations"):
        errors += _annotation_errors(annotations)
    owners = metadata.get("ownerReferences")
    if owners and owners is not old.get("ownerReferences"):
        errors += _owner_errors(owners)
    finalizers = metadata.get("finalizers") or []
    if finalizers and finalizers is not old.get("finalizers"):
        errors += _finalizer_errors(kind, finalizers)
        new = sorted(finalizer for finalizer in finalizers if finalizer not in (old.get("finalizers") or []))
        if new and old.get("deletionTimestamp"):
            shown = ", ".join(f'"{finalizer}"' for finalizer in new)
            errors.append(
                forbidden_field(
                    "metadata.finalizers",
                    f"no new finalizers can be added if the object is being deleted, found new "
                    f"finalizers []string{{{shown}}}",
                )
            )
    return errors


def _annotation_errors(annotations: JsonObject) -> list[FieldError]:
    errors, size = [], 0
    for key, value in annotations.items():
        errors += qualified_name_errors(key.lower(), "metadata.annotations")
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_BYTES_MAX:
        errors.append(too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX))
    return errors


def _finalizer_errors(kind: Kind, finalizers: list[str]) -> list[FieldError]:
    errors = []
    for index, finalizer in enumerate(finalizers):
        errors += qualified_name_errors(finalizer, "metadata.finalizers")
        if not kind.custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, text))
    return errors


def metadata_warnings(kind: Kind, metadata: JsonObject, before: JsonObject | None) -> list[str]:
    """What the API server remarks on the finalizers of a custom resource."""
    finalizers = metadata.get("finalizers")
    if not finalizers or not kind.custom or (before is not None and finalizers == before.get("finalizers")):
        return []
    return [
        f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name '
        + ("including a path (/) " if "." in finalizer else "")
        + "to avoid accidental conflicts with other finalizer writers"
        for finalizer in finalizers
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def immutable_errors(given: JsonObject, stored: JsonObject) -> list[FieldError]:
    """Fields that only the server sets and that an update changes; fields that it leaves out stay."""
    return [
        invalid_value(f"metadata.{name}", given[name], "field is immutable")
        for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if given.get(name) is not None and given[name] != stored.get(name)
    ]


def _owner_errors(owners: list[JsonObject]) -> list[FieldError]:
    errors = []
    field = "metadata.ownerReferences"
    controller = ""
    for owner in owners:
        version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
        if not version or version.count("/") > 1 or version.endswith("/"):
            errors.append(invalid_value(f"{field}.apiVersion", version, "version must not be empty"))
        errors += [
            invalid_value(f"{field}.{name}", owner.get(name, ""), "must not be empty")
            for name in ("kind", "name", "uid")
            if not owner.get(name)
        ]
        if (version, kind) == ("v1", "Event"):
            errors.append(
                invalid_value(field, _reference(owner), f"/{version}, Kind={kind} is disallowed from being an owner")
            )
        if owner.get("controller"):
            name = f"{kind}/{owner.get('name', '')}"
            if controller:
                text = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {name}"
                )
                errors.append(invalid_value(field, [_reference(each) for each in owners], text))
            controller = controller or name
    return errors


def _reference(owner: JsonObject) -> JsonObject:
    """An owner reference with its fields in the order of the API."""
    order = (*_REFERENCE, "controller", "blockOwnerDeletion")
    return {name: owner[name] for name in order if name in owner}


def combined(client: JsonObject, stored: JsonObject, unknown: list[str]) -> JsonObject:
    """
    A fresh metadata: the system fields of the stored one, the rest of the client's.

    Unknown fields are reported and dropped.
    """
    result: JsonObject = {name: stored[name] for name in SYSTEM_FIELDS if name in stored}
    if not stored and client.get("generateName"):
        result["generateName"] = client["generateName"]
    for name in CLIENT_FIELDS:
        value = client.get(name)
        if value:
            result[name] = value
    if "managedFields" in stored:
        result["managedFields"] = stored["managedFields"]
    unknown += [f"metadata.{name}" for name in client if name not in KNOWN_FIELDS]
    return result
