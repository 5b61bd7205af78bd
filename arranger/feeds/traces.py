"""Exports how jobs started as OpenTelemetry traces, by the library's OTLP exporter. The library is the extra `traces`.

A trace is one attempt of a job. Its ID, and those of its spans, depend only on the job's UID, the attempt and the span,
so whoever reads the same entries makes the same spans. The exporter's settings are the library's own variables, such as
OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS. Its queue is bounded: a collector that is away loses spans,
and delays nobody.
"""

import asyncio
import hashlib
from collections.abc import Callable
from functools import cache

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from arranger import __version__
from arranger.events.log import Entry, Log
from arranger.feeds.following import Cursor, Gap
from arranger.feeds.starts import WHOLE, Starts, StartSpan
from arranger.projections.state import Changes, State

_NANOSECONDS = 1_000_000


class Traces:
    """The receiver of a `Following`: passes spans to `export`.

    It begins at the oldest snapshot, so that it knows the jobs that are starting, and exports nothing of what was
    complete before it began: the process before it has.
    """

    def __init__(self, log: Log, export: Callable[[StartSpan], None]) -> None:
        self._log = log
        self._export = export
        self._starts = Starts(State())
        self._known = Cursor(0, 0)

    async def cursor(self) -> Cursor | None:
        end, marks = await self._log.end(), await self._log.snapshot_marks()
        if self._known.epoch != end.epoch:
            self._known = Cursor(end.epoch, end.offset)
        return Cursor(end.epoch, marks[0].offset if marks else 0)

    async def begin(self, state: State, gap: Gap | None) -> None:
        self._starts = Starts(state)

    async def take(self, state: State, entry: Entry, changes: Changes) -> None:
        for span in self._starts.after(state, entry, changes):
            if entry.last > self._known.offset:
                self._export(span)

    async def passed(self, offset: int) -> None:
        if offset > self._known.offset:
            self._known = Cursor(self._known.epoch, offset)


class OtlpExport:
    """Sends spans to a collector in the background. Raises `ValueError` for unusable variables of the library."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._processor = BatchSpanProcessor(OTLPSpanExporter())

    def __call__(self, span: StartSpan) -> None:
        self._processor.on_end(readable(span, self._cluster))

    async def close(self) -> None:
        """Send what is queued, within the library's time limits."""
        await asyncio.to_thread(self._processor.shutdown)


def readable(span: StartSpan, cluster: str) -> ReadableSpan:
    """A span as the library exports it."""
    attempt = f"{span.uid}/{span.attempt}/{span.since_ms}"
    trace_id = _number(16, attempt)
    name = "" if span.name == WHOLE else f"/{span.name}/{span.pod}"
    attributes: dict[str, str | int] = {
        "k8s.namespace.name": span.namespace,
        "arranger.cluster": cluster,
        "arranger.job.name": span.job,
        "arranger.job.uid": span.uid,
        "arranger.job.attempt": span.attempt,
        "arranger.role": span.role,
    }
    optional = {"k8s.pod.name": span.pod, "k8s.node.name": span.node, "error.type": span.error}
    return ReadableSpan(
        name=span.name,
        context=_context(trace_id, attempt + name),
        parent=_context(trace_id, attempt) if name else None,
        resource=_resource(span.role),
        attributes={**attributes, **{key: value for key, value in optional.items() if value}},
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
        start_time=span.begin_ms * _NANOSECONDS,
        end_time=span.end_ms * _NANOSECONDS,
    )


@cache
def _resource(role: str) -> Resource:
    """Each role is a service of its own, as views of traces tell services apart."""
    return Resource.create({"service.name": f"arranger-{role}", "service.version": __version__})


def _context(trace_id: int, identity: str) -> SpanContext:
    return SpanContext(trace_id, _number(8, identity), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _number(size: int, text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "big")
