"""
Kueue's metrics, under Kueue's names and labels, derived from the log.

Counters and histograms follow from events as they are folded (`kueue_counts`); gauges are read from the state on
request (`kueue_gauges`). `kueue_catalogue` lists them all. Called by the observer of a process.
"""

from collections.abc import Callable

from headgate.adapters.telemetry.metrics import Metrics
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.processes.telemetry.kueue_catalogue import CATALOGUE, is_switched_off
from headgate.processes.telemetry.kueue_counts import KueueCounts
from headgate.processes.telemetry.kueue_gauges import GAUGES
from headgate.processes.telemetry.kueue_labels import Values


class KueueMetrics:
    """Kueue's metrics in one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counts = KueueCounts(metrics)

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

        every = {**GAUGES, "kueue_admission_cycle_preemption_skips": self._counts.preemption_skips}
        for name, values in every.items():
            self._metrics.gauge(name, CATALOGUE[name].about, of(name, values))
