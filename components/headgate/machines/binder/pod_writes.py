"""
Writes before bindings: what a plugin needs to be written to other objects before its pod is bound.

For example the claim of a volume: the node at which a volume is to be made, or the volume that the claim gets. A write
was decided from the object as it is in the log. The kube-scheduler sends the whole object with the resource version
that it has seen, so that a change by somebody else refuses it. The log has no resource versions; therefore the object
is read first. If it has what is to be written already, nothing is. If what placement reads of it is not what the log
has, the write is refused as a conflict. Otherwise it is patched at the version that was read, by a strategic merge
patch: what others have in a list of the object, such as its finalizers, stays. Fields of `status` are written to the
subresource, after the others.

A refused write takes the pod's placement back, as a refused binding does (`pod.bind_rejected`). What was written is
kept in memory until the binding; after a restart the objects are read again.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.machine.api_results import CONFLICT, INVALID, Refusal, is_success, refusal
from headgate.core.machine.contract import STRATEGIC_PATCH, Call, Command, Completed
from headgate.core.placement.objects.kinds import KINDS, PlacementKind
from headgate.core.state.attribution import about
from headgate.core.state.tables import PlacementRecord, State
from headgate.events import effects
from headgate.events.decisions import ObjectPatch
from headgate.events.ids import PodKey, UnixMs, split_key
from headgate.events.registry import Event
from headgate.machines.binder.pod_bindings import Placed, rejected

WRITES_MAX: Final = 64
"""The maximum number of pods whose writes are under way."""

_OF_KIND: Final[Mapping[str, PlacementKind]] = {each.kind: each for each in KINDS.values()}

Json = dict[str, Any]


class _Progress(msgspec.Struct):
    """How far the writes of a placement have come: those that are done, and the patches that are left of this one."""

    placed: Placed
    at_ms: UnixMs
    done: int = 0
    patches: list[tuple[str, Json]] = []
    """By subresource."""
    version: str = ""
    """The resource version at which the first of them is to be applied."""


class PodWrites:
    """The working set of pods with writes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[PodKey] = WorkQueue(WRITES_MAX)
        self._progress: dict[PodKey, _Progress] = {}
        self._calls: dict[str, _Progress] = {}
        self._rejected: dict[PodKey, Placed] = {}
        """Placements that a refused write has ended, whose effect is not folded yet."""

    def add(self, key: PodKey) -> None:
        """Something has happened to a pod that has a record."""
        record = self._state.placements.get(key)
        if record is not None and _is_to_be_written(record):
            self._queue.add(key)
        else:
            self.forget(key)

    def forget(self, key: PodKey) -> None:
        """Nothing is left to be written for a pod."""
        self._queue.forget(key)
        self._progress.pop(key, None)

    def on_effect(self, event: effects.PodBound | effects.PodBindRejected) -> None:
        """An effect is folded."""
        self._rejected.pop(event.pod, None)

    def settle(self, now_ms: UnixMs, calls: list[Command], out: list[Event]) -> None:
        """Write what is due, as far as the limit of calls permits."""
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                record = self._state.placements.get(key)
                if record is not None and _is_to_be_written(record) and key not in self._rejected:
                    self._look_at(key, record, calls, out)

    def _look_at(self, key: PodKey, record: PlacementRecord, calls: list[Command], out: list[Event]) -> None:
        placed = Placed(key, record.uid, record.node)
        progress = self._progress.get(key)
        if progress is None or progress.placed != placed or progress.at_ms != record.placed_at_ms:
            progress = self._progress[key] = _Progress(placed, record.placed_at_ms)
        while progress.done < len(record.writes):
            write = record.writes[progress.done]
            kind = _OF_KIND.get(write.kind)
            if kind is None:
                message = f"{write.kind} {write.name}: this version of Headgate writes no object of this kind"
                self._reject(placed, Refusal(code=INVALID, reason="Invalid", message=message), out)
                return
            if progress.patches or not has(self._state.objects.get(kind.plural, {}).get(write.name, {}), write.patch):
                self._call(progress, kind, write, calls)
                return
            progress.done += 1

    def _call(self, progress: _Progress, kind: PlacementKind, write: ObjectPatch, calls: list[Command]) -> None:
        call = Call(
            id=f"write/{progress.placed.pod}",
            method="GET",
            path=_path(kind, write.name),
            lane=f"{kind.plural}/{write.name}",
        )
        if progress.patches:
            subresource, patch = progress.patches[0]
            metadata = {**patch.get("metadata", {}), "resourceVersion": progress.version}
            call = msgspec.structs.replace(
                call,
                method="PATCH",
                path=call.path + subresource,
                body={**patch, "metadata": metadata},
                content_type=STRATEGIC_PATCH,
            )
        self._queue.begin(progress.placed.pod)
        self._calls[call.id] = progress
        calls.append(call)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """A call has ended: the next one is due, or a refusal ends the placement."""
        progress = self._calls.pop(completed.call_id, None)
        if progress is None:
            return
        key = progress.placed.pod
        self._queue.done(key)
        record = self._state.placements.get(key)
        if record is None or self._progress.get(key) is not progress:
            return
        with about("Pod", key):
            write = record.writes[progress.done]
            why = self._answered(progress, write, completed)
            if why is None:
                self._queue.add(key)
            else:
                message = f"{write.kind} {write.name}: {why.message}"
                self._reject(progress.placed, msgspec.structs.replace(why, message=message), out)

    def _answered(self, progress: _Progress, write: ObjectPatch, completed: Completed) -> Refusal | None:
        """What follows from an answer about a write; why it is refused."""
        if not is_success(completed):
            return refusal(completed)
        live: Json = msgspec.json.decode(completed.body)
        if progress.patches:
            del progress.patches[0]
        elif not has(live, write.patch):
            kind = _OF_KIND[write.kind]
            try:
                is_known = kind.shown(completed.body) == self._state.objects.get(kind.plural, {}).get(write.name)
            except msgspec.MsgspecError as error:
                return Refusal(code=INVALID, reason="Invalid", message=str(error))
            if not is_known:
                return Refusal(code=CONFLICT, reason="Conflict", message="the object has been modified")
            progress.patches = list(_parts(write.patch))
        progress.version = live["metadata"]["resourceVersion"]
        if not progress.patches:
            progress.done += 1
        return None

    def _reject(self, placed: Placed, why: Refusal, out: list[Event]) -> None:
        self._rejected[placed.pod] = placed
        self._progress.pop(placed.pod, None)
        out.append(rejected(placed, why))


def _is_to_be_written(record: PlacementRecord) -> bool:
    return record.is_waiting and not record.waits_ms


def has(live: Any, patch: Mapping[str, Any]) -> bool:
    """Whether applying a patch to an object would change nothing; items of its lists are added to those there."""
    if not isinstance(live, dict):
        return False
    for name, value in patch.items():
        if value is None:
            if name in live:
                return False
        elif not _has_value(live.get(name), value):
            return False
    return True


def _has_value(live: Any, value: Any) -> bool:
    if isinstance(value, Mapping):
        return has(live, value)
    if isinstance(value, list | tuple) and isinstance(live, list):
        return all(any(_has_value(each, item) for each in live) for item in value)
    return bool(live == value)


def _parts(patch: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """The patch of the object itself, and that of its status."""
    own = {name: value for name, value in patch.items() if name != "status"}
    if own:
        yield "", own
    if "status" in patch:
        yield "/status", {"status": patch["status"]}


def _path(kind: PlacementKind, key: str) -> str:
    namespace, name = split_key(key)
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{where}/{kind.plural}/{name}"
