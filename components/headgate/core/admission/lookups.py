"""
What rules depend on beside the object itself, looked up by need: owners of an object, and the runtime of a TrainJob.

`deciding` asks for one object after the other and is sent each as it is: its callers read them from an API server or
from a store. Only the kinds whose frameworks are enabled are managed; of others, and of ReplicaSets, only the owners
count (Kueue's FindAncestorJobManagedByKueue).
"""

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import msgspec

from headgate.core.admission.jobs import ANCESTOR, OWNING_KINDS
from headgate.core.admission.kinds import JOBS
from headgate.core.admission.review import AdmissionRequest, NotLookedUpError
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.api.job_kinds import TRAIN_JOB
from headgate.core.api.names import QUEUE_LABEL
from headgate.core.api.watched_objects import WrongFieldError
from headgate.core.jobs.train_job import CLUSTER_RUNTIME, runtime_in, runtime_problem, sources_with

Json = dict[str, Any]
Answer = TypeVar("Answer")

OWNERS_MAX: Final = 10
"""The longest chain of owners that is followed."""

_TARGETS: Final = {f"{each.api_version}/{each.kind}": each for each in JOBS}


class LookupFailedError(Exception):
    """Raised when what an object depends on cannot be found. The object is refused: nobody knows whether it may be."""


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an object says of another one: of its controller, or of its runtime, which has no uid there."""

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def type(self) -> str:
        """`batch/v1/Job`, as in `OWNING_KINDS`."""
        return f"{self.api_version}/{self.kind}"

    @property
    def is_namespaced(self) -> bool:
        """Whether it is in the namespace of the object that refers to it."""
        return self.kind != CLUSTER_RUNTIME

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


Asking = Generator[ObjectReference, Json | None, Answer]
"""Yields each object that has to be read, is sent it, or None when it is gone, and returns what was asked for."""


def deciding(
    admitted: AdmissionRequest, settings: AdmissionSettings, decide: Callable[[AdmissionRequest], Answer]
) -> Asking[Answer]:
    """
    The answer to a request. Where it depends on other objects, and only there, they are asked for.

    Raises LookupFailedError where they cannot be found, and what `decide` raises.
    """
    is_managed = None if _controller_of(admitted.object) is not None else False
    known = msgspec.structs.replace(admitted, ancestor_is_managed=is_managed, asks=True)
    while True:
        try:
            return decide(known)
        except NotLookedUpError as missing:
            needs_owners = missing.variable == ANCESTOR
        if needs_owners:
            is_managed = yield from _managed_above(admitted.object, settings, is_new=admitted.old is None)
            known = msgspec.structs.replace(known, ancestor_is_managed=is_managed)
        else:
            pod_sets = yield from _pod_sets(admitted.object)
            known = msgspec.structs.replace(known, pod_sets=pod_sets)


# --- owners -----------------------------------------------------------------------------------------------------------


def _managed_above(found: Json, settings: AdmissionSettings, *, is_new: bool) -> Asking[bool]:
    """
    Asks for the owners, nearest first; the first that is managed ends it.

    One that is gone ends it too for an object that was there before: the controller of Jobs still has to take its
    finalizers off the pods of a Job that was deleted. Raises LookupFailedError for a new object, whose owner is gone,
    and for a chain that does not end.
    """
    seen: dict[str, None] = {}
    while (owner := _controller_of(found)) is not None:
        if owner.uid in seen or len(seen) >= OWNERS_MAX:
            raise LookupFailedError(f"the owners of the object lead to {owner} without end")
        seen[owner.uid] = None
        read = yield owner
        if read is None:
            if is_new:
                raise LookupFailedError(f"its owner {owner} cannot be read: there is none")
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


def _controller_of(found: Json) -> ObjectReference | None:
    """The owner reference of the controller, if that is of a kind that owns jobs or pods."""
    for each in found["metadata"].get("ownerReferences") or ():
        if each.get("controller") and f"{each['apiVersion']}/{each['kind']}" in OWNING_KINDS:
            return msgspec.convert(each, ObjectReference)
    return None


# --- the runtime of a TrainJob ----------------------------------------------------------------------------------------


def _pod_sets(found: Json) -> Asking[tuple[Json, ...]]:
    """
    The pod sets of a TrainJob, by the runtime that it names: the name, number of pods and template of each.

    Raises LookupFailedError where there is no such runtime, as Kueue does.
    """
    kind, name = runtime_in(found)
    problem = runtime_problem(found)
    if problem:
        raise LookupFailedError(problem)
    kind = kind.partition(".")[0]
    runtime = yield ObjectReference(api_version=TRAIN_JOB.api_version, kind=kind, name=name)
    if runtime is None:
        raise LookupFailedError(f"runtime '{name}' not found")
    try:
        sources = sources_with(found, runtime)
    except WrongFieldError as error:
        raise LookupFailedError(f"{error.field}: {error}") from error
    return tuple({"name": each.name, "count": each.count, "template": each.template} for each in sources)
