"""
The patches of pods that are under way, for the tasks of the ungater that patch pods.

Each task has a queue of its own (`WorkQueue`), with its own limits. This class makes the calls for it, and takes their
answers: after success, and when the pod is gone, the pod is done; after any other answer it is tried again with
backoff. A task that is level-triggered on the state must not patch a pod again because the watch is late: a pod that
was patched with success counts as `is_patched` until the state shows it, or it is another pod of the same name.
"""

from collections.abc import Callable
from typing import Final

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.machine.api_results import NOT_FOUND, is_success
from headgate.core.machine.contract import JSON_PATCH, Call, Completed
from headgate.core.state.tables import PodRecord, State
from headgate.events.ids import PodKey, split_key


def pod_path(key: PodKey, subresource: str = "") -> str:
    """The path of a pod, or of its subresource."""
    namespace, name = split_key(key)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    return f"{path}/{subresource}" if subresource else path


class PodPatches:
    """
    See the module docstring.

    `task` is unique among the tasks of the machine: it is the prefix of the ids of its calls. `needs` is whether a pod
    as in the state is one that the task patches, so that a late watch can be told from a change that is still due.
    """

    def __init__(self, state: State, task: str, queue: WorkQueue[PodKey], needs: Callable[[PodRecord], bool]) -> None:
        self._state = state
        self._task: Final = task
        self._queue = queue
        self._needs = needs
        self._calls: dict[str, PodKey] = {}
        self._patched: dict[PodKey, str] = {}
        """Pods that the API server has patched, by uid, until the watch shows it."""

    def begin(self, key: PodKey, body: object, content_type: str = JSON_PATCH, subresource: str = "") -> Call:
        """The call that patches a pod. It is under way from now on."""
        call_id = f"{self._task}/{key}"
        self._queue.begin(key)
        self._calls[call_id] = key
        path = pod_path(key, subresource)
        return Call(id=call_id, method="PATCH", path=path, body=body, content_type=content_type, lane=key)

    def is_patched(self, key: PodKey) -> bool:
        """Whether a pod is patched, or is being patched, and the state does not show it yet."""
        return self._queue.is_in_flight(key) or key in self._patched

    def see(self, key: PodKey) -> None:
        """A pod may have appeared, changed or gone."""
        record = self._state.pods.get(key)
        if record is None:
            self._queue.forget(key)
        if record is None or not self._needs(record) or self._patched.get(key) != record.pod.uid:
            self._patched.pop(key, None)

    def on_completed(self, completed: Completed) -> PodKey | None:
        """A call has ended. The pod that it was about; None for a call of others."""
        key = self._calls.pop(completed.call_id, None)
        if key is None:
            return None
        if not is_success(completed) and completed.status != NOT_FOUND:
            self._queue.retry(key)
            return key
        record = self._state.pods.get(key)
        if is_success(completed) and record is not None and self._needs(record):
            self._patched[key] = record.pod.uid
        self._queue.done(key)
        return key
