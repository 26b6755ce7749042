"""Pulls over the wire."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rmq_broker.store.api import ColdLog
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.heartbeat import ConsumeType, MessageModel
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.pull import PullMessageResponseHeader
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    offsets,
    pull,
    pulled,
    request,
    send,
    sent,
)
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.cold_log import make_cold
from tests.support.raw_client import RawClient
from tests.support.rows import each_row
from tests.support.waiting import until

# Long enough for a pull to be still held on a busy machine.
_LONG_MS = 20_000


async def _fill(
    client: RawClient, topic: str, count: int, *, size: int = 10, tag: str = "", queue: int = 0
) -> None:
    client.send(
        *[
            send(
                topic,
                b"%04d" % number + b"x" * (size - 4),
                properties={"TAGS": tag} if tag else {},
                queue_id=queue,
            )
            for number in range(count)
        ]
    )
    for _ in range(count):
        sent(await client.receive())


@pytest.fixture
async def five_messages(client: RawClient) -> RawClient:
    await _fill(client, "T", 5)
    return client


async def _answered(client: RawClient, command: RemotingCommand, code: ResponseCode) -> RemotingCommand:
    answer = await client.ask(command)
    assert answer.code == code, f"{answer.code}: {answer.remark}"
    return answer


async def _beat(client: RawClient, command: RemotingCommand) -> None:
    """Send a heartbeat, and read the notification that may follow."""
    answer, _ = await ask_among_notifications(client, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


# --- what a pull gets ---


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_messages_in_order_and_the_next_offset(
    client: RawClient, code: int, serialization: Serialization
) -> None:
    await _fill(client, "T", 50)

    answer = await client.ask(pull("T", code=code, serialization=serialization))

    assert answer.serialization is serialization
    assert [message.queue_offset for message in pulled(answer)] == list(range(32))
    assert [message.body[:4] for message in pulled(answer)] == [b"%04d" % number for number in range(32)]
    header = PullMessageResponseHeader.decode(answer.ext_fields)
    assert header == PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=32,
        min_offset=0,
        max_offset=50,
        topic_sys_flag=0,
        group_sys_flag=0,
    )
    rest = await client.ask(pull("T", offset=32, code=code, serialization=serialization))
    assert [message.queue_offset for message in pulled(rest)] == list(range(32, 50))
    assert offsets(rest) == (50, 0, 50)


@pytest.mark.parametrize(
    ("wanted", "given"), [(1, 1), (7, 7), (33, 32), (2_147_483_647, 32), (0, 1), (-1, 1)]
)
async def test_the_number_of_messages_is_bounded(client: RawClient, wanted: int, given: int) -> None:
    await _fill(client, "T", 40, tag="a")

    assert len(pulled(await client.ask(pull("T", count=wanted)))) == given
    assert len(pulled(await client.ask(pull("T", count=wanted, subscription="a")))) == given


async def test_the_bytes_of_a_response_are_bounded_except_for_its_first_message(client: RawClient) -> None:
    await _fill(client, "T", 8, size=60_000)
    await _fill(client, "T", 1, size=1_000_000)

    answer = await client.ask(pull("T"))

    assert len(pulled(answer)) == 4  # the fifth would be over 256 KiB
    assert offsets(answer)[0] == 4
    assert len(pulled(await client.ask(pull("T", offset=7)))) == 1
    assert len(pulled(await client.ask(pull("T", offset=8)))[0].body) == 1_000_000


async def test_old_messages_have_smaller_limits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, accessMessageInMemoryMaxRatio=0) as broker, broker.client() as client:
        await _fill(client, "T", 20)
        assert len(pulled(await client.ask(pull("T")))) == 8
        await _fill(client, "Large", 4, size=30_000)
        assert len(pulled(await client.ask(pull("Large")))) == 2


@each_row(
    ("offset", "code", "remark", "next_offset"),
    [
        (5, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5),
        (6, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (2**63 - 1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (-(2**63), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
@each_row("serialization", list(Serialization))
async def test_an_offset_without_a_message(
    five_messages: RawClient,
    serialization: Serialization,
    offset: int,
    code: ResponseCode,
    remark: str,
    next_offset: int,
) -> None:
    request = pull("T", offset=offset, serialization=serialization)

    answer = await _answered(five_messages, request, code)

    assert answer.remark == remark
    assert answer.body == b""
    assert offsets(answer) == (next_offset, 0, 5)


async def test_a_queue_without_messages(client: RawClient) -> None:
    await client.ask(create_topic("T"))

    answer = await _answered(client, pull("T"), ResponseCode.PULL_NOT_FOUND)
    assert (answer.remark, offsets(answer)) == ("NO_MATCHED_LOGIC_QUEUE", (0, 0, 0))
    answer = await _answered(client, pull("T", offset=7), ResponseCode.PULL_OFFSET_MOVED)
    assert (answer.remark, offsets(answer)) == ("NO_MATCHED_LOGIC_QUEUE", (0, 0, 0))


# --- filters ---


async def test_tags_select_and_the_next_offset_is_behind_skipped_messages(client: RawClient) -> None:
    for tag in ("a", "b", "", "c", "a", "b"):
        sent(await client.ask(send("T", tag.encode() or b"-", properties={"TAGS": tag} if tag else {})))

    answer = await client.ask(pull("T", subscription="a || c"))
    assert [message.body for message in pulled(answer)] == [b"a", b"c", b"a"]
    assert offsets(answer) == (6, 0, 6)
    assert len(pulled(await client.ask(pull("T", subscription="*")))) == 6

    nothing = await _answered(client, pull("T", subscription="z"), ResponseCode.PULL_RETRY_IMMEDIATELY)
    assert (nothing.remark, offsets(nothing)) == ("NO_MATCHED_MESSAGE", (6, 0, 6))


async def test_the_entries_that_a_pull_searches_are_bounded(tmp_path: Path) -> None:
    # A look searches five entries of 20 bytes, and 20 times as many by tags.
    async with running_broker(tmp_path, maxFilterMessageSize=100) as broker, broker.client() as client:
        await _fill(client, "T", 150, tag="a")

        rare = pull("T", count=1, subscription="b")
        answer = await _answered(client, rare, ResponseCode.PULL_RETRY_IMMEDIATELY)

        assert offsets(answer) == (100, 0, 150)


async def test_a_pull_without_a_subscription_uses_that_of_the_heartbeat(
    client: RawClient, member: RawClient
) -> None:
    for tag in ("a", "b"):
        sent(await client.ask(send("T", tag.encode(), properties={"TAGS": tag})))
    await _beat(member, heartbeat("c1", "CG", {"T": "b"}, sub_version=10))

    answer = await client.ask(pull("T", "CG", subscription=None, sub_version=10))

    assert [message.body for message in pulled(answer)] == [b"b"]


async def test_a_pull_without_any_subscription_is_refused(client: RawClient, member: RawClient) -> None:
    await client.ask(create_topic("T"))
    without = pull("T", subscription=None, sub_version=10)

    answer = await _answered(client, without, ResponseCode.SUBSCRIPTION_NOT_EXIST)
    assert "no member of consumer group CG has sent a heartbeat" in str(answer.remark)

    await _beat(member, heartbeat("c1", "CG", {"Other": "*"}))
    answer = await _answered(client, without, ResponseCode.SUBSCRIPTION_NOT_EXIST)
    assert "has not subscribed to topic T" in str(answer.remark)

    await _beat(member, heartbeat("c1", "CG", {"T": "*"}, sub_version=9))
    await _answered(client, without, ResponseCode.SUBSCRIPTION_NOT_LATEST)

    await _beat(member, heartbeat("c1", "CG", {"T": "*"}, sub_version=10))
    await _answered(client, without, ResponseCode.PULL_NOT_FOUND)


async def test_invalid_expressions_are_refused(client: RawClient) -> None:
    await client.ask(create_topic("T"))

    await _answered(client, pull("T", subscription="||"), ResponseCode.SUBSCRIPTION_PARSE_FAILED)
    answer = await _answered(
        client, pull("T", subscription="a > 1", expression_type="SQL92"), ResponseCode.SYSTEM_ERROR
    )
    assert "enablePropertyFilter=true" in str(answer.remark)


# --- who may ---


async def test_an_unknown_topic_is_refused(client: RawClient) -> None:
    answer = await _answered(client, pull("Nowhere"), ResponseCode.TOPIC_NOT_EXIST)
    assert "Nowhere does not exist" in str(answer.remark)


async def test_an_unknown_group_is_refused_if_groups_are_not_auto_created(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, autoCreateSubscriptionGroup=False) as broker,
        broker.client() as client,
    ):
        await client.ask(create_topic("T"))
        answer = await _answered(client, pull("T", "Nobody"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        assert "autoCreateSubscriptionGroup=true" in str(answer.remark)


async def test_permissions_of_topic_group_and_broker(
    broker: RunningBroker, client: RawClient, member: RawClient
) -> None:
    await client.ask(create_topic("WriteOnly", perm=2))
    await _answered(client, pull("WriteOnly"), ResponseCode.NO_PERMISSION)

    await client.ask(create_topic("T"))
    stopped = SubscriptionGroupConfig(group_name="Stopped", consume_enable=False)
    await client.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, stopped.encode()))
    await _answered(client, pull("T", "Stopped"), ResponseCode.NO_PERMISSION)

    alone = SubscriptionGroupConfig(group_name="Alone", consume_broadcast_enable=False)
    await client.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, alone.encode()))
    await _beat(member, heartbeat("c1", "Alone", {"T": "*"}, message_model=MessageModel.BROADCASTING))
    await _answered(client, pull("T", "Alone", subscription=None), ResponseCode.NO_PERMISSION)

    broker.change(brokerPermission=2)
    await _answered(client, pull("T"), ResponseCode.NO_PERMISSION)


@pytest.mark.parametrize("queue_id", [4, -1, 2_147_483_647])
async def test_an_unknown_queue_is_refused(client: RawClient, queue_id: int) -> None:
    await client.ask(create_topic("T", 4))
    answer = await _answered(client, pull("T", queue_id=queue_id), ResponseCode.INVALID_PARAMETER)
    assert f"queue id {queue_id} is illegal: topic T has 4 queues to read" in str(answer.remark)


async def test_lite_pulls_can_be_switched_off(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(create_topic("T"))
    broker.change(litePullMessageEnable=False)

    await _answered(client, pull("T", code=RequestCode.LITE_PULL_MESSAGE), ResponseCode.NO_PERMISSION)
    await _answered(client, pull("T"), ResponseCode.PULL_NOT_FOUND)


async def test_a_broker_for_push_consumers_refuses_pull_consumers(
    broker: RunningBroker, client: RawClient, member: RawClient
) -> None:
    await client.ask(create_topic("T"))
    broker.change(rejectPullConsumerEnable=True)

    answer = await _answered(client, pull("T", "Pulling"), ResponseCode.SUBSCRIPTION_NOT_EXIST)
    assert "rejectPullConsumerEnable" in str(answer.remark)
    await _beat(member, heartbeat("c1", "Active", {"T": "*"}, consume_type=ConsumeType.CONSUME_ACTIVELY))
    await _answered(client, pull("T", "Active"), ResponseCode.SUBSCRIPTION_NOT_EXIST)

    await _beat(member, heartbeat("c1", "Passive", {"T": "*"}))
    await _answered(client, pull("T", "Passive"), ResponseCode.PULL_NOT_FOUND)
    await _answered(client, pull("T", "TOOLS_CONSUMER"), ResponseCode.PULL_NOT_FOUND)


async def test_a_bad_header_is_answered_with_an_error(client: RawClient) -> None:
    command = pull("T", serialization=Serialization.JSON)
    command.ext_fields["queueOffset"] = "soon"
    del command.ext_fields["topic"]

    answer = await _answered(client, command, ResponseCode.SYSTEM_ERROR)

    assert "topic is missing" in str(answer.remark)
    assert "queueOffset must be an integer" in str(answer.remark)


# --- committing ---


async def test_a_pull_commits_its_commit_offset_if_its_flag_is_set(
    broker: RunningBroker, client: RawClient
) -> None:
    await _fill(client, "T", 5)
    committed = broker.offsets

    await client.ask(pull("T", offset=3))
    assert committed.query("CG", "T", 0) == -1
    await client.ask(pull("T", offset=5, commit=3))
    assert committed.query("CG", "T", 0) == 3
    await client.ask(pull("T", offset=5, commit=-7))
    assert committed.query("CG", "T", 0) == 3


async def test_the_next_pull_after_a_reset_is_moved(broker: RunningBroker, client: RawClient) -> None:
    await _fill(client, "T", 5)
    broker.offsets.assign_reset("CG", "T", 0, 2)

    answer = await _answered(client, pull("T", offset=4, commit=4), ResponseCode.PULL_OFFSET_MOVED)

    assert (answer.remark, offsets(answer)) == ("OFFSET_RESET", (2, 0, 5))
    assert broker.offsets.query("CG", "T", 0) == 2
    assert len(pulled(await client.ask(pull("T", offset=2, commit=2)))) == 3


# --- messages that are not in memory ---


class _Disk:
    """A disk whose reads a test releases; no part of the log is in memory."""

    def __init__(self, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.free = threading.Event()
        make_cold(broker.store)
        read = ColdLog.read

        def slow_read(log: ColdLog, offset: int, size: int) -> bytes | None:
            self.begun += 1
            assert self.free.wait(20)
            return read(log, offset, size)

        monkeypatch.setattr(ColdLog, "read", slow_read)


async def test_a_cold_read_delays_no_other_request(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(client, "T", 40)
    disk = _Disk(broker, monkeypatch)
    cold = pull("T", offset=5)
    client.send(cold)
    await until(lambda: disk.begun == 1)

    assert sent(await client.ask(send("T", b"meanwhile"))).queue_offset == 40
    assert offsets(await client.ask(pull("T", offset=41))) == (41, 0, 41)

    disk.free.set()
    answer = await client.receive()
    assert answer.opaque == cold.opaque
    assert [message.queue_offset for message in pulled(answer)] == list(range(5, 37))
    statistics = broker.store.reader.statistics
    assert (statistics.cold_reads, statistics.cold_bytes) == (1, len(answer.body))


async def test_a_full_pool_of_cold_reads_refuses_and_other_requests_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {"pullColdThreadPoolNums": 1, "pullColdThreadPoolQueueCapacity": 2}
    async with running_broker(tmp_path, **bounds) as broker, broker.client() as client:
        await _fill(client, "T", 3)
        disk = _Disk(broker, monkeypatch)
        first = pull("T")
        client.send(first)
        await until(lambda: disk.begun == 1)
        others = [pull("T") for _ in range(3)]
        client.send(*others)

        refused = await client.receive()
        assert (refused.opaque, refused.code) == (others[2].opaque, ResponseCode.SYSTEM_BUSY)
        assert str(refused.remark).startswith("[REJECTREQUEST]")
        assert sent(await client.ask(send("T"))).queue_offset == 3

        disk.free.set()
        answers = [await client.receive() for _ in range(3)]
        assert {answer.opaque for answer in answers} == {first.opaque, others[0].opaque, others[1].opaque}
        assert all(len(pulled(answer)) >= 3 for answer in answers)
        tiers = {tier.name: tier for tier in broker.broker.listeners.main.dispatcher.tiers()}
        assert tiers["pull_cold"].statistics.rejected_full == 1


async def test_no_more_is_read_for_a_client_that_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, pullColdThreadPoolNums=1) as broker, broker.client() as client:
        await _fill(client, "T", 3)
        disk = _Disk(broker, monkeypatch)
        tiers = {tier.name: tier for tier in broker.broker.listeners.main.dispatcher.tiers()}
        async with broker.client() as gone:
            gone.send(*[pull("T") for _ in range(20)])
            await until(lambda: tiers["pull"].statistics.waiting == 20)
            await until(lambda: disk.begun == 1)
        connections = broker.broker.listeners.main.connections
        await until(lambda: len(connections) == 1)
        disk.free.set()
        assert len(pulled(await client.ask(pull("T")))) == 3
        assert disk.begun == 2
        await until(lambda: tiers["pull"].statistics.waiting == 0)


@pytest.mark.parametrize("ends_in_time", [True, False])
async def test_a_graceful_shutdown_during_cold_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_in_time: bool
) -> None:
    """Waiting pulls are answered unless that takes longer than the time-out of the shutdown."""
    broker = RunningBroker(broker_configuration(tmp_path, pullColdThreadPoolNums=2))
    await broker.start()
    broker.broker.listeners.drain_seconds = 20.0 if ends_in_time else 0.05
    async with broker.client() as client:
        await _fill(client, "T", 3)
        disk = _Disk(broker, monkeypatch)
        client.send(*[pull("T") for _ in range(5)])
        await until(lambda: disk.begun == 2)
        stopping = asyncio.create_task(broker.stop())
        if ends_in_time:
            await asyncio.sleep(0)
            disk.free.set()
            assert [len(pulled(await client.receive())) for _ in range(5)] == [3] * 5
        await stopping
    disk.free.set()
    assert not (tmp_path / "store" / "abort").exists()
