"""
Whether an owner of an object, or an owner of that, is a job that is managed (Kueue's FindAncestorJobManagedByKueue).

`deciding` asks for one owner after the other and is sent each as it is: its callers read them from an API server or
from a store. Only the kinds whose frameworks are enabled are managed; of others, and of ReplicaSets, only the owners
count.
"""

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import msgspec

from headgate.core.admission.jobs import OWNING_KINDS
from headgate.core.admission.kinds import JOBS
from headgate.core.admission.review import AdmissionRequest, AncestorUnknownError
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.api.names import QUEUE_LABEL

Json = dict[str, Any]
Answer = TypeVar("Answer")

OWNERS_MAX: Final = 10
"""The longest chain of owners that is followed."""

_TARGETS: Final = {f"{each.api_version}/{each.kind}": each for each in JOBS}


class OwnerError(Exception):
    """Raised when the owners cannot be followed. The object is refused: it might be one that has to wait."""


class OwnerRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an owner reference says of a controller."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def type(self) -> str:
        """`batch/v1/Job`, as in `OWNING_KINDS`."""
        return f"{self.api_version}/{self.kind}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def deciding(
    admitted: AdmissionRequest, settings: AdmissionSettings, decide: Callable[[AdmissionRequest], Answer]
) -> Generator[OwnerRef, Json | None, Answer]:
    """
    The answer to a request. Where it depends on the owners of the object, and only there, they are asked for.

    Yields each owner that has to be read, and is sent it, or None when it is gone. Raises OwnerError where the owners
    cannot be followed, and what `decide` raises.
    """
    is_managed = None if _controller_of(admitted.object) is not None else False
    try:
        return decide(msgspec.structs.replace(admitted, ancestor_is_managed=is_managed, asks=True))
    except AncestorUnknownError:
        is_managed = yield from _managed_above(admitted.object, settings, is_new=admitted.old is None)
        return decide(msgspec.structs.replace(admitted, ancestor_is_managed=is_managed))


def _managed_above(found: Json, settings: AdmissionSettings, *, is_new: bool) -> Generator[OwnerRef, Json | None, bool]:
    """
    Yields the owners that have to be read, nearest first, and is sent each; the first that is managed ends it.

    One that is gone (None) ends it too for an object that was there before: the controller of Jobs still has to take
    its finalizers off the pods of a Job that was deleted. Raises OwnerError for a new object, whose owner is gone, and
    for a chain that does not end.
    """
    seen: dict[str, None] = {}
    while (owner := _controller_of(found)) is not None:
        if owner.uid in seen or len(seen) >= OWNERS_MAX:
            raise OwnerError(f"the owners of the object lead to {owner} without end")
        seen[owner.uid] = None
        read = yield owner
        if read is None:
            if is_new:
                raise OwnerError(f"its owner {owner} cannot be read: there is none")
            return False
        found = read
        metadata = found["metadata"]
        if metadata.get("uid") != owner.uid:
            return False
        target = _TARGETS.get(owner.type)
        names_queue = bool((metadata.get("labels") or {}).get(QUEUE_LABEL))
        if target is not None and settings.covers(target) and (names_queue or settings.manages_unnamed):
            return True
    return False


def _controller_of(found: Json) -> OwnerRef | None:
    """The owner reference of the controller, if that is of a kind that owns jobs or pods."""
    for each in found["metadata"].get("ownerReferences") or ():
        if each.get("controller") and f"{each['apiVersion']}/{each['kind']}" in OWNING_KINDS:
            return msgspec.convert(each, OwnerRef)
    return None
