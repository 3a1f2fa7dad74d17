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
