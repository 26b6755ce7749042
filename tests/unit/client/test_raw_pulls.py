"""Pulls that return bytes: requests, results and the choice of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rmq_client import (
    BrokerUnreachable,
    Busy,
    ClientSettings,
    MessageQueue,
    NotRunning,
    PullStatus,
    PullWish,
    RawPuller,
    Serialization,
    SubscriptionError,
    TopicNotFound,
    UsageError,
    blocking,
)
from rmq_remoting.bodies.route import BrokerData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.pull import PullMessageRequestHeader
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.sys_flags import PullSysFlag
from tests.support.fake_cluster import FakeBroker, FakeCluster, Fault
from tests.support.quiet_loops import quiet_loops

__all__ = ["quiet_loops"]

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster({"broker-a": {"T": 2}}) as fake:
        for number in range(5):
            fake.broker.put("T", b"%d" % number)
        yield fake


def asked(cluster: FakeCluster) -> PullMessageRequestHeader:
    request = cluster.broker.requests(RequestCode.PULL_MESSAGE)[-1]
    return PullMessageRequestHeader.decode(request.ext_fields)


async def test_a_raw_pull_returns_the_stored_bytes(cluster: FakeCluster) -> None:
    async with RawPuller(cluster.address, group="G") as puller:
        answer = await puller.pull(QUEUE, 1, PullWish(max_messages=3))
    assert answer.status is PullStatus.FOUND
    assert (answer.next_offset, answer.min_offset, answer.max_offset) == (4, 0, 5)
    assert isinstance(answer.body, bytes)
    assert [message.body for message in decode_messages(answer.body)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("broker_id", [0, 1])
async def test_raw_pulls_tell_whether_the_master_answered(
    cluster: FakeCluster, broker_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def data(broker: FakeBroker) -> BrokerData:
        return BrokerData(broker_name=broker.name, broker_addrs={broker_id: broker.address}, cluster="C")

    monkeypatch.setattr(cluster.namesrv, "_data", data)
    async with RawPuller(cluster.address, group="G") as puller:
        answer = await puller.pull(QUEUE, 1, PullWish(from_master=True))
    assert answer.from_master is (broker_id == 0)


async def test_a_raw_pull_sends_its_filter_and_commits_nothing(cluster: FakeCluster) -> None:
    wish = PullWish(max_messages=7, max_bytes=1000, expression="a || b", hold_seconds=2.5)
    async with RawPuller(cluster.address, group="G") as puller:
        await puller.pull(QUEUE, 0, wish)
        header = asked(cluster)
        assert (header.max_msg_nums, header.max_msg_bytes, header.suspend_timeout_ms) == (7, 1000, 2500)
        assert (header.subscription, header.expression_type) == ("a || b", "TAG")
        assert header.sys_flag == PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND
        await puller.pull(QUEUE, 0)
        assert asked(cluster).sys_flag == PullSysFlag.SUBSCRIPTION
    assert not cluster.broker.offsets
    assert not cluster.broker.members("G")


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_pulls_of_one_queue_differ_in_their_offsets(
    cluster: FakeCluster, serialization: Serialization
) -> None:
    settings = ClientSettings(serialization=serialization)
    async with RawPuller(cluster.address, group="G", settings=settings) as puller:
        for offset in (0, 4, 1, 123456789012):
            await puller.pull(QUEUE, offset)
            expected = asked(cluster)
            assert (expected.queue_offset, expected.max_msg_nums) == (offset, 32)
            assert (expected.consumer_group, expected.topic, expected.broker_name) == ("G", "T", "broker-a")
        await puller.pull(MessageQueue("T", "broker-a", 1), 0, PullWish(max_messages=3))
        assert (asked(cluster).queue_id, asked(cluster).max_msg_nums) == (1, 3)


async def test_an_illegal_offset_returns_the_next_valid_one(cluster: FakeCluster) -> None:
    cluster.broker.queues["T", 0].base = 100
    async with RawPuller(cluster.address, group="G") as puller:
        below = await puller.pull(QUEUE, 3)
        above = await puller.pull(QUEUE, 300)
    assert (below.status, below.next_offset, below.body) == (PullStatus.OFFSET_ILLEGAL, 100, b"")
    assert (above.status, above.next_offset) == (PullStatus.OFFSET_ILLEGAL, 105)


async def test_raw_pull_refusals_raise_the_sdks_errors(cluster: FakeCluster) -> None:
    cluster.broker.order(
        RequestCode.PULL_MESSAGE,
        Fault(code=ResponseCode.SYSTEM_BUSY),
        Fault(code=ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        Fault(cut=True),
    )
    async with RawPuller(cluster.address, group="G") as puller:
        with pytest.raises(Busy):
            await puller.pull(QUEUE, 0)
        with pytest.raises(SubscriptionError, match="at 0"):
            await puller.pull(QUEUE, 0)
        with pytest.raises(BrokerUnreachable):
            await puller.pull(QUEUE, 0)
        assert (await puller.pull(QUEUE, 0)).status is PullStatus.FOUND
        with pytest.raises(TopicNotFound):
            await puller.pull(MessageQueue("None", "broker-a", 0), 0)
        with pytest.raises(BrokerUnreachable, match="broker-x"):
            await puller.pull(MessageQueue("T", "broker-x", 0), 0)


async def test_coroutines_run_on_the_loop_of_the_connections(cluster: FakeCluster) -> None:
    puller = RawPuller(cluster.address, group="G")

    async def from_each() -> list[int]:
        return [(await puller.pull(QUEUE, offset)).next_offset for offset in range(5)]

    async with puller:
        assert await asyncio.wrap_future(puller.submit(from_each())) == [5] * 5
    with pytest.raises(NotRunning):
        puller.submit(from_each())
    with pytest.raises(NotRunning):
        await puller.pull(QUEUE, 0)


def test_the_group_must_be_a_name() -> None:
    with pytest.raises(UsageError, match="group"):
        RawPuller("127.0.0.1:9876", group="no group")


async def test_the_blocking_class(cluster: FakeCluster) -> None:
    def use() -> tuple[int, int]:
        with blocking.RawPuller(cluster.address, group="G") as puller:
            there = puller.submit(puller.pulls.pull(QUEUE, 2)).result()
            return puller.pull(QUEUE, 0).next_offset, len(decode_messages(there.body))

    assert await asyncio.to_thread(use) == (5, 3)
