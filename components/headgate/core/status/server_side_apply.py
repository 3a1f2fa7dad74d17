"""What the writes of all statuses share: server-side apply, its field manager, and the version of Kueue's API."""

from typing import Any

from headgate.core.api.conversion import V1BETA2

FIELD_MANAGER = "headgate"
"""The field manager in `metadata.managedFields` for the statuses of queues, finalizers, Jobs."""

API_VERSION = V1BETA2

Json = dict[str, Any]


def apply_query(*, force: bool, manager: str = FIELD_MANAGER) -> dict[str, str]:
    """
    The query of a server-side apply. With `force` it takes over fields of other managers.

    Field validation is off because its warnings are not read; without it a write costs the API server a tenth less.
    """
    query = {"fieldManager": manager, "fieldValidation": "Ignore"}
    return query | {"force": "true"} if force else query
