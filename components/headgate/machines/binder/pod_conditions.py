"""
Why a pod is not placed, in its status: the condition PodScheduled, and the node that it is nominated to.

Both are written in one patch of `pods/status`, as the kube-scheduler does (`updatePod`, `PatchPodStatus`): a strategic
merge patch with the one condition, so that conditions of other types stay. `lastTransitionTime` changes with the
condition's status alone. The patch names the uid of the pod, so that another pod of this name is not written to.

Level-triggered: what is decided is compared with what the pod's object shows. What was written is kept until the object
shows it, so one change is one write, also if it took several decisions. Writes inform users and autoscalers, nothing
waits for them; they have a budget.
"""

from typing import Any, Final, NamedTuple

from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.kubernetes.pod_manifests import shown_node, shown_nomination
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import NOT_FOUND, is_about_another, is_success
from headgate.core.machine.contract import STRATEGIC_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.manifests import PODS, object_of
from headgate.core.state.tables import PlacementRecord, State
from headgate.events.ids import PodKey, Uid, UnixMs

WRITES_MAX: Final = 64
"""The maximum number of concurrent writes."""

BUDGET: Final = BudgetSettings(rate_max=100, rate_min=10, burst=200)
"""Writes a second; the kube-scheduler has 50, and 100 at once, for these and for bindings."""

SCHEDULED: Final = "PodScheduled"

Json = dict[str, Any]


class _Wanted(NamedTuple):
    """The uid of a pod, the reason and message of its condition, its nomination. None where nothing is decided."""

    uid: Uid
    condition: tuple[str, str] | None
    nominated: str | None


class PodConditions:
    """The working set of pods whose status is to be written."""

    def __init__(self, state: State, load: Load) -> None:
        self._state = state
        self._queue: WorkQueue[PodKey] = WorkQueue(WRITES_MAX, budget=Budget(BUDGET, load))
        self._calls: dict[str, tuple[PodKey, _Wanted]] = {}
        self._written: dict[PodKey, _Wanted] = {}
        """What was written to each pod, until its object shows that."""

    def add(self, key: PodKey) -> None:
        """Something has happened to a pod that has a record. Only one whose status differs takes a turn."""
        record = self._state.placements.get(key)
        if record is None or not self._patch(key, record):
            self.forget(key)
        else:
            self._queue.add(key)

    def forget(self, key: PodKey) -> None:
        """Nothing is left to be written to a pod."""
        self._queue.forget(key)
        self._written.pop(key, None)

    def is_writing(self, key: PodKey) -> bool:
        """Whether a write to a pod is under way."""
        return self._queue.is_in_flight(key)

    def on_completed(self, completed: Completed) -> PodKey | None:
        """
        A write has ended: to this pod. None for another call.

        A refused one is repeated with backoff; none is needed for a pod that is gone.
        """
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return None
        key, wanted = call
        if is_success(completed) or completed.status == NOT_FOUND or is_about_another(completed):
            record = self._state.placements.get(key)
            if record is not None and self._patch(key, record):
                self._written[key] = wanted
            self._queue.done(key)
        else:
            self._queue.retry(key)
        return key

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Write what is due, as far as the budget permits. Returns when to check again."""
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                self._look_at(key, calls)
        return self._queue.next_at(now_ms)

    def _look_at(self, key: PodKey, calls: list[Command]) -> None:
        record = self._state.placements.get(key)
        patch = self._patch(key, record) if record is not None else {}
        if record is None or not patch:
            self.forget(key)
            return
        verdict = record.verdict
        wanted = _Wanted(
            record.uid, (verdict.reason, verdict.message) if verdict is not None else None, record.nominated
        )
        if self._written.get(key) == wanted:
            return
        call_id = f"pod-status/{key}"
        self._queue.begin(key)
        self._calls[call_id] = key, wanted
        path = pod_path(key, "status")
        calls.append(Call(id=call_id, method="PATCH", path=path, body=patch, content_type=STRATEGIC_PATCH, lane=key))

    def _patch(self, key: PodKey, record: PlacementRecord) -> Json:
        """What is to be written to a pod; empty if its object shows it, has a node, or is being deleted."""
        has_verdict = record.verdict is not None and not record.node
        if record.bound or not (has_verdict or record.nominated is not None):
            return {}
        pod = object_of(self._state, PODS, key)
        if pod is None or shown_node(pod):
            return {}
        if "deletionTimestamp" in pod["metadata"]:
            return {}
        status: Json = {}
        if record.verdict is not None and not record.node:
            condition = _condition(pod, record.verdict.reason, record.verdict.message, record.verdict.at_ms)
            if condition is not None:
                status["conditions"] = [condition]
        if record.nominated is not None and (status or record.nominated != shown_nomination(pod)):
            # Also beside a condition alone: a write of another nomination may not be shown yet.
            status["nominatedNodeName"] = record.nominated or None
        return {"metadata": {"uid": record.uid}, "status": status} if status else {}


def shown_condition(pod: Json, kind: str) -> Json | None:
    """The condition of this type that the object of a pod shows."""
    conditions: list[Json] = pod.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each.get("type") == kind), None)


def updated_condition(pod: Json, condition: Json, at_ms: UnixMs) -> Json | None:
    """A condition to be written; None if the object of the pod shows it. As `UpdatePodCondition` of the reference."""
    shown = shown_condition(pod, condition["type"])
    if shown is not None and all(shown.get(name, "") == condition[name] for name in ("status", "reason", "message")):
        return None
    condition = {**condition, "lastProbeTime": None}
    if pod["metadata"].get("generation"):
        condition["observedGeneration"] = pod["metadata"]["generation"]
    if shown is None or shown.get("status", "") != condition["status"]:
        condition["lastTransitionTime"] = rfc3339(at_ms)
    return condition


def _condition(pod: Json, reason: str, message: str, at_ms: UnixMs) -> Json | None:
    condition = {"type": SCHEDULED, "status": "False", "reason": reason, "message": message}
    return updated_condition(pod, condition, at_ms)
