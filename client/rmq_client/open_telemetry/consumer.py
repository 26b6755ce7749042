"""Spans and metrics of consumers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextvars import Token
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode

from rmq_remoting.message import MessageExt

from ..hooks.consume import ConsumeHook, HookContext, Reception, Settlement
from . import attributes as names
from .attributes import Attributes, ConsumerIdentity
from .signals import LatestSpans, Signals, delivery_key, in_context, span_name

_KEY: Final = "rmq.open_telemetry"


class ConsumerTelemetry(ConsumeHook):
    """Records spans and metrics of receptions, calls of the listener, and settlements.

    The listener runs in the context of its span.
    """

    def __init__(
        self,
        signals: Signals,
        received: LatestSpans,
        identity: ConsumerIdentity,
        *,
        continue_trace: bool,
    ) -> None:
        """`received` gets the spans of receptions. `continue_trace` as for `Processing`."""
        self._signals = signals
        self._received = received
        self._processed = LatestSpans()
        self._identity = identity
        self._continue_trace = continue_trace

    # --- receptions ---

    def received(self, reception: Reception) -> None:
        """Record a reception. One of a push consumer has no span: the application has got nothing yet."""
        messages = reception.messages
        attributes = self._identity.operation("receive", reception.topic)
        attributes |= names.of_received(messages)
        if reception.prefetched:
            if reception.error is not None:
                attributes |= names.of_error(reception.error)
            self._signals.operation_ended(attributes, reception.elapsed_seconds)
            return
        attributes[names.BATCH_COUNT] = len(messages)
        context = self._signals.record(
            SpanKind.CLIENT,
            attributes,
            reception.elapsed_seconds,
            reception.error,
            links=self._signals.links(messages),
        )
        for message in messages:
            self._received.put(delivery_key(reception.group, message), context)
        self._signals.consumed(attributes, len(messages))

    # --- calls of the listener ---

    def before(self, context: HookContext) -> None:
        """Start the span, and make it the current one."""
        attributes = self._identity.operation("process", _common_topic(context.messages))
        # A loop and its threads inherit the span in which the consumer was started: it is no ambient span.
        context.notes[_KEY] = Processing(
            self._signals,
            attributes,
            context.messages,
            [],
            ambient=Context(),
            continue_trace=self._continue_trace,
        )

    def after(self, context: HookContext) -> None:
        """End the span."""
        processing = context.notes.get(_KEY)
        if not isinstance(processing, Processing):
            return
        for message in context.messages:
            self._processed.put(delivery_key(context.group, message), processing.span.get_span_context())
        failure = None
        if not context.success and context.status is not None:
            failure = context.status.value
        attributes = processing.end(context.error, failure)
        self._signals.consumed(attributes, len(context.messages))

    # --- settlements ---

    def settled(self, settlement: Settlement) -> None:
        """Record a settlement; one of a push consumer as a child of the span of its listener's call."""
        messages = settlement.messages
        attributes = self._identity.operation("settle", settlement.topic)
        attributes[names.SETTLEMENT] = settlement.kind.value
        attributes |= names.of_received(messages)
        attributes |= names.of_server(settlement.broker_address) | names.of_queues(settlement.offsets)
        if len(messages) > 1:
            attributes[names.BATCH_COUNT] = len(messages)
        context = None
        if settlement.automatic:
            processed = None
            if len(messages) == 1:
                processed = self._processed.get(delivery_key(settlement.group, messages[0]))
            context = Context() if processed is None else in_context(processed)
        self._signals.record(
            SpanKind.CLIENT,
            attributes,
            settlement.elapsed_seconds,
            settlement.error,
            context=context,
            links=self._signals.links(messages),
        )


class Processing:
    """The processing of messages, from its creation to `end`, with its span as the current one.

    The span links to the contexts in which the messages were created, and to `receptions`, the spans in which
    they were received. With `continue_trace`, the span of a single message is also a child of its creation
    context, unless another span is current.
    """

    def __init__(
        self,
        signals: Signals,
        attributes: Attributes,
        messages: Sequence[MessageExt],
        receptions: Iterable[SpanContext],
        *,
        ambient: Context,
        continue_trace: bool,
    ) -> None:
        self._signals = signals
        self._attributes = attributes | names.of_received(messages)
        if len(messages) > 1:
            self._attributes[names.BATCH_COUNT] = len(messages)
        links = signals.links(messages)
        links += [Link(context) for context in {one.span_id: one for one in receptions}.values()]
        parent = ambient
        has_ambient = trace.get_current_span(ambient).get_span_context().is_valid
        if len(messages) == 1 and continue_trace and not has_ambient:
            parent = signals.extract(messages[0].properties)
        self._began = time.perf_counter()
        self._began_ns = time.time_ns()
        self.span: Span = signals.tracer.start_span(
            span_name(self._attributes),
            parent,
            SpanKind.CONSUMER,
            self._attributes,
            links,
            start_time=self._began_ns,
        )
        self._token: Token[Context] = attach(trace.set_span_in_context(self.span, parent))

    def end(self, error: BaseException | None, failure: str | None = None) -> Attributes:
        """End the span, and return its attributes. `failure` names a failure without an exception."""
        elapsed = time.perf_counter() - self._began
        detach(self._token)
        if error is not None:
            failure = names.error_type(error)
            self.span.record_exception(error)
        if failure is not None:
            self._attributes[names.ERROR_TYPE] = failure
            self.span.set_attribute(names.ERROR_TYPE, failure)
            self.span.set_status(StatusCode.ERROR, None if error is None else str(error))
        self.span.end(self._began_ns + round(elapsed * 1e9))
        self._signals.process_ended(self._attributes, elapsed)
        return self._attributes


def _common_topic(messages: Sequence[MessageExt]) -> str | None:
    topics = {message.topic for message in messages}
    return topics.pop() if len(topics) == 1 else None
