"""Answers to sends: message ids, fields by kind, refusals, durability."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.delivery.timer_admission import TimerCongested, TimersOff
from rmq_broker.sending.answering import waits_for_durability
from rmq_broker.store.api import Durability, MessageRejected, StoreUnavailable
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.send import SendTarget
from rmq_remoting.message import Message
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.recall_handle import RecallHandle
from tests.support.broker_requests import send, sent
from tests.support.clock import START_MS
from tests.support.frames import decode_one
from tests.unit.broker.sending.parts import SendBroker, target

_CONSTANT = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class _Answering(SendBroker):
    def answer(
        self,
        to: SendTarget,
        body: bytes = b"body",
        properties: bytes = b"UNIQ_KEY\x01K\x02",
        serialization: Serialization = Serialization.BINARY,
    ) -> RemotingCommand:
        plan, stored = self.send(to, body, properties)
        request = send(to.topic, serialization=serialization)
        return _read(self.answers.stored(request, self.route(to), plan, stored))


def _read(answer: bytes | RemotingCommand) -> RemotingCommand:
    return decode_one(answer) if isinstance(answer, bytes) else answer


@pytest.fixture
async def answering(tmp_path: Path) -> AsyncIterator[_Answering]:
    answering = _Answering(tmp_path)
    yield answering
    answering.store.close()


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_plain_message(answering: _Answering, serialization: Serialization) -> None:
    answer = answering.answer(target(queue_id=1), serialization=serialization)

    (message,) = answering.stored("T", 1)
    assert answer.ext_fields == {
        "msgId": message.offset_msg_id,
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "K",
        **_CONSTANT,
    }


async def test_a_batch_is_answered_with_the_ids_of_all_its_messages(answering: _Answering) -> None:
    body = encode_batch([Message("T", b"x" * size) for size in (1, 2, 3)])
    answer = answering.answer(target(batch=True), body)
    assert sent(answer).msg_id.split(",") == [message.offset_msg_id for message in answering.stored("T")]
    assert "batchUniqId" not in answer.ext_fields


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_unit_is_answered_with_the_batchs_unique_key(
    answering: _Answering, serialization: Serialization
) -> None:
    answering.topics.update(TopicConfig(topic_name="U"), {"+queue.type": "BatchCQ"})
    to, body = target("U", batch=True), encode_batch([Message("U", b"x")])
    assert sent(answering.answer(to, body, serialization=serialization)).batch_uniq_id == "K"
    assert sent(answering.answer(to, body, b"", serialization=serialization)).batch_uniq_id is None


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_timed_message_is_answered_with_its_recall_handle(
    answering: _Answering, serialization: Serialization
) -> None:
    properties = b"UNIQ_KEY\x01K\x02TIMER_DELAY_SEC\x013\x02"
    answer = sent(answering.answer(target(), b"x", properties, serialization))
    handle = RecallHandle("T", "broker-a", START_MS + 2001, "K")
    assert RecallHandle.decode(answer.recall_handle or "") == handle
    assert (answer.queue_id, answer.transaction_id) == (0, "K")

    # A message that is due has no slot, and a retry cannot be recalled.
    due = b"UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x011\x02"
    assert sent(answering.answer(target(), b"x", due, serialization)).recall_handle is None
    retry = target("%RETRY%g")
    assert sent(answering.answer(retry, b"x", properties, serialization)).recall_handle is None


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (StoreUnavailable("disk full"), 14, "service not available now: disk full. Nothing was stored"),
        (MessageRejected("too large"), 13, "too large"),
        (TimersOff("no timers"), 1, "no timers"),
        (TimerCongested("too many"), 1, "too many"),
    ],
)
async def test_messages_that_the_store_does_not_accept(
    answering: _Answering, error: StoreUnavailable | MessageRejected, code: int, remark: str
) -> None:
    answer = answering.answers.not_stored(send("T"), error)
    assert (answer.code, answer.remark, answer.ext_fields) == (code, remark, _CONSTANT)


async def test_a_refusal_has_the_constant_fields(answering: _Answering) -> None:
    answer = answering.answers.refused(send("T"), CommandError(ResponseCode.NO_PERMISSION, "no"))
    assert (answer.code, answer.remark, answer.ext_fields) == (16, "no", _CONSTANT)


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_durability_becomes_a_response_code(
    answering: _Answering, serialization: Serialization
) -> None:
    plan, stored = answering.send(target())
    request = send("T", serialization=serialization)

    def flushed(durability: Durability) -> RemotingCommand:
        answer = answering.answers.stored(request, answering.route(target()), plan, stored)
        return _read(answering.answers.durable(answer, durability))

    assert flushed(Durability.DURABLE).code == ResponseCode.SUCCESS
    late = flushed(Durability.FLUSH_TIMED_OUT)
    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert late.ext_fields == flushed(Durability.DURABLE).ext_fields
    with pytest.raises(CommandError, match="the message may be lost") as refused:
        flushed(Durability.FLUSH_FAILED)
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        (b"", True),
        (b"WAIT\x01true\x02", True),
        (b"WAIT\x01TRUE", True),
        (b"a\x01b\x02WAIT\x01false\x02", False),
    ],
)
async def test_the_producer_says_whether_it_waits_for_the_flush(properties: bytes, waits: bool) -> None:
    assert waits_for_durability(properties) is waits
