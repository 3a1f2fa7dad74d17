"""
Writes before bindings: what a plugin needs to be written to other objects before its pod is bound.

For example the claim of a volume: the node at which a volume is to be made, or the volume that the claim gets. How one
object is written, `object_writes` says. A refused write takes the pod's placement back, as a refused binding does
(`pod.bind_rejected`). What was written is kept in memory until the binding; after a restart the objects are read again.
"""

from typing import Final

import msgspec

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.machine.api_results import Refusal
from headgate.core.machine.contract import Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import PlacementRecord, State
from headgate.events import effects
from headgate.events.ids import PodKey, UnixMs
from headgate.events.registry import Event
from headgate.machines.binder.object_writes import ObjectWriting
from headgate.machines.binder.placed import Placed
from headgate.machines.binder.pod_bindings import rejected

WRITES_MAX: Final = 64
"""The maximum number of pods whose writes are under way."""


class _Progress(msgspec.Struct):
    """How far the writes of a placement have come: those that are done, and the one that is next or under way."""

    placed: Placed
    at_ms: UnixMs
    done: int = 0
    writing: ObjectWriting | None = None


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
            writing = progress.writing = progress.writing or ObjectWriting(record.writes[progress.done])
            why = writing.why_refused()
            if why is not None:
                self._reject(placed, why, out)
                return
            if writing.is_needed(self._state):
                call = writing.call(f"write/{key}")
                self._queue.begin(key)
                self._calls[call.id] = progress
                calls.append(call)
                return
            progress.done, progress.writing = progress.done + 1, None

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """A call has ended: the next one is due, or a refusal ends the placement."""
        progress = self._calls.pop(completed.call_id, None)
        if progress is None:
            return
        key = progress.placed.pod
        self._queue.done(key)
        if self._state.placements.get(key) is None or self._progress.get(key) is not progress:
            return
        assert progress.writing is not None, f"nothing is written for {key}"
        with about("Pod", key):
            why = progress.writing.answered(self._state, completed)
            if why is None:
                self._queue.add(key)
            else:
                self._reject(progress.placed, why, out)

    def _reject(self, placed: Placed, why: Refusal, out: list[Event]) -> None:
        self._rejected[placed.pod] = placed
        self._progress.pop(placed.pod, None)
        out.append(rejected(placed, why))


def _is_to_be_written(record: PlacementRecord) -> bool:
    return record.is_waiting and not record.waits_ms
