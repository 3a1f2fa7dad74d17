"""
What a written object is before the kind's own rules see it: isolated, decoded, checked against its schema.

The registry calls these in that order for each create and update; they read no store. Custom resources differ from
Kubernetes' own kinds in what is pruned, how a wrong type is reported, and in CEL rules.
"""

from typing import Any

import msgspec

from headgate.testing.cluster import errors
from headgate.testing.cluster.api.writes import Write
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.storage.metadata import combined, name_errors
from headgate.testing.cluster.validation.schema import Checker, has_rules, unchecked_rules

JsonObject = dict[str, Any]


def former_version(kind: Kind, write: Write) -> str:
    """The storage version, if the write is in a version before it."""
    return kind.version if kind.custom and write.version and write.version != kind.version else ""


def isolated(kind: Kind, old: JsonObject, obj: JsonObject, subresource: str) -> tuple[JsonObject, list[str]]:
    """What a write through this endpoint may change, laid over what it may not."""
    stored = old["metadata"]
    given: JsonObject = obj.get("metadata") or stored
    unknown: list[str] = []
    if subresource == "status":
        metadata = dict(stored) if kind.custom else combined(given, stored, unknown)
        if not kind.custom and "ownerReferences" in stored:
            metadata["ownerReferences"] = stored["ownerReferences"]
        fresh = {**old, "metadata": metadata}
        if "status" in obj:
            fresh["status"] = obj["status"]
        else:
            fresh.pop("status", None)
        return fresh, unknown
    metadata = dict(stored) if given is stored else combined(given, stored, unknown)
    fresh = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    for field, value in obj.items():
        if field not in fresh:
            fresh[field] = value
    if kind.status_subresource:
        if "status" in old:
            fresh["status"] = old["status"]
        else:
            fresh.pop("status", None)
    return fresh, unknown


# Large: the steps of decoding in the order of the API server, which decides what error a client sees.
def decoded(
    kind: Kind,
    obj: JsonObject,
    old: JsonObject | None,
    unknown: list[str],
    checker: Checker,
    write: Write,
) -> JsonObject:
    """
    The object with its fields decoded, pruned and defaulted by the schema. What is wrong is left in `checker`.

    Raises ApiStatusError 400 if it cannot be decoded, or not strictly; 422 if a patch made it so.
    """
    node = kind.schema
    for field in list(obj):
        if field in {"apiVersion", "kind", "metadata"}:
            continue
        child = node.fields.get(field)
        if child is None or (obj[field] is None and not (kind.custom and write.applies)):
            if child is None:
                checker.unknown.append(field)
            obj = {key: value for key, value in obj.items() if key != field}
            continue
        value = checker.field(field, child, obj[field], old.get(field) if old is not None else None)
        if not value and isinstance(value, dict | list) and not kind.custom and child.type != "object":
            obj = {key: value for key, value in obj.items() if key != field}
        elif value is not obj[field]:
            obj = {**obj, field: value}
    for field in node.required:
        if field not in obj:
            checker.errors.append(errors.required(field))
    for field, default in node.defaults:
        if field not in obj:
            obj = {**obj, field: default}
    if checker.undecodable:
        raise write.undecodable(kind, checker.undecodable)
    # Custom resources are pruned by sorted paths, structs are decoded in the order of the body.
    pruned = sorted(checker.unknown) if kind.custom else checker.unknown
    remarks = [f'duplicate field "{path}"' for path in write.repeated]
    remarks += [f'unknown field "{path}"' for path in (*unknown, *pruned)]
    if remarks and write.strictness == "Strict":
        raise write.undecodable(kind, f"strict decoding error: {', '.join(remarks)}")
    if remarks and write.strictness == "Warn":
        write.warnings += remarks
    return obj


def naming_errors(kind: Kind, name: str, given: JsonObject) -> list[errors.FieldError]:
    """What is wrong with the name of a new object, and with the prefix that it was to be made of."""
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    label, prefix, found = kind.plural == "namespaces", given.get("generateName") or "", []
    if prefix:
        whole = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        for error in name_errors(whole, label=label, field="metadata.generateName"):
            why = error.message.partition(f"{msgspec.json.encode(whole).decode()}: ")[2]
            found.append(errors.invalid_value(error.field, prefix, why))
    return found + name_errors(name, label=label)


def content_errors(
    kind: Kind,
    fresh: JsonObject,
    old: JsonObject | None,
    found: list[errors.FieldError],
    checker: Checker,
) -> list[errors.FieldError]:
    """What schema and CEL rules say of a custom resource. `found` is what its metadata lacks."""
    if not kind.custom:
        return []
    checker.whole(kind.schema, fresh, old)
    if not has_rules(kind.schema):
        return [*checker.errors, *checker.broken_rules()]
    if unchecked := unchecked_rules([*found, *checker.errors]):
        return checker.errors + unchecked
    return [*checker.errors, *checker.broken_rules()]


def spec_changed(fresh: JsonObject, old: JsonObject) -> bool:
    """Whether anything but metadata and status is another than before: what makes a new generation."""
    for field, value in fresh.items():
        if (
            field not in {"apiVersion", "kind", "metadata", "status"}
            and value is not old.get(field)
            and value != old.get(field)
        ):
            return True
    return any(field not in fresh for field in old if field != "status")
