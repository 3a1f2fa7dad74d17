"""
Traces: a span for each commit that a process appends, from its decision to the broker's acknowledgement.

One workload's path through the processes is one trace: its id follows from the Workload's uid (`trace_id_of`), so every
process finds it without being told. A commit about one workload has its span there; one about several has a trace of
its own, and a span in the trace of each of them that links to it. The span's `traceparent` goes into the commit's
envelope, so that a process that acts on the commit can refer to it: as the parent in the same trace, else as a link.

Without an exporter no span is created and nothing is written. OTLP needs the package
opentelemetry-exporter-otlp-proto-http.
"""

import hashlib
import importlib
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context

OTLP: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class TracingError(Exception):
    """Raised when spans cannot be exported as configured. The message says what to install or change."""


class _Ids(RandomIdGenerator):
    """Random ids, but for the next trace when it is given."""

    next_trace: int | None = None

    def generate_trace_id(self) -> int:
        """The id of a trace that begins."""
        given, self.next_trace = self.next_trace, None
        return super().generate_trace_id() if given is None else given


class Traces:
    """Spans of one process. `None` as a span means that there is no tracing."""

    def __init__(self, provider: TracerProvider, ids: _Ids) -> None:
        self._provider = provider
        self._ids = ids
        self._tracer = provider.get_tracer("headgate")

    def begin(
        self,
        name: str,
        *,
        cause: str | None,
        links: tuple[str, ...] = (),
        attributes: Mapping[str, str | int],
        trace: int | None = None,
    ) -> Span:
        """
        A span that starts now. `cause` and `links` are traceparents; invalid ones are left out.

        Without `trace` it is in the trace of its cause. With it, in that one, and a cause in another is a link.
        """
        parent = parse_traceparent(cause)
        linked = [context for context in map(parse_traceparent, links) if context is not None]
        if parent is not None and trace not in (None, parent.trace_id):
            linked = [parent, *linked]
            parent = None
        self._ids.next_trace = trace if parent is None else None
        return self._tracer.start_span(
            name,
            # An empty context: the span that is current here, if any, is no parent.
            context=Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context()),
            links=[Link(context) for context in linked],
            attributes=dict(attributes),
        )

    @staticmethod
    def end(span: Span, *, error: str = "") -> None:
        """The span ends now."""
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()


def trace_id_of(uid: str) -> int:
    """The trace of a Workload: its uid, if that is a UUID as Kubernetes makes them, else a digest of it."""
    try:
        return uuid.UUID(uid).int or 1
    except ValueError:
        return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=16).digest(), "big") or 1


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
    ids = _Ids()
    sampler = ParentBased(TraceIdRatioBased(sampled))
    provider = TracerProvider(
        resource=Resource(dict(resource)), sampler=sampler, id_generator=ids, shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter, endpoint)))
    try:
        yield Traces(provider, ids)
    finally:
        provider.shutdown()


__all__ = ["Traces", "TracingError", "open_traces", "parse_traceparent", "trace_id_of", "traceparent"]
