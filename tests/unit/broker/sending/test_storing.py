"""Storing planned sends: the queues of their messages, and the counters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.delivery.message_writer import Written
from rmq_broker.store.api import Placed, PlacedBatch, StoreUnavailable
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.message import Message
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.clock import START_MS
from tests.unit.broker.delivery.parts import SCHEDULE
from tests.unit.broker.sending.parts import SendBroker, target

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER = "rmq_sys_wheel_timer"


@pytest.fixture
async def sending(tmp_path: Path) -> AsyncIterator[SendBroker]:
    sending = SendBroker(tmp_path)
    yield sending
    sending.store.close()


async def test_a_plain_message(sending: SendBroker) -> None:
    _, stored = sending.send(target(queue_id=2))

    (message,) = sending.stored("T", 2)
    assert stored == Placed(message.physical_offset, 0, message.store_size)
    assert (message.body, message.born_timestamp) == (b"body", START_MS)
    counted = sending.statistics.of_topic("T")
    assert (counted.put_messages, counted.put_bytes) == (1, message.store_size)
    assert counted.put_sizes.total == message.store_size


async def test_a_batch(sending: SendBroker) -> None:
    _, stored = sending.send(target(batch=True), encode_batch([Message("T", b"1"), Message("T", b"22")]))

    messages = sending.stored("T")
    sizes = [message.store_size for message in messages]
    offsets = [message.physical_offset for message in messages]
    assert stored == PlacedBatch(offsets, sizes, sum(sizes), 0)
    counted = sending.statistics.of_topic("T")
    assert (counted.put_messages, counted.put_bytes) == (2, sum(sizes))


async def test_a_unit_is_one_record_and_counts_all_its_messages(sending: SendBroker) -> None:
    sending.topics.update(TopicConfig(topic_name="U"), {"+queue.type": "BatchCQ"})
    body = encode_batch([Message("U", b"1"), Message("U", b"2")])

    for expected_offset in (0, 2):
        _, stored = sending.send(target("U", batch=True), body)
        assert stored.queue_offset == expected_offset

    assert [message.body for message in sending.stored("U")] == [b"1", b"2"] * 2
    counted = sending.statistics.of_topic("U")
    assert (counted.put_messages, counted.put_sizes.counts[0]) == (4, 2)


@pytest.mark.parametrize(
    ("to", "properties", "stored_in", "timer_out_ms"),
    [
        (target(), b"DELAY\x013\x02", (SCHEDULE, 2), None),
        (target(), b"TIMER_DELAY_SEC\x013\x02", (TIMER, 0), START_MS + 2000),
        (target(), b"TRAN_MSG\x01true\x02", (HALF, 0), None),
        (target(sys_flag=MessageSysFlag.TRANSACTION_PREPARED), b"", (HALF, 0), None),
        (target("%RETRY%g", reconsume_times=17), b"DELAY\x013\x02", ("%DLQ%g", 0), None),
    ],
)
async def test_redirected_messages(
    sending: SendBroker,
    to: object,
    properties: bytes,
    stored_in: tuple[str, int],
    timer_out_ms: int | None,
) -> None:
    plan, stored = sending.send(to, properties=properties)  # type: ignore[arg-type]

    (message,) = sending.stored(*stored_in)
    assert stored == Written(message.physical_offset, 0, message.store_size, timer_out_ms)
    assert message.properties["UNIQ_KEY"] == plan.unique_key.decode() == "MADE"
    assert sending.statistics.of_topic(stored_in[0]).put_messages == 1
    assert sending.statistics.of_topic("T").put_messages == 0


async def test_how_long_each_store_took_is_counted(sending: SendBroker) -> None:
    sending.send(target())
    sending.send(target(batch=True), encode_batch([Message("T", b"1")] * 3))
    sending.send(target(), properties=b"DELAY\x013\x02")
    sending.statistics.put_times.end_minute()
    counts = sending.statistics.put_times.distribution().split("]:")[1:]
    assert sum(int(count.split(" ")[0]) for count in counts) == 3


async def test_nothing_is_counted_when_the_store_is_closed(sending: SendBroker) -> None:
    sending.store.close()
    with pytest.raises(StoreUnavailable):
        sending.send(target())
    assert sending.statistics.of_topic("T").put_messages == 0
