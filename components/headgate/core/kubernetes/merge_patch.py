"""JSON merge patches (RFC 7386)."""

from collections.abc import Mapping
from typing import Any


def merge_patched(document: Any, patch: Any) -> Any:
    """A document with a JSON merge patch applied; neither is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patched(merged.get(name), value)
    return merged


def is_applied(document: Any, patch: Mapping[str, Any]) -> bool:
    """
    Whether a document shows a patch: the fields that it sets and, in any order, its elements of lists.

    Others may have added elements. What the patch removes (null) is absent, or null as well. An object that is absent
    is an empty one.
    """
    if document is None:
        document = {}
    return isinstance(document, Mapping) and all(
        document.get(name) is None if value is None else _shows(document.get(name), value)
        for name, value in patch.items()
    )


def removals(patch: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a patch that removes fields."""
    return {
        name: removals(value) if isinstance(value, Mapping) else value
        for name, value in patch.items()
        if value is None or isinstance(value, Mapping)
    }


def _shows(found: Any, value: Any) -> bool:
    if isinstance(value, Mapping):
        return is_applied(found, value)
    if isinstance(value, list | tuple):
        return isinstance(found, list | tuple) and all(any(_shows(each, one) for each in found) for one in value)
    return bool(found == value)
