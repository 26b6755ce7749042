"""OpenTelemetry beside a broker: producers, and all kinds of consumers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from rmq_client import (
    BatchPolicy,
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    PopSettings,
    Producer,
    PullConsumer,
    PushConsumer,
    Rejected,
    SimpleConsumer,
    TopicNotFound,
    Tracing,
    TransactionState,
    UsageError,
    blocking,
)
from rmq_client.open_telemetry import OpenTelemetry
from tests.support.clusters import RunningCluster, cluster_in_a_thread, running_cluster
from tests.support.push_consumers import QUICK
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.telemetry import RecordedTelemetry, attributes_of, linked_ids, span_id
from tests.support.waiting import until

_LIMIT_BYTES = 2000  # of the broker; messages above it are refused there
_SECONDS = 30.0
_SETTLEMENT = "messaging.rocketmq.settlement"


@pytest.fixture
def recorded() -> RecordedTelemetry:
    return RecordedTelemetry()


@pytest.fixture
def telemetry(recorded: RecordedTelemetry) -> OpenTelemetry:
    return recorded.instrumentation()


@asynccontextmanager
async def _cluster(folder: Path, **settings: object) -> AsyncIterator[RunningCluster]:
    async with running_cluster(
        folder, {"broker-a": {"T": 1}}, maxMessageSize=_LIMIT_BYTES, **settings
    ) as one:
        yield one


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with _cluster(tmp_path) as one:
        yield one


def _consumer(cluster: RunningCluster, listener: Any, **options: Any) -> PushConsumer:
    options = {"group": "g", "topics": ["T"], "consume_from": "first", "timing": QUICK, **options}
    return PushConsumer(cluster.address, listener=listener, **options)


async def _send(telemetry: OpenTelemetry, cluster: RunningCluster, *bodies: bytes) -> None:
    async with telemetry.instrument(Producer(cluster.address, group="p")) as producer:
        for body in bodies:
            await producer.send(Message("T", body))


def _settlements(recorded: RecordedTelemetry) -> list[str]:
    return [attributes_of(span)[_SETTLEMENT] for span in recorded.spans("settle T")]


def _settlement(recorded: RecordedTelemetry, kind: str) -> ReadableSpan:
    (span,) = [span for span in recorded.spans("settle T") if attributes_of(span)[_SETTLEMENT] == kind]
    return span


def _parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


# --- producers ---


async def test_each_way_of_sending_has_a_span(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    message = Message("T", b"1")
    async with telemetry.instrument(Producer(cluster.address, group="p")) as producer:
        with recorded.tracer.start_as_current_span("order") as order:
            result = await producer.send(message)
        await producer.send_oneway(Message("T", b"2"))
        await producer.send_batch([Message("T", b"3"), Message("T", b"4")])
        await until(lambda: len(cluster.broker.messages()) == 4, _SECONDS)
    assert message.properties == {}
    sent, oneway, batch = recorded.spans("send T")
    assert _parent_id(sent) == order.get_span_context().span_id
    attributes = attributes_of(sent)
    assert attributes["messaging.message.id"] == result.msg_id
    host, _, port = cluster.broker.address.rpartition(":")
    assert (attributes["server.address"], attributes["server.port"]) == (host, int(port))
    assert attributes["messaging.client.id"].split("@")[1].startswith(f"{os.getpid()}#")
    created = recorded.spans("create T")
    assert linked_ids(batch) == [span_id(span) for span in created]
    stored = {record.body: record.properties["traceparent"] for record in cluster.broker.stored("T", 0)}
    creators = {b"1": sent, b"2": oneway, b"3": created[0], b"4": created[1]}
    assert {body: int(carried.split("-")[2], 16) for body, carried in stored.items()} == {
        body: span_id(span) for body, span in creators.items()
    }
    assert recorded.total("messaging.client.sent.messages") == 4


async def test_messages_of_automatic_batches_have_spans_of_their_own(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    producer = Producer(cluster.address, group="p", batching=BatchPolicy())
    async with telemetry.instrument(producer):
        await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(5)))
    assert {record.properties["traceparent"].split("-")[2] for record in cluster.broker.stored("T", 0)} == {
        f"{span_id(span):016x}" for span in recorded.spans("send T")
    }
    assert len(recorded.spans()) == 5


async def test_failed_sends_have_an_error(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    async with telemetry.instrument(Producer(cluster.address, group="p")) as producer:
        with pytest.raises(Rejected):
            await producer.send(Message("T", b"x" * (_LIMIT_BYTES + 1)))
        with pytest.raises(TopicNotFound):
            await producer.send(Message("Nowhere", b"x"))
        with pytest.raises(UsageError, match="must agree in topic"):
            await producer.send_batch([Message("T", b"1"), Message("U", b"2")])
    refused, unknown, batch = recorded.spans("send")
    assert [span.status.status_code for span in (refused, unknown, batch)] == [StatusCode.ERROR] * 3
    assert attributes_of(refused)["error.type"] == "MESSAGE_ILLEGAL"
    assert attributes_of(refused)["server.address"] == "127.0.0.1"
    assert (unknown.name, attributes_of(unknown)["error.type"]) == ("send Nowhere", "TopicNotFound")
    assert (batch.name, attributes_of(batch)["error.type"]) == ("send", "UsageError")
    assert recorded.total("messaging.client.sent.messages") == 4


async def test_transactions_have_spans_of_the_half_message_and_of_the_outcome(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    async with telemetry.instrument(Producer(cluster.address, group="p")) as producer:
        async with producer.transaction(Message("T", b"kept")):
            pass
        await producer.send_in_transaction(Message("T", b"dropped"), lambda _: TransactionState.ROLLBACK)
    kept, dropped = recorded.spans("send T")
    assert attributes_of(kept)["messaging.rocketmq.message.type"] == "transaction"
    assert linked_ids(recorded.span("commit T")) == [span_id(kept)]
    assert linked_ids(recorded.span("rollback T")) == [span_id(dropped)]


async def test_apache_traces_and_opentelemetry_go_together(
    tmp_path: Path, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    brokers = {"broker-a": {"T": 1, "RMQ_SYS_TRACE_TOPIC": 1}}
    got = asyncio.Event()
    ids: list[int] = []

    async def listen(_: list[MessageExt]) -> None:
        ids.append(trace.get_current_span().get_span_context().span_id)
        got.set()

    tracing = Tracing(linger_seconds=0.01)
    async with running_cluster(tmp_path, brokers) as cluster:
        producer = Producer(cluster.address, group="p", trace=tracing)
        async with telemetry.instrument(producer):
            await producer.send(Message("T", b"1"))
        async with telemetry.instrument(_consumer(cluster, listen, trace=tracing)):
            await got.wait()
        lines = b"".join(record.body for record in cluster.broker.stored("RMQ_SYS_TRACE_TOPIC"))
    assert [kind in lines for kind in (b"Pub", b"SubBefore", b"SubAfter")] == [True] * 3
    processed = recorded.span("process T")
    assert ids == [span_id(processed)]
    assert _parent_id(processed) == span_id(recorded.span("send T"))


# --- push consumers ---


@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_a_listener_continues_the_trace_of_the_send(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry, is_coroutine: bool
) -> None:
    current: list[int] = []

    def listen(_: list[MessageExt]) -> None:
        current.append(trace.get_current_span().get_span_context().span_id)

    async def listen_async(messages: list[MessageExt]) -> None:
        listen(messages)

    await _send(telemetry, cluster, b"1", b"2")
    with recorded.tracer.start_as_current_span("start of the program"):
        async with telemetry.instrument(_consumer(cluster, listen_async if is_coroutine else listen)):
            await until(lambda: len(current) == 2, _SECONDS)
    sent, processed = recorded.spans("send T"), recorded.spans("process T")
    assert current == [span_id(span) for span in processed]
    assert [_parent_id(span) for span in processed] == [span_id(span) for span in sent]
    assert [linked_ids(span) for span in processed] == [[span_id(span)] for span in sent]
    assert recorded.spans("receive") == []
    assert set(_settlements(recorded)) == {"commit"}
    assert {_parent_id(span) for span in recorded.spans("settle T")} == {None}
    assert recorded.total("messaging.process.duration") == 2
    assert recorded.total("messaging.client.consumed.messages", messaging_operation_name="process") == 2


async def test_calls_with_several_messages_link_to_all(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    got: list[MessageExt] = []
    await _send(telemetry, cluster, b"1", b"2", b"3")
    async with telemetry.instrument(_consumer(cluster, got.extend, max_messages=10)):
        await until(lambda: len(got) == 3, _SECONDS)
    linked = [link for span in recorded.spans("process T") for link in linked_ids(span)]
    assert sorted(linked) == sorted(span_id(span) for span in recorded.spans("send T"))


async def test_refused_messages_have_a_retry_and_then_a_dead_letter(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    async def listen(_: list[MessageExt]) -> None:
        raise ValueError("no stock")

    await _send(telemetry, cluster, b"1")
    async with telemetry.instrument(_consumer(cluster, listen, max_reconsume_times=1)):
        await until(lambda: "dead_letter" in _settlements(recorded), _SECONDS)
    first, second = recorded.spans("process T")
    assert [attributes_of(span)["error.type"] for span in (first, second)] == ["ValueError"] * 2
    assert {_parent_id(first), _parent_id(second)} == {span_id(recorded.span("send T"))}
    assert _parent_id(_settlement(recorded, "retry")) == span_id(first)
    assert _parent_id(_settlement(recorded, "dead_letter")) == span_id(second)
    assert recorded.total("messaging.process.duration", error_type="ValueError") == 2


async def test_orderly_messages_have_a_dead_letter(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    def listen(_: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.LATER

    await _send(telemetry, cluster, b"1")
    consumer = _consumer(cluster, listen, orderly=True, max_reconsume_times=0)
    async with telemetry.instrument(consumer):
        await until(lambda: "dead_letter" in _settlements(recorded), _SECONDS)
    assert attributes_of(recorded.span("process T"))["error.type"] == "FAILED"
    assert _parent_id(_settlement(recorded, "dead_letter")) == span_id(recorded.span("process T"))


@pytest.mark.parametrize("orderly", [False, True])
async def test_popped_messages_are_acknowledged_below_their_call(
    tmp_path: Path, recorded: RecordedTelemetry, telemetry: OpenTelemetry, orderly: bool
) -> None:
    got: list[MessageExt] = []
    async with _cluster(tmp_path, defaultMessageRequestMode="POP") as cluster:
        await _send(telemetry, cluster, b"1", b"2")
        async with telemetry.instrument(
            _consumer(cluster, got.extend, client_rebalance=False, orderly=orderly)
        ):
            await until(lambda: len(got) == 2, _SECONDS)
    processed = recorded.spans("process T")
    acked = [span for span in recorded.spans("settle T") if attributes_of(span)[_SETTLEMENT] == "ack"]
    assert {_parent_id(span) for span in acked} == {span_id(span) for span in processed}
    assert sorted(link for span in acked for link in linked_ids(span)) == sorted(
        span_id(span) for span in recorded.spans("send T")
    )


async def test_refused_popped_messages_have_retries_and_dead_letters(
    tmp_path: Path, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        if messages[0].body == b"dead":
            context.delay_level = -1
        return ConsumeResult.LATER

    async with _cluster(tmp_path, defaultMessageRequestMode="POP") as cluster:
        await _send(telemetry, cluster, b"later", b"dead")
        consumer = _consumer(cluster, listen, client_rebalance=False, pop=PopSettings(invisible_seconds=60))
        async with telemetry.instrument(consumer):
            await until(lambda: {"retry", "dead_letter", "ack"} <= set(_settlements(recorded)), _SECONDS)
    by_kind = {kind: _settlement(recorded, kind) for kind in ("retry", "dead_letter", "ack")}
    later, dead = recorded.spans("process T")
    assert _parent_id(by_kind["retry"]) == span_id(later)
    assert _parent_id(by_kind["dead_letter"]) == _parent_id(by_kind["ack"]) == span_id(dead)


@pytest.mark.parametrize("mode", ["PULL", "POP"])
async def test_failed_pulls_and_pops_are_measured(
    tmp_path: Path, recorded: RecordedTelemetry, telemetry: OpenTelemetry, mode: str
) -> None:
    def failures() -> int:
        return recorded.total(
            "messaging.client.operation.duration",
            messaging_operation_name="receive",
            error_type="BrokerUnreachable",
        )

    async with _cluster(tmp_path, defaultMessageRequestMode=mode) as cluster:
        consumer = _consumer(cluster, print, client_rebalance=False)
        async with telemetry.instrument(consumer):
            await consumer.wait_ready()
            assert failures() == 0
            await cluster.broker.stop()
            await until(failures, _SECONDS)
    assert recorded.spans("receive") == []


# --- pull and simple consumers ---


async def test_polls_and_commits_of_a_pull_consumer(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    await _send(telemetry, cluster, b"1", b"2")
    consumer = PullConsumer(cluster.address, group="g", topics="T", consume_from="first")
    async with telemetry.instrument(consumer):
        with recorded.tracer.start_as_current_span("job") as job:
            messages: list[MessageExt] = []
            while len(messages) < 2:
                messages += await consumer.poll()
            await consumer.commit()
        assert await consumer.poll(timeout_seconds=0) == []
        with telemetry.process(consumer, messages[0]):
            pass
    received = recorded.spans("receive T")
    assert sorted(link for span in received for link in linked_ids(span)) == sorted(
        span_id(span) for span in recorded.spans("send T")
    )
    assert {_parent_id(span) for span in received} == {job.get_span_context().span_id}
    settled = recorded.span("settle T")
    assert attributes_of(settled)[_SETTLEMENT] == "commit"
    assert _parent_id(settled) == job.get_span_context().span_id
    processed = recorded.span("process T")
    assert span_id(received[0]) in linked_ids(processed)
    assert _parent_id(processed) == span_id(recorded.spans("send T")[0])
    assert recorded.total("messaging.client.consumed.messages") == 2


async def test_automatic_commits_and_single_pulls_of_a_pull_consumer(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    await _send(telemetry, cluster, b"1")
    consumer = PullConsumer(
        cluster.address, group="g", topics="T", consume_from="first", auto_commit=True, timing=QUICK
    )
    async with telemetry.instrument(consumer):
        async for message in consumer:
            assert message.body == b"1"
            break
        (queue,) = consumer.assigned_queues()
        await consumer.pull(queue, 0)
    assert len(recorded.spans("receive T")) == 2
    assert set(_settlements(recorded)) == {"commit"}


async def test_a_simple_consumer_receives_and_settles(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    await _send(telemetry, cluster, b"1", b"2")
    consumer = SimpleConsumer(cluster.address, group="g", topics="T", consume_from="first", timeout_seconds=5)
    async with telemetry.instrument(consumer):
        first, second = await consumer.receive()
        with telemetry.process(consumer, first):
            await consumer.ack(first)
        await consumer.change_invisible_time(second, 30)
        with pytest.raises(UsageError):
            await consumer.ack(MessageExt("T"))
    sent, received = recorded.spans("send T"), recorded.span("receive T")
    assert linked_ids(received) == [span_id(span) for span in sent]
    assert attributes_of(received)["messaging.batch.message_count"] == 2
    processed = recorded.span("process T")
    assert linked_ids(processed) == [span_id(sent[0]), span_id(received)]
    acked, changed, failed = recorded.spans("settle T")
    assert _parent_id(acked) == span_id(processed)
    assert [attributes_of(span)[_SETTLEMENT] for span in (acked, changed, failed)] == [
        "ack",
        "invisible_time",
        "ack",
    ]
    assert failed.status.status_code is StatusCode.ERROR


async def test_a_failed_reception_has_an_error(
    cluster: RunningCluster, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    consumer = SimpleConsumer(cluster.address, group="g", topics="T", timeout_seconds=0)
    async with telemetry.instrument(consumer):
        await cluster.broker.stop()
        with pytest.raises(Exception, match="T"):
            await consumer.receive()
    received = recorded.span("receive T")
    assert received.status.status_code is StatusCode.ERROR
    assert attributes_of(received)["error.type"] == "BrokerUnreachable"


async def test_clients_that_run_take_no_hooks(cluster: RunningCluster, telemetry: OpenTelemetry) -> None:
    async with Producer(cluster.address, group="p") as producer:
        with pytest.raises(UsageError, match="has been started already"):
            telemetry.instrument(producer)
    async with SimpleConsumer(cluster.address, group="g", topics="T") as consumer:
        with pytest.raises(UsageError, match="has been started already"):
            telemetry.instrument(consumer)


# --- without asyncio ---


def test_blocking_clients_work_in_the_span_of_their_thread(
    tmp_path: Path, recorded: RecordedTelemetry, telemetry: OpenTelemetry
) -> None:
    with cluster_in_a_thread(tmp_path, {"broker-a": {"T": 1}}) as cluster:
        with (
            telemetry.instrument(blocking.Producer(cluster.address, group="p")) as producer,
            recorded.tracer.start_as_current_span("order") as order,
        ):
            producer.send(Message("T", b"1"))
            producer.send_nowait(Message("T", b"2")).result()
        consumer = blocking.SimpleConsumer(
            cluster.address, group="s", topics="T", consume_from="first", timeout_seconds=5
        )
        with telemetry.instrument(consumer), recorded.tracer.start_as_current_span("job") as job:
            (message, *_) = consumer.receive()
            consumer.ack(message)
        reader = blocking.PullConsumer(cluster.address, group="r", topics="T", consume_from="first")
        with telemetry.instrument(reader):
            for number, one in enumerate(reader, 1):
                with telemetry.process(reader, one):
                    pass
                if number == 2:
                    break
    sent = recorded.spans("send T")
    assert {_parent_id(span) for span in sent} == {order.get_span_context().span_id}
    simple, *iterated = recorded.spans("receive T")
    assert _parent_id(simple) == job.get_span_context().span_id
    assert _parent_id(recorded.spans("settle T")[0]) == job.get_span_context().span_id
    assert [linked_ids(span) for span in iterated] == [[span_id(span)] for span in sent]
    assert [linked_ids(span) for span in recorded.spans("process T")] == [
        [span_id(one), span_id(other)] for one, other in zip(sent, iterated, strict=True)
    ]
