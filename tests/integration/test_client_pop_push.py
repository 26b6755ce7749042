"""The push consumer with POP."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
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
from rmq_client.consumer.pop.acknowledger import PopAcknowledger
from rmq_remoting.bodies.assignment import MessageRequestMode
from tests.support.broker_requests import succeeded
from tests.support.clusters import ClusterBroker, RunningCluster, running_cluster
from tests.support.pop_requests import set_mode
from tests.support.push_consumers import until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_BROKERS = ("broker-a", "broker-b")
_POPPED = [MessageQueue("T", name, -1) for name in _BROKERS]
_PULLED = [MessageQueue("T", name, number) for name in _BROKERS for number in range(2)]
_LONG_SECONDS = 40.0
_QUICK = ConsumerTiming(rebalance_seconds=1.0, rebalance_again_seconds=0.05)


@asynccontextmanager
async def _cluster(folder: Path, **keys: object) -> AsyncIterator[RunningCluster]:
    """Yield a cluster of two brokers, which have topic T with two queues each."""
    async with running_cluster(folder, {name: {"T": 2} for name in _BROKERS}, **keys) as cluster:
        yield cluster


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with _cluster(tmp_path, defaultMessageRequestMode="POP") as cluster:
        yield cluster.address


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


async def _until_assigned(consumer: PushConsumer, expected: list[MessageQueue]) -> None:
    async with asyncio.timeout(10):
        while await consumer.assigned_queues() != expected:  # noqa: ASYNC110  # another thread rebalances
            await asyncio.sleep(0.01)


async def _left(address: str, seconds: float = 0.3) -> list[MessageExt]:
    """Return the messages that the group still has to consume, and that no member has."""
    async with SimpleConsumer(
        address,
        group="g",
        topics=["T"],
        consume_from="first",
        settings=ClientSettings(instance_name="other"),
    ) as consumer:
        return await consumer.receive(32, timeout_seconds=seconds)


@pytest.mark.parametrize("coroutine", [True, False])
async def test_each_message_is_delivered_once(address: str, coroutine: bool) -> None:
    got: list[bytes] = []

    def listen(messages: list[MessageExt]) -> None:
        got.extend(message.body for message in messages)

    async def listen_async(messages: list[MessageExt]) -> None:
        listen(messages)

    bodies = [b"%d" % number for number in range(200)]
    await _send(address, *bodies[:100])
    async with _consumer(address, listen_async if coroutine else listen, max_messages=4) as consumer:
        await _until_assigned(consumer, _POPPED)
        await _send(address, *bodies[100:])
        await until(lambda: len(got) >= len(bodies))
        statistics = (await consumer.statistics())["T"]
        assert (statistics.consumed, statistics.refused) == (len(bodies), 0)
    assert sorted(got) == sorted(bodies)
    assert await _left(address) == []


async def test_refused_messages_are_redelivered_and_become_dead_letters(address: str) -> None:
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


async def test_stop_makes_unstarted_messages_visible(address: str) -> None:
    begun = asyncio.Event()
    go_on = asyncio.Event()
    got: list[bytes] = []

    async def listen(messages: list[MessageExt]) -> None:
        begun.set()
        await go_on.wait()
        got.extend(message.body for message in messages)

    await _send(address, *(b"%d" % number for number in range(10)))
    async with _consumer(address, listen, workers=1) as consumer:
        async with asyncio.timeout(20):
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
    """A member with enough unacknowledged messages pops no more: the rest goes to the other one."""
    got: dict[str, list[bytes]] = {"one": [], "two": []}
    both_have_some = asyncio.Event()

    def listener(name: str) -> Any:
        async def listen(messages: list[MessageExt]) -> None:
            got[name].extend(message.body for message in messages)
            if all(got.values()):
                both_have_some.set()
            await both_have_some.wait()

        return listen

    few = PopSettings(max_unacknowledged=4, max_messages=4)
    settings = {name: ClientSettings(instance_name=name) for name in got}
    async with (
        _consumer(address, listener("one"), settings=settings["one"], pop=few, workers=2) as one,
        _consumer(address, listener("two"), settings=settings["two"], pop=few, workers=2) as two,
    ):
        for member in (one, two):
            await _until_assigned(member, _POPPED)
        bodies = [b"%d" % number for number in range(200)]
        await _send(address, *bodies)
        await until(lambda: sum(map(len, got.values())) >= len(bodies))
        assert sorted(got["one"] + got["two"]) == sorted(bodies)
        await one.unsubscribe("T")
        await _until_assigned(one, [])


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


# --- pulling, where the brokers say so ---


async def _set_mode(brokers: Iterable[ClusterBroker], mode: MessageRequestMode) -> None:
    for broker in brokers:
        async with broker.client() as client:
            succeeded(await client.ask(set_mode("T", "g", mode)))


def _subscribed(broker: ClusterBroker) -> set[str]:
    """Return the topics of the group's subscriptions in its heartbeats."""
    group = broker.consumers.find_group("g")
    return set() if group is None else set(group.subscriptions)


