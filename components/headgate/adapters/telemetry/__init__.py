"""
Telemetry: logs, metrics, traces. No decision depends on it, and nothing here blocks.

- `logs`     stdlib logging with two formats: lines for people, JSON (by msgspec) for machines.
- `metrics`  OpenTelemetry metrics read in process and rendered in Prometheus' text format at /metrics. Per-event counts
  are plain integers, which the metrics read on request.
- `traces`   one span per commit that a process appends, its `traceparent` written into the commit's envelope, linked to
  the commits that caused it. None unless an exporter is configured.

Owns: the formats of logs, the metrics endpoint, the export of spans.
Called by: `headgate.processes.entry`, the telemetry of the processes, the generated reference pages.
May import: core, events.
"""

from headgate.adapters.telemetry.logs import configure_logs
from headgate.adapters.telemetry.metrics import Metrics
from headgate.adapters.telemetry.traces import Traces, TracingError, open_traces

__all__ = ["Metrics", "Traces", "TracingError", "configure_logs", "open_traces"]
