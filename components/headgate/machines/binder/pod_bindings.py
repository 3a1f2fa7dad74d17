"""
Bindings: pods that the scheduler has placed are bound to their nodes.

The choice of a node is in the log before the binding is requested, and the log records what became of it: `pod.bound`,
or `pod.bind_rejected` after any final refusal. A refused pod is placed anew by the scheduler. There is one such effect
for each placement; until it is folded, its pod is left alone.

An extender that binds is asked instead of the API server (`extender_bindings`); its answer is recorded with the effect.

Level-triggered: a pod is bound when a node is chosen for it, it is not known to be bound, and the writes that come
before the binding, if there are any, have had their effect. After a crash the call is repeated. The API server answers
that the pod has this node already; that is a success.
"""

from collections.abc import Callable
from typing import Final

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import CONFLICT, Refusal, is_success, refusal
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events import effects
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import PodKey, UnixMs, split_key
from headgate.events.registry import Event
from headgate.machines.binder.extender_bindings import BindingExtenders, ExtenderBinding, is_assigned
from headgate.machines.binder.placed import Placed

BINDINGS_MAX: Final = 256
"""The maximum number of concurrent bindings."""


def rejected(placed: Placed, why: Refusal) -> Event:
    """The effect of a final refusal: the pod does not get the node."""
    return effects.PodBindRejected(
        pod=placed.pod, uid=placed.uid, node=placed.node, code=why.code, reason=why.reason, message=why.message
    )


class PodBindings:
    """The working set of pods to bind. `is_written_to`: whether a call is under way that has to end before."""

    def __init__(self, state: State, is_written_to: Callable[[PodKey], bool]) -> None:
        self._state = state
        self._is_written_to = is_written_to
        self._extenders = BindingExtenders(state)
        self._queue: WorkQueue[PodKey] = WorkQueue(BINDINGS_MAX)
        self._calls: dict[str, Placed | ExtenderBinding] = {}
        self._answered: dict[PodKey, None] = {}
        """The pods with a binding whose effect is not folded yet."""
        self._passed_over: dict[PodKey, None] = {}
        """The pods for which the next one is to be asked, once the answer of an extender is folded."""

    def add(self, key: PodKey) -> None:
        """Something has happened to a pod that has a record."""
        self._queue.add(key)

    def forget(self, key: PodKey) -> None:
        """A pod has no record any more."""
        self._queue.forget(key)

    def on_effect(self, event: effects.PodBound | effects.PodBindRejected) -> None:
        """An effect is folded."""
        self._answered.pop(event.pod, None)

    def on_answer(self, event: ExtenderAnswered) -> None:
        """The answer of an extender is folded."""
        self._passed_over.pop(event.pod, None)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """What has become of a binding that has ended."""
        called = self._calls.pop(completed.call_id, None)
        if called is None:
            return
        placed = called if isinstance(called, Placed) else called.placed
        self._queue.done(placed.pod)
        if isinstance(called, Placed):
            effect: Event | None = _effect_of(called, completed)
        else:
            said = called.answered(completed)
            out.append(said)
            effect = called.effect(said.answer)
        if effect is None:
            self._passed_over[placed.pod] = None
        else:
            self._answered[placed.pod] = None
            out.append(effect)

    def settle(self, now_ms: UnixMs, calls: list[Command], out: list[Event]) -> None:
        """Bind what is due, as far as the limit of calls permits."""
        if self._extenders.are_unknown():
            return
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                record = self._state.placements.get(key)
                is_due = record is not None and record.is_bindable
                if record is not None and is_due and key not in self._answered and key not in self._passed_over:
                    self._bind(Placed(key, record.uid, record.node), calls, out)

    def _bind(self, placed: Placed, calls: list[Command], out: list[Event]) -> None:
        """Have a pod bound: by an extender, else by the API server."""
        extender = self._extenders.binding(placed)
        if extender is not None and extender.answer is not None:
            # The process ended before the effect was in the log.
            effect = extender.effect(extender.answer)
            assert effect is not None, "it was passed over"
            self._answered[placed.pod] = None
            out.append(effect)
            return
        if extender is not None and self._is_written_to(placed.pod):
            # Calls to an extender have no place in the order of those to the API server: `add` follows.
            return
        call = _binding_of(placed) if extender is None else extender.command(_id_of(placed))
        self._queue.begin(placed.pod)
        self._calls[call.id] = placed if extender is None else extender
        calls.append(call)


def _effect_of(placed: Placed, completed: Completed) -> Event:
    why = refusal(completed)
    if is_success(completed) or _is_echo(why, placed.node):
        return effects.PodBound(pod=placed.pod, uid=placed.uid, node=placed.node)
    return rejected(placed, why)


def _is_echo(why: Refusal, node: str) -> bool:
    """Whether a refusal means that the pod is on the intended node: the binding was repeated after a crash."""
    return why.code == CONFLICT and is_assigned(why.message, node)


def _binding_of(placed: Placed) -> Call:
    namespace, name = split_key(placed.pod)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": placed.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": placed.node},
    }
    path = pod_path(placed.pod, "binding")
    return Call(id=_id_of(placed), method="POST", path=path, body=body, lane=placed.pod)


def _id_of(placed: Placed) -> str:
    return f"bind/{placed.pod}"
