"""
The integration of kinds that have a field for suspending them, and templates of their pods inside.

A kind extends `Suspendable` by what is peculiar to it: where its pod sets are in an object (`sources`) and what its
status says (`status`). All else follows: the facts of the log, the pod sets of the Workload, and the patches. Before a
start and before a restore the ungater reads the object; the patch is the difference between it and the object with the
changed templates. It carries the object's resourceVersion: lists of pod sets are replaced as a whole, and an object
that has changed since is read again. A stop sets one field, so it needs neither.

The object is handled as JSON, so that a kind needs no types of its operator. An object that is not of the form of its
kind raises WrongFieldError.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from headgate.core.api.job_kinds import JobKind
from headgate.core.api.jobs import queued_job
from headgate.core.api.watched_objects import METADATA_DECODER, Metadata, WrongFieldError, check_requests, trimmed
from headgate.core.jobs.integration import Json, Patch, PodSetMismatchError, PodSetState
from headgate.core.jobs.pod_templates import as_given, difference, is_injected, put, topology_request
from headgate.events.objects import Job, PodSet, PodTemplate, TopologyRequest

_TRUE: Final = frozenset({"True"})


class PodSetSource(msgspec.Struct, kw_only=True):
    """
    One pod set of an object.

    `template` is a part of the object: what is changed in it is changed in the object. `at` is its path, for messages.
    `seen` is the template that its pods get, where that is not the same. The labels are those by which the pods are
    numbered, for topologies.
    """

    name: str
    count: int
    template: Json
    at: str
    seen: Json | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    reclaimable: int = 0


class JobStatus(msgspec.Struct, kw_only=True):
    """
    What the status of an object says.

    `active`: pods of it may run. `finished`: it has ended, by success or not, and `message` says how.
    """

    active: bool = False
    pods_ready: bool = False
    succeeded: bool = False
    failed: bool = False
    message: str = ""


class Suspendable(ABC):
    """The integration of one kind; see the module docstring."""

    kind: JobKind
    reads_first: bool = True
    suspend_at: ClassVar[tuple[str, ...]] = ("spec", "suspend")
    """The path of the field that suspends an object."""
    changes_while_suspended: ClassVar[bool] = False
    """Whether its templates may be changed only while it is suspended, so that it is resumed by a patch of its own."""

    # --- what a kind says of its objects ---------------------------------------------------------------------------

    @abstractmethod
    def sources(self, obj: Json) -> list[PodSetSource]:
        """The pod sets of an object, in the order of its Workload's."""

    @abstractmethod
    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """What the status of an object says."""

    def pod_priority_class(self, obj: Json) -> str:
        """The PriorityClass that an object names apart from its templates; "" by default."""
        return ""

    def is_skipped(self, obj: Json) -> bool:
        """Whether an object is none of Headgate's although it names a queue."""
        return False

    def edit(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """Give the pod sets of an object, in place, their desired states. Raises PodSetMismatchError."""
        for source, pod_set in self.paired(obj, pod_sets):
            put(source.template, pod_set)

    def undo(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """Restore the pod sets of an object, in place, as its author gave them. Raises PodSetMismatchError."""
        self.edit(obj, pod_sets)

    def is_edited(self, sources: Sequence[PodSetSource], obj: Json) -> bool:
        """Whether an object contains what an admission has injected."""
        return any(is_injected(source.template) for source in sources)

    def completed(self, job: Job, obj: Json) -> Job:
        """What the log has of an object, with what only this kind has; as it is by default."""
        return job

    # --- Integration -----------------------------------------------------------------------------------------------

    def read(self, raw: bytes) -> tuple[Metadata, Job | None]:
        """See `Integration`."""
        meta = METADATA_DECODER.decode(raw).metadata
        obj = decoded(raw)
        if self.is_skipped(obj):
            return meta, None
        sources = self.sources(obj)
        said = self.status(obj, sources)
        reclaimable = {each.name: min(each.reclaimable, each.count) for each in sources if each.reclaimable > 0}
        job = replace(
            queued_job(meta),
            suspended=bool(at(obj, *self.suspend_at)),
            active=int(said.active),
            pods_ready=said.pods_ready,
            finished="Complete" if said.succeeded else "Failed" if said.failed else None,
            message=said.message if said.succeeded or said.failed else "",
            pod_sets=tuple(map(_pod_set, sources)),
            reclaimable=reclaimable,
            pod_priority_class=self.pod_priority_class(obj),
            injected=self.is_edited(sources, obj),
        )
        return meta, self.completed(job, obj)

    def pod_counts(self, job: Job) -> dict[str, int]:
        """See `Integration`."""
        return {each.name: each.count for each in job.pod_sets}

    def observed_pod_sets(self, job: Job) -> tuple[PodSet, ...]:
        """See `Integration`."""
        return job.pod_sets

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """See `Integration`."""
        made = []
        for source in self.sources(decoded(raw)):
            template = as_given(_template(source))
            pod_set: Json = {"name": source.name, "count": source.count, "template": template}
            request = _request(source)
            if request is not None:
                pod_set["topologyRequest"] = request
            made.append(pod_set)
        return made

    def reclaimable(self, job: Job) -> dict[str, int]:
        """See `Integration`."""
        return {each.name: job.reclaimable.get(each.name, 0) for each in job.pod_sets}

    def what_matters(self, job: Job) -> Job:
        """See `Integration`."""
        return job

    def start(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes) -> tuple[Patch, ...]:
        """See `Integration`."""
        obj = decoded(raw)
        edited = copy.deepcopy(obj)
        self.edit(edited, pod_sets)
        if self.changes_while_suspended:
            return _guarded(obj, edited), self._suspending(job, value=False)
        put_at(edited, self.suspend_at, value=False)
        return (_guarded(obj, edited),)

    def stop(self, job: Job) -> Patch:
        """See `Integration`."""
        return self._suspending(job, value=True)

    def _suspending(self, job: Job, *, value: bool) -> Patch:
        return Patch({"metadata": {"uid": job.uid}, **nested(self.suspend_at, value=value)})

    def restore(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes) -> Patch:
        """See `Integration`."""
        obj = decoded(raw)
        edited = copy.deepcopy(obj)
        self.undo(edited, pod_sets)
        return _guarded(obj, edited)

    def reopen(self, job_uid: str) -> Patch | None:
        """See `Integration`. Templates of a suspended object may be changed."""
        return None

    def carries_injection(self, job: Job) -> bool:
        """See `Integration`."""
        return job.injected

    def paired(self, obj: Json, pod_sets: Sequence[PodSetState]) -> list[tuple[PodSetSource, PodSetState]]:
        """The pod sets of an object with their desired states. Raises PodSetMismatchError."""
        sources = self.sources(obj)
        if [each.name for each in sources] != [each.name for each in pod_sets]:
            have, want = (", ".join(each.name for each in sets) or "none" for sets in (sources, pod_sets))
            raise PodSetMismatchError(f"it has the pod sets {have}, and its Workload {want}")
        return list(zip(sources, pod_sets, strict=True))


# --- for kinds -------------------------------------------------------------------------------------------------------


def at(obj: Any, *path: str | int) -> Any:
    """What an object has at a path; None where it has nothing."""
    for step in path:
        if isinstance(obj, dict) and isinstance(step, str):
            obj = obj.get(step)
        elif isinstance(obj, list) and isinstance(step, int):
            obj = obj[step] if step < len(obj) else None
        else:
            return None
    return obj


def items_at(obj: Any, *path: str | int) -> list[Json]:
    """The objects in a list; none where there is no list. Raises WrongFieldError."""
    found = at(obj, *path)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise WrongFieldError(".".join(map(str, path)), "it is no list of objects")
    return found


def number_at(obj: Any, default: int, *path: str | int) -> int:
    """The whole number at a path. Raises WrongFieldError."""
    found = at(obj, *path)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool):
        raise WrongFieldError(".".join(map(str, path)), f"{found!r} is no whole number")
    return found


def condition_at(obj: Any, condition_type: str, *path: str | int) -> Json | None:
    """The condition of a type, in the list at a path, that is true; None without one."""
    for each in items_at(obj, *path):
        if each.get("type") == condition_type and each.get("status") in _TRUE:
            return each
    return None


def nested(path: Sequence[str], *, value: Any) -> Json:
    """An object with one value, at a path."""
    for step in reversed(path):
        value = {step: value}
    made: Json = value
    return made


def put_at(obj: Json, path: Sequence[str], *, value: Any) -> None:
    """Set the value at a path, and make the objects on the way."""
    for step in path[:-1]:
        obj = obj.setdefault(step, {})
    obj[path[-1]] = value


def decoded(raw: bytes) -> Json:
    """An object from its JSON. Raises WrongFieldError."""
    obj = msgspec.json.decode(raw)
    if not isinstance(obj, dict):
        raise WrongFieldError("", "it is no object")
    return obj


# --- helpers ---------------------------------------------------------------------------------------------------------


def _template(source: PodSetSource) -> Json:
    return source.template if source.seen is None else source.seen


def _request(source: PodSetSource) -> Json | None:
    annotations = (_template(source).get("metadata") or {}).get("annotations") or {}
    return topology_request(
        annotations,
        pod_index_label=source.pod_index_label,
        sub_group_index_label=source.sub_group_index_label,
        sub_group_count=source.sub_group_count,
    )


def _pod_set(source: PodSetSource) -> PodSet:
    """A pod set as the log has it. Raises WrongFieldError."""
    try:
        template = msgspec.convert(_template(source), PodTemplate)
    except msgspec.ValidationError as error:
        raise WrongFieldError(source.at, str(error)) from error
    check_requests(f"{source.at}.spec", template.spec)
    request = _request(source)
    topology = msgspec.convert(request, TopologyRequest) if request is not None else None
    return PodSet(name=source.name, count=source.count, template=trimmed(template), topology_request=topology)


def _guarded(before: Json, after: Json) -> Patch:
    """The merge patch from one version of an object to another, for that version only."""
    patch = difference(before, after)
    metadata = before.get("metadata") or {}
    guard = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
    return Patch({**patch, "metadata": {**patch.get("metadata", {}), **guard}})
