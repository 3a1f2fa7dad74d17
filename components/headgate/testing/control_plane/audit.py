"""
The requests to the API server, from its audit log: one line for each request, at the level Metadata.

User, request and response: enough to count writes by user, and to see which rules of RBAC were used.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

POLICY: Final = (
    b'{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}'
)


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """
    One request.

    `verb` is RBAC's (get, list, watch, create, update, patch, delete, deletecollection). `resource`, `group`,
    `subresource`, `namespace` and `name` are empty for paths that are no resource's. `code` is the HTTP status.
    """

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 0
    uri: str = ""
    user_agent: str = ""
    #: When it arrived, RFC 3339 with microseconds.
    at: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct, rename="camel"):
    resource: str = ""
    api_group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    verb: str
    request_uri: str = msgspec.field(name="requestURI")
    user: _User
    object_ref: _Object = msgspec.field(default_factory=_Object)
    response_status: _Answer = msgspec.field(default_factory=_Answer)
    user_agent: str = ""
    request_received_timestamp: str = ""


def read(path: Path) -> Iterator[AuditLine]:
    """
    The requests in the log, in the order in which they were answered.

    A watch is there once, from the moment it is open. A last line that is still being written is left out.
    """
    open_watches: set[str] = set()
    decoder = msgspec.json.Decoder(_Event)
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            event = decoder.decode(line)
            if event.audit_id in open_watches:
                open_watches.discard(event.audit_id)
                continue
            if event.stage == "ResponseStarted":
                open_watches.add(event.audit_id)
            about = event.object_ref
            yield AuditLine(
                user=event.user.username,
                verb=event.verb,
                group=about.api_group,
                resource=about.resource,
                subresource=about.subresource,
                namespace=about.namespace,
                name=about.name,
                code=event.response_status.code,
                uri=event.request_uri,
                user_agent=event.user_agent,
                at=event.request_received_timestamp,
            )
