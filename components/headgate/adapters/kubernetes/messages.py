"""
What a reflector tells its owner: states of a list, where it resumed, changes, and how far nothing happened.

Objects stay `msgspec.Raw`. A Raw is a view into the bytes it was decoded from, so whoever keeps one for long takes a
`copy()`; else the whole page or line stays in memory with it. Items of a list carry no `kind` and no `apiVersion`,
because API servers leave them out there.
"""

import enum
from typing import TypeAlias

import msgspec

from headgate.adapters.kubernetes.resources import Resource


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The metadata by which an object is told from others. `resource_version` is what a watch resumes from."""

    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class ChangeType(enum.Enum):
    """What happened to an object, in the words of the watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    #: The object is its last state, with the version of the deletion.
    DELETED = "DELETED"


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """One object changed. After a resume, `ADDED` may name an object that the owner knows from before a restart."""

    resource: Resource
    type: ChangeType
    meta: ObjectMeta
    object: msgspec.Raw

    @property
    def resource_version(self) -> str:
        """The version that this change made current."""
        return self.meta.resource_version


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that had piled up, in the order in which they happened. Never empty."""

    resource: Resource
    changes: list[Changed]

    @property
    def resource_version(self) -> str:
        """The version after the last of them."""
        return self.changes[-1].resource_version


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a consistent list. Page 0 begins anew; `complete` ends it, and what no page named does not exist."""

    resource: Resource
    items: list[msgspec.Raw]
    #: The same on all pages. To resume from only once `complete`.
    resource_version: str
    page: int
    complete: bool


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """The server has accepted a watch from the version that the owner handed in; changes since then follow."""

    resource: Resource
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing else happened up to this version."""

    resource: Resource
    resource_version: str


#: What the owner receives.
Message: TypeAlias = Listed | Resumed | Changes | Bookmark

#: What the reflector puts in, change by change.
Entry: TypeAlias = Listed | Resumed | Changed | Bookmark
