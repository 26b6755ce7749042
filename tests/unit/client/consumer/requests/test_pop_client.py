"""Requests of POP and their answers: receipts, topics, tags, invalid answers."""

from __future__ import annotations

import random
import zlib

import pytest

from rmq_client.consumer.requests.pop_client import PopClient
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.consumer.subscription import Subscription
from rmq_client.errors import BrokerError, Busy, ReceiptExpired, UsageError
from rmq_client.settings import ClientSettings
from rmq_remoting import compression
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.pop import PopMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.pop_receipt import Receipt
from rmq_remoting.sys_flags import MessageSysFlag

_SOURCE = PopSource("T", "b")
_ALL = Subscription("T", "*", 1)
_NOW_MS = 1_000_000
_HEADER = PopMessageResponseHeader(
    pop_time=_NOW_MS + 5_000,
    invisible_time_ms=60_000,
    revive_queue_id=3,
    start_offset_info="0 1 10;1 0 4",
    msg_offset_info="0 1 10,12;1 0 4",
)


class _Broker:
    """Answers every request alike, and records it."""

    def __init__(
        self,
        code: int = ResponseCode.SUCCESS,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        self.asked: list[RemotingCommand] = []
        self._answer = (code, fields, body, remark)

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        self.asked.append(command)
        code, fields, body, remark = self._answer
        return command.response(code, remark, fields, body)


def _client(broker: _Broker) -> PopClient:
    return PopClient(broker, "g", ClientSettings(), lambda: _NOW_MS)


def _stored(*messages: MessageExt) -> bytes:
    return b"".join(encode_stored_message(message) for message in messages)


async def _pop(*messages: MessageExt, subscription: Subscription = _ALL) -> list[MessageExt]:
    broker = _Broker(fields=_HEADER.encode(), body=_stored(*messages))
    popped = await _client(broker).pop("a", _SOURCE, subscription, 40, 60_000)
    asked = broker.asked[0].ext_fields
    assert (broker.asked[0].code, asked["maxMsgNums"], asked["queueId"]) == (
        RequestCode.POP_MESSAGE,
        "32",
        "-1",
    )
    assert broker.asked[0].serialization is Serialization.JSON  # binary headers have no room for the code
    return popped.messages


async def test_popped_messages_get_receipts() -> None:
    first, second = await _pop(
        MessageExt("T", b"1", queue_id=1, queue_offset=10), MessageExt("T", b"2", queue_id=1, queue_offset=12)
    )
    assert first.receipt_handle == f"10 {_NOW_MS + 5000} 60000 3 0 b 1 10"
    assert second.receipt_handle == f"10 {_NOW_MS + 5000} 60000 3 0 b 1 12"
    assert (first.broker_name, first.properties["1ST_POP_TIME"]) == ("b", str(_NOW_MS + 5000))


async def test_messages_of_retry_topics_have_their_original_topic() -> None:
    receipt = f"4 {_NOW_MS + 5000} 60000 3 1 b 0 4"
    renamed = MessageExt("T", b"1", queue_id=0, queue_offset=4, properties={"POP_CK": receipt})
    as_stored = MessageExt("%RETRY%g_T", b"2", queue_id=0, queue_offset=4)
    for message in await _pop(renamed, as_stored):
        assert (message.topic, message.receipt_handle) == ("T", receipt)
        assert _client(_Broker()).handle_of(message).topic == "%RETRY%g_T"


async def test_messages_popped_in_order_have_delivery_counts() -> None:
    fields = {**_HEADER.encode(), "reviveQid": "999", "orderCountInfo": "0 qo1%10 2;0 1 1;nonsense"}
    body = _stored(
        MessageExt("T", b"1", queue_id=1, queue_offset=10), MessageExt("T", b"2", queue_id=1, queue_offset=12)
    )
    broker = _Broker(fields=fields, body=body)
    client = _client(broker)
    popped = await client.pop("a", _SOURCE, _ALL, 32, 60_000, in_order=True, attempt_id="x")
    assert [message.reconsume_times for message in popped.messages] == [2, 1]
    assert client.handle_of(popped.messages[0]).receipt.is_order
    assert (broker.asked[0].ext_fields["order"], broker.asked[0].ext_fields["attemptId"]) == ("true", "x")


async def test_a_receipt_property_written_by_a_producer_is_ignored() -> None:
    for forged in ("9 1 60000 3 0 b 1 9", "nonsense"):
        message = MessageExt("T", b"1", queue_id=1, queue_offset=10, properties={"POP_CK": forged})
        (got,) = await _pop(message)
        assert got.receipt_handle == f"10 {_NOW_MS + 5000} 60000 3 0 b 1 10"


async def test_tags_with_a_hash_collision_are_unwanted() -> None:
    body = _stored(
        MessageExt("T", b"1", properties={"TAGS": "Aa"}, queue_id=1, queue_offset=10),
        MessageExt("T", b"2", properties={"TAGS": "BB"}, queue_id=1, queue_offset=12),
    )
    client = _client(_Broker(fields=_HEADER.encode(), body=body))
    popped = await client.pop("a", _SOURCE, Subscription("T", "Aa", 1), 32, 60_000)
    assert [message.body for message in popped.messages] == [b"1"]
    assert [message.body for message in popped.unwanted] == [b"2"]


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT])
async def test_missing_offsets_file_is_no_error(code: ResponseCode) -> None:
    popped = await _client(_Broker(code)).pop("a", _SOURCE, _ALL, 32, 60_000)
    assert (popped.messages, popped.unwanted) == ([], [])


