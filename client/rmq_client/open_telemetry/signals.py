"""The tracer, the instruments and the propagator of one OpenTelemetry object."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Final

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode

from rmq_remoting.message import MessageExt

from . import attributes as names
from .attributes import Attributes

SCOPE: Final = "rmq_client"
SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"

# Spans that later ones link to, by message. The oldest ones are forgotten.
_MAX_REMEMBERED: Final = 10_000
# The conventions' buckets, in seconds.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_NO_CONTEXT: Final = Context()


class Signals:
    """Starts spans, records metrics, and carries contexts in message properties. Any thread may use it."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
        propagator: TextMapPropagator | None,
        version: str,
    ) -> None:
        """Without a provider or propagator, use the global one at the time of each use."""
        self.tracer = trace.get_tracer(SCOPE, version, tracer_provider, SCHEMA)
        meter = metrics.get_meter(SCOPE, version, meter_provider, SCHEMA)
        self._propagator = propagator
        self._durations = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._process_durations = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Number of messages that were delivered to the application.",
        )

    # --- contexts in messages ---

    def inject(self, span: Span, carrier: MutableMapping[str, str]) -> None:
        """Put the context of a span, and the current baggage, into properties."""
        context = trace.set_span_in_context(span)
        injected: dict[str, str] = {}
        if self._propagator is None:
            propagate.inject(injected, context)
        else:
            self._propagator.inject(injected, context)
        carrier.update(injected)

    def extract(self, carrier: Mapping[str, str]) -> Context:
        """Return the context that properties carry."""
        if self._propagator is None:
            return propagate.extract(carrier, _NO_CONTEXT)
        return self._propagator.extract(carrier, _NO_CONTEXT)

    def creation_context(self, carrier: Mapping[str, str]) -> SpanContext | None:
        """Return the context in which a message was created, None if it carries none."""
        context = trace.get_current_span(self.extract(carrier)).get_span_context()
        return context if context.is_valid else None

    def links(self, messages: Iterable[MessageExt]) -> list[Link]:
        """Return links to the contexts in which the messages were created."""
        found = ((message.msg_id, self.creation_context(message.properties)) for message in messages)
        return [Link(context, {names.MESSAGE_ID: msg_id}) for msg_id, context in found if context is not None]

    # --- spans ---

    def record(
        self,
        kind: SpanKind,
        attributes: Attributes,
        elapsed_seconds: float,
        error: BaseException | None = None,
        *,
        context: Context | None = None,
        links: list[Link] | None = None,
    ) -> SpanContext:
        """Record the span of an operation that has just ended, and its duration as a metric.

        `context` None: the span is a child of the current one.
        """
        end_ns = time.time_ns()
        if error is not None:
            attributes |= names.of_error(error)
        span = self.tracer.start_span(
            span_name(attributes),
            context,
            kind,
            attributes,
            links,
            start_time=end_ns - round(elapsed_seconds * 1e9),
        )
        if error is not None:
            span.set_status(StatusCode.ERROR, str(error))
        span.end(end_ns)
        self.operation_ended(attributes, elapsed_seconds)
        return span.get_span_context()

    # --- metrics ---

    def operation_ended(self, attributes: Attributes, elapsed_seconds: float) -> None:
        """Record the duration of an operation with the attributes of its span."""
        self._durations.record(elapsed_seconds, names.of_metric(attributes, with_type=True))

    def process_ended(self, attributes: Attributes, elapsed_seconds: float) -> None:
        """Record the duration of the processing of messages."""
        self._process_durations.record(elapsed_seconds, names.of_metric(attributes))

    def sent(self, attributes: Attributes, count: int) -> None:
        """Count messages that a producer tried to send."""
        self._sent.add(count, names.of_metric(attributes))

    def consumed(self, attributes: Attributes, count: int) -> None:
        """Count messages that the application got."""
        if count:
            self._consumed.add(count, names.of_metric(attributes))


class LatestSpans:
    """The contexts of the latest spans, by the message that they concern. Any thread may use it."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[object, SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: object, context: SpanContext) -> None:
        """Remember the context of a span."""
        if not context.is_valid:
            return
        with self._lock:
            self._contexts[key] = context
            if len(self._contexts) > _MAX_REMEMBERED:
                self._contexts.popitem(last=False)

    def get(self, key: object) -> SpanContext | None:
        """Return the context of a span, if it is remembered."""
        return self._contexts.get(key)

    def pop(self, key: object) -> SpanContext | None:
        """Return and forget the context of a span."""
        with self._lock:
            return self._contexts.pop(key, None)


def span_name(attributes: Attributes) -> str:
    """Return the name of an operation's span."""
    name, topic = attributes[names.OPERATION_NAME], attributes.get(names.DESTINATION)
    return f"{name} {topic}" if topic else str(name)


def in_context(context: SpanContext) -> Context:
    """Return a context in which a span is the parent of further ones."""
    return trace.set_span_in_context(trace.NonRecordingSpan(context), _NO_CONTEXT)


def delivery_key(group: str, message: MessageExt) -> object:
    """Return a key of one delivery of a message to a group. (A message itself has no hash.)"""
    return group, message.msg_id, message.broker_name, message.queue_id, message.queue_offset
