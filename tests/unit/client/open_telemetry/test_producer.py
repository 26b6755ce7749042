"""Spans and metrics of sends."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rmq_client import (
    Message,
    MessageQueue,
    Recall,
    SendBatch,
    SendContext,
    SendResult,
    SendStatus,
    TimedOut,
    TransactionEnd,
    TransactionState,
)
from rmq_client.hooks.send import SendHooks
from rmq_client.open_telemetry.attributes import ClientIdentity
from rmq_client.open_telemetry.producer import ProducerTelemetry
from rmq_client.open_telemetry.signals import Signals
from rmq_remoting.message_properties import PROPERTY_TRANSACTION_PREPARED
from tests.support.telemetry import RecordedTelemetry, attributes_of, linked_ids, span_id

_IDENTITY = ClientIdentity("n", lambda: "client-7")
_FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_FOREIGN_ID = 0xB7AD6B7169203331


@pytest.fixture
def recorded() -> RecordedTelemetry:
    return RecordedTelemetry()


def _hooks(recorded: RecordedTelemetry, *, create_spans: bool = True) -> SendHooks:
    signals = Signals(recorded.tracer_provider, recorded.meter_provider, None, "1")
    return SendHooks("g", [ProducerTelemetry(signals, _IDENTITY, create_spans=create_spans)])


def _result(number: int = 1) -> SendResult:
    queue = MessageQueue("T", "broker-a", 3)
    return SendResult(SendStatus.SEND_OK, f"id-{number}", queue, number, "", "10.0.0.1:10911")


def _send(hooks: SendHooks, message: Message, error: BaseException | None = None) -> SendContext:
    sent = hooks.begin(message)
    hooks.end(sent, None if error is not None else _result(), error)
    return sent


def _send_batch(hooks: SendHooks, *messages: Message) -> SendBatch:
    batch = hooks.begin_batch(messages)
    hooks.end_batch(batch, [_result(number) for number, _ in enumerate(messages)])
    return batch


def test_a_send_has_a_span_whose_context_is_in_the_message(recorded: RecordedTelemetry) -> None:
    sent = _send(_hooks(recorded), Message("T", b"x"))
    span = recorded.span("send T")
    assert span.kind is SpanKind.PRODUCER
    assert sent.properties["traceparent"].split("-")[2] == f"{span_id(span):016x}"
    assert attributes_of(span) == {
        "messaging.client.id": "client-7",
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "3",
        "messaging.message.id": "id-1",
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.namespace": "n",
        "server.address": "10.0.0.1",
        "server.port": 10911,
    }


def test_a_send_is_a_child_of_the_current_span_and_carries_baggage(recorded: RecordedTelemetry) -> None:
    token = context.attach(baggage.set_baggage("shop", "7"))
    try:
        with recorded.tracer.start_as_current_span("order") as order:
            sent = _send(_hooks(recorded), Message("T", b"x"))
    finally:
        context.detach(token)
    parent = recorded.span("send T").parent
    assert parent is not None
    assert parent.span_id == order.get_span_context().span_id
    assert sent.properties["baggage"] == "shop=7"


def test_a_message_keeps_the_context_that_it_carries(recorded: RecordedTelemetry) -> None:
    sent = _send(_hooks(recorded), Message("T", b"x", properties={"traceparent": _FOREIGN}))
    span = recorded.span("send T")
    assert sent.properties == {}
    assert span.kind is SpanKind.CLIENT
    assert linked_ids(span) == [_FOREIGN_ID]


def test_a_failed_send_has_an_error(recorded: RecordedTelemetry) -> None:
    _send(_hooks(recorded), Message("T", b"x"), TimedOut("late"))
    span = recorded.span("send T")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "late"
    assert attributes_of(span)["error.type"] == "TimedOut"
    assert recorded.total("messaging.client.sent.messages", error_type="TimedOut") == 1


def test_sends_are_measured(recorded: RecordedTelemetry) -> None:
    hooks = _hooks(recorded)
    _send(hooks, Message("T", b"x", keys="k"))
    _send_batch(hooks, Message("T", b"y"), Message("T", b"z"))
    assert recorded.total("messaging.client.sent.messages") == 3
    durations = recorded.points("messaging.client.operation.duration")
    assert sum(point.count for point in durations) == 2
    assert durations[0].explicit_bounds[:3] == (0.005, 0.01, 0.025)
    assert dict(durations[0].attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "3",
        "server.address": "10.0.0.1",
        "server.port": 10911,
    }
    span = recorded.spans("send T")[0]
    assert span.end_time is not None
    assert span.start_time is not None
    shortest = min(point.min for point in durations)
    longest = max(point.max for point in durations)
    assert shortest <= (span.end_time - span.start_time) / 1e9 + 1e-6
    assert longest >= (span.end_time - span.start_time) / 1e9 - 1e-6


def test_the_span_of_a_batch_links_to_the_spans_of_its_messages(recorded: RecordedTelemetry) -> None:
    batch = _send_batch(_hooks(recorded), Message("T", b"1"), Message("T", b"2"))
    created = recorded.spans("create T")
    assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
    assert [attributes_of(span)["messaging.message.id"] for span in created] == ["id-0", "id-1"]
    sent = recorded.span("send T")
    assert sent.kind is SpanKind.CLIENT
    assert linked_ids(sent) == [span_id(span) for span in created]
    assert attributes_of(sent)["messaging.batch.message_count"] == 2
    assert attributes_of(sent)["server.port"] == 10911
    assert "messaging.message.id" not in attributes_of(sent)
    carried = [one.properties["traceparent"].split("-")[2] for one in batch.contexts]
    assert carried == [f"{span_id(span):016x}" for span in created]


def test_a_batch_without_spans_of_messages_is_their_creation_context(recorded: RecordedTelemetry) -> None:
    hooks = _hooks(recorded, create_spans=False)
    foreign = Message("T", b"2", properties={"traceparent": _FOREIGN})
    batch = _send_batch(hooks, Message("T", b"1"), foreign)
    sent = recorded.span("send T")
    assert sent.kind is SpanKind.PRODUCER
    assert linked_ids(sent) == [_FOREIGN_ID]
    assert batch.contexts[0].properties["traceparent"].split("-")[2] == f"{span_id(sent):016x}"
    assert batch.contexts[1].properties == {}
    assert recorded.spans("create") == []


def test_a_failed_batch_has_one_span_with_the_error(recorded: RecordedTelemetry) -> None:
    hooks = _hooks(recorded)
    batch = hooks.begin_batch([Message("T", b"1"), Message("U", b"2")])
    hooks.end_batch(batch, [], ValueError("two topics"))
    sent = recorded.span("send")
    assert attributes_of(sent)["error.type"] == "ValueError"
    assert len(recorded.spans("create")) == 2
    assert recorded.total("messaging.client.sent.messages", error_type="ValueError") == 2


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (TransactionState.COMMIT, "commit T"),
        (TransactionState.ROLLBACK, "rollback T"),
        (TransactionState.UNKNOWN, "leave_open T"),
    ],
)
def test_the_end_of_a_transaction_links_to_its_message(
    recorded: RecordedTelemetry, state: TransactionState, name: str
) -> None:
    hooks = _hooks(recorded)
    half = Message("T", b"x")
    half.properties[PROPERTY_TRANSACTION_PREPARED] = "true"
    _send(hooks, half)
    hooks.transaction_ended(TransactionEnd("g", half, "id-1", state, "10.0.0.1:10911", None))
    sent, ended = recorded.span("send T"), recorded.span(name)
    assert attributes_of(sent)["messaging.rocketmq.message.type"] == "transaction"
    assert ended.kind is SpanKind.CLIENT
    assert linked_ids(ended) == [span_id(sent)]
    assert attributes_of(ended)["messaging.message.id"] == "id-1"


def test_an_outcome_that_the_broker_asked_for_links_by_the_message(recorded: RecordedTelemetry) -> None:
    message = Message("T", b"x", properties={"traceparent": _FOREIGN})
    end = TransactionEnd("g", message, "id-1", TransactionState.COMMIT, "b:1", None, from_check=True)
    with recorded.tracer.start_as_current_span("unrelated"):
        _hooks(recorded).transaction_ended(end)
    ended = recorded.span("commit T")
    assert linked_ids(ended) == [_FOREIGN_ID]
    assert ended.parent is None


def test_a_failing_propagator_does_not_fail_the_send(
    recorded: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(TraceContextTextMapPropagator):
        def inject(self, carrier: Any, *args: Any, **kwargs: Any) -> None:
            carrier["half"] = "done"
            raise RuntimeError("as ordered by the test")

    signals = Signals(recorded.tracer_provider, recorded.meter_provider, Failing(), "1")
    hooks = SendHooks("g", [ProducerTelemetry(signals, _IDENTITY, create_spans=True)])
    for _ in range(3):
        assert _send(hooks, Message("T", b"x")).properties == {}
    assert _send_batch(hooks, Message("T", b"x")).contexts[0].properties == {}
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_a_recall_has_a_span(recorded: RecordedTelemetry) -> None:
    _hooks(recorded).recalled(Recall("g", "T", "id-1", None))
    assert attributes_of(recorded.span("recall T"))["messaging.message.id"] == "id-1"
