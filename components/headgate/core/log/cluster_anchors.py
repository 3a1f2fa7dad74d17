"""
Anchors: one change of the cluster's history, recorded so that the history can be recognised.

Resource versions are positions in the storage of an API server. When that storage is restored from a backup the
positions after the backup are assigned again, to other changes, and a version alone does not identify the history it
belongs to. A change does: when asked for what follows the version before it, a server with the same history returns
that very object, byte for byte. Histories only grow at their end, so an unchanged change proves that everything before
it is unchanged. The bridge writes an anchor with its marks, and verifies it before it resumes from them.
"""

import hashlib

import msgspec


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A change: of which resource (plural), at which version, of which kind (ADDED, ...), a digest of the object."""

    resource: str
    version: int
    kind: str
    digest: str

    def __str__(self) -> str:
        return f"{self.resource} {self.version} {self.kind} {self.digest}"


def anchor_of(resource: str, version: str, kind: str, raw: bytes) -> Anchor | None:
    """The anchor for a change; None for a version that is no number: the version before it is unknown."""
    if not version.isdecimal():
        return None
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
    return Anchor(resource=resource, version=int(version), kind=kind, digest=digest)


def parse_anchor(text: str) -> Anchor | None:
    """The anchor of a text; None for "" and any other text that is not an anchor."""
    match text.split(" "):
        case [resource, version, kind, digest] if version.isdecimal():
            return Anchor(resource=resource, version=int(version), kind=kind, digest=digest)
        case _:
            return None


def within(version: str, anchor: Anchor) -> str:
    """
    A mark, as far as the anchor confirms it.

    What was marked after the anchor rests on bookmarks alone: the resource has not changed since the anchor.
    """
    return version if version.isdecimal() and int(version) <= anchor.version else str(anchor.version)
