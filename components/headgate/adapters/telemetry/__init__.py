"""
Telemetry: logs, metrics, traces. Nothing here decides anything, and nothing here waits for anybody.

- `logs`     stdlib logging with two formats: lines for people, JSON (by msgspec) for machines.
- `metrics`  OpenTelemetry metrics read in process and rendered in Prometheus' text format at /metrics. What happens per
  event is counted in plain integers, which the metrics look at when they are read.
- `traces`   one span per commit that a process appends, its `traceparent` written into the commit's envelope, linked to
  the commits that caused it. None unless an exporter is configured.
"""

from headgate.adapters.telemetry.logs import configure_logs
from headgate.adapters.telemetry.metrics import Metrics
from headgate.adapters.telemetry.traces import Traces, TracingError, open_traces

__all__ = ["Metrics", "Traces", "TracingError", "configure_logs", "open_traces"]
