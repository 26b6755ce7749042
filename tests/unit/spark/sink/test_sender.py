"""Retries, rejections and concurrency of sends, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rocketmq.errors import SourceUnavailable
from pyspark_rocketmq.sink.send_requests import SendRequest, send_requests
from pyspark_rocketmq.sink.sender import FailureKind, Rejection, Sender, classify
from rmq_client import (
    BrokerError,
    BrokerUnreachable,
    Busy,
    ClientError,
    MessageQueue,
    NoQueue,
    NotAuthenticated,
    NotRunning,
    PermissionDenied,
    Rejected,
    TimedOut,
    TlsFailed,
    TopicNotFound,
    TopicNotOnBroker,
    Unavailable,
    UsageError,
)
from rmq_client.producer.encoding import Outgoing
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message_batch import decode_batch
from tests.unit.spark.sink.samples import QUEUES, FakeProducer, encode, rows, settings

pytestmark = pytest.mark.virtual_time


def _made(count: int, queue_ids: list[int | None] | None = None, **changes: Any) -> list[SendRequest]:
    columns: dict[str, Any] = {"body": [b"%d" % number for number in range(count)]}
    if queue_ids is not None:
        columns["queueId"] = pa.array(queue_ids, pa.int32())
    return send_requests(encode(rows(**columns)), {"T": QUEUES}, settings(**changes))


def _refusal(kind: type[BrokerError], code: int = ResponseCode.MESSAGE_ILLEGAL) -> BrokerError:
    return kind(code, "as ordered", "127.0.0.1:1")


def _failing_first(*errors: ClientError) -> Any:
    left = deque(errors)
    return lambda *_: left.popleft() if left else None


def _bodies(producer: FakeProducer) -> list[bytes]:
    return [body for _, _, bodies in producer.sent for body in bodies]


async def test_requests_in_flight_are_limited() -> None:
    producer = FakeProducer(gate=asyncio.Event())
    sender = Sender(producer, settings(max_in_flight=3))
    delivery = asyncio.ensure_future(sender.send_all(_made(10, batch_rows=1)))
    await asyncio.sleep(1)
    assert producer.in_flight == 3
    assert producer.gate is not None
    producer.gate.set()
    assert await delivery == {}
    assert producer.max_in_flight == 3
    assert sorted(_bodies(producer)) == [b"%d" % number for number in range(10)]


async def test_requests_of_one_queue_are_sequential_across_retries() -> None:
    producer = FakeProducer(problem=_failing_first(TimedOut("late"), _refusal(Busy)))
    sender = Sender(producer, settings())
    assert await sender.send_all(_made(6, [1] * 6, batch_rows=2)) == {}
    assert _bodies(producer) == [b"%d" % number for number in range(6)]
    assert producer.max_in_flight == 1


@pytest.mark.parametrize(
    "error", [BrokerUnreachable("x"), _refusal(Unavailable, ResponseCode.GO_AWAY), TimedOut("x")]
)
async def test_transient_errors_are_retried(error: ClientError) -> None:
    producer = FakeProducer(problem=_failing_first(*[error] * 5))
    assert await Sender(producer, settings(broker_timeout_seconds=30)).send_all(_made(1)) == {}
    assert _bodies(producer) == [b"0"]


async def test_transient_error_beyond_the_timeout_fails_and_cancels_all_requests() -> None:
    producer = FakeProducer(problem=lambda *_: BrokerUnreachable("nobody there"))
    began = asyncio.get_running_loop().time()
    with pytest.raises(SourceUnavailable, match="nobody there"):
        await Sender(producer, settings(broker_timeout_seconds=30)).send_all(_made(20, batch_rows=2))
    assert 30 <= asyncio.get_running_loop().time() - began < 40
    assert producer.in_flight == 0


async def test_rejected_batch_is_split_until_the_bad_rows_are_found() -> None:
    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
        bad = {b"3", b"8"}.intersection(item.body for item in decode_batch(outgoing.body))
        return _refusal(Rejected) if bad else None

    producer = FakeProducer(problem=problem)
    rejected = await Sender(producer, settings()).send_all(_made(10, [0] * 10))
    assert sorted(rejected) == [3, 8]
    assert "as ordered" in rejected[3]
    assert _bodies(producer) == [b"%d" % number for number in range(10) if number not in (3, 8)]


async def test_batch_too_large_for_apaches_broker_is_split() -> None:
    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
        too_many = len(decode_batch(outgoing.body)) > 2
        return _refusal(Unavailable, ResponseCode.SYSTEM_ERROR) if too_many else None

    producer = FakeProducer(problem=problem)
    assert await Sender(producer, settings()).send_all(_made(7)) == {}
    assert sorted(_bodies(producer)) == [b"%d" % number for number in range(7)]


@pytest.mark.parametrize(
    "error", [TopicNotFound("no T"), _refusal(TopicNotOnBroker), _refusal(PermissionDenied)]
)
async def test_missing_topic_is_waited_for_once_and_then_rejected(error: ClientError) -> None:
    producer = FakeProducer(problem=lambda *_: error)
    sender = Sender(producer, settings(topic_timeout_seconds=5))
    loop = asyncio.get_running_loop()
    began = loop.time()
    rejected = await sender.send_all(_made(4, batch_rows=2))
    assert sorted(rejected) == [0, 1, 2, 3]
    assert 5 <= loop.time() - began < 8
    refused_at = loop.time()
    assert sorted(await sender.send_all(_made(2))) == [0, 1]
    assert loop.time() == refused_at


async def test_topic_created_in_time_is_accepted() -> None:
    producer = FakeProducer(problem=_failing_first(*[TopicNotFound("not yet")] * 3))
    assert await Sender(producer, settings(topic_timeout_seconds=5)).send_all(_made(1)) == {}


async def test_missing_topic_is_not_rejected_while_no_broker_is_registered() -> None:
    producer = FakeProducer(problem=lambda *_: TopicNotFound("no T"), brokers=False)
    sender = Sender(producer, settings(topic_timeout_seconds=5, broker_timeout_seconds=60))
    with pytest.raises(SourceUnavailable):
        await sender.send_all(_made(1))


async def test_time_without_brokers_does_not_count_against_a_topic() -> None:
    loop = asyncio.get_running_loop()
    topic_at = loop.time() + 15
    producer = FakeProducer(
        problem=lambda *_: TopicNotFound("no T") if loop.time() < topic_at else None, brokers=False
    )
    loop.call_later(11, setattr, producer, "brokers", True)
    assert await Sender(producer, settings(topic_timeout_seconds=5)).send_all(_made(1)) == {}


@pytest.mark.parametrize("error", [_refusal(TopicNotOnBroker), _refusal(PermissionDenied)])
async def test_rejection_of_one_queue_does_not_affect_others(error: ClientError) -> None:
    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
        return error if queue == QUEUES[0] else None

    loop = asyncio.get_running_loop()
    producer = FakeProducer(problem=problem)
    sender = Sender(producer, settings(topic_timeout_seconds=5))
    assert sorted(await sender.send_all(_made(4, [0, 1, 0, None]))) == [0, 2]
    refused_at = loop.time()
    assert sorted(await sender.send_all(_made(4, [0, 1, 0, None]))) == [0, 2]
    assert loop.time() == refused_at
    assert sorted(_bodies(producer)) == [b"1", b"1", b"3", b"3"]


async def test_unknown_response_code_fails_the_task() -> None:
    producer = FakeProducer(problem=lambda *_: BrokerError(4711, "?", "127.0.0.1:1"))
    with pytest.raises(BrokerError, match="4711"):
        await Sender(producer, settings()).send_all(_made(1))


async def test_queues_of_topics_with_and_without_a_route() -> None:
    producer = FakeProducer(topic_errors=deque([TimedOut("x"), UsageError("topic 'ä' is no name")]))
    sender = Sender(producer, settings())
    for _ in range(2):
        found = await sender.queues(["ä", "T"])
        assert found == {"ä": Rejection("topic 'ä' is no name", is_for_target=True), "T": QUEUES}


async def test_invalid_topic_name_is_rejected_once_for_all_rows() -> None:
    asked: list[str] = []

    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError:
        asked.append(topic)
        return UsageError("topic 'T' is no name")

    rejected = await Sender(FakeProducer(problem=problem), settings()).send_all(_made(100))
    assert (len(rejected), len(asked)) == (100, 1)


async def test_cancelling_cancels_requests_in_flight() -> None:
    producer = FakeProducer(gate=asyncio.Event())
    delivery = asyncio.ensure_future(Sender(producer, settings()).send_all(_made(5, batch_rows=1)))
    await asyncio.sleep(1)
    delivery.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivery
    assert producer.in_flight == 0


@pytest.mark.parametrize(
    ("error", "pinned", "kind"),
    [
        (NoQueue("x"), True, FailureKind.TRANSIENT),
        (NoQueue("x"), False, FailureKind.NO_ROUTE),
        (NotRunning("x"), False, FailureKind.FATAL),
        (_refusal(NotAuthenticated), False, FailureKind.FATAL),
        (TlsFailed("x"), False, FailureKind.FATAL),
        (UsageError("x"), False, FailureKind.REJECTED),
    ],
)
async def test_classification_of_errors(error: ClientError, pinned: bool, kind: FailureKind) -> None:
    assert classify(error, pinned) is kind
