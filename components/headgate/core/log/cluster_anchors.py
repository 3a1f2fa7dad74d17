"""
Anchors: one change of the cluster's history, written down so that the history can be recognised.

Resource versions are positions in the storage of an API server. When that storage is restored from a backup the
positions after the backup are given out again, to other changes, and a version alone does not tell which history it
belongs to. A change does: asked for what follows the version before it, a server whose history is the same shows that
very object, byte for byte. Histories only grow at their end, so whoever finds one change unchanged knows that all
before it is. The bridge writes an anchor with its marks, and proves it before it resumes from them.
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
    """The anchor that a change is; None for a version that is no number, of which none comes before it."""
    if not version.isdecimal():
        return None
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
    return Anchor(resource=resource, version=int(version), kind=kind, digest=digest)


def parse_anchor(text: str) -> Anchor | None:
    """The anchor of its text; None for "" and whatever else is none."""
    match text.split(" "):
        case [resource, version, kind, digest] if version.isdecimal():
            return Anchor(resource=resource, version=int(version), kind=kind, digest=digest)
        case _:
            return None


def within(version: str, anchor: Anchor) -> str:
    """
    A mark, as far as the anchor vouches for it.

    What was marked behind the anchor rests on bookmarks alone: nothing of the resource has happened since the anchor.
    """
    return version if version.isdecimal() and int(version) <= anchor.version else str(anchor.version)
