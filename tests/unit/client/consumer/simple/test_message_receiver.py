"""The receptions of a simple consumer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq_client.consumer.requests.pop_client import PopResult
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.consumer.simple.message_receiver import MessageReceiver
from rmq_client.consumer.subscription import Subscription
from rmq_client.network.routing import TopicRoute
from rmq_remoting.message import MessageExt
from tests.support.waiting import loop_passes
from tests.unit.client.consumer.listener_support import QUEUE, messages


class _Client:
    """A broker that answers its only pop late; it notes the messages that are made visible again."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[PopResult] = asyncio.get_running_loop().create_future()
        self.made_visible: list[int] = []

    async def pop(self, address: str, source: PopSource, *_: object) -> PopResult:
        return await self.answer

    def topic_of(self, message: MessageExt) -> str:
        return message.topic

    def handle_of(self, message: MessageExt) -> Any:
        return SimpleNamespace(receipt=SimpleNamespace(broker_name="b"), offset=message.queue_offset)

    async def change_invisible_time(self, address: str, handle: Any, invisible_ms: int) -> str:
        assert invisible_ms == 0
        self.made_visible.append(handle.offset)
        return "receipt"


class _Instance:
    async def route(self, topic: str) -> TopicRoute:
        return TopicRoute(topic, (), (QUEUE,), {"b": {0: "b:1"}})


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_stop_makes_messages_of_a_pop_in_flight_visible(is_cancelled: bool) -> None:
    client = _Client()
    receiver = MessageReceiver(
        cast(Any, _Instance()),
        cast(Any, client),
        cast(Any, None),
        "g",
        lambda: {"T": Subscription("T", "*", 1)},
    )
    receiving = asyncio.ensure_future(receiver.receive(32, 60_000, 10.0))
    await loop_passes()
    if is_cancelled:
        receiving.cancel()
        await asyncio.wait([receiving])
    receiver.begin_stop()
    stopping = asyncio.ensure_future(receiver.stop())
    await loop_passes()
    client.answer.set_result(PopResult(messages([0, 1]), []))
    await stopping
    assert client.made_visible == [0, 1]
    if not is_cancelled:
        assert (await receiving).messages == []
