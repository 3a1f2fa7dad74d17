"""
Bindings: pods that the scheduler has placed are bound to their nodes.

The choice of a node is in the log before the binding is requested, and the log records what became of it: `pod.bound`,
or `pod.bind_rejected` after any final refusal. A refused pod is placed anew by the scheduler. There is one such effect
for each placement; until it is folded, its pod is left alone.

Level-triggered: a pod is bound when a node is chosen for it, it is not known to be bound, and the writes that come
before the binding, if there are any, have had their effect. After a crash the call is repeated. The API server answers
that the pod has this node already; that is a success.
"""

from typing import Final

import msgspec

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import CONFLICT, Refusal, is_success, refusal
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events import effects
from headgate.events.ids import PodKey, Uid, UnixMs, split_key
from headgate.events.registry import Event

BINDINGS_MAX: Final = 256
"""The maximum number of concurrent bindings."""


class Placed(msgspec.Struct, frozen=True):
    """A pod and the node that was chosen for it: the subject of a call."""

    pod: PodKey
    uid: Uid
    node: str


def rejected(placed: Placed, why: Refusal) -> Event:
    """The effect of a final refusal: the pod does not get the node."""
    return effects.PodBindRejected(
        pod=placed.pod, uid=placed.uid, node=placed.node, code=why.code, reason=why.reason, message=why.message
    )


class PodBindings:
    """The working set of pods to bind."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[PodKey] = WorkQueue(BINDINGS_MAX)
        self._calls: dict[str, Placed] = {}
        self._answered: dict[PodKey, Placed] = {}
        """The bindings whose effect is not folded yet."""

    def add(self, key: PodKey) -> None:
        """Something has happened to a pod that has a record."""
        self._queue.add(key)

    def forget(self, key: PodKey) -> None:
        """A pod has no record any more."""
        self._queue.forget(key)

    def on_effect(self, event: effects.PodBound | effects.PodBindRejected) -> None:
        """An effect is folded."""
        self._answered.pop(event.pod, None)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """The effect of a binding that has ended."""
        placed = self._calls.pop(completed.call_id, None)
        if placed is None:
            return
        self._answered[placed.pod] = placed
        self._queue.done(placed.pod)
        out.append(effect_of(placed, completed))

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> None:
        """Bind what is due, as far as the limit of calls permits."""
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                record = self._state.placements.get(key)
                if record is not None and record.is_bindable and key not in self._answered:
                    self._bind(Placed(key, record.uid, record.node), calls)

    def _bind(self, placed: Placed, calls: list[Command]) -> None:
        """Bind a pod through the API server. A binder among the extenders is to be asked here instead."""
        call = binding_of(placed)
        self._queue.begin(placed.pod)
        self._calls[call.id] = placed
        calls.append(call)


def effect_of(placed: Placed, completed: Completed) -> Event:
    """The effect of a binding that has ended."""
    why = refusal(completed)
    if is_success(completed) or _is_echo(why, placed.node):
        return effects.PodBound(pod=placed.pod, uid=placed.uid, node=placed.node)
    return rejected(placed, why)


def _is_echo(why: Refusal, node: str) -> bool:
    """Whether a refusal means that the pod is on the intended node: the binding was repeated after a crash."""
    return why.code == CONFLICT and why.message.rstrip(".").endswith(f'already assigned to node "{node}"')


def binding_of(placed: Placed) -> Call:
    """The call that binds a pod."""
    namespace, name = split_key(placed.pod)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": placed.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": placed.node},
    }
    path = pod_path(placed.pod, "binding")
    return Call(id=f"bind/{placed.pod}", method="POST", path=path, body=body, lane=placed.pod)
