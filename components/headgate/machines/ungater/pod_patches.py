"""
The patches of pods that are under way, for the tasks of the ungater that patch pods.

Each task has a queue of its own (`WorkQueue`), with its own limits. This class makes the calls for it, and takes their
answers: after success, and when the pod is gone, the pod is done; after any other answer it is tried again with
backoff. A task that is level-triggered on the state must not patch a pod again because the watch is late: a pod that
was patched with success counts as `is_patched` until the state shows it, or it is another pod of the same name.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import NOT_FOUND, is_success
from headgate.core.machine.contract import JSON_PATCH, Call, Completed
from headgate.core.state.tables import PodRecord, State
from headgate.events.ids import PodKey

Needs = Callable[[PodRecord], bool]
"""Whether a pod as in the state is one that still has to be patched."""


class PodPatches:
    """See the module docstring. `task` is unique in the machine: it is the prefix of the ids of its calls."""

    def __init__(self, state: State, task: str, queue: WorkQueue[PodKey]) -> None:
        self._state = state
        self._task: Final = task
        self._queue = queue
        self._calls: dict[str, tuple[PodKey, str, Needs, Call | None]] = {}
        """The calls under way: the pod with its uid, whether it needs them, and the call to make after success."""
        self._patched: dict[PodKey, tuple[str, Needs]] = {}
        """Pods that the API server has patched, by uid, until the watch shows it."""
        self.following: list[Call] = []
        """Calls to make after others that have ended. The task empties it."""

    def begin(
        self,
        key: PodKey,
        body: object,
        needs: Needs,
        *,
        content_type: str = JSON_PATCH,
        subresource: str = "",
        query: dict[str, str] | None = None,
        then: Call | None = None,
    ) -> Call:
        """The call that patches a pod, and `then` the one that follows its success. Both are under way from now on."""
        path = pod_path(key, subresource)
        call = Call(id="", method="PATCH", path=path, body=body, content_type=content_type, query=query or {})
        return self.begin_call(key, call, needs, then)

    def begin_call(self, key: PodKey, call: Call, needs: Needs, then: Call | None = None) -> Call:
        """As `begin`, for any call about a pod."""
        call_id = f"{self._task}/{key}"
        self._queue.begin(key)
        self._calls[call_id] = key, self._state.pods[key].pod.uid, needs, then
        return replace(call, id=call_id, lane=key)

    def is_patched(self, key: PodKey) -> bool:
        """Whether a pod is patched, or is being patched, and the state does not show it yet."""
        return self._queue.is_in_flight(key) or key in self._patched

    def see(self, key: PodKey) -> None:
        """A pod may have appeared, changed or gone."""
        record = self._state.pods.get(key)
        if record is None:
            self._queue.forget(key)
        patched = self._patched.get(key)
        if patched is not None and (record is None or patched[0] != record.pod.uid or not patched[1](record)):
            del self._patched[key]

    def on_completed(self, completed: Completed) -> PodKey | None:
        """A call has ended. The pod that it was about; None for a call of others."""
        found = self._calls.pop(completed.call_id, None)
        if found is None:
            return None
        key, uid, needs, then = found
        if not is_success(completed) and completed.status != NOT_FOUND:
            self._queue.retry(key)
            return key
        if is_success(completed) and then is not None:
            self._calls[completed.call_id] = key, uid, needs, None
            self.following.append(replace(then, id=completed.call_id, lane=key))
            return key
        record = self._state.pods.get(key)
        # Its owner may have made another pod of this name in the meantime, which needs calls of its own.
        if is_success(completed) and record is not None and record.pod.uid == uid and needs(record):
            self._patched[key] = uid, needs
        self._queue.done(key)
        return key
