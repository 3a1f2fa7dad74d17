"""
A cell in miniature for tests: a log in memory, a simulated cluster, and machines that are driven by hand.

The bridge, the binder and the ungater are real; the other producers (queue manager, scheduler) are played by the
test with `Cell.say`. `crash` makes new machines from the folded state and drops every call under way, as in
a killed process.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from tests.support.driven import Driven
from tests.support.logs import TestLog

from headgate.core.engine.outputs import Send
from headgate.core.machine.contract import Append, Call, Changed, Completed, Listed, Machine, Stimulus, WakeAt
from headgate.core.reading.decoding import RESOURCES
from headgate.core.state.tables import State
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit
from headgate.events.ids import UnixMs
from headgate.machines.binder.decide import Binder
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.ungater.decide import Ungater
from headgate.testing.cluster import Cluster
from headgate.testing.cluster.kinds import BY_PLURAL, Kind
from headgate.testing.world.world import CONTROLLERS

BRIDGE, BINDER, UNGATER = Producer.INFORMER_BRIDGE, Producer.BINDER, Producer.UNGATER
MANAGER, SCHEDULER = Producer.QUEUE_MANAGER, Producer.SCHEDULER
_MAKE: dict[Producer, Callable[[State], Machine]] = {
    BRIDGE: InformerBridge,
    BINDER: Binder,
    UNGATER: Ungater,
}
_KINDS: dict[str, Kind] = {kind.plural: kind for kind in BY_PLURAL.values() if kind.group != "events.k8s.io"}
_ROUNDS_MAX = 500


def path_of(resource: str) -> str:
    """The path of a resource's list over all namespaces."""
    kind = _KINDS[resource]
    return f"/apis/{kind.group}/{kind.version}/{resource}" if kind.group else f"/api/{kind.version}/{resource}"


def drive(machine: Machine, stimulus: Stimulus) -> tuple[tuple[EventBase, ...], list[Call]]:
    """One stimulus: the events of the append that came back, and the calls."""
    events: tuple[EventBase, ...] = ()
    calls = []
    for command in machine.decide(stimulus):
        if isinstance(command, Append):
            events = command.events
        elif isinstance(command, Call):
            calls.append(command)
    return events, calls


class Cell:
    """
    See the module's text.

    A step is an append that has been acknowledged, or a call that the API server has carried out. With `crash_at` every
    machine crashes right after the step of that number, before any of them sees its result.
    """

    def __init__(self, *, crash_at: int | None = None) -> None:
        self.log = TestLog()
        self.cluster = Cluster(lambda: self.log.now_ms, controllers=CONTROLLERS)
        self.crash_at = crash_at
        self.steps = 0
        self.calls: list[Call] = []
        self.wake_at: dict[Producer, UnixMs] = {}
        self.crash()

    @property
    def state(self) -> State:
        return self.log.state

    def crash(self) -> None:
        """Every process is killed and starts again."""
        self._driven = {producer: Driven(self.log, producer, make) for producer, make in _MAKE.items()}
        self.pending: list[tuple[Producer, Call]] = []
        self.seen: dict[str, dict[tuple[str, str], tuple[str, bytes]]] | None = None

    @property
    def machines(self) -> dict[Producer, Machine]:
        """The machines themselves."""
        return {producer: driven.machine for producer, driven in self._driven.items()}

    def say(self, producer: Producer, *events: EventBase) -> None:
        """Append as another process, then pass the commit to the machines."""
        self._note(self.log.append(producer, *events))

    def _note(self, logged: LoggedCommit) -> None:
        for driven in self._driven.values():
            driven.folded(logged)

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen that can without time passing."""
        for _ in range(_ROUNDS_MAX):
            if not self._round():
                return
        raise AssertionError(f"the machines do not come to rest: {self.calls[-5:]}")

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.log.now_ms = UnixMs(self.log.now_ms + ms)
        self.run()

    def _round(self) -> bool:
        busy = self._watch()
        if self.cluster.step(self.log.now_ms):
            busy = True
        for producer in _MAKE:
            busy |= self._settle(producer)
        while self.pending:
            busy = True
            self._carry_out(*self.pending.pop(0))
        return busy

    def _crashes(self) -> bool:
        self.steps += 1
        if self.steps != self.crash_at:
            return False
        self.crash()
        return True

    def _settle(self, producer: Producer) -> bool:
        driven = self._driven[producer]
        busy = False
        for output in driven.settle():
            match output:
                case Send():
                    self._note(driven.store(output))
                    busy = True
                    if self._crashes():
                        return True
                case Call():
                    self.pending.append((producer, output))
                    busy = True
                case WakeAt():
                    self.wake_at[producer] = output.at_ms
                case _:
                    raise AssertionError(output)
        return busy

    def _carry_out(self, producer: Producer, call: Call) -> None:
        self.calls.append(call)
        body = msgspec.json.encode(call.body) if call.body is not None else None
        response = self.cluster.request(
            call.method, call.path, call.query, body, call.content_type or "application/json"
        )
        if not self._crashes():
            self._driven[producer].hear(Completed(call.id, response.status, response.body))

    def _watch(self) -> bool:
        """Show the bridge what has changed since it was last shown anything: a list first, then single objects."""
        bridge = self._driven[BRIDGE]
        first = self.seen is None
        self.seen = self.seen or {resource: {} for resource in RESOURCES}
        changed = first
        for resource in RESOURCES:
            objects = self._list(resource)
            if first:
                bridge.hear(Listed(resource, tuple(raw for _, raw in objects.values()), ""))
            else:
                for change in self._changes(resource, objects):
                    bridge.hear(change)
                    changed = True
            self.seen[resource] = objects
        return changed

    def _changes(self, resource: str, objects: dict[tuple[str, str], tuple[str, bytes]]) -> list[Changed]:
        assert self.seen is not None
        seen = self.seen[resource]
        changes = [Changed(resource, "DELETED", raw, "") for key, (_, raw) in seen.items() if key not in objects]
        for key, (version, raw) in objects.items():
            if key not in seen:
                changes.append(Changed(resource, "ADDED", raw, version))
            elif seen[key][0] != version:
                changes.append(Changed(resource, "MODIFIED", raw, version))
        return changes

    def _list(self, resource: str) -> dict[tuple[str, str], tuple[str, bytes]]:
        found = {}
        for each in self.cluster.objects(_KINDS[resource]):
            metadata = each["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            found[key] = (metadata["resourceVersion"], msgspec.json.encode(each))
        return found

    # --- objects ---------------------------------------------------------------------------------------------------

    def get(self, resource: str, namespace: str, name: str) -> Any:
        """An object as the API server has it; None when it has none."""
        return self.cluster.find(_KINDS[resource], namespace, name)

    def all(self, resource: str, namespace: str = "") -> list[Any]:
        """Every object of a resource."""
        return list(self.cluster.objects(_KINDS[resource], namespace))
