"""
Writes that help pods: what plugins of the extension point PostFilter want to be written for a pod that fits nowhere.

A resource claim that keeps its pod from every node is given back, for example. Each is in the log with the verdict
(`pod.unschedulable`), and made once. It is over when the log shows another state of the object: then it is done, or was
decided from what is no longer so. A refused one is recorded (`pod.write_rejected`), and over too: the pod stays as it
is, and its next attempt may ask for it again.
"""

from typing import Final, assert_never

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import is_aside
from headgate.core.machine.api_results import Refusal
from headgate.core.machine.contract import Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import State, write_key
from headgate.events import decisions, effects
from headgate.events.base import Producer
from headgate.events.ids import UnixMs
from headgate.events.registry import Event
from headgate.machines.binder.object_writes import ObjectWriting

WRITES_MAX: Final = 16
"""The maximum number of objects that are being written."""


class PostFilterWrites:
    """The working set of objects to be written, by `<kind>/<name>`. The binder's machine passes on what concerns it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[str] = WorkQueue(WRITES_MAX, keys=sorted(state.post_filter_writes))
        self._writing: dict[str, ObjectWriting] = {}
        self._calls: dict[str, tuple[str, ObjectWriting]] = {}
        self._rejected: dict[str, None] = {}
        """Writes whose refusal is not folded yet."""

    def on_event(self, event: decisions.PodUnschedulable | effects.PodWriteRejected) -> None:
        """A write was decided, or its refusal is folded."""
        match event:
            case decisions.PodUnschedulable():
                for write in event.writes:
                    # The same write of an earlier attempt was decided from another state of the object.
                    self._writing.pop(key := write_key(write.kind, write.name), None)
                    self._queue.add(key)
            case effects.PodWriteRejected():
                self._rejected.pop(key := write_key(event.kind, event.name), None)
                self._queue.add(key)
            case _:
                assert_never(event)

    def settle(self, now_ms: UnixMs, calls: list[Command], out: list[Event]) -> None:
        """Write what is due, as far as the limit of calls permits."""
        for key in self._queue.ready(now_ms):
            record = self._state.post_filter_writes.get(key)
            if record is None or key in self._rejected or is_aside(self._state, "Pod", record.pod, Producer.BINDER):
                continue
            with about("Pod", record.pod):
                self._look_at(key, calls, out)
        if len(self._writing) > len(self._state.post_filter_writes):
            self._writing = {key: each for key, each in self._writing.items() if key in self._state.post_filter_writes}

    def _look_at(self, key: str, calls: list[Command], out: list[Event]) -> None:
        write = self._state.post_filter_writes[key].write
        writing = self._writing.get(key)
        if writing is None or writing.write != write:
            writing = self._writing[key] = ObjectWriting(write)
        why = writing.why_refused()
        if why is not None:
            self._reject(key, why, out)
        elif writing.is_needed(self._state):
            call = writing.call(f"help/{key}")
            self._queue.begin(key)
            self._calls[call.id] = key, writing
            calls.append(call)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """A call has ended: the next one is due, or the write is done or refused."""
        key, writing = self._calls.pop(completed.call_id, ("", None))
        if writing is None:
            return
        self._queue.done(key)
        record = self._state.post_filter_writes.get(key)
        if record is None or self._writing.get(key) is not writing:
            self._queue.add(key)
            return
        with about("Pod", record.pod):
            why = writing.answered(self._state, completed)
            if why is not None:
                self._reject(key, why, out)
            else:
                self._queue.add(key)

    def _reject(self, key: str, why: Refusal, out: list[Event]) -> None:
        record = self._state.post_filter_writes[key]
        self._writing.pop(key, None)
        self._rejected[key] = None
        out.append(
            effects.PodWriteRejected(
                pod=record.pod,
                uid=record.uid,
                kind=record.write.kind,
                name=record.write.name,
                code=why.code,
                reason=why.reason,
                message=why.message,
            )
        )