async def test_refusals_and_unreadable_answers_are_errors() -> None:
    with pytest.raises(Busy):
        await _client(_Broker(ResponseCode.POLLING_FULL)).pop("a", _SOURCE, _ALL, 32, 60_000)
    with pytest.raises(BrokerError, match="unreadable"):
        await _client(_Broker(fields={"popTime": "noon"})).pop("a", _SOURCE, _ALL, 32, 60_000)
    with pytest.raises(BrokerError, match="unreadable"):
        await _client(_Broker(fields=_HEADER.encode(), body=b"\1" * 99)).pop("a", _SOURCE, _ALL, 32, 60_000)
    with pytest.raises(Busy):
        await _client(_Broker(fields={"hasMsg": "false", "pollingFull": "true"})).has_messages(
            "a", _SOURCE, 0
        )


async def test_receipts_that_are_no_longer_valid_raise() -> None:
    client = _client(_Broker(ResponseCode.NO_MESSAGE, remark="expired"))
    message = MessageExt("T", properties={"POP_CK": "4 5 60000 3 0 b 0 4"})
    with pytest.raises(ReceiptExpired, match="expired"):
        await client.ack("a", client.handle_of(message))
    with pytest.raises(ReceiptExpired):
        await client.change_invisible_time("a", client.handle_of(message), 1)
    for bad in ({}, {"POP_CK": "nonsense"}):
        with pytest.raises(UsageError):
            client.handle_of(MessageExt("T", properties=bad))


async def test_changing_the_invisible_time_returns_a_new_receipt() -> None:
    broker = _Broker(fields={"popTime": "77", "invisibleTime": "9000", "reviveQid": "2"})
    client = _client(broker)
    held = client.handle_of(MessageExt("T", properties={"POP_CK": "4 5 60000 3 0 b 1 6"}))
    assert str(await client.change_invisible_time("a", held, 9_000)) == "6 77 9000 2 0 b 1 6"
    in_order = client.handle_of(MessageExt("T", properties={"POP_CK": "4 5 60000 999 0 b 1 6"}))
    assert (await client.change_invisible_time("a", in_order, 9_000)).start_offset == 4


async def test_overdue_times_use_the_brokers_clock() -> None:
    client = _client(_Broker(fields=_HEADER.encode(), body=_stored(MessageExt("T", b"1", queue_id=1))))
    receipt = Receipt(0, _NOW_MS, 1_000, 0, "0", "b", 1, 0)
    assert client.overdue_ms(receipt) == -1_000
    await client.pop("a", _SOURCE, _ALL, 32, 60_000)  # the broker's clock is 5 s ahead
    assert client.overdue_ms(receipt) == 4_000


async def test_messages_beyond_the_limit_of_a_response_keep_their_receipts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "MAX_RESPONSE_BYTES", 1000)
    body = _stored(
        *(
            MessageExt(
                "T",
                zlib.compress(bytes(1000)),
                sys_flag=MessageSysFlag.COMPRESSED,
                queue_id=1,
                queue_offset=offset,
            )
            for offset in (10, 12)
        )
    )
    client = _client(_Broker(fields=_HEADER.encode(), body=body))
    popped = await client.pop("a", _SOURCE, _ALL, 32, 60_000)
    assert [(message.queue_offset, message.body) for message in popped.messages] == [(10, bytes(1000))]
    (undecoded,) = popped.undecoded
    assert undecoded.receipt_handle == f"10 {_NOW_MS + 5000} 60000 3 0 b 1 12"
    assert (undecoded.broker_name, client.handle_of(undecoded).offset) == ("b", 12)


async def test_a_large_body_is_decompressed() -> None:
    body = random.Random(1).randbytes(100_000)
    (message,) = await _pop(MessageExt("T", zlib.compress(body), sys_flag=MessageSysFlag.COMPRESSED))
    assert message.body == body
