"""Pulls whose answers are damaged or too large: the returned messages, and where the next pull begins."""

from __future__ import annotations

import random
import zlib

import pytest

from rmq_client.consumer.requests.pull_client import PullClient, PullResult, PullSettings
from rmq_client.consumer.subscription import Subscription
from rmq_client.errors import BrokerError
from rmq_client.network.routing import TopicRoute
from rmq_client.settings import ClientSettings
from rmq_remoting import compression
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.pull import PullMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.sys_flags import MessageSysFlag

_QUEUE = MessageQueue("T", "b", 0)
_ROUTE = TopicRoute("T", (), (_QUEUE,), {"b": {0: "b:1"}})
_HEADER = PullMessageResponseHeader(
    suggest_which_broker_id=0, next_begin_offset=13, min_offset=0, max_offset=20
)
_MESSAGES = [MessageExt("T", b"%d" % offset, queue_offset=offset) for offset in (10, 11, 12)]


class _Broker:
    """Answers every pull with these records."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.requests: list[RemotingCommand] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        self.requests.append(command)
        return command.response(ResponseCode.SUCCESS, None, _HEADER.encode(), self._body)


async def _pull(body: bytes) -> PullResult:
    client = PullClient(_Broker(body), "g", PullSettings(), ClientSettings())
    return await client.pull(_ROUTE, _QUEUE, 10, Subscription("T", "*", 1))


def _offsets(result: PullResult) -> list[int]:
    return [message.queue_offset for message in result.messages]


async def test_binary_and_json_requests_have_the_same_fields() -> None:
    whole, tagged = Subscription("T", "*", 1), Subscription("T", "a || b", 2)
    other = MessageQueue("T", "b", 7)
    pulls: list[tuple[MessageQueue, int, Subscription, int | None, bool]] = [
        (_QUEUE, 0, whole, None, False),
        (_QUEUE, 5, whole, 0, False),
        (_QUEUE, 1234567890123, whole, 1234567890, False),
        (_QUEUE, 6, tagged, 5, False),
        (other, 6, tagged, 5, True),
        (_QUEUE, 6, tagged, 5, True),
    ]
    sent: dict[Serialization, list[dict[str, str]]] = {}
    for serialization in Serialization:
        broker = _Broker(b"")
        client = PullClient(broker, "g", PullSettings(), ClientSettings(serialization=serialization))
        for queue, offset, subscription, consumed, send_subscription in pulls:
            await client.pull(
                *(_ROUTE, queue, offset, subscription),
                commit_offset=consumed,
                send_subscription=send_subscription,
            )
        sent[serialization] = [request.ext_fields for request in broker.requests]
        assert {request.code for request in broker.requests} == {RequestCode.PULL_MESSAGE}
        assert len({request.opaque for request in broker.requests}) == len(pulls)
    assert sent[Serialization.BINARY] == sent[Serialization.JSON]
    fields = sent[Serialization.BINARY][2]
    assert (fields["queueOffset"], fields["commitOffset"]) == ("1234567890123", "1234567890")
    assert [list(each) for each in sent[Serialization.BINARY]] == [
        list(each) for each in sent[Serialization.JSON]
    ]


async def test_all_messages_are_returned() -> None:
    result = await _pull(b"".join(map(encode_stored_message, _MESSAGES)))
    assert (_offsets(result), result.next_offset) == ([10, 11, 12], 13)


async def test_the_next_pull_begins_at_a_damaged_record() -> None:
    intact, damaged = map(encode_stored_message, _MESSAGES[:2])
    result = await _pull(intact + b"\1" * len(damaged))
    assert (_offsets(result), result.next_offset) == ([10], 11)


async def test_an_answer_that_begins_with_a_damaged_record_is_an_error() -> None:
    with pytest.raises(BrokerError, match="unreadable messages") as caught:
        await _pull(b"\1" * 99)
    assert str(_QUEUE) in str(caught.value)


async def test_a_message_that_cannot_be_decompressed_is_skipped() -> None:
    compressed = MessageExt("T", zlib.compress(b"x"), queue_offset=11, sys_flag=MessageSysFlag.COMPRESSED)
    broken = MessageExt("T", b"no zlib", queue_offset=12, sys_flag=MessageSysFlag.COMPRESSED)
    result = await _pull(b"".join(map(encode_stored_message, (_MESSAGES[0], compressed, broken))))
    assert (_offsets(result), result.next_offset) == ([10, 11], 13)
    assert result.messages[1].body == b"x"


async def test_a_damaged_record_after_a_skipped_message_ends_the_pull_there() -> None:
    broken = MessageExt("T", b"no zlib", queue_offset=10, sys_flag=MessageSysFlag.COMPRESSED)
    result = await _pull(encode_stored_message(broken) + b"\1" * 99)
    assert (_offsets(result), result.next_offset) == ([], 11)


async def test_a_large_body_is_decompressed() -> None:
    body = random.Random(1).randbytes(100_000)
    compressed = MessageExt("T", zlib.compress(body), queue_offset=12, sys_flag=MessageSysFlag.COMPRESSED)
    result = await _pull(encode_stored_message(_MESSAGES[0]) + encode_stored_message(compressed))
    assert [message.body for message in result.messages] == [b"10", body]
    assert {message.broker_name for message in result.messages} == {"b"}
    assert result.next_offset == 13


async def test_the_next_pull_begins_beyond_the_limit_of_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_RESPONSE_BYTES", 1000)
    records = [
        encode_stored_message(
            MessageExt(
                "T", zlib.compress(bytes(600)), queue_offset=offset, sys_flag=MessageSysFlag.COMPRESSED
            )
        )
        for offset in (10, 20, 30)
    ]
    result = await _pull(b"".join(records))
    assert (_offsets(result), result.next_offset) == ([10, 20], 30)
    result = await _pull(records[2])
    assert (_offsets(result), result.next_offset) == ([30], 13)
