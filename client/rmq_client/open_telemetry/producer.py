"""Spans and metrics of producers."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode

from rmq_remoting.message_properties import PROPERTY_TRANSACTION_PREPARED

from ..hooks.send import Recall, SendBatch, SendContext, SendHook, TransactionEnd
from ..transactions import TransactionState
from . import attributes as names
from .attributes import Attributes, ClientIdentity
from .signals import LatestSpans, Signals, span_name

log = logging.getLogger(__name__)

_KEY: Final = "rmq.open_telemetry"
_END_NAMES: Final = {
    TransactionState.COMMIT: "commit",
    TransactionState.ROLLBACK: "rollback",
    TransactionState.UNKNOWN: "leave_open",
}


@dataclass(slots=True)
class _Send:
    """A send in progress. `span` None: it starts when the links are known, at the end."""

    attributes: Attributes
    began: float
    began_ns: int
    parent: Context
    links: list[Link]
    span: Span | None = None


class ProducerTelemetry(SendHook):
    """Records a span and metrics of each send, batch, end of a transaction and recall.

    The context of the span goes into the message: it is the message's creation context. A message that
    already carries a context keeps it. A failure of a tracer or propagator does not fail the send: the
    message goes without a span.
    """

    def __init__(self, signals: Signals, identity: ClientIdentity, *, create_spans: bool) -> None:
        """`create_spans`: each message of a batch gets a span of its own, which the batch's span links to."""
        self._signals = signals
        self._identity = identity
        self._create_spans = create_spans
        # The spans of half messages, by message id.
        self._half_messages = LatestSpans()
        self._has_failed = False

    # --- single messages ---

    def before(self, context: SendContext) -> None:
        """Start the span, and put its context into the message."""
        try:
            if context.batch is None:
                self._begin_single(context)
            else:
                self._begin_in_batch(context, context.batch)
        except Exception:
            self._log_failure()

    def _begin_single(self, context: SendContext) -> None:
        message = context.message
        attributes = self._identity.operation("send", message.topic)
        attributes |= names.of_message(message) | names.of_delay(message)
        creation = self._signals.creation_context(message.properties)
        links = [] if creation is None else [Link(creation)]
        send = self._begin(attributes, links)
        send.span = self._start(send, SpanKind.PRODUCER if creation is None else SpanKind.CLIENT)
        context.notes[_KEY] = send
        if creation is None:
            self._signals.inject(send.span, context.properties)

    def after(self, context: SendContext) -> None:
        """End the span."""
        send, result = context.notes.get(_KEY), context.result
        if isinstance(send, tuple):
            created, created_ns = send
            if result is not None:
                created.set_attribute(names.MESSAGE_ID, result.msg_id)
            created.end(created_ns)
        if not isinstance(send, _Send):
            return
        if result is not None:
            known = names.of_server(result.broker_address) | names.of_queues([result.queue])
            known[names.MESSAGE_ID] = result.msg_id
            self._add(send, known)
            if context.message.properties.get(PROPERTY_TRANSACTION_PREPARED) == "true" and send.span:
                self._half_messages.put(result.msg_id, send.span.get_span_context())
        self._end(send, context.error)
        self._signals.sent(send.attributes, 1)

    # --- batches ---

    def before_batch(self, batch: SendBatch) -> None:
        """Note the start. Without spans of the messages, start the span that they are created in."""
        try:
            self._begin_batch(batch)
        except Exception:
            self._log_failure()

    def _begin_batch(self, batch: SendBatch) -> None:
        topics = {message.topic for message in batch.messages}
        attributes = self._identity.operation("send", topics.pop() if len(topics) == 1 else None)
        attributes[names.BATCH_COUNT] = len(batch.messages)
        send = self._begin(attributes, [])
        if not self._create_spans:
            send.span = self._start(send, SpanKind.PRODUCER)
        batch.notes[_KEY] = send

    def _begin_in_batch(self, context: SendContext, batch: SendBatch) -> None:
        send = batch.notes.get(_KEY)
        if not isinstance(send, _Send):
            return
        message = context.message
        creation = self._signals.creation_context(message.properties)
        if creation is not None:
            self._link(send, creation)
            return
        if send.span is not None:
            self._signals.inject(send.span, context.properties)
            return
        attributes = self._identity.operation("create", message.topic) | names.of_message(message)
        created = self._signals.tracer.start_span(
            span_name(attributes), send.parent, SpanKind.PRODUCER, attributes
        )
        context.notes[_KEY] = (created, time.time_ns())
        self._signals.inject(created, context.properties)
        self._link(send, created.get_span_context())

    def after_batch(self, batch: SendBatch) -> None:
        """Record the span of the batch, with links to its messages' spans."""
        send = batch.notes.get(_KEY)
        if not isinstance(send, _Send):
            return
        results = [context.result for context in batch.contexts if context.result is not None]
        if results:
            known = names.of_server(results[0].broker_address)
            known |= names.of_queues(result.queue for result in results)
            if send.span is None:
                send.attributes |= known
            else:
                self._add(send, known)
        if send.span is None:
            send.span = self._start(send, SpanKind.CLIENT)
        self._end(send, batch.error)
        self._signals.sent(send.attributes, len(batch.messages))

    # --- transactions and recalls ---

    def transaction_ended(self, end: TransactionEnd) -> None:
        """Record the outcome, with a link to the span of the half message."""
        attributes = self._identity.operation(_END_NAMES[end.state], end.message.topic)
        attributes |= names.of_message(end.message) | names.of_server(end.broker_address)
        attributes[names.MESSAGE_ID] = end.msg_id
        creation = self._half_messages.pop(end.msg_id)
        if creation is None:
            creation = self._signals.creation_context(end.message.properties)
        self._signals.record(
            SpanKind.CLIENT,
            attributes,
            0.0,
            # The broker asks at any time: the span of the loop's start would be a wrong parent.
            context=Context() if end.from_check else None,
            links=[] if creation is None else [Link(creation)],
        )

    def recalled(self, recall: Recall) -> None:
        """Record a recall."""
        attributes = self._identity.operation("recall", recall.topic)
        attributes[names.MESSAGE_ID] = recall.msg_id
        self._signals.record(SpanKind.CLIENT, attributes, 0.0)

    # --- spans ---

    def _log_failure(self) -> None:
        level, self._has_failed = logging.DEBUG if self._has_failed else logging.WARNING, True
        log.log(level, "message sent without a span; further failures are logged as DEBUG", exc_info=True)

    def _begin(self, attributes: Attributes, links: list[Link]) -> _Send:
        return _Send(attributes, time.perf_counter(), time.time_ns(), get_current(), links)

    def _start(self, send: _Send, kind: SpanKind) -> Span:
        return self._signals.tracer.start_span(
            span_name(send.attributes),
            send.parent,
            kind,
            send.attributes,
            send.links,
            start_time=send.began_ns,
        )

    def _link(self, send: _Send, context: SpanContext) -> None:
        if send.span is None:
            send.links.append(Link(context))
        else:
            send.span.add_link(context)

    def _add(self, send: _Send, known: Attributes) -> None:
        send.attributes |= known
        if send.span is not None:
            send.span.set_attributes(known)

    def _end(self, send: _Send, error: BaseException | None) -> None:
        elapsed = time.perf_counter() - send.began
        if error is not None:
            self._add(send, names.of_error(error))
        if send.span is not None:
            if error is not None:
                send.span.set_status(StatusCode.ERROR, str(error))
            send.span.end(send.began_ns + round(elapsed * 1e9))
        self._signals.operation_ended(send.attributes, elapsed)
