"""
The binder's fourth task: pods whose scheduler is `headgate` get a node.

The choice comes before the effect: a pending pod is placed on the first node that it fits on
(`headgate.core.placement.node_info`), which is an event; when that is folded, the binding is requested from the API
server. Room counts as taken from the choice on.

Pods that fit on no node wait by kind and cost nothing until a node or pod changes. A pod whose binding was refused
waits with backoff before it is placed anew.
"""

from collections import OrderedDict

from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.engine.work_queue import backoff_ms
from headgate.core.fold.quarantine import is_aside
from headgate.core.machine.contract import Command, Completed
from headgate.core.placement.node_info import Ask, Room, ask_of
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.events.registry import Event
from headgate.machines.binder.placed import Placed
from headgate.machines.binder.pod_bindings import BINDINGS_MAX, binding_of, effect_of


class PodPlacement:
    """The working set of pods to place and to bind. The binder's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._begin()

    def _begin(self) -> None:
        """The working set as it follows from the state; empty while the scheduler places pods."""
        state = self._state
        self._was_off = bool(state.scheduler_configuration)
        self._room = Room()
        self._kind_of: dict[PodKey, Ask] = {}
        self._waiting: dict[Ask, OrderedDict[PodKey, None]] = {}
        self._look = False
        self._to_bind: OrderedDict[PodKey, None] = OrderedDict()
        self._bindings: dict[str, Placed] = {}
        self._busy: dict[PodKey, None] = {}
        self._refused: list[PodKey] = []
        self._retry_at: dict[PodKey, UnixMs] = {}
        if self._was_off:
            return
        for name in state.nodes:
            with about("Node", name):
                self._observe_node(name)
        for name, use in state.node_usage.items():
            with about("Node", name):
                self._room.observe_use(name, use)
        for key in state.pods:
            with about("Pod", key):
                self._refresh(key)

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_event(
        self,
        event: facts.NodeObserved
        | facts.NodeDeleted
        | facts.NodeUsageObserved
        | facts.PodObserved
        | facts.PodDeleted
        | decisions.PodPlaced
        | effects.PodBound
        | effects.PodBindRejected,
    ) -> None:
        """Record events after which a pod may be placed or bound."""
        if self._is_off():
            return
        match event:
            case facts.NodeObserved() | facts.NodeDeleted():
                self._observe_node(event.name)
                self._look = True
            case facts.NodeUsageObserved():
                if self._room.observe_use(event.node, self._state.node_usage.get(event.node)):
                    self._look = True
            case facts.PodObserved() | facts.PodDeleted() | decisions.PodPlaced():
                self._refresh(event.pod)
            case effects.PodBound():
                self._busy.pop(event.pod, None)
                self._refresh(event.pod)
            case effects.PodBindRejected():
                self._busy.pop(event.pod, None)
                self._refused.append(event.pod)
                self._refresh(event.pod)

    def _is_off(self) -> bool:
        """Whether the scheduler places pods, and `PodDecisions` binds them. What was known of them is dropped then."""
        if self._state.scheduler_configuration:
            if not self._was_off:
                self._begin()
                self._was_off = True
            return True
        if self._was_off:
            self._begin()
        return False

    def _observe_node(self, name: str) -> None:
        """Nothing is placed on a node in quarantine."""
        aside = is_aside(self._state, "Node", name, Producer.BINDER)
        self._room.observe_node(name, None if aside else self._state.nodes.get(name))

    def _refresh(self, key: PodKey) -> None:
        """Update room and working sets from a pod's record."""
        record = self._state.pods.get(key) if not is_aside(self._state, "Pod", key, Producer.BINDER) else None
        if self._room.observe_pod(key, record):
            self._look = True
        self._wait_no_more(key)
        if record is None:
            self._retry_at.pop(key, None)
            return
        if record.pod.spec.scheduler_name != SCHEDULER_NAME or record.bound or record.pod.deleting:
            return
        if record.placed:
            self._to_bind[key] = None
        elif not record.pod.spec.scheduling_gates:
            kind = self._kind_of[key] = ask_of(record.pod.spec)
            self._waiting.setdefault(kind, OrderedDict())[key] = None
            self._look = True

    def _wait_no_more(self, key: PodKey) -> None:
        kind = self._kind_of.pop(key, None)
        if kind is None:
            return
        pods = self._waiting[kind]
        del pods[key]
        if not pods:
            del self._waiting[kind]

    # --- placing ---------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, room_for: int, out: list[Event], calls: list[Command]) -> UnixMs | None:
        """
        Place at most `room_for` pods (into `out`) and bind those that were placed.

        Returns when to check again.
        """
        self._back_off(now_ms)
        if self._is_off():
            return None
        if self._look and self._state.synced:
            self._look = self._place(room_for, out)
        while self._to_bind and len(self._bindings) < BINDINGS_MAX:
            key = self._to_bind.popitem(last=False)[0]
            with about("Pod", key):
                self._bind(key, calls)
        return min(self._retry_at.values(), default=None)

    def _back_off(self, now_ms: UnixMs) -> None:
        for key in self._refused:
            record = self._state.pods.get(key)
            if record is not None:
                self._retry_at[key] = UnixMs(now_ms + backoff_ms(record.refusals, key))
        self._refused.clear()
        for key in [key for key, at_ms in self._retry_at.items() if at_ms <= now_ms]:
            del self._retry_at[key]
            self._look = True

    def _place(self, room_for: int, out: list[Event]) -> bool:
        """Place the pods that fit, kind by kind. True when there was no room for more events."""
        for kind, pods in list(self._waiting.items()):
            placed: list[PodKey] = []
            for key in pods:
                if key in self._retry_at:
                    continue
                if len(placed) >= room_for:
                    break
                record = self._state.pods[key]
                with about("Pod", key):
                    node = self._room.first_fit(record.pod.spec, kind)
                if node is None:
                    break
                self._room.hold(key, node, kind)
                placed.append(key)
                out.append(decisions.PodPlaced(pod=key, uid=Uid(record.pod.uid), node=node))
            for key in placed:
                self._wait_no_more(key)
            room_for -= len(placed)
            if room_for == 0:
                return True
        return False

    # --- binding ---------------------------------------------------------------------------------------------------

    def _bind(self, key: PodKey, calls: list[Command]) -> None:
        record = self._state.pods.get(key)
        if record is None or record.bound or not record.placed or record.pod.deleting or key in self._busy:
            return
        placed = Placed(key, Uid(record.pod.uid), record.placed)
        call = binding_of(placed)
        self._busy[key] = None
        self._bindings[call.id] = placed
        calls.append(call)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """The effect of a binding that has ended. Its pod stays busy until the effect is folded."""
        placed = self._bindings.pop(completed.call_id, None)
        if placed is not None:
            out.append(effect_of(placed, completed))
