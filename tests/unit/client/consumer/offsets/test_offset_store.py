"""Offsets on brokers: forward only, one-way or sequential."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client.consumer.offsets.offset_store import RemoteOffsetStore
from rmq_client.errors import BrokerUnreachable, ClientError
from rmq_remoting.errors import ConnectError
from rmq_remoting.framing import FrameDecoder
from rmq_remoting.headers.offsets import UpdateConsumerOffsetRequestHeader
from rmq_remoting.message_queue import MessageQueue
from tests.support.waiting import until
from tests.unit.client.consumer.listener_support import QUEUE

_OTHER = MessageQueue("T", "gone", 0)


class _Broker:
    """Accepts commits, answered when the test says so, and one-way ones."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.answered: list[int] = []
        self.frames: list[bytes] = []
        self.answer = asyncio.Event()
        self.answer.set()
        self.is_connected = True

    async def commit_offset(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        self.begun.append(offset)
        await self.answer.wait()
        if not self.is_connected:
            raise BrokerUnreachable("gone")
        self.answered.append(offset)

    def post_oneway(self, address: str, frame: bytes) -> None:
        if not self.is_connected:
            raise ConnectError("gone")
        self.frames.append(frame)

    def store(self, *, oneway: bool) -> RemoteOffsetStore:
        post = self.post_oneway if oneway else None
        return RemoteOffsetStore(
            "g",
            self,  # type: ignore[arg-type]  # what it needs of an API
            lambda queue: None if queue == _OTHER else "a:1",
            post,
        )


async def test_offsets_move_only_forward() -> None:
    store = _Broker().store(oneway=True)
    store.advance(QUEUE, 5)
    store.advance(QUEUE, 3)
    assert store.get(QUEUE) == 5
    store.set(QUEUE, 2)
    assert store.items() == [(QUEUE, 2)]
    store.forget(QUEUE)
    assert store.get(QUEUE) is None


async def test_background_commits_are_one_way() -> None:
    broker = _Broker()
    store = broker.store(oneway=True)
    store.advance(QUEUE, 5)
    store.advance(_OTHER, 7)
    await store.commit_routinely([QUEUE, _OTHER])
    (frame,) = broker.frames
    (command,) = FrameDecoder().feed(frame)
    assert command.is_oneway
    header = UpdateConsumerOffsetRequestHeader.decode(command.ext_fields)
    assert (header.consumer_group, header.topic, header.commit_offset) == ("g", "T", 5)
    assert broker.begun == []
    broker.is_connected = False
    await store.commit_routinely([QUEUE])
    assert store.commits == 1
    broker.is_connected = True
    assert await store.commit([QUEUE])
    assert broker.answered == [5]
    assert not await store.commit(), "one broker is not known"


async def test_commits_to_one_broker_are_sequential() -> None:
    broker = _Broker()
    store = broker.store(oneway=True)
    for number in range(3):
        store.advance(MessageQueue("T", "b", number), number)
    broker.answer.clear()
    committing = asyncio.ensure_future(store.commit())
    await until(lambda: broker.begun == [0])
    broker.answer.set()
    assert await committing
    assert broker.answered == [0, 1, 2]


async def test_an_unreachable_broker_gets_one_request() -> None:
    broker = _Broker()
    broker.is_connected = False
    store = broker.store(oneway=True)
    for number in range(3):
        store.advance(MessageQueue("T", "b", number), number)
    assert not await store.commit()
    assert broker.begun == [0]


async def test_sequential_commits_wait_for_a_cancelled_one() -> None:
    broker = _Broker()
    store = broker.store(oneway=False)
    store.advance(QUEUE, 5)
    broker.answer.clear()
    routine = asyncio.ensure_future(store.commit_routinely([QUEUE]))
    await until(lambda: broker.begun == [5])
    routine.cancel()
    store.advance(QUEUE, 6)
    last = asyncio.ensure_future(store.commit())
    await asyncio.sleep(0.01)
    assert broker.begun == [5]
    broker.answer.set()
    assert await last
    assert broker.answered == [5, 6]


async def test_a_caller_that_raises_failures_gets_them_instead_of_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = _Broker()
    store = broker.store(oneway=False)
    store.advance(QUEUE, 1)
    store.advance(_OTHER, 1)
    broker.is_connected = False
    failures: list[ClientError] = []
    assert not await store.commit(failures=failures)
    assert sorted(map(str, failures)) == ["gone", "no address of broker gone is known for T/gone/0"]
    assert caplog.text == ""
    assert not await store.commit()
    assert caplog.text.count("not committed") == 2
