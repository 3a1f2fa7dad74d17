"""
The kube-scheduler's metrics, under its names and labels, as far as they follow from the log.

An attempt that changes nothing is not in the log. It is counted when the next recorded event about its pod shows the
number of attempts by then; so these counters may lag behind, and are right once the pod is bound. Durations of plugins,
and attempts to preempt that found no victims, follow from nothing in the log: there are no metrics of them. Called by
the observer of a process. Source of names and buckets: pkg/scheduler/metrics/metrics.go of the kube-scheduler 1.36.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.adapters.telemetry.metrics import Metrics
from headgate.core.state.manifests import pod_of
from headgate.core.state.tables import State
from headgate.events import decisions, effects, facts
from headgate.events.commit import LoggedCommit
from headgate.events.ids import PodKey, Uid
from headgate.processes.telemetry.kueue_labels import Values

_RESULTS: Final = {"Unschedulable": "unschedulable"}
"""By the reason of a verdict. Any other one is an error."""


class _Tried(NamedTuple):
    """How often a pod was tried, and the last result."""

    uid: Uid
    attempts: int
    result: str


class SchedulerMetrics:
    """The kube-scheduler's metrics in one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._attempts = metrics.tally(
            "scheduler_schedule_attempts_total",
            "Attempts to place pods, by result: scheduled (and bound), unschedulable, error.",
            ("result", "profile"),
        )
        self._of_pod = metrics.histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts that a bound pod took.",
            tuple(float(2**power) for power in range(5)),
        )
        self._victims = metrics.histogram(
            "scheduler_preemption_victims",
            "Pods that had to go for another one, by preemption.",
            tuple(float(2**power) for power in range(7)),
        )
        self._tried: dict[PodKey, _Tried] = {}
        """Pods that wait for a node; their number bounds it."""

    # Large: one case for each event type that counts.
    def folded(self, state: State, logged: LoggedCommit) -> None:
        """Count the events of a commit; it is already folded into the state."""
        for event in logged.commit.events:
            match event:
                case decisions.PodUnschedulable() if event.attempts:
                    result = _RESULTS.get(event.reason, "error")
                    self._count_tries(state, event.pod, event.uid, event.attempts, result)
                case decisions.PodTried():
                    before = self._tried.get(event.pod)
                    result = before.result if before is not None else _shown_result(state, event.pod)
                    self._count_tries(state, event.pod, event.uid, event.attempts, result)
                case decisions.PodPlaced() if event.attempts:
                    before = self._tried.get(event.pod)
                    if before is not None and before.uid == event.uid:
                        # The last one is counted when the pod is bound.
                        self._count_tries(state, event.pod, event.uid, event.attempts - 1, before.result)
                        self._tried[event.pod] = before._replace(attempts=event.attempts)
                case decisions.PodWithdrawn():
                    self._count(state, event.pod, _RESULTS.get(event.reason, "error"))
                case effects.PodBindRejected():
                    self._count(state, event.pod, "error")
                case effects.PodBound():
                    self._bound(state, event)
                case decisions.PodNominated() if event.victims:
                    self._victims.record(len(event.victims), {})
                case facts.ObjectDeleted(resource="pods"):
                    self._tried.pop(PodKey(event.name), None)
                case facts.SchedulerConfigurationObserved(document={}):
                    self._tried.clear()
                case _:
                    pass

    def _count_tries(self, state: State, pod: PodKey, uid: Uid, attempts: int, result: str) -> None:
        """Count the attempts since the last recorded one; those between had its result."""
        before = self._tried.get(pod)
        if before is None or before.uid != uid:
            self._count(state, pod, result)
        elif attempts > before.attempts:
            self._count(state, pod, before.result, attempts - before.attempts - 1)
            self._count(state, pod, result)
        self._tried[pod] = _Tried(uid, attempts, result)

    def _bound(self, state: State, event: effects.PodBound) -> None:
        self._tried.pop(event.pod, None)
        record = state.placements.get(event.pod)
        if record is not None and record.uid == event.uid and record.tries is not None:
            self._count(state, event.pod, "scheduled")
            self._of_pod.record(record.tries.attempts, {})

    def _count(self, state: State, pod: PodKey, result: str, count: int = 1) -> None:
        if count:
            self._attempts.add(result, _profile_of(state, pod), count=count)

    def serve_gauges(self, state: Callable[[], State | None]) -> None:
        """Serve the gauges from the result of `state` on request; nothing when it is None."""

        def values() -> Values:
            now = state()
            return iter(()) if now is None else _unschedulable(now)

        self._metrics.gauge(
            "scheduler_unschedulable_pods", "Pods without a node, by each plugin that refuses them or nodes.", values
        )


def _unschedulable(state: State) -> Values:
    counts: Counter[tuple[str, str]] = Counter()
    for key, record in state.placements.items():
        if record.verdict is not None and not record.node:
            profile = _profile_of(state, key)
            counts.update({(each.plugin, profile): 1 for each in record.verdict.refusals})
    for (plugin, profile), count in sorted(counts.items()):
        yield float(count), {"plugin": plugin, "profile": profile}


def _profile_of(state: State, pod: PodKey) -> str:
    shown = pod_of(state, pod)
    return shown.scheduler if shown is not None else ""


def _shown_result(state: State, pod: PodKey) -> str:
    record = state.placements.get(pod)
    verdict = record.verdict if record is not None else None
    return _RESULTS.get(verdict.reason, "error") if verdict is not None else "error"
