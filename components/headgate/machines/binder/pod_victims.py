"""
Victims: pods that have to go for a pod of higher priority are deleted, or evicted.

As the kube-scheduler does, a victim gets the condition DisruptionTarget, and is then deleted with its own grace period
(`PreemptPod` in pkg/scheduler/framework/preemption/executor.go). One that a PodDisruptionBudget covers is evicted, so
that the budget is charged and has the last word; the API server itself sets the condition of what it evicts.

Each call is for the uid that was chosen: another pod of the same name is never touched. The effect is `pod.preempted`,
also for a victim that is gone already, or `pod.preemption_rejected` after a refusal, for example by a budget that was
used up in the meantime; the scheduler then decides anew. A victim is spared, which is such a refusal too, when the pod
that it was to go for is gone or has got a node meanwhile.
"""

from typing import Any, Final

import msgspec

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes.pod_manifests import ShownPod
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import NOT_FOUND, Refusal, is_about_another, is_success, refusal
from headgate.core.machine.contract import STRATEGIC_PATCH, Call, Command, Completed, deletion_of
from headgate.core.placement.objects.pods import DISRUPTION_TARGET, PREEMPTED
from headgate.core.state.attribution import about
from headgate.core.state.manifests import PODS, object_of, pod_of
from headgate.core.state.tables import PlacementRecord, State
from headgate.events import effects
from headgate.events.ids import PodKey, Uid, UnixMs, split_key
from headgate.events.registry import Event
from headgate.machines.binder.pod_conditions import updated_condition

VICTIMS_MAX: Final = 64
"""The maximum number of concurrent calls about victims."""

Json = dict[str, Any]


class _Victim(msgspec.Struct, frozen=True):
    pod: PodKey
    uid: Uid
    by: PodKey
    budgeted: bool


class _Call(msgspec.Struct, frozen=True):
    victim: _Victim
    is_last: bool
    """Whether it removes the pod; otherwise it writes the condition."""


class PodVictims:
    """The working set of pods to delete or evict."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[PodKey] = WorkQueue(VICTIMS_MAX)
        self._calls: dict[str, _Call] = {}
        self._marked: dict[PodKey, _Victim] = {}
        """Victims with the condition, which their objects may not show yet."""
        self._answered: dict[PodKey, _Victim] = {}
        """Victims whose effect is not folded yet."""

    def add(self, key: PodKey) -> None:
        """Something has happened to a pod that has a record."""
        record = self._state.placements.get(key)
        if record is not None and is_victim(record):
            self._queue.add(key)

    def forget(self, key: PodKey) -> None:
        """A pod has no record any more."""
        self._queue.forget(key)
        self._marked.pop(key, None)

    def on_effect(self, event: effects.PodPreempted | effects.PodPreemptionRejected) -> None:
        """An effect is folded."""
        self._answered.pop(event.pod, None)
        self._marked.pop(event.pod, None)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """A call has ended: the next one is due, or the effect."""
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return
        victim = call.victim
        self._queue.done(victim.pod)
        if is_success(completed) and not call.is_last:
            self._marked[victim.pod] = victim
            self._queue.add(victim.pod)
        elif is_success(completed) or completed.status == NOT_FOUND or is_about_another(completed):
            self._preempted(victim, out)
        else:
            self._reject(victim, refusal(completed), out)

    def settle(self, now_ms: UnixMs, calls: list[Command], out: list[Event]) -> None:
        """Remove what is due, as far as the limit of calls permits."""
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                record = self._state.placements.get(key)
                if record is not None and is_victim(record) and key not in self._answered:
                    victim = _Victim(key, record.uid, record.preempted_by, record.budgeted)
                    self._look_at(victim, now_ms, calls, out)

    def _look_at(self, victim: _Victim, now_ms: UnixMs, calls: list[Command], out: list[Event]) -> None:
        pod = object_of(self._state, PODS, victim.pod)
        assert pod is not None, "a pod has a record only while it has an object"
        preemptor = pod_of(self._state, victim.by)
        if "deletionTimestamp" in pod["metadata"]:
            self._preempted(victim, out)
        elif preemptor is None or self._has_node(victim.by, preemptor):
            why = "is gone" if preemptor is None else "has a node"
            self._reject(victim, Refusal(code=NOT_FOUND, reason="NotFound", message=f"pod {victim.by} {why}"), out)
        elif victim.budgeted:
            self._begin(_Call(victim, is_last=True), _eviction_of(victim), calls)
        else:
            condition = _condition(pod, preemptor, now_ms)
            if condition is None or self._marked.get(victim.pod) == victim:
                self._begin(_Call(victim, is_last=True), _deletion(victim), calls)
            else:
                self._begin(_Call(victim, is_last=False), _marking_of(victim, condition), calls)

    def _has_node(self, key: PodKey, pod: ShownPod) -> bool:
        record = self._state.placements.get(key)
        return pod.node != "" or (record is not None and record.node != "")

    def _begin(self, about_what: _Call, call: Call, calls: list[Command]) -> None:
        self._queue.begin(about_what.victim.pod)
        self._calls[call.id] = about_what
        calls.append(call)

    def _preempted(self, victim: _Victim, out: list[Event]) -> None:
        self._answered[victim.pod] = victim
        out.append(effects.PodPreempted(pod=victim.pod, uid=victim.uid, by=victim.by))

    def _reject(self, victim: _Victim, why: Refusal, out: list[Event]) -> None:
        self._answered[victim.pod] = victim
        out.append(
            effects.PodPreemptionRejected(
                pod=victim.pod, uid=victim.uid, by=victim.by, code=why.code, reason=why.reason, message=why.message
            )
        )


def is_victim(record: PlacementRecord) -> bool:
    """Whether a pod has to go, and the API server has not accepted that yet."""
    return record.preempted_by != "" and not record.preempted


def _condition(pod: Json, preemptor: ShownPod, at_ms: UnixMs) -> Json | None:
    message = f"{preemptor.scheduler}: preempting to accommodate a higher priority pod"
    condition = {"type": DISRUPTION_TARGET, "status": "True", "reason": PREEMPTED, "message": message}
    return updated_condition(pod, condition, at_ms)


def _marking_of(victim: _Victim, condition: Json) -> Call:
    return Call(
        id=f"preempt/{victim.pod}",
        method="PATCH",
        path=pod_path(victim.pod, "status"),
        body={"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}},
        content_type=STRATEGIC_PATCH,
        lane=victim.pod,
    )


def _deletion(victim: _Victim) -> Call:
    body = deletion_of(victim.uid)
    return Call(id=f"preempt/{victim.pod}", method="DELETE", path=pod_path(victim.pod), body=body, lane=victim.pod)


def _eviction_of(victim: _Victim) -> Call:
    namespace, name = split_key(victim.pod)
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": deletion_of(victim.uid),
    }
    path = pod_path(victim.pod, "eviction")
    return Call(id=f"preempt/{victim.pod}", method="POST", path=path, body=body, lane=victim.pod)
