"""Held pulls over the wire: what wakes them, how long they wait, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message import Message
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    offsets,
    pull,
    pulled,
    request,
    send,
    send_batch,
    sent,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

# More than a test waits for an answer: a pull that is answered earlier was woken.
_LONG_MS = 60_000
_PATIENT = {"longPollingMaxHoldMillis": _LONG_MS}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path, **_PATIENT) as running:
        yield running


async def _fill(client: RawClient, topic: str, count: int) -> None:
    client.send(*[send(topic, b"%d" % number) for number in range(count)])
    for _ in range(count):
        sent(await client.receive())


async def _beat(client: RawClient, command: RemotingCommand) -> None:
    answer, _ = await ask_among_notifications(client, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _held(broker: RunningBroker, client: RawClient, *pulls: RemotingCommand) -> None:
    """Send pulls that will be held, and wait until they are."""
    before = broker.held_pulls.count
    client.send(*pulls)
    await until(lambda: broker.held_pulls.count == before + len(pulls))


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_a_message_answers_a_held_pull(broker: RunningBroker, client: RawClient, code: int) -> None:
    await client.ask(create_topic("T"))
    async with broker.client() as producer:
        for offset in range(20):
            command = pull("T", offset=offset, suspend_ms=_LONG_MS, code=code)
            await _held(broker, client, command)
            sent(await producer.ask(send("T", b"now")))

            answer = await client.receive()

            assert answer.opaque == command.opaque
            assert [message.queue_offset for message in pulled(answer)] == [offset]
            assert offsets(answer) == (offset + 1, 0, offset + 1)
    assert broker.held_pulls.count == 0


async def test_messages_of_one_read_wake_a_pull_once(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(create_topic("T"))
    await _held(broker, client, pull("T", suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        producer.send(*[send("T", b"%d" % number) for number in range(10)])

        assert len(pulled(await client.receive())) == 10


async def test_a_batch_wakes_a_pull(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(create_topic("T"))
    await _held(broker, client, pull("T", suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        producer.send(send_batch("T", [Message("T", b"1"), Message("T", b"2")]))

        assert len(pulled(await client.receive())) == 2


async def test_a_pull_without_the_suspend_flag_is_answered_at_once(client: RawClient) -> None:
    await _fill(client, "T", 1)
    answer = await client.ask(pull("T", offset=1))
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_messages_of_other_queues_do_not_wake_a_pull(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(create_topic("T", 4))
    await client.ask(create_topic("U", 4))
    await _held(broker, client, pull("T", queue_id=1, suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        for topic, queue in (("T", 0), ("U", 1)):
            sent(await producer.ask(send(topic, b"other", queue_id=queue)))
        sent(await producer.ask(send("T", b"mine", queue_id=1)))

        assert [message.body for message in pulled(await client.receive())] == [b"mine"]


async def test_a_message_with_another_tag_does_not_answer_a_pull(
    broker: RunningBroker, client: RawClient
) -> None:
    await client.ask(create_topic("T"))
    await _held(broker, client, pull("T", subscription="a", suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        for _ in range(3):
            sent(await producer.ask(send("T", b"b", properties={"TAGS": "b"})))
        assert broker.held_pulls.count == 1
        sent(await producer.ask(send("T", b"a", properties={"TAGS": "a"})))

        answer = await client.receive()

    assert [message.body for message in pulled(answer)] == [b"a"]
    assert offsets(answer) == (4, 0, 4)


async def test_a_message_behind_many_skipped_ones_is_found_at_once(tmp_path: Path) -> None:
    """One wake-up searches more than one slice: no further wake-up would follow."""
    async with (
        running_broker(tmp_path, maxFilterMessageSize=200, **_PATIENT) as broker,
        broker.client() as client,
    ):
        await client.ask(create_topic("T"))
        await _held(broker, client, pull("T", subscription="a", suspend_ms=_LONG_MS))
        async with broker.client() as producer:
            others = [send("T", b"b", properties={"TAGS": "b"}) for _ in range(100)]
            producer.send(*others, send("T", b"a", properties={"TAGS": "a"}))

            assert [message.queue_offset for message in pulled(await client.receive())] == [100]


async def test_a_held_pull_expires_without_a_message(broker: RunningBroker, client: RawClient) -> None:
    await _fill(client, "T", 2)
    began = time.monotonic()

    answer = await client.ask(pull("T", offset=2, suspend_ms=300))

    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert time.monotonic() - began >= 0.3
    assert offsets(answer) == (2, 0, 2)
    assert broker.held_pulls.count == 0


async def test_an_expired_pull_tells_the_offset_behind_skipped_messages(
    broker: RunningBroker, client: RawClient
) -> None:
    await _fill(client, "T", 2)
    await _held(broker, client, pull("T", offset=2, subscription="a", suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        sent(await producer.ask(send("T", b"b", properties={"TAGS": "b"})))
    broker.held_pulls.clock = lambda: time.monotonic() + _LONG_MS / 1000

    answer = await client.receive()

    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert offsets(answer) == (3, 0, 3)


async def test_the_hold_time_is_bounded_by_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, longPollingMaxHoldMillis=200) as broker, broker.client() as client:
        await client.ask(create_topic("T"))
        began = time.monotonic()
        answer = await client.ask(pull("T", suspend_ms=_LONG_MS))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert time.monotonic() - began >= 0.2


async def test_without_long_polling_a_pull_is_held_for_the_short_time(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, longPollingEnable=False, shortPollingTimeMills=250) as broker,
        broker.client() as client,
    ):
        await client.ask(create_topic("T"))
        began = time.monotonic()
        answer = await client.ask(pull("T", suspend_ms=_LONG_MS))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert time.monotonic() - began >= 0.25


async def test_a_closed_connection_leaves_no_held_pulls(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(create_topic("T", 4))
    held = broker.held_pulls
    tiers = {tier.name: tier for tier in broker.broker.listeners.main.dispatcher.tiers()}
    async with broker.client() as leaving:
        await _held(broker, leaving, *[pull("T", queue_id=queue, suspend_ms=_LONG_MS) for queue in range(4)])
        await _held(broker, client, pull("T", suspend_ms=_LONG_MS))
        assert tiers["pull"].statistics.held == 5

    await until(lambda: held.count == 1)
    await until(lambda: tiers["pull"].statistics.held == 1)
    async with broker.client() as producer:
        sent(await producer.ask(send("T", b"for the remaining pull")))
    assert len(pulled(await client.receive())) == 1


async def test_held_pulls_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_PATIENT) as broker:
        async with broker.client() as client:
            await client.ask(create_topic("T", 4))
            pulls = [pull("T", queue_id=queue, suspend_ms=_LONG_MS) for queue in range(4)]
            await _held(broker, client, *pulls)
            stopping = asyncio.ensure_future(broker.broker.stop())

            answers = await client.until_closed()
            await stopping

        assert {answer.opaque for answer in answers} == {command.opaque for command in pulls}
        assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}


async def test_held_pulls_of_a_deleted_topic_are_answered(broker: RunningBroker, client: RawClient) -> None:
    await client.ask(create_topic("T"))
    await _held(broker, client, pull("T", suspend_ms=_LONG_MS))
    async with broker.client() as admin:
        await admin.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))

    answer = await client.receive()

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_held_pull_follows_a_changed_subscription(
    broker: RunningBroker, client: RawClient, member: RawClient
) -> None:
    await client.ask(create_topic("T"))
    await _beat(member, heartbeat("c1", "CG", {"T": "a"}, sub_version=1))
    await _held(broker, client, pull("T", subscription=None, sub_version=1, suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        sent(await producer.ask(send("T", b"b1", properties={"TAGS": "b"})))
        async with broker.client() as other:
            await _beat(other, heartbeat("c2", "CG", {"T": "b"}, sub_version=2))
            sent(await producer.ask(send("T", b"b2", properties={"TAGS": "b"})))

            answer = await client.receive()

    # Messages that the old subscription skipped are searched again.
    assert [message.body for message in pulled(answer)] == [b"b1", b"b2"]


async def test_a_reset_answers_a_held_pull(broker: RunningBroker, client: RawClient) -> None:
    await _fill(client, "T", 3)
    await _held(broker, client, pull("T", offset=3, suspend_ms=_LONG_MS))
    broker.offsets.assign_reset("CG", "T", 0, 1)
    async with broker.client() as producer:
        sent(await producer.ask(send("T")))

    answer = await client.receive()

    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert offsets(answer)[0] == 1


async def test_a_recreated_topic_wakes_its_new_pulls(broker: RunningBroker, client: RawClient) -> None:
    await _fill(client, "T", 3)
    await client.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))
    await client.ask(create_topic("T"))
    await _held(broker, client, pull("T", suspend_ms=_LONG_MS))
    async with broker.client() as producer:
        sent(await producer.ask(send("T", b"new")))

    assert [message.body for message in pulled(await client.receive())] == [b"new"]


@pytest.mark.parametrize("queues", [1, 500])
async def test_thousands_of_pulls_wait_without_work_and_are_all_woken(tmp_path: Path, queues: int) -> None:
    async with running_broker(tmp_path, **_PATIENT) as broker, broker.client() as client:
        await client.ask(create_topic("T", queues))
        wanted = [pull("T", queue_id=number % queues, suspend_ms=_LONG_MS) for number in range(5000)]
        await _held(broker, client, *wanted)
        looks = 0
        read_now = broker.store.read_now

        def counting_read(*arguments: object) -> object:
            nonlocal looks
            looks += 1
            return read_now(*arguments)  # type: ignore[arg-type]

        broker.store.read_now = counting_read  # type: ignore[assignment]
        await broker.held_pulls.check_all()
        broker.held_pulls.expire()
        await asyncio.sleep(0.25)
        assert looks == 0
        assert broker.held_pulls.count == 5000

        async with broker.client() as producer:
            for start in range(0, queues, 10):
                some = range(start, min(queues, start + 10))
                producer.send(*[send("T", b"%d" % queue, queue_id=queue) for queue in some])
                for _ in some:
                    sent(await producer.receive())
            answers = {(await client.receive()).opaque for _ in wanted}

        assert answers == {command.opaque for command in wanted}
        assert looks == 5000
        assert broker.held_pulls.count == 0


async def test_thousands_of_woken_pulls_do_not_delay_other_requests(
    broker: RunningBroker, client: RawClient
) -> None:
    """Their answers are sliced: between two slices the loop serves other requests."""
    await client.ask(create_topic("T"))
    await _held(broker, client, *[pull("T", suspend_ms=_LONG_MS) for _ in range(3000)])
    async with broker.client() as producer:
        producer.send(send("T", b"x"))
        left = [3000]
        while left[-1]:
            await asyncio.sleep(0)
            left.append(broker.held_pulls.count)
    assert max(before - after for before, after in pairwise(left)) < 100
    for _ in range(3000):
        assert len(pulled(await client.receive())) == 1
