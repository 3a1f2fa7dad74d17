"""
Kueue's metrics, under Kueue's names and labels, derived from the log.

Counters and histograms follow from events as they are folded (`kueue_counts`); gauges are read from the state on
request (`kueue_gauges`). `kueue_catalogue` lists them all, and `custom_labels` has the labels that the configuration
adds. Called by the observer of a process.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from headgate.adapters.telemetry.metrics import Metrics
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.processes.telemetry.custom_labels import custom, names_of
from headgate.processes.telemetry.kueue_catalogue import ADMITTED, ADMITTED_BELOW, CATALOGUE, is_switched_off
from headgate.processes.telemetry.kueue_counts import KueueCounts
from headgate.processes.telemetry.kueue_gauges import GAUGES
from headgate.processes.telemetry.kueue_labels import Values

_LABELLED: Final = frozenset({ADMITTED, ADMITTED_BELOW})
"""The gauges that are read together with their custom labels: there is more than one value for the same object."""


class KueueMetrics:
    """Kueue's metrics in one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counts = KueueCounts(metrics)
        self._admitted: dict[tuple[tuple[str, str], ...], None] = {}
        """The labels of the values of ADMITTED that there have been."""

    def folded(self, state: State, logged: LoggedCommit) -> None:
        """Count the events of a commit; it is already folded into the state."""
        self._counts.folded(state, logged)

    def serve_gauges(self, state: Callable[[], State | None]) -> None:
        """Serve the gauges from the result of `state` on request; nothing when it is None."""

        def of(name: str, values: Callable[[State], Values]) -> Callable[[], Values]:
            def ask() -> Values:
                now = state()
                return iter(()) if now is None or is_switched_off(now.configuration_document, name) else values(now)

            return ask

        skips = self._counts.preemption_skips
        every = {**GAUGES, ADMITTED: self._with_former, "kueue_admission_cycle_preemption_skips": skips}
        for name, values in every.items():
            labelled = values if name in _LABELLED else partial(_with_custom, name, values)
            self._metrics.gauge(name, CATALOGUE[name].about, of(name, labelled))

    def _with_former(self, state: State) -> Values:
        """The admitted workloads; 0 for labels of Workloads that there have been while their queue has its own."""
        now = {tuple(labels.items()): value for value, labels in GAUGES[ADMITTED](state)}
        names = frozenset({*CATALOGUE[ADMITTED].labels, *names_of(state.configuration, ADMITTED)})
        self._admitted = {
            each: None for each in (*self._admitted, *now) if each in now or _is_there(state, names, dict(each))
        }
        for labels in self._admitted:
            yield now.get(labels, 0.0), dict(labels)


def _is_there(state: State, names: frozenset[str], labels: dict[str, str]) -> bool:
    """Whether a ClusterQueue is there that has these labels, and has had them by this configuration."""
    if labels.keys() != names or labels["cluster_queue"] not in state.cluster_queues:
        return False
    return custom(state, ADMITTED, labels).items() <= labels.items()


def _with_custom(name: str, values: Callable[[State], Values], state: State) -> Values:
    """The values of a gauge with the custom labels of the objects that they are about."""
    for value, labels in values(state):
        added = custom(state, name, labels)
        yield value, {**labels, **added} if added else labels
