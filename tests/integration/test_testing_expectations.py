"""`rmq_testing`: publishing, expectations and the progress of groups, with a broker for the session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_client import (
    ConsumeResult,
    ConsumerTiming,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SimpleConsumer,
    Sql,
)
from rmq_remoting.daemon.configuration import SettingsError
from rmq_testing import BrokerForTests, ExpectationFailed
from tests.support.push_consumers import QUICK

# Commits come too late for a test: `consumed` must not wait for them.
_SLOW_COMMITS = ConsumerTiming(commit_seconds=60.0)


async def _accept(messages: list[MessageExt]) -> None:
    pass


def _failure(error: pytest.ExceptionInfo[ExpectationFailed]) -> list[str]:
    return [line.strip() for line in str(error.value).splitlines()]


async def test_a_published_message_is_what_a_producer_would_send(
    rmq_broker: BrokerForTests, rmq_topic: str
) -> None:
    published = await rmq_broker.publish(rmq_topic, "grüße", tags="a", keys=["1", "2"], properties={"p": "x"})
    (stored,) = await rmq_broker.expect(rmq_topic)
    assert (stored.body, stored.tags, stored.keys) == ("grüße".encode(), "a", ["1", "2"])
    assert stored.user_properties == {"p": "x"}
    assert stored.msg_id == published.msg_id
    assert (stored.queue_id, stored.queue_offset) == (published.queue_id, published.queue_offset)


async def test_queues_take_turns_unless_one_is_chosen(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    turns = [await rmq_broker.publish(rmq_topic, b"x") for _ in range(5)]
    assert [message.queue_id for message in turns] == [0, 1, 2, 3, 0]
    assert (await rmq_broker.publish(rmq_topic, b"x", queue_id=2)).queue_id == 2
    with pytest.raises(ValueError, match=r"queue_id=4: topic .* has the queues 0 to 3"):
        await rmq_broker.publish(rmq_topic, b"x", queue_id=4)


async def test_each_message_is_expected_once(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_producer: Producer
) -> None:
    for body in (b"1", b"2", b"3"):
        await rmq_producer.send(Message(rmq_topic, body))
    assert [message.body for message in await rmq_broker.expect(rmq_topic, 2)] == [b"1", b"2"]
    assert [message.body for message in await rmq_broker.expect(rmq_topic)] == [b"3"]
    await rmq_broker.expect_nothing(rmq_topic, within_seconds=0.02)
    assert [message.body for message in await rmq_broker.messages(rmq_topic)] == [b"1", b"2", b"3"]


async def test_expect_waits_for_messages_to_come(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    waiting = asyncio.create_task(rmq_broker.expect(rmq_topic, 2))
    await rmq_broker.publish(rmq_topic, b"1")
    await rmq_broker.publish(rmq_topic, b"2")
    assert len(await waiting) == 2


async def test_a_failed_expectation_shows_what_came_instead(
    rmq_broker: BrokerForTests, rmq_topic: str
) -> None:
    await rmq_broker.publish(rmq_topic, b"one", tags="paid", keys="4711")
    await rmq_broker.publish("elsewhere", b"x" * 100)
    await rmq_broker.publish(Message(rmq_topic, b"late", delay_level=3))
    with pytest.raises(ExpectationFailed) as failed:
        await rmq_broker.expect(rmq_topic, 2, timeout_seconds=0)
    assert _failure(failed) == [
        f"expected 2 messages in topic {rmq_topic!r} within 0 s, got 1",
        "came: queue 0 offset 0 tags=paid keys=4711 body=b'one'",
        "delayed: 1 message, the first is due in 10.0 s; advance() lets time pass",
        f"in topic 'elsewhere': 1 message, the latest queue 0 offset 0 body={b'x' * 80!r}…",
    ]


async def test_a_misspelled_topic_is_recognized(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    with pytest.raises(ExpectationFailed) as failed:
        await rmq_broker.expect(f"{rmq_topic}s", timeout_seconds=0)
    assert _failure(failed)[-1] == (f"the broker has no topic '{rmq_topic}s'; did you mean {rmq_topic!r}?")


async def test_an_unexpected_message_is_shown(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    await rmq_broker.publish(rmq_topic, b"surprise")
    with pytest.raises(ExpectationFailed, match=r"expected no further message(.|\n)*body=b'surprise'"):
        await rmq_broker.expect_nothing(rmq_topic, within_seconds=0)


async def test_an_empty_body_is_refused(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    with pytest.raises(ValueError, match="has an empty body"):
        await rmq_broker.publish(rmq_topic)


@pytest.mark.parametrize(("count", "seconds"), [(0, 1.0), (1, -1.0)])
async def test_impossible_expectations_are_refused(
    rmq_broker: BrokerForTests, rmq_topic: str, count: int, seconds: float
) -> None:
    with pytest.raises(ValueError, match="must"):
        await rmq_broker.expect(rmq_topic, count, seconds)


async def test_consumed_does_not_wait_for_the_commit(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    got: list[MessageExt] = []

    async def listener(messages: list[MessageExt]) -> None:
        got.extend(messages)

    async with PushConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics=[rmq_topic],
        listener=listener,
        consume_from="first",
        timing=_SLOW_COMMITS,
    ):
        for _ in range(8):
            await rmq_broker.publish(rmq_topic, b"x")
        await rmq_broker.consumed(rmq_group)
        assert len(got) == 8


async def test_what_a_group_has_left_is_told(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    with pytest.raises(ExpectationFailed, match=f"does not know group '{rmq_group}'"):
        await rmq_broker.consumed(rmq_group, timeout_seconds=0)
    blocked = asyncio.Event()

    async def listener(messages: list[MessageExt]) -> None:
        await blocked.wait()

    async with PushConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics=[rmq_topic],
        listener=listener,
        consume_from="first",
        timing=QUICK,
    ):
        await rmq_broker.publish(rmq_topic, b"x")
        with pytest.raises(ExpectationFailed, match=f"left in topic '{rmq_topic}': 1"):
            await rmq_broker.consumed(rmq_group, rmq_topic, timeout_seconds=0.05)
        blocked.set()
        await rmq_broker.consumed(rmq_group)


@pytest.mark.parametrize("wanted", ["paid", Sql("TAGS = 'paid'")], ids=["tags", "SQL"])
async def test_messages_that_the_filter_excludes_do_not_count(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, wanted: str | Sql
) -> None:
    for tags in ("paid", "open", "open", "paid", "open"):
        await rmq_broker.publish(rmq_topic, tags, tags=tags, queue_id=0)
    async with PushConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics={rmq_topic: wanted},
        listener=_accept,
        consume_from="first",
        timing=QUICK,
    ):
        await rmq_broker.consumed(rmq_group)


async def test_popped_messages_are_consumed_with_their_acknowledgement(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    await rmq_broker.publish(rmq_topic, b"popped")
    async with SimpleConsumer(
        rmq_broker.namesrv_address, group=rmq_group, topics=[rmq_topic], consume_from="first"
    ) as consumer:
        (message,) = await consumer.receive(max_messages=1, timeout_seconds=5)
        with pytest.raises(ExpectationFailed, match="popped, and not acknowledged: 1"):
            await rmq_broker.consumed(rmq_group, rmq_topic, timeout_seconds=0)
        await consumer.ack(message)
        await rmq_broker.consumed(rmq_group, rmq_topic)


async def test_dead_letters_come_after_the_last_retry(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    async def refuse(messages: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.LATER

    async with PushConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics=[rmq_topic],
        listener=refuse,
        consume_from="first",
        max_reconsume_times=1,
        timing=QUICK,
    ):
        await rmq_broker.publish(rmq_topic, b"poison")
        await rmq_broker.expect_redelivery(rmq_group)
        assert await rmq_broker.dead_letters(rmq_group) == []
        with pytest.raises(ExpectationFailed, match="waiting for redelivery: 1"):
            await rmq_broker.consumed(rmq_group, timeout_seconds=0.05)
        await rmq_broker.advance(10)
        (dead,) = await rmq_broker.expect_dead_letters(rmq_group)
        assert dead.body == b"poison"
        await rmq_broker.consumed(rmq_group)
    assert [message.body for message in await rmq_broker.dead_letters(rmq_group)] == [b"poison"]


async def test_wrong_settings_are_explained() -> None:
    with pytest.raises(SettingsError, match="autoCreateTopicEnable"):
        async with BrokerForTests(settings={"autoCreateTopicEnabled": "true"}):
            pass
    with pytest.raises(ValueError, match="queues=0 of topic 'orders': must be at least 1"):
        async with BrokerForTests(topics={"orders": 0}):
            pass
    with pytest.raises(ValueError, match="topics=5: must be a list of str, not an int"):
        BrokerForTests(topics=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"topics\['orders'\]='4': must be a whole number, not a str"):
        BrokerForTests(topics={"orders": "4"})
    with pytest.raises(ValueError, match="settings='traceOn': must be a dict of values"):
        BrokerForTests(settings="traceOn")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="folder=5: must be the path of a folder"):
        BrokerForTests(folder=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the topic name 'a b' is illegal"):
        async with BrokerForTests(topics="a b"):
            pass


async def test_a_broker_can_be_started_again_and_needs_a_start(tmp_path: Path) -> None:
    broker = BrokerForTests(folder=str(tmp_path), topics="orders")
    with pytest.raises(RuntimeError, match="was not started"):
        _ = broker.namesrv_address
    with pytest.raises(RuntimeError, match="was not started"):
        await broker.expect("orders")
    async with broker:
        await broker.publish("orders", "1")
        with pytest.raises(ExpectationFailed, match="no topic 'o'"):
            await broker.expect("o", timeout_seconds=0)
    async with broker:
        assert [message.body for message in await broker.messages("orders")] == [b"1"]
        await broker.expect_nothing("orders", within_seconds=0)
