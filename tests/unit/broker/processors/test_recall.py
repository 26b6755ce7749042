"""Request 370: recalling timed messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.store.api import Durability
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from rmq_remoting.recall_handle import RecallHandle
from tests.support.broker_requests import request
from tests.support.clock import START_MS
from tests.support.peers import Peer
from tests.unit.broker.delivery.parts import DeliveryBroker, inner
from tests.unit.broker.processors.parts import answer_of

_TIMER = "rmq_sys_wheel_timer"


class _Broker(DeliveryBroker):
    def __init__(self, folder: Path, **keys: object) -> None:
        super().__init__(folder, **{"recallMessageEnable": True, **keys})  # type: ignore[arg-type]
        self.processor = self.processors.sends.recall
        self.topics.update(TopicConfig(topic_name="T"))

    async def recall(self, handle: RecallHandle | str, topic: str = "T", **fields: object) -> RemotingCommand:
        text = handle if isinstance(handle, str) else handle.encode()
        command = request(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=text, **fields)
        return await answer_of(self.processor.recall(Peer().connection, command))

    async def refused(self, handle: RecallHandle | str, topic: str = "T") -> tuple[int, str]:
        with pytest.raises(CommandError) as refused:
            await self.recall(handle, topic)
        assert self.store.max_offset(_TIMER, 0) == 0
        return refused.value.code, refused.value.remark


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    made = _Broker(tmp_path)
    yield made
    made.store.close()


def _handle(topic: str = "T", name: str = "broker-a", after_ms: int = 5001, key: str = "K") -> RecallHandle:
    return RecallHandle(topic, name, START_MS + after_ms, key)


async def test_a_recall_waits_in_the_slot_of_its_message(broker: _Broker) -> None:
    placed = broker.writer.put(inner("T", b"x", TIMER_DELIVER_MS=str(START_MS + 5800), UNIQ_KEY="K"))
    assert placed.timer_out_ms == START_MS + 5000

    answer = await broker.recall(_handle(), producerGroup="PG")

    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields == {"msgId": "K", "MSG_REGION": "DefaultRegion"}
    (_, waiting) = broker.stored(_TIMER)
    assert waiting.body == b"0"
    assert waiting.properties == {
        **{"TAGS": "_RECALL_TAG_", "TIMER_DEL_UNIQKEY": "T+K", "UNIQ_KEY": "K"},
        **{"TIMER_DELIVER_MS": str(START_MS + 5001), "TIMER_OUT_MS": str(START_MS + 5000)},
        **{"BORN_TIMESTAMP": str(START_MS), "PGROUP": "PG", "REAL_TOPIC": "T", "REAL_QID": "0"},
    }
    await broker.pass_seconds(10)
    assert broker.stored("T") == []
    assert broker.timers.counts.recalled == 1


@pytest.mark.parametrize(
    ("handle", "remark"),
    [
        ("nonsense", "is invalid"),
        (_handle(topic="U"), "it is of topic U, not of T"),
        (_handle(name="broker-b"), "it is of broker broker-b, this is broker-a"),
        (_handle(after_ms=0), "is already due"),
        (_handle(after_ms=259_200_000), "timerMaxDelaySec"),
    ],
    ids=["nonsense", "topic", "broker", "past", "far"],
)
async def test_invalid_handles_are_refused(broker: _Broker, handle: RecallHandle | str, remark: str) -> None:
    code, said = await broker.refused(handle)
    assert code == ResponseCode.ILLEGAL_OPERATION
    assert remark in said


async def test_an_unknown_topic(broker: _Broker) -> None:
    assert (await broker.refused(_handle("U"), "U"))[0] == ResponseCode.TOPIC_NOT_EXIST


async def test_a_request_without_a_handle(broker: _Broker) -> None:
    command = request(RequestCode.RECALL_MESSAGE, topic="T")
    with pytest.raises(HeaderError, match="recallHandle"):
        broker.processor.recall(Peer().connection, command)


@pytest.mark.parametrize(
    ("keys", "code", "remark"),
    [
        ({"recallMessageEnable": False}, ResponseCode.NO_PERMISSION, "recallMessageEnable=true"),
        (
            {"startAcceptSendRequestTimeStamp": START_MS + 1},
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "startAcceptSendRequestTimeStamp",
        ),
        (
            {"brokerPermission": 4, "allowRecallWhenBrokerNotWriteable": False},
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "brokerPermission",
        ),
        ({"timerWheelEnable": False}, ResponseCode.ILLEGAL_OPERATION, "timerWheelEnable"),
    ],
)
async def test_settings_that_forbid_recalls(
    tmp_path: Path, keys: dict[str, object], code: ResponseCode, remark: str
) -> None:
    broker = _Broker(tmp_path, **keys)
    said = await broker.refused(_handle())
    assert said[0] == code
    assert remark in said[1]
    broker.store.close()


async def test_a_recall_without_write_permission(tmp_path: Path) -> None:
    broker = _Broker(tmp_path, brokerPermission=4)
    assert (await broker.recall(_handle())).code == ResponseCode.SUCCESS
    broker.store.close()


async def test_a_recall_while_the_store_is_unavailable(broker: _Broker) -> None:
    broker.store.health.refuse("disk", "full")
    code, remark = await broker.refused(_handle())
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, "the message was not recalled: full")


@pytest.mark.parametrize("durability", [Durability.DURABLE, Durability.FLUSH_TIMED_OUT])
async def test_the_answer_waits_for_the_flush(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    monkeypatch.setattr(broker.store, "answers_when_durable", True)

    monkeypatch.setattr(
        broker.store,
        "when_durable",
        lambda listener: asyncio.get_running_loop().call_soon(listener, durability),
    )
    if durability is Durability.DURABLE:
        assert (await broker.recall(_handle())).code == ResponseCode.SUCCESS
    else:
        with pytest.raises(CommandError, match="its recall is not flushed yet"):
            await broker.recall(_handle())
