"""
What one write and one deletion ask for, beside the object itself.

`bodies` makes them of requests, the controllers of the simulated cluster directly; the registry reads them and leaves
its warnings in the `Write`.
"""

from collections.abc import Callable
from typing import Any

from headgate.testing.cluster import errors
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.storage.metadata import type_problem

JsonObject = dict[str, Any]


class Write:
    """
    One write's options, and the warnings that it gathers.

    `replaces`: it is an update of the whole object, as opposed to a patch. `patched`: for the patches that carry
    differences, what a refusal quotes. `applies`: it is what an apply has made of the live object, in which nothing is
    decoded any more. `repeated`: paths of the fields that its body has twice.
    """

    __slots__ = (
        "applies",
        "dry_run",
        "manager",
        "patched",
        "repeated",
        "replaces",
        "strictness",
        "subresource",
        "version",
        "warnings",
    )

    def __init__(
        self,
        *,
        version: str = "",
        manager: str = "headgate-cluster",
        dry_run: bool = False,
        strictness: str = "Warn",
        subresource: str = "",
    ) -> None:
        self.version = version
        self.manager = manager
        self.dry_run = dry_run
        self.strictness = strictness
        self.subresource = subresource
        self.replaces = False
        self.applies = False
        self.patched: Callable[[], str] | None = None
        self.repeated: list[str] = []
        self.warnings: list[str] = []

    def undecodable(self, kind: Kind, why: str) -> errors.ApiStatusError:
        """The refusal of an object that cannot be decoded: of the patch that made it so, or of the body."""
        if self.patched is not None:
            return errors.unpatchable(self.patched(), why)
        return errors.undecodable(kind, self.version or kind.version, why)


class Deletion:
    """The options of a DELETE."""

    __slots__ = ("dry_run", "grace_s", "propagation", "rv", "uid")

    def __init__(
        self, *, uid: str = "", rv: str = "", grace_s: int | None = None, propagation: str = "", dry_run: bool = False
    ) -> None:
        self.uid = uid
        self.rv = rv
        self.grace_s = grace_s
        self.propagation = propagation
        self.dry_run = dry_run


def given_metadata(kind: Kind, write: Write, obj: JsonObject) -> JsonObject:
    """The metadata of a client's object, empty if it has none. Raises ApiStatusError 400 if it cannot be decoded."""
    metadata: Any = obj.get("metadata")
    if metadata is None:
        return {}
    problem = type_problem(kind, metadata)
    if problem:
        raise write.undecodable(kind, problem)
    found: JsonObject = metadata
    return found
