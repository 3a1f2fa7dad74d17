"""
The packed forms of Workloads and Jobs that wait: what a record has of its own as a few bytes, the rest shared.

Called by `headgate.core.state.records`, which says when. What pending workloads mostly have in common (queue, priority,
the kind of their owner, which labels they have) is one tuple for all that are alike; what they mostly do not have is
left out. Fields with another value than by default are kept as they are: any record comes back as it was.
"""

from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec.structs import astuple, replace

from headgate.core.state.records import AtRest, Records
from headgate.core.state.sharing import NO_LABELS, FewLabels, digest
from headgate.core.state.tables import JobRecord, Stage, Workload
from headgate.events.ids import JobKey, Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Job, Labels, OwnerReference, PodTemplate, WorkloadSpec

RESTING: Final = Stage.QUEUED
"""The stage in which workloads rest. Those of other stages are few, or looked at often."""

ALIKE_MAX: Final = 4096
"""How many different common parts are remembered. Beyond it, all are forgotten: later ones are kept once more."""

Common = tuple[Any, ...]
"""
What alike workloads have in common: API version and kind of the owner, labels, annotations, stage, generation,
whether it is being deleted, whether it has a finalizer, ClusterQueue, priority.
"""

_PLAIN: Final = astuple(Workload(key=WorkloadKey(""), uid=Uid(""), created_ms=UnixMs(0), spec=WorkloadSpec()))
_FIELDS: Final = Workload.__struct_fields__
_TAIL: Final = _FIELDS.index("shape") + 1
_ARRIVAL: Final = _FIELDS.index("arrival")
_BEFORE_ARRIVAL: Final = _PLAIN[_TAIL:_ARRIVAL]
_AFTER_ARRIVAL: Final = _PLAIN[_ARRIVAL + 1 :]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class WorkloadAtRest(AtRest[Workload]):
    """
    A waiting workload. `own` has its uid, the name of its owner and positions, `rest` pairs of a field and its value.

    `arrival` is the object that its job has too, and `created_ms` that of all of the same second.
    """

    __slots__ = ("arrival", "common", "created_ms", "key", "own", "owner_uid", "rest", "shape", "spec")

    arrival: int
    common: Common
    created_ms: UnixMs
    key: WorkloadKey
    own: bytes
    owner_uid: str
    rest: tuple[Any, ...]
    shape: Shape
    spec: WorkloadSpec

    @property
    def cluster_queue(self) -> str:
        """Its ClusterQueue."""
        return str(self.common[-2])

    def record(self) -> Workload:
        """See `AtRest`."""
        uid, name, first_seq, last_seq, queued_at_ms = _decode(self.own)
        version, kind, labels, annotations, stage, generation, deleting, finalizer, cluster_queue, priority = (
            self.common
        )
        owner = None
        if version is not None:
            name = _named_by(self.key, kind) if name is None else name
            owner = OwnerReference(api_version=version, kind=kind, name=name, uid=self.owner_uid)
        workload = Workload(
            key=self.key,
            uid=_uid_of(uid),
            created_ms=self.created_ms,
            spec=self.spec,
            stage=stage,
            first_seq=first_seq,
            last_seq=last_seq,
            generation=generation,
            labels=_labels_of(labels, owner),
            annotations=_labels_of(annotations, owner),
            owner=owner,
            deleting=deleting,
            finalizer=finalizer,
            cluster_queue=cluster_queue,
            priority=priority,
            queued_at_ms=self.created_ms if queued_at_ms is None else queued_at_ms,
            shape=self.shape,
            arrival=self.arrival,
        )
        rest = self.rest
        for place in range(0, len(rest), 2):
            setattr(workload, rest[place], rest[place + 1])
        return workload


class _Workloads:
    """Packs workloads."""

    __slots__ = ("_alike", "_times")

    def __init__(self) -> None:
        self._alike: dict[Common, Common] = {}
        self._times: dict[UnixMs, UnixMs] = {}

    # Large: each field of the packed form, once.
    def pack(self, workload: Workload) -> WorkloadAtRest | None:
        """The packed form of a waiting workload."""
        if workload.stage is not RESTING:
            return None
        values = astuple(workload)
        rest: tuple[Any, ...] = ()
        if values[_TAIL:_ARRIVAL] != _BEFORE_ARRIVAL or values[_ARRIVAL + 1 :] != _AFTER_ARRIVAL:
            rest = tuple(
                part
                for place in range(_TAIL, len(values))
                if place != _ARRIVAL and values[place] != _PLAIN[place]
                for part in (_FIELDS[place], values[place])
            )
        owner, labels, annotations = workload.owner, workload.labels, workload.annotations
        if labels and not isinstance(labels, FewLabels):
            rest, labels = (*rest, "labels", labels), NO_LABELS
        if annotations and not isinstance(annotations, FewLabels):
            rest, annotations = (*rest, "annotations", annotations), NO_LABELS
        packed = WorkloadAtRest()
        packed.key, packed.spec, packed.shape, packed.rest = workload.key, workload.spec, workload.shape, rest
        packed.owner_uid = owner.uid if owner is not None else ""
        packed.arrival = workload.arrival
        created_ms, queued_at_ms = workload.created_ms, workload.queued_at_ms
        packed.created_ms = self._times.setdefault(created_ms, created_ms)
        packed.own = _encode(
            (
                _bytes_of(workload.uid),
                None if owner is None or owner.name == _named_by(workload.key, owner.kind) else owner.name,
                workload.first_seq,
                workload.last_seq,
                None if queued_at_ms == created_ms else queued_at_ms,
            )
        )
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        if len(self._times) >= ALIKE_MAX:
            self._times.clear()
        common = (
            owner.api_version if owner is not None else None,
            owner.kind if owner is not None else None,
            _pattern_of(labels, owner),
            _pattern_of(annotations, owner),
            workload.stage,
            workload.generation,
            workload.deleting,
            workload.finalizer,
            workload.cluster_queue,
            workload.priority,
        )
        packed.common = self._alike.setdefault(common, common)
        return packed