@pytest.mark.parametrize("orderly", [False, True])
async def test_topics_in_pull_mode_are_pulled(tmp_path: Path, orderly: bool) -> None:
    got: list[bytes] = []

    def listen(messages: list[MessageExt]) -> None:
        got.extend(message.body for message in messages)

    bodies = [b"%d" % number for number in range(40)]
    async with _cluster(tmp_path) as cluster:
        address = cluster.address
        async with _consumer(address, listen, orderly=orderly) as consumer:
            await _until_assigned(consumer, _PULLED)
            await _send(address, *bodies)
            await until(lambda: len(got) == len(bodies))
            async with _consumer(
                address, listen, orderly=orderly, settings=ClientSettings(instance_name="second")
            ) as second:
                for member in (consumer, second):
                    await until_assigned(member, 2, timeout_seconds=10)
            await _until_assigned(consumer, _PULLED)
        assert sorted(got) == sorted(bodies)
        async with Admin(address) as admin:
            offsets = [await admin.committed_offset("g", queue) for queue in _PULLED]
            assert sum(offset or 0 for offset in offsets) == len(bodies)


async def test_a_group_changes_between_popping_and_pulling(tmp_path: Path) -> None:
    """No message is lost: neither those refused while popped nor those refused while pulled."""
    got: Counter[bytes] = Counter()
    refuse = {b"popped", b"pulled"}

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        assert message.topic == "T"
        got[message.body] += 1
        context.delay_level = 1
        return ConsumeResult.LATER if message.body in refuse else ConsumeResult.SUCCESS

    async with AsyncExitStack() as stack:
        # Without a delay, a message that is always refused would soon be a dead letter.
        keys = {"loadBalancePollNameServerInterval": 100, "messageDelayLevel": "1s 5s"}
        cluster = await stack.enter_async_context(_cluster(tmp_path, **keys))
        address, brokers = cluster.address, list(cluster.brokers.values())
        async with Producer(address, group="p") as producer:
            await producer.send(Message("T", b"before"))
        # The consumer learns of the POP retry topics, which the broker creates, by asking for routes again.
        settings = ClientSettings(route_refresh_seconds=0.2)
        consumer = await stack.enter_async_context(
            _consumer(address, listen, pop=PopSettings(invisible_seconds=2), settings=settings)
        )
        await until(lambda: got[b"before"] == 1, _LONG_SECONDS)

        await _set_mode(brokers, MessageRequestMode.POP)
        await _until_assigned(consumer, _POPPED)
        await _send(address, b"popped", b"one")
        await until(lambda: got[b"popped"] and got[b"one"], _LONG_SECONDS)

        await _set_mode(brokers, MessageRequestMode.PULL)
        await _until_assigned(consumer, _PULLED)
        seen = got[b"popped"]
        refuse.discard(b"popped")
        await _send(address, b"pulled", b"two")
        await until(lambda: got[b"popped"] > seen, _LONG_SECONDS)
        await until(lambda: got[b"pulled"] and got[b"two"], _LONG_SECONDS)

        await _set_mode(brokers, MessageRequestMode.POP)
        refuse.discard(b"pulled")
        await until(lambda: got[b"pulled"] >= 2, _LONG_SECONDS)
        # The brokers learn from a heartbeat that the consumer pulls no topic any more.
        await until(lambda: all(_subscribed(broker) == {"T", "%RETRY%g"} for broker in brokers))
    assert got[b"before"] == 1


# --- in order ---


class _Order:
    """Records the messages of each queue, and asserts that no two calls for one queue overlap."""

    def __init__(self) -> None:
        self.got: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.overlaps = 0
        self._busy: set[tuple[str, int]] = set()

    @property
    def count(self) -> int:
        return sum(map(len, self.got.values()))

    async def listen(self, messages: list[MessageExt]) -> None:
        place = (messages[0].broker_name, messages[0].queue_id)
        self.overlaps += place in self._busy
        self._busy.add(place)
        await asyncio.sleep(0.001)
        self._busy.discard(place)
        self.got[place] += [message.queue_offset for message in messages]

    def check(self, count: int) -> None:
        assert self.overlaps == 0
        assert self.count == count
        for offsets in self.got.values():
            assert offsets == list(range(len(offsets)))


