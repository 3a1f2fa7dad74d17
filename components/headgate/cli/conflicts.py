"""
Applying a manifest of an object that Headgate works on: the fields that are Headgate's stay as they are.

A Job's manifest often says `suspend: true`, and while the Job runs that field is Headgate's. To apply the manifest
again is no wish to stop the Job, so such fields are left out of what is applied. A conflict with anybody else stays.
"""

import re
from typing import Any

from headgate.adapters.kubernetes.errors import ApiError
from headgate.core.status.server_side_apply import FIELD_MANAGER

_CONFLICT = 409
_WITH = re.compile(r'conflict with "([^"]*)"')


def fields_of_headgate(error: ApiError) -> tuple[str, ...]:
    """The fields of a conflict, as `.spec.suspend`, if all are Headgate's own; otherwise none."""
    if error.status != _CONFLICT or not error.causes:
        return ()
    managers = [_WITH.search(cause.message) for cause in error.causes]
    is_ours = all(found is not None and found[1] == FIELD_MANAGER for found in managers)
    return tuple(cause.field for cause in error.causes) if is_ours else ()


def without(body: dict[str, Any], field: str) -> dict[str, Any] | None:
    """An object without one field, named by its path; None where the path leads nowhere. Keys may have dots."""
    return _removed(body, field.removeprefix("."))


def _removed(value: dict[str, Any], path: str) -> dict[str, Any] | None:
    if path in value:
        return {key: kept for key, kept in value.items() if key != path}
    for key, inner in value.items():
        if isinstance(inner, dict) and path.startswith(f"{key}."):
            shorter = _removed(inner, path[len(key) + 1 :])
            if shorter is not None:
                return {**value, key: shorter}
    return None
