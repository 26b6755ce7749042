"""Spans and metrics of receptions, calls of the listener, and settlements."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from rmq_client import (
    CallStatus,
    HookContext,
    MessageExt,
    MessageQueue,
    Reception,
    Settlement,
    SettlementKind,
    TimedOut,
)
from rmq_client.open_telemetry.attributes import ConsumerIdentity
from rmq_client.open_telemetry.consumer import ConsumerTelemetry
from rmq_client.open_telemetry.signals import LatestSpans, Signals
from tests.support.telemetry import RecordedTelemetry, attributes_of, linked_ids, span_id

_TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


@pytest.fixture
def recorded() -> RecordedTelemetry:
    return RecordedTelemetry()


def _hook(
    recorded: RecordedTelemetry, *, continue_trace: bool = True, broadcasting: bool = False
) -> ConsumerTelemetry:
    signals = Signals(recorded.tracer_provider, recorded.meter_provider, None, "1")
    identity = ConsumerIdentity("n", lambda: "client-7", "g", broadcasting=broadcasting)
    return ConsumerTelemetry(signals, LatestSpans(), identity, continue_trace=continue_trace)


def _message(number: int, *, is_traced: bool = True) -> MessageExt:
    properties = {"UNIQ_KEY": f"id-{number}"}
    if is_traced:
        properties["traceparent"] = f"00-{_TRACE_ID:032x}-{number:016x}-01"
    message = MessageExt("T", b"x", 0, properties, 3, number, store_host=("10.0.0.1", 10911))
    message.broker_name = "broker-a"
    return message


def _call(
    hook: ConsumerTelemetry,
    *messages: MessageExt,
    status: CallStatus = CallStatus.SUCCESS,
    error: BaseException | None = None,
) -> int:
    """Call a listener that returns the id of its current span."""
    context = HookContext("g", MessageQueue("T", "broker-a", 3), list(messages))
    hook.before(context)
    current = trace.get_current_span().get_span_context().span_id
    context.status, context.success, context.error = status, status is CallStatus.SUCCESS, error
    hook.after(context)
    return current


# --- receptions ---


def test_a_reception_links_to_the_messages_creation_contexts(recorded: RecordedTelemetry) -> None:
    _hook(recorded).received(Reception("g", "T", [_message(1), _message(2), _message(3, is_traced=False)]))
    span = recorded.span("receive T")
    assert span.kind is SpanKind.CLIENT
    assert linked_ids(span) == [1, 2]
    assert [dict(link.attributes or {}) for link in span.links] == [
        {"messaging.message.id": "id-1"},
        {"messaging.message.id": "id-2"},
    ]
    assert attributes_of(span) == {
        "messaging.client.id": "client-7",
        "messaging.system": "rocketmq",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "3",
        "messaging.batch.message_count": 3,
        "messaging.consumer.group.name": "g",
        "messaging.rocketmq.consumption_model": "clustering",
        "messaging.rocketmq.namespace": "n",
        "server.address": "10.0.0.1",
        "server.port": 10911,
    }
    assert recorded.total("messaging.client.consumed.messages", messaging_operation_name="receive") == 3


def test_a_reception_takes_as_long_as_it_took(recorded: RecordedTelemetry) -> None:
    _hook(recorded).received(Reception("g", "T", [_message(1)], elapsed_seconds=0.25))
    span = recorded.span("receive T")
    assert span.end_time is not None
    assert span.start_time is not None
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(0.25)
    (point,) = recorded.points("messaging.client.operation.duration")
    assert point.sum == pytest.approx(0.25)


def test_a_failed_reception_has_an_error(recorded: RecordedTelemetry) -> None:
    _hook(recorded).received(Reception("g", None, (), 0.1, TimedOut("late")))
    span = recorded.span("receive")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == "TimedOut"
    assert recorded.points("messaging.client.consumed.messages") == []


def test_prefetched_messages_have_no_span_of_a_reception(recorded: RecordedTelemetry) -> None:
    hook = _hook(recorded)
    hook.received(Reception("g", "T", [_message(1)], 0.1, prefetched=True))
    hook.received(Reception("g", "T", (), 0.1, TimedOut("late"), prefetched=True))
    assert recorded.spans() == []
    assert recorded.points("messaging.client.consumed.messages") == []
    assert sorted(
        dict(point.attributes).get("error.type", "")
        for point in recorded.points("messaging.client.operation.duration")
    ) == ["", "TimedOut"]


# --- calls of the listener ---


def test_the_listener_runs_in_its_span_which_continues_the_trace(recorded: RecordedTelemetry) -> None:
    current = _call(_hook(recorded), _message(1))
    span = recorded.span("process T")
    assert current == span_id(span)
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (_TRACE_ID, 1)
    assert linked_ids(span) == [1]
    assert attributes_of(span)["messaging.message.id"] == "id-1"
    assert "messaging.batch.message_count" not in attributes_of(span)
    assert not trace.get_current_span().get_span_context().is_valid


def test_the_span_in_which_the_consumer_was_started_is_no_parent(recorded: RecordedTelemetry) -> None:
    hook = _hook(recorded)
    with recorded.tracer.start_as_current_span("start of the program"):
        _call(hook, _message(1, is_traced=False))
    assert recorded.span("process T").parent is None


def test_several_messages_have_links_alone(recorded: RecordedTelemetry) -> None:
    _call(_hook(recorded, broadcasting=True), _message(1), _message(2))
    span = recorded.span("process T")
    assert span.parent is None
    assert linked_ids(span) == [1, 2]
    assert attributes_of(span)["messaging.batch.message_count"] == 2
    assert attributes_of(span)["messaging.rocketmq.consumption_model"] == "broadcasting"


def test_without_continue_trace_there_are_links_alone(recorded: RecordedTelemetry) -> None:
    _call(_hook(recorded, continue_trace=False), _message(1))
    span = recorded.span("process T")
    assert span.parent is None
    assert linked_ids(span) == [1]


def test_an_exception_of_the_listener_is_recorded(recorded: RecordedTelemetry) -> None:
    _call(_hook(recorded), _message(1), status=CallStatus.EXCEPTION, error=ValueError("no stock"))
    span = recorded.span("process T")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "no stock"
    assert attributes_of(span)["error.type"] == "ValueError"
    assert [event.name for event in span.events] == ["exception"]
    (point,) = recorded.points("messaging.process.duration")
    assert dict(point.attributes)["error.type"] == "ValueError"


def test_a_refusal_of_the_listener_is_an_error(recorded: RecordedTelemetry) -> None:
    _call(_hook(recorded), _message(1), status=CallStatus.FAILED)
    span = recorded.span("process T")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == "FAILED"


def test_messages_of_a_push_consumer_count_as_consumed_by_the_listener(recorded: RecordedTelemetry) -> None:
    hook = _hook(recorded)
    hook.received(Reception("g", "T", [_message(1)], 0.1, prefetched=True))
    _call(hook, _message(1))
    (point,) = recorded.points("messaging.client.consumed.messages")
    assert point.value == 1
    assert dict(point.attributes)["messaging.operation.name"] == "process"


# --- settlements ---


def test_an_acknowledgement_of_the_application_is_a_child_of_the_current_span(
    recorded: RecordedTelemetry,
) -> None:
    with recorded.tracer.start_as_current_span("order") as order:
        _hook(recorded).settled(Settlement("g", SettlementKind.ACK, "T", [_message(1)]))
    span = recorded.span("settle T")
    assert span.kind is SpanKind.CLIENT
    assert span.parent is not None
    assert span.parent.span_id == order.get_span_context().span_id
    assert linked_ids(span) == [1]
    assert attributes_of(span)["messaging.rocketmq.settlement"] == "ack"
    assert attributes_of(span)["messaging.message.id"] == "id-1"


def test_an_automatic_settlement_is_a_child_of_the_listeners_span(recorded: RecordedTelemetry) -> None:
    hook = _hook(recorded)
    _call(hook, _message(1))
    with recorded.tracer.start_as_current_span("start of the program"):
        hook.settled(Settlement("g", SettlementKind.RETRY, "T", [_message(1)], automatic=True))
        hook.settled(Settlement("g", SettlementKind.RETRY, "T", [_message(2)], automatic=True))
    known, unknown = recorded.spans("settle T")
    assert known.parent is not None
    assert known.parent.span_id == span_id(recorded.span("process T"))
    assert unknown.parent is None


def test_a_commit_has_the_partition_and_the_broker(recorded: RecordedTelemetry) -> None:
    offsets = {MessageQueue("T", "broker-a", 3): 7}
    error = TimedOut("late")
    _hook(recorded).settled(
        Settlement(
            "g", SettlementKind.COMMIT, "T", offsets=offsets, error=error, broker_address="10.0.0.1:10911"
        )
    )
    attributes = attributes_of(recorded.span("settle T"))
    assert attributes["messaging.destination.partition.id"] == "3"
    assert attributes["server.port"] == 10911
    assert attributes["error.type"] == "TimedOut"
    (point,) = recorded.points("messaging.client.operation.duration")
    assert dict(point.attributes)["messaging.operation.type"] == "settle"
