"""Instrumentation of clients, and the processing of received messages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rmq_client import (
    Admin,
    InvalidArgumentError,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    UsageError,
    blocking,
)
from rmq_client.hooks.send import SendContext
from rmq_client.open_telemetry import OpenTelemetry, instrument
from tests.support.telemetry import RecordedTelemetry, attributes_of, linked_ids

_NAMESRV = "127.0.0.1:1"


@pytest.fixture
def recorded() -> RecordedTelemetry:
    return RecordedTelemetry()


def _message(number: int = 1) -> MessageExt:
    traceparent = f"00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01"
    return MessageExt("T", b"x", 0, {"traceparent": traceparent}, 3, number)


def _consumer(topics: str = "T") -> SimpleConsumer:
    return SimpleConsumer(_NAMESRV, group="g", topics=topics)


@pytest.mark.parametrize(
    "client",
    [
        Producer(_NAMESRV, group="g"),
        PushConsumer(_NAMESRV, group="g", topics="T", listener=print),
        PullConsumer(_NAMESRV, group="g"),
        SimpleConsumer(_NAMESRV, group="g"),
        blocking.Producer(_NAMESRV, group="g"),
        blocking.PushConsumer(_NAMESRV, group="g", topics="T", listener=print),
        blocking.PullConsumer(_NAMESRV, group="g"),
        blocking.SimpleConsumer(_NAMESRV, group="g"),
    ],
    ids=lambda client: f"{type(client).__module__}.{type(client).__name__}",
)
def test_producers_and_consumers_of_both_faces_can_be_instrumented(client: object) -> None:
    assert instrument(client) is client


@pytest.mark.parametrize(
    "client", [Producer(_NAMESRV, group="g"), blocking.SimpleConsumer(_NAMESRV, group="g")], ids=["p", "c"]
)
def test_a_client_cannot_be_instrumented_twice(client: object) -> None:
    with pytest.raises(UsageError, match="instrumented already"):
        instrument(instrument(client))


@pytest.mark.parametrize("other", [Admin(_NAMESRV), "a text", None])
def test_other_objects_cannot_be_instrumented(other: object) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a producer or a push, pull or simple consumer"):
        instrument(other)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tracer_provider": "default"},
        {"meter_provider": 1},
        {"propagator": object()},
        {"create_spans": 1},
        {"continue_trace": "yes"},
    ],
)
def test_arguments_are_checked(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(arguments))):
        OpenTelemetry(**arguments)  # type: ignore[arg-type]  # as the test wants


def test_processing_is_in_the_trace_of_its_message(recorded: RecordedTelemetry) -> None:
    with recorded.instrumentation().process(_consumer(), _message()) as span:
        assert trace.get_current_span() is span
    ended = recorded.span("process T")
    assert ended.parent is not None
    assert ended.parent.span_id == 1
    assert attributes_of(ended)["messaging.consumer.group.name"] == "g"
    assert recorded.total("messaging.process.duration") == 1
    assert recorded.points("messaging.client.consumed.messages") == []


def test_processing_in_another_span_is_its_child_and_links(recorded: RecordedTelemetry) -> None:
    with (
        recorded.tracer.start_as_current_span("job") as job,
        recorded.instrumentation().process(_consumer(), [_message()]),
    ):
        pass
    ended = recorded.span("process T")
    assert ended.parent is not None
    assert ended.parent.span_id == job.get_span_context().span_id
    assert linked_ids(ended) == [1]


def test_an_exception_fails_the_processing_and_is_raised(recorded: RecordedTelemetry) -> None:
    def work() -> None:
        raise ValueError("no stock")

    with (
        pytest.raises(ValueError, match="no stock"),
        recorded.instrumentation().process(blocking.PullConsumer(_NAMESRV, group="g"), [_message()]),
    ):
        work()
    assert recorded.span("process T").status.status_code is StatusCode.ERROR
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    ("consumer", "messages", "name"),
    [
        (Producer(_NAMESRV, group="g"), [_message()], "consumer"),
        (SimpleConsumer(_NAMESRV, group="g"), [], "messages"),
        (SimpleConsumer(_NAMESRV, group="g"), [Message("T")], "messages"),
    ],
)
def test_arguments_of_process_are_checked(consumer: object, messages: list[MessageExt], name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=name), OpenTelemetry().process(consumer, messages):
        pass


def test_a_propagator_of_its_own_is_used(recorded: RecordedTelemetry) -> None:
    class Renamed(TraceContextTextMapPropagator):
        def inject(self, carrier: dict[str, str], *args: object, **kwargs: object) -> None:  # type: ignore[override]
            own: dict[str, str] = {}
            super().inject(own, *args, **kwargs)  # type: ignore[arg-type]
            carrier["mine"] = own["traceparent"]

    propagator: TextMapPropagator = Renamed()
    telemetry = OpenTelemetry(tracer_provider=recorded.tracer_provider, propagator=propagator)
    producer = telemetry.instrument(Producer(_NAMESRV, group="g"))
    (hook,) = producer._send_hooks
    context = SendContext("g", Message("T", b"x"))
    hook.before(context)
    assert list(context.properties) == ["mine"]
    hook.after(context)


def test_a_received_context_travels_on_without_an_sdk() -> None:
    telemetry = OpenTelemetry(tracer_provider=trace.NoOpTracerProvider())
    (hook,) = telemetry.instrument(Producer(_NAMESRV, group="g"))._send_hooks
    context = SendContext("g", Message("T", b"x"))
    with telemetry.process(_consumer(), _message(7)):
        hook.before(context)
        hook.after(context)
    assert context.properties == {"traceparent": _message(7).properties["traceparent"]}


def test_the_sdk_needs_no_opentelemetry_until_it_is_used() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from rmq_client import Producer, PushConsumer, PullConsumer, SimpleConsumer, blocking\n"
        "try:\n"
        "    import rmq_client.open_telemetry\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "install 'rmq[opentelemetry]'" in done.stdout
