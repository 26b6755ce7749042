"""The push consumer whose messages are popped, against brokers of ours, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    ConsumerTiming,
    Message,
    MessageExt,
    MessageQueue,
    PopSettings,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TopicNotFound,
    UsageError,
    by_consistent_hash,
)
from tests.support.brokers import running_broker
from tests.support.namesrv import running_namesrv
from tests.support.waiting import until
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_BROKERS = ("broker-a", "broker-b")
_QUICK = ConsumerTiming(rebalance_seconds=1.0, rebalance_again_seconds=0.05)


@asynccontextmanager
async def _cluster(folder: Path, **keys: object) -> AsyncIterator[str]:
    """The name server of two brokers, which have topic T with two queues each."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(running_namesrv(folder))
        for name in _BROKERS:
            settings = {"namesrvAddr": namesrv.address, "brokerName": name, **keys}
            await stack.enter_async_context(running_broker(folder / name, **settings))
        admin = await stack.enter_async_context(Admin(namesrv.address))
        await admin.create_topic("T", queues=2)
        yield namesrv.address


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with _cluster(tmp_path, defaultMessageRequestMode="POP") as address:
        yield address


@asynccontextmanager
async def _consumer(address: str, listener: Any, **options: Any) -> AsyncIterator[PushConsumer]:
    options = {
        "group": "g",
        "topics": ["T"],
        "consume_from": "first",
        "client_rebalance": False,
        "timing": _QUICK,
        **options,
    }
    async with PushConsumer(address, listener=listener, **options) as consumer:
        yield consumer


async def _send(address: str, *bodies: bytes, tags: str | None = None) -> None:
    async with Producer(address, group="p") as producer:
        for body in bodies:
            await producer.send(Message("T", body, tags=tags))


async def _left(address: str, seconds: float = 0.3) -> list[MessageExt]:
    """What the group still has to consume, and nobody has."""
    async with SimpleConsumer(
        address,
        group="g",
        subscriptions=["T"],
        consume_from="first",
        settings=ClientSettings(instance_name="other"),
    ) as consumer:
        return await consumer.receive(32, await_seconds=seconds)


@pytest.mark.parametrize("coroutine", [True, False])
async def test_each_message_comes_once(address: str, coroutine: bool) -> None:
    got: list[bytes] = []

    def listen(messages: list[MessageExt]) -> None:
        got.extend(message.body for message in messages)

    async def listen_async(messages: list[MessageExt]) -> None:
        listen(messages)

    bodies = [b"%d" % number for number in range(200)]
    await _send(address, *bodies[:100])
    async with _consumer(
        address, listen_async if coroutine else listen, consume_message_batch_max_size=4
    ) as consumer:
        assert await consumer.assigned_queues() == [MessageQueue("T", name, -1) for name in _BROKERS]
        await _send(address, *bodies[100:])
        await until(lambda: len(got) >= len(bodies))
        statistics = (await consumer.statistics())["T"]
        assert (statistics.consumed, statistics.refused) == (len(bodies), 0)
    assert sorted(got) == sorted(bodies)
    assert await _left(address) == []


async def test_refused_messages_come_again_and_become_dead_letters(address: str) -> None:
    got: list[tuple[bytes, int, str]] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        got.append((message.body, message.reconsume_times, message.topic))
        context.delay_level = 1
        return ConsumeResult.LATER if message.body == b"bad" else ConsumeResult.SUCCESS

    await _send(address, b"bad", b"good")
    async with _consumer(address, listen, max_reconsume_times=1):
        await until(lambda: len(got) == 3)
        assert sorted(got) == [(b"bad", 0, "T"), (b"bad", 1, "T"), (b"good", 0, "T")]
        async with PullConsumer(address, group="r", consume_from="first") as reader:
            async with asyncio.timeout(10):
                while not (  # noqa: ASYNC110  # the broker makes it
                    queues := await _queues(reader, "%DLQ%g")
                ):
                    await asyncio.sleep(0.05)
                await reader.assign(queues)
                (dead,) = await reader.poll(timeout_seconds=5)
    assert dead.body == b"bad"
    assert await _left(address) == []


async def _queues(reader: PullConsumer, topic: str) -> list[MessageQueue]:
    try:
        return await reader.queues(topic)
    except TopicNotFound:
        return []


async def test_stop_gives_back_what_the_listener_has_not_begun(address: str) -> None:
    begun = asyncio.Event()
    go_on = asyncio.Event()
    got: list[bytes] = []

    async def listen(messages: list[MessageExt]) -> None:
        begun.set()
        await go_on.wait()
        got.extend(message.body for message in messages)

    await _send(address, *(b"%d" % number for number in range(10)))
    async with _consumer(address, listen, workers=1) as consumer:
        async with asyncio.timeout(5):
            await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await consumer.stop()
    left: list[MessageExt] = []
    async with asyncio.timeout(10):
        while len(left) < 9:
            left += await _left(address, seconds=2)
    assert len(got) == 1
    assert sorted([*got, *(message.body for message in left)]) == [b"%d" % number for number in range(10)]


async def test_members_share_and_topics_come_and_go(address: str) -> None:
    got: dict[str, list[bytes]] = {"one": [], "two": []}

    def listener(name: str) -> Any:
        async def listen(messages: list[MessageExt]) -> None:
            await asyncio.sleep(0.002)
            got[name].extend(message.body for message in messages)

        return listen

    few = PopSettings(max_unsettled=4, batch_size=4)
    settings = {name: ClientSettings(instance_name=name) for name in got}
    async with (
        _consumer(address, listener("one"), settings=settings["one"], pop=few, workers=2) as one,
        _consumer(address, listener("two"), settings=settings["two"], pop=few, workers=2),
    ):
        bodies = [b"%d" % number for number in range(200)]
        await _send(address, *bodies)
        await until(lambda: sum(map(len, got.values())) >= len(bodies))
        assert sorted(got["one"] + got["two"]) == sorted(bodies)
        assert min(map(len, got.values())) > 20
        await one.unsubscribe("T")
        async with asyncio.timeout(5):
            while await one.assigned_queues():  # noqa: ASYNC110  # another thread rebalances
                await asyncio.sleep(0.01)


async def test_a_consumer_that_is_suspended_pops_nothing(address: str) -> None:
    got: list[bytes] = []
    timing = ConsumerTiming(suspended_pause_seconds=0.02)
    async with _consumer(
        address, lambda messages: got.extend(message.body for message in messages), timing=timing
    ) as consumer:
        consumer.suspend()
        await _send(address, *(b"%d" % number for number in range(8)))
        await asyncio.sleep(0.2)
        assert got == []
        consumer.resume()
        await until(lambda: len(got) == 8)


async def test_a_group_that_is_to_pull_is_told(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as address:
        with pytest.raises(UsageError, match="setConsumeMode -m POP -t T -g g"):
            async with _consumer(address, print):
                pass


@pytest.mark.parametrize(
    "options",
    [
        {"orderly": True},
        {"broadcasting": True},
        {"allocation": by_consistent_hash()},
        {"consume_from": "then"},
    ],
)
def test_what_cannot_be_popped_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        PushConsumer("h:1", **{"group": "g", "listener": print, "client_rebalance": False, **options})
