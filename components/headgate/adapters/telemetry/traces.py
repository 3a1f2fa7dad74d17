"""
Traces: a span for each commit that a process appends, from its decision to the broker's acknowledgement.

The span's `traceparent` goes into the commit's envelope, so a process that acts on the commit can link to it: a span
has the commit that caused it as its parent, and so one workload's path through the processes is one trace. Without an
exporter no span is created and nothing is written. OTLP needs the package opentelemetry-exporter-otlp-proto-http.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context

OTLP: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class TracingError(Exception):
    """Raised when spans cannot be exported as configured. The message says what to install or change."""


class Traces:
    """Spans of one process. `None` as a span means that there is no tracing."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("headgate")

    def begin(
        self, name: str, *, cause: str | None, links: tuple[str, ...] = (), attributes: Mapping[str, str | int]
    ) -> Span:
        """A span that starts now. `cause` and `links` are traceparents; invalid ones are left out."""
        parent = parse_traceparent(cause)
        linked = [Link(context) for context in map(parse_traceparent, links) if context is not None]
        return self._tracer.start_span(
            name,
            context=None if parent is None else set_span_in_context(NonRecordingSpan(parent)),
            links=linked,
            attributes=dict(attributes),
        )

    @staticmethod
    def end(span: Span, *, error: str = "") -> None:
        """The span ends now."""
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()


def traceparent(span: Span) -> str:
    """The W3C header of a span."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def parse_traceparent(header: str | None) -> SpanContext | None:
    """The context of a W3C `traceparent`; None when it is invalid."""
    parts = (header or "").split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        context = SpanContext(
            int(parts[1], 16), int(parts[2], 16), is_remote=True, trace_flags=TraceFlags(int(parts[3], 16))
        )
    except ValueError:
        return None
    return context if context.is_valid else None


def _exporter(kind: str, endpoint: str) -> SpanExporter:
    if kind == "console":
        return ConsoleSpanExporter(out=sys.stderr)
    try:
        module = importlib.import_module(OTLP)
    except ImportError as error:
        raise TracingError(
            "tracing.exporter is otlp, but its package is not installed: "
            "install opentelemetry-exporter-otlp-proto-http, or set tracing.exporter to none"
        ) from error
    exporter: SpanExporter = module.OTLPSpanExporter(endpoint=endpoint or None)
    return exporter


@contextmanager
def open_traces(
    *, exporter: str, endpoint: str, sampled: float, resource: Mapping[str, str]
) -> Iterator[Traces | None]:
    """
    Tracing while the block runs; None with the exporter "none".

    Raises TracingError.
    """
    if exporter == "none":
        yield None
        return
    provider = TracerProvider(
        resource=Resource(dict(resource)), sampler=ParentBased(TraceIdRatioBased(sampled)), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter, endpoint)))
    try:
        yield Traces(provider)
    finally:
        provider.shutdown()


__all__ = ["Traces", "TracingError", "open_traces", "parse_traceparent", "traceparent"]