def _named_by(key: WorkloadKey, kind: str) -> str:
    """The name of a Workload's owner, if it has the usual one: kind, owner, and five digits of a hash."""
    return key[key.find("/") + len(kind) + 2 : -6]


def _pattern_of(labels: Labels, owner: OwnerReference | None) -> tuple[str | int, ...] | None:
    """Labels, with a number for the uid and the name of the owner."""
    if not isinstance(labels, FewLabels):
        return None
    first, value, second, second_value = labels.parts()
    if owner is None:
        return first, value, second, second_value
    return first, _mark_of(value, owner), second, _mark_of(second_value, owner)


def _mark_of(value: str, owner: OwnerReference) -> str | int:
    return _UID if value == owner.uid else _NAME if value == owner.name else value


_UID, _NAME = 0, 1


def _labels_of(pattern: tuple[Any, ...] | None, owner: OwnerReference | None) -> Labels:
    if pattern is None:
        return NO_LABELS
    if owner is not None:
        pattern = tuple(owner.uid if each == _UID else owner.name if each == _NAME else each for each in pattern)
    return FewLabels(*pattern)


def _bytes_of(uid: str) -> bytes | str:
    """A uid in 16 bytes, if it is written as the API server writes them."""
    try:
        packed = bytes.fromhex(uid.replace("-", ""))
    except ValueError:
        return uid
    return packed if _uid_of(packed) == uid else uid


def _uid_of(packed: bytes | str) -> Uid:
    if isinstance(packed, str):
        return Uid(packed)
    digits = packed.hex()
    return Uid(f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")


class JobAtRest(AtRest[JobRecord]):
    """A job that waits. `common` is the job without uid, time and template; `rest` has the fields of a refused one."""

    __slots__ = ("arrival", "common", "created_ms", "rest", "template", "uid")

    arrival: int
    common: Job
    created_ms: UnixMs
    rest: WorkloadKey | tuple[WorkloadKey, str, Seq, str]
    template: PodTemplate
    uid: str

    def record(self) -> JobRecord:
        """See `AtRest`."""
        job = replace(self.common, uid=self.uid, created_ms=self.created_ms, template=self.template)
        if isinstance(self.rest, str):
            return JobRecord(job=job, workload=self.rest, arrival=self.arrival)
        workload, refused, stopped_at, action_refused = self.rest
        return JobRecord(
            job=job,
            workload=workload,
            refused=refused,
            stopped_at=stopped_at,
            action_refused=action_refused,
            arrival=self.arrival,
        )


class _Jobs:
    """Packs jobs."""

    __slots__ = ("_alike", "_times")

    def __init__(self) -> None:
        self._alike: dict[Hashable, Job] = {}
        self._times: dict[UnixMs, UnixMs] = {}

    def pack(self, record: JobRecord) -> JobAtRest | None:
        """The packed form of a job that waits."""
        job = record.job
        if not job.suspended or record.started_for or job.finished is not None:
            return None
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        if len(self._times) >= ALIKE_MAX:
            self._times.clear()
        packed = JobAtRest()
        packed.common = self._common_of(job)
        packed.uid, packed.template = job.uid, job.template
        packed.created_ms = self._times.setdefault(job.created_ms, job.created_ms)
        packed.arrival = record.arrival
        packed.rest = record.workload
        if record.refused or record.stopped_at or record.action_refused:
            packed.rest = (record.workload, record.refused, record.stopped_at, record.action_refused)
        return packed

    def _common_of(self, job: Job) -> Job:
        values = astuple(job)
        key: Hashable = None
        if not (job.reclaimable or job.pod_sets or job.done_indexes):
            # All that is left is hashable; a dict never is.
            key = (*values[2:_TEMPLATE], *values[_TEMPLATE + 1 : _RECLAIMABLE], *values[_RECLAIMABLE + 1 :])
            kept = self._alike.get(key)
            if kept is not None:
                return kept
        common = replace(job, uid="", created_ms=UnixMs(0), template=_NO_TEMPLATE)
        return self._alike.setdefault(digest(common) if key is None else key, common)


_TEMPLATE: Final = Job.__struct_fields__.index("template")
_RECLAIMABLE: Final = Job.__struct_fields__.index("reclaimable")
assert Job.__struct_fields__[:2] == ("uid", "created_ms")
_NO_TEMPLATE: Final = PodTemplate()


def workloads() -> Records[WorkloadKey, Workload]:
    """An empty table of workloads."""
    return Records(_Workloads().pack)


def jobs() -> Records[JobKey, JobRecord]:
    """An empty table of jobs."""
    return Records(_Jobs().pack)
