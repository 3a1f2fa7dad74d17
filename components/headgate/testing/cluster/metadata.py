"""
What holds for the metadata of every kind: names, labels, owner references, finalizers.

Pure checks in the words of k8s.io/apimachinery/pkg/api/validation, and the merge of a client's metadata with the
fields that only the server sets.
"""

import re
from typing import Any, Final

from headgate.testing.cluster.errors import FieldError, forbidden_field, invalid_value, required, too_long

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
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

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

_CLIENT_FIELDS: Final = ("labels", "annotations", "ownerReferences", "finalizers")
_KNOWN: Final = frozenset({*SYSTEM_FIELDS, *_CLIENT_FIELDS, "managedFields", "selfLink"})


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
        errors.append(invalid_value(field, name, text))
    return errors


def label_errors(labels: Any, field: str) -> list[FieldError]:
    """What is wrong with a set of labels."""
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        errors += qualified_name_errors(key, field)
        if not isinstance(value, str):
            errors.append(invalid_value(field, value, "must be a string"))
        elif len(value) > 63:
            errors.append(invalid_value(field, value, "must be no more than 63 characters"))
        elif _VALUE.match(value) is None:
            errors.append(invalid_value(field, value, _VALUE_TEXT))
    return errors


def qualified_name_errors(key: str, field: str) -> list[FieldError]:
    """What is wrong with a label key, an annotation key or a finalizer."""
    prefix, slash, name = key.rpartition("/")
    errors = []
    if slash and not is_subdomain(prefix):
        errors.append(invalid_value(field, key, f"prefix part {_SUBDOMAIN_TEXT}"))
    if not name:
        errors.append(invalid_value(field, key, "name part must be non-empty"))
    elif len(name) > 63:
        errors.append(invalid_value(field, key, "name part must be no more than 63 characters"))
    elif _QUALIFIED.match(name) is None:
        errors.append(invalid_value(field, key, _QUALIFIED_TEXT))
    return errors


_TEXTS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")
_REFERENCE: Final = ("apiVersion", "kind", "name", "uid")


def type_problem(metadata: Any) -> str:
    """The first part of a client's metadata that cannot be decoded, or nothing."""
    if not isinstance(metadata, dict):
        return "metadata must be an object"
    for name in _TEXTS:
        if not isinstance(metadata.get(name) or "", str):
            return f"metadata.{name} must be a string"
    for name in ("labels", "annotations"):
        if metadata.get(name) and not _is_text_map(metadata[name]):
            return f"metadata.{name} must be a map of strings"
    finalizers = metadata.get("finalizers") or []
    if not (isinstance(finalizers, list) and all(isinstance(item, str) for item in finalizers)):
        return "metadata.finalizers must be a list of strings"
    owners = metadata.get("ownerReferences") or []
    if not (isinstance(owners, list) and all(isinstance(owner, dict) for owner in owners)):
        return "metadata.ownerReferences must be a list of objects"
    if not all(isinstance(owner.get(key, ""), str) for owner in owners for key in _REFERENCE):
        return "metadata.ownerReferences must hold strings"
    return ""


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def metadata_errors(metadata: JsonObject, before: JsonObject | None) -> list[FieldError]:
    """What is wrong with the parts of metadata that clients write; parts that are as before are skipped."""
    old = before or {}
    errors: list[FieldError] = []
    labels = metadata.get("labels")
    if labels and labels is not old.get("labels"):
        errors += label_errors(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations and annotations is not old.get("annotations"):
        size = 0
        for key, value in annotations.items():
            errors += qualified_name_errors(key.lower(), "metadata.annotations")
            size += len(key) + len(value)
        if size > 256 * 1024:
            errors.append(too_long("metadata.annotations", 256 * 1024))
    owners = metadata.get("ownerReferences")
    if owners and owners is not old.get("ownerReferences"):
        errors += _owner_errors(owners)
    finalizers = metadata.get("finalizers") or []
    if finalizers and finalizers is not old.get("finalizers"):
        for finalizer in finalizers:
            errors += qualified_name_errors(finalizer, "metadata.finalizers")
        new = [finalizer for finalizer in finalizers if finalizer not in (old.get("finalizers") or [])]
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


def _owner_errors(owners: list[JsonObject]) -> list[FieldError]:
    errors = []
    controllers = []
    for index, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{index}]"
        errors += [
            invalid_value(f"{field}.{name}", owner.get(name, ""), f"{name} must not be empty")
            if name == "apiVersion"
            else required(f"{field}.{name}")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
        if owner.get("controller"):
            controllers.append(owner.get("name", ""))
    if len(controllers) > 1:
        errors.append(
            invalid_value(
                "metadata.ownerReferences",
                owners,
                f"Only one reference can have Controller set to true. Found {controllers}",
            )
        )
    return errors


def combined(client: JsonObject, stored: JsonObject, unknown: list[str]) -> JsonObject:
    """
    A fresh metadata: the system fields of the stored one, the rest of the client's.

    Unknown fields are reported and dropped.
    """
    result: JsonObject = {name: stored[name] for name in SYSTEM_FIELDS if name in stored}
    for name in _CLIENT_FIELDS:
        value = client.get(name)
        if value:
            result[name] = value
    if "managedFields" in stored:
        result["managedFields"] = stored["managedFields"]
    unknown += [f"metadata.{name}" for name in client if name not in _KNOWN]
    return result