async def test_members_pop_in_order_and_share_the_queues(address: str) -> None:
    order = _Order()
    calls: Counter[str] = Counter()

    def listener(name: str) -> Any:
        async def listen(messages: list[MessageExt]) -> None:
            calls[name] += 1
            await order.listen(messages)

        return listen

    options: dict[str, Any] = {"orderly": True, "pop": PopSettings(max_messages=4, max_unacknowledged=4)}
    names = [b"%d" % number for number in range(200)]
    async with (
        _consumer(address, listener("one"), **options, settings=ClientSettings(instance_name="one")) as one,
        _consumer(address, listener("two"), **options, settings=ClientSettings(instance_name="two")) as two,
    ):
        for member in (one, two):
            await _until_assigned(member, _POPPED)
        await _send(address, *names[:150])
        await until(lambda: order.count >= 150, _LONG_SECONDS)
        assert min(calls["one"], calls["two"]) > 0
        await two.stop()
        await _send(address, *names[150:])
        await until(lambda: order.count >= 200, _LONG_SECONDS)
    order.check(200)


async def test_a_message_refused_by_an_ordered_pop_listener_is_repeated_before_the_next(address: str) -> None:
    got: list[tuple[bytes, int]] = []

    def listen(messages: list[MessageExt]) -> ConsumeResult:
        (message,) = messages
        got.append((message.body, message.reconsume_times))
        return ConsumeResult.LATER if message.body == b"bad" else ConsumeResult.SUCCESS

    queue = MessageQueue("T", "broker-a", 0)
    async with Producer(address, group="p") as producer:
        for body in (b"bad", b"good"):
            await producer.send(Message("T", body), queue=queue)
    async with _consumer(address, listen, orderly=True, max_reconsume_times=2, suspend_seconds=0.02):
        await until(lambda: len(got) == 4)
    assert got == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    async with Admin(address) as admin:
        assert await admin.committed_offset("g", queue) == 2
        assert "%DLQ%g" in await admin.topics()


async def test_an_ordered_stop_makes_unstarted_messages_visible(address: str) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    order = _Order()

    async def listen(messages: list[MessageExt]) -> None:
        begun.set()
        await go_on.wait()
        await order.listen(messages)

    queue = MessageQueue("T", "broker-a", 1)
    async with Producer(address, group="p") as producer:
        for number in range(10):
            await producer.send(Message("T", b"%d" % number), queue=queue)
    settings = ClientSettings(instance_name="other")
    async with (
        _consumer(address, listen, orderly=True) as consumer,
        _consumer(address, order.listen, orderly=True, settings=settings),
    ):
        await until(lambda: begun.is_set() or order.count == 10)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await consumer.stop()
        # Before the end of the invisible time, and of a held notification request.
        await until(lambda: order.count == 10, timeout_seconds=8)
    order.check(10)


async def test_invisible_times_are_renewed_while_stop_waits_for_the_listener(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    kept = 0
    renew = PopAcknowledger.change_invisible_time

    async def counted(acknowledger: PopAcknowledger, message: MessageExt, seconds: float) -> None:
        nonlocal kept
        await renew(acknowledger, message, seconds)
        kept += 1

    monkeypatch.setattr(PopAcknowledger, "change_invisible_time", counted)
    order = _Order()

    async def listen(messages: list[MessageExt]) -> None:
        begun.set()
        await go_on.wait()
        await order.listen(messages)

    queue = MessageQueue("T", "broker-a", 0)
    async with Producer(address, group="p") as producer:
        for number in range(2):
            await producer.send(Message("T", b"%d" % number), queue=queue)
    options: dict[str, Any] = {"orderly": True, "pop": PopSettings(invisible_seconds=1, max_messages=1)}
    async with _consumer(address, listen, **options) as consumer:
        await begun.wait()
        async with _consumer(
            address, order.listen, **options, settings=ClientSettings(instance_name="other")
        ) as other:
            await _until_assigned(other, _POPPED)
            stopping = asyncio.ensure_future(consumer.stop())
            before = kept
            # Each call lasts a good half of the invisible time.
            await until(lambda: kept >= before + 4 or order.count)
            assert order.count == 0, "another one has got it meanwhile"
            go_on.set()
            await stopping
            await until(lambda: order.count == 2)
    order.check(2)


@pytest.mark.parametrize(
    "options",
    [
        {"broadcasting": True},
        {"allocation": by_consistent_hash()},
        {"consume_from": "then"},
    ],
)
def test_invalid_pop_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        PushConsumer("h:1", **{"group": "g", "listener": print, "client_rebalance": False, **options})
