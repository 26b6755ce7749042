"""An SDK of OpenTelemetry that keeps spans and metrics in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from rmq_client.open_telemetry import OpenTelemetry


class RecordedTelemetry:
    """Providers, and everything that they were given."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self.tracer_provider.get_tracer("tests")

    def instrumentation(self) -> OpenTelemetry:
        """Return an OpenTelemetry that records here."""
        return OpenTelemetry(tracer_provider=self.tracer_provider, meter_provider=self.meter_provider)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the ended spans whose names begin so."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of that name."""
        (span,) = [span for span in self.spans() if span.name == name]
        return span

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric; none if nothing was recorded."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def total(self, name: str, **attributes: str) -> int:
        """Return the sum of a counter, or the count of a histogram, over points with these attributes.

        Underscores in the names of attributes stand for dots.
        """
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        points = [point for point in self.points(name) if wanted.items() <= dict(point.attributes).items()]
        return int(sum(point.count if hasattr(point, "count") else point.value for point in points))


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    context: SpanContext | None = span.context
    assert context is not None
    return context.span_id


def linked_ids(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that a span links to."""
    return [link.context.span_id for link in span.links]
