"""
The messages of a reflector to its owner: pages of a list, the point of resumption, changes, and bookmarks.

Objects stay `msgspec.Raw`. A Raw is a view into the bytes it was decoded from, so a long-lived one must be a `copy()`;
otherwise the whole page or line stays in memory with it. Items of a list carry no `kind` and no `apiVersion`, because
API servers leave them out there.
"""

import enum
from typing import TypeAlias

import msgspec

from headgate.adapters.kubernetes.resources import Resource


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The metadata that identifies an object. `resource_version` is the version that a watch resumes from."""

    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class ChangeType(enum.Enum):
    """The type of a change, as in the watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    #: The object is its last state, with the version of the deletion.
    DELETED = "DELETED"


class ObjectChange(msgspec.Struct, frozen=True, kw_only=True):
    """One object changed. After a resume, `ADDED` may name an object that the owner has from before a restart."""

    resource: Resource
    type: ChangeType
    meta: ObjectMeta
    object: msgspec.Raw

    @property
    def resource_version(self) -> str:
        """The version that this change made current."""
        return self.meta.resource_version


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Pending changes, in the order in which they happened. Never empty."""

    resource: Resource
    changes: list[ObjectChange]

    @property
    def resource_version(self) -> str:
        """The version after the last of them."""
        return self.changes[-1].resource_version


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a consistent list. Page 0 begins anew; `complete` ends it; objects on no page do not exist."""

    resource: Resource
    items: list[msgspec.Raw]
    #: The same on all pages. To resume from only once `complete`.
    resource_version: str
    page: int
    complete: bool


class WatchResumed(msgspec.Struct, frozen=True, kw_only=True):
    """The server has accepted a watch from the version that the owner passed; changes since then follow."""

    resource: Resource
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing else happened up to this version."""

    resource: Resource
    resource_version: str


#: What the owner receives.
Message: TypeAlias = ListPage | WatchResumed | Changes | Bookmark

#: The reflector's entries, change by change.
Entry: TypeAlias = ListPage | WatchResumed | ObjectChange | Bookmark
