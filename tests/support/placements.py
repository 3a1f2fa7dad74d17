"""
A scheduler that places pods, and an API server and a binder that a test plays.

`PlacementCell` holds objects as the bridge would record them. `run` lets the scheduler decide and the played binder
carry out until nothing happens any more: bindings, deletions of victims, writes, nominations in the status. Extenders
are functions of path and body to status and body, by their `urlPrefix`.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from tests.support.logs import TestLog

from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.core.kubernetes.pod_manifests import shown_nomination, shown_pod
from headgate.core.log.rules_version import RULES
from headgate.core.machine.contract import Append, AskExtender, Committed, Completed, Settled, WakeAt
from headgate.core.placement.objects.kinds import KINDS, OTHERS
from headgate.core.state.manifests import decoded, encoded
from headgate.core.state.tables import State
from headgate.events import effects
from headgate.events.base import Producer
from headgate.events.facts import (
    InformersSynced,
    ObjectDeleted,
    ObjectObserved,
    SchedulerConfigurationObserved,
)
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.events.registry import Event
from headgate.machines.scheduler.decide import Scheduler

Json = dict[str, Any]

CONFIGURATION: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "headgate"}],
}
_STEPS_MAX = 200


def node(name: str, cpu: str = "4", labels: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }


def pod(name: str, cpu: str = "1", namespace: str = "team", **spec: Any) -> Json:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": {"app": name}},
        "spec": {"schedulerName": "headgate", "containers": [container], **spec},
    }


class PlacementCell:
    """See the module's text. `says` are the events that the scheduler has appended."""

    def __init__(self, *manifests: Json, configuration: Json = CONFIGURATION) -> None:
        self.log = TestLog()
        self.says: list[Event] = []
        self.wake_at: UnixMs | None = None
        self.told = 0
        self.extenders: dict[str, Callable[[str, Any], tuple[int, bytes]]] = {}
        self.asks: list[AskExtender] = []
        """The calls of extenders that have no answer yet."""
        for producer in (Producer.SCHEDULER, Producer.BINDER):
            self.log.append(producer, effects.LeaderElected(holder="one", rules=RULES[producer]))
        self.apply(*manifests)
        self.log.append(
            Producer.INFORMER_BRIDGE, SchedulerConfigurationObserved(document=configuration), InformersSynced()
        )
        self.crash()

    @property
    def state(self) -> State:
        return self.log.state

    def crash(self) -> None:
        """The scheduler is killed, and starts again."""
        self.machine = Scheduler(self.state)
        self.told = len(self.log.commits)
        self.wake_at = None
        self.asks.clear()

    # --- the API server --------------------------------------------------------------------------------------------

    def apply(self, *manifests: Json) -> None:
        """Objects are created or replaced."""
        kinds = {each.kind: each for each in KINDS.values()}
        events = []
        for manifest in manifests:
            kind = kinds[manifest["kind"]]
            metadata = manifest["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}" if kind.namespaced else metadata["name"]
            events.append(ObjectObserved(resource=kind.plural, name=name, object=encoded(kind.reduced(manifest))))
        if events:
            self.log.append(Producer.INFORMER_BRIDGE, *events)

    def object(self, resource: str, name: str) -> Json:
        """An object as it is observed."""
        return decoded(self.state.objects[resource][name])

    def patch(self, resource: str, name: str, patch: Json) -> None:
        """An object is changed."""
        manifest = merge_patched(self.object(resource, name), patch)
        kind = KINDS[resource]
        self.log.append(
            Producer.INFORMER_BRIDGE,
            ObjectObserved(resource=resource, name=name, object=encoded(kind.reduced(manifest))),
        )

    def delete(self, resource: str, name: str) -> None:
        """An object is gone."""
        self.log.append(Producer.INFORMER_BRIDGE, ObjectDeleted(resource=resource, name=name))

    # --- the scheduler ---------------------------------------------------------------------------------------------

    def decide(self) -> list[Event]:
        """Tell the scheduler what is new, let it decide once, and append that."""
        for logged in self.log.commits[self.told :]:
            assert self.machine.decide(Committed(logged)) == []
        self.told = len(self.log.commits)
        events: list[Event] = []
        for command in self.machine.decide(Settled(self.log.now_ms)):
            match command:
                case Append():
                    self.log.append(Producer.SCHEDULER, *command.events, decided_at=command.decided_at)
                    events += command.events
                case WakeAt(at_ms):
                    self.wake_at = at_ms
                case AskExtender():
                    assert command.id not in {each.id for each in self.asks}
                    self.asks.append(command)
                case _:
                    raise AssertionError(command)
        self.says += events
        return events

    def answer(self) -> bool:
        """Let the extender that was called first answer; False if none was."""
        if not self.asks:
            return False
        ask = self.asks.pop(0)
        body = msgspec.json.decode(msgspec.json.encode(ask.body))
        assert self.machine.decide(Completed(ask.id, *self.extenders[ask.extender](ask.path, body))) == []
        return True

    # --- the binder ------------------------------------------------------------------------------------------------

    def carry_out(self) -> bool:
        """Carry out what is decided; False when nothing is left to do."""
        return self._bind() or self._write() or self._preempt() or self._nominate()

    def _bind(self) -> bool:
        due = [(key, record) for key, record in self.state.placements.items() if record.is_bindable]
        for key, record in due:
            self.log.append(Producer.BINDER, effects.PodBound(pod=key, uid=record.uid, node=record.node))
            self.patch("pods", key, {"spec": {"nodeName": record.node}, "status": {"phase": "Running"}})
        return bool(due)

    def refuse(self, name: str) -> None:
        """The API server refuses to bind a pod."""
        record = self.state.placements[PodKey(name)]
        self.log.append(
            Producer.BINDER,
            effects.PodBindRejected(
                pod=PodKey(name), uid=record.uid, node=record.node, code=500, reason="InternalError", message="no"
            ),
        )

    def _write(self) -> bool:
        acted = False
        for record in list(self.state.placements.values()):
            for write in record.writes if not record.prepared else ():
                kind = OTHERS[write.kind]
                found = self.object(kind.plural, write.name)
                if kind.reduced(merge_patched(found, write.patch)) != kind.reduced(found):
                    self.patch(kind.plural, write.name, dict(write.patch))
                    acted = True
        for asked in list(self.state.post_filter_writes.values()):
            self.patch(OTHERS[asked.write.kind].plural, asked.write.name, dict(asked.write.patch))
            acted = True
        return acted

    def _preempt(self) -> bool:
        due = [(key, each) for key, each in self.state.placements.items() if each.preempted_by and not each.preempted]
        for key, record in due:
            self.log.append(Producer.BINDER, effects.PodPreempted(pod=key, uid=Uid(record.uid), by=record.preempted_by))
            self.delete("pods", key)
        return bool(due)

    def _nominate(self) -> bool:
        acted = False
        for key, record in list(self.state.placements.items()):
            shown = shown_nomination(self.object("pods", key))
            if not record.node and record.nominated is not None and record.nominated != shown:
                self.patch("pods", key, {"status": {"nominatedNodeName": record.nominated or None}})
                acted = True
        return acted

    def run(self) -> None:
        """Let everything happen until nothing does."""
        for _ in range(_STEPS_MAX):
            if not self.decide() and not self.carry_out() and not self.answer():
                return
        raise AssertionError("it does not come to rest")

    def sleep(self) -> None:
        """Let the time pass until the scheduler is to be woken, and run."""
        assert self.wake_at is not None, "it does not want to be woken"
        self.log.now_ms = max(self.log.now_ms, self.wake_at)
        self.run()

    def nodes(self) -> dict[str, str]:
        """The nodes of the pods as their objects show them."""
        pods = self.state.objects.get("pods", {})
        return {key: shown_pod(found).node for key, found in sorted(pods.items())}

    def verdict(self, key: str) -> str:
        """The message of the last verdict on a pod; "" for none."""
        record = self.state.placements.get(PodKey(key))
        return record.verdict.message if record is not None and record.verdict is not None else ""
