"""The push consumer against brokers in memory: refusals, damaged messages, brokers that stop and start."""

from __future__ import annotations

import pytest

from rmq_client import (
    ClientSettings,
    ConsumerTiming,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.waiting import until
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.push_consumers import Inbox, consumer_of
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


@pytest.mark.parametrize(
    "fault",
    [
        Fault(code=ResponseCode.SYSTEM_BUSY),
        Fault(code=ResponseCode.FLOW_CONTROL),
        Fault(code=ResponseCode.SYSTEM_ERROR),
        Fault(code=ResponseCode.SUBSCRIPTION_NOT_EXIST),
        Fault(code=4711),
        Fault(cut=True),
        Fault(delay_seconds=0.1),
    ],
)
async def test_pulling_continues_after_a_failure(fault: Fault) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        cluster.broker.order(RequestCode.PULL_MESSAGE, fault, fault)
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: inbox.bodies == [b"x"])


async def test_a_damaged_message_does_not_stop_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        for number in range(3):
            message = cluster.broker.put("T", b"%d" % number)
            if number == 1:
                message.sys_flag = 0x301  # claims to be compressed
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: inbox.bodies == [b"0", b"2"])
        assert cluster.broker.offsets["g", "T", 0] == 3
        assert "cause=the zlib body of 1 bytes is truncated" in caplog.text


async def test_a_restarted_broker_is_pulled_again() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            cluster.broker.put("T", b"1")
            await until(lambda: inbox.bodies == [b"1"])
            await cluster.broker.close()
            cluster.broker.clients.clear()
            cluster.broker.put("T", b"2", queue_id=1)
            await cluster.broker.listen()
            await until(lambda: inbox.bodies == [b"1", b"2"], timeout_seconds=10)
            codes = cluster.broker.codes()
            assert cluster.broker.members("g"), codes


async def test_a_dead_broker_does_not_stop_the_others() -> None:
    settings = ClientSettings(heartbeat_seconds=0.05, route_refresh_seconds=0.05)
    async with FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
        dead = cluster.brokers["broker-b"]
        await dead.close()
        inbox = Inbox()
        async with consumer_of(cluster, inbox, settings=settings) as consumer:
            for number in range(5):
                cluster.broker.put("T", b"%d" % number)
                await until(lambda: len(inbox.messages) == number + 1)  # noqa: B023
            beats = len(cluster.broker.requests(RequestCode.HEART_BEAT))
            await until(lambda: len(cluster.broker.requests(RequestCode.HEART_BEAT)) > beats + 2)
            assert len(await consumer.assigned_queues()) == 2
            await dead.listen()
            dead.put("T", b"late")
            await until(lambda: b"late" in inbox.bodies)


async def test_a_new_connection_sends_a_heartbeat_before_pulls() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            cluster.broker.seen.clear()
            cluster.broker.cut_all()
            cluster.broker.put("T", b"x")
            await until(lambda: inbox.bodies == [b"x"])
            codes = cluster.broker.codes()
            assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.PULL_MESSAGE)


async def test_a_stuck_queue_is_rebuilt() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.order(RequestCode.PULL_MESSAGE, Fault(silent=True))
        cluster.broker.put("T", b"x")
        inbox = Inbox()
        timing = ConsumerTiming(rebalance_seconds=0.1, rebalance_again_seconds=0.05, stuck_seconds=0.3)
        async with consumer_of(cluster, inbox, timing=timing):
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            assert inbox.messages == []
            await until(lambda: inbox.bodies == [b"x"])
