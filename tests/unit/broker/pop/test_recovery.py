"""Recovery after a crash, and of directories that Apache's broker has left."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmq_broker.pop.check_point import CheckPoint, CheckPointKey
from rmq_broker.store.api import MessageStore
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_stored_message
from tests.support.clock import Clock
from tests.support.golden_store import SETTINGS, manifest, unpack
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of, pop_broker


async def test_messages_popped_since_the_offsets_were_written(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(4)
    first = broker.pop(most=2, invisible_ms=10_000)
    broker.ack(first, 1)
    async with opened_again(broker, offsets) as again:
        assert bodies_of(again.pop()) == [b"2", b"3"]
        await again.pass_seconds(11)
        assert bodies_of(again.pop()) == [b"0"]


async def test_receipts_stay_valid_after_a_crash(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(1)
    pop = broker.pop()
    async with opened_again(broker, offsets) as again:
        again.ack(pop, 0)
        assert len(again.pops.in_flight) == 0


async def test_a_redelivered_message_is_not_redelivered_again(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(2)
    broker.pop(invisible_ms=1000)
    await broker.pass_seconds(2)
    async with opened_again(broker, offsets) as again:
        assert len(again.pops.in_flight) == 0
        await again.pass_seconds(2)
        assert again.store.max_offset("%RETRY%CG_T", 0) == 2


async def test_a_reset_before_the_offsets_were_written_counts(broker: PopBroker) -> None:
    broker.put(4)
    broker.ack(broker.pop(), 0, 1, 2, 3)
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    async with opened_again(broker, broker.offsets.encode()) as again:
        assert bodies_of(again.pop()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("in_order", [False, True])
async def test_a_reset_counts_although_earlier_pops_are_not_included(
    broker: PopBroker, in_order: bool
) -> None:
    broker.put(6)
    broker.ack(broker.pop(most=2, in_order=in_order), 0, 1)
    broker.ack(broker.pop(most=2, in_order=in_order), 2, 3)
    # The group is at 4; it is set back to 1, which is written before the log is flushed.
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    async with opened_again(broker, broker.offsets.encode()) as again:
        assert bodies_of(again.pop(most=2, in_order=in_order)) == [b"1", b"2"]


@pytest.mark.parametrize("in_order", [False, True])
async def test_an_applied_reset_is_not_applied_again(broker: PopBroker, in_order: bool) -> None:
    broker.put(4)
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    offsets = broker.offsets.encode()
    broker.ack(broker.pop(most=2, in_order=in_order), 1, 2)
    async with opened_again(broker, offsets) as again:
        assert not again.offsets.has_reset(GROUP, "T", 0)
        assert bodies_of(again.pop(in_order=in_order)) == [b"3"]


async def test_skipped_messages_and_messages_after_them(broker: PopBroker) -> None:
    broker.put(1)
    broker.ack(broker.pop(), 0)
    offsets = broker.offsets.encode()
    broker.put(3)
    assert broker.pop(tags_codes=frozenset({7})).count == 0
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    broker.put(2)
    broker.ack(broker.pop(), 4, 5)
    async with opened_again(broker, offsets) as again:
        assert again.pop().count == 0


async def test_a_recreated_topic_begins_without_state(broker: PopBroker) -> None:
    broker.put(3)
    broker.ack(broker.pop(), 0, 1, 2)
    broker.topics.delete(["T"])
    broker.offsets.remove_topic("T")
    broker.store.delete_topics(["T"]).result()
    offsets = broker.offsets.encode()
    broker.clock.pass_seconds(1)
    broker.put(4)
    async with opened_again(broker, offsets) as again:
        assert again.pop().count == 4


async def test_order_is_restored(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(4)
    pop = broker.pop(in_order=True, most=3)
    broker.ack(pop, 0)
    broker.ack(pop, 2)
    async with opened_again(broker, offsets) as again:
        assert again.pop(in_order=True).count == 0
        again.ack(pop, 1)
        assert bodies_of(again.pop(in_order=True)) == [b"3"]


# --- Apache's ---


async def test_check_points_are_written_like_those_of_apaches_broker(tmp_path: Path) -> None:
    rows = {row["uniqKey"]: row for row in manifest("clean") if row["topic"] == "rmq_sys_wheel_timer"}
    row = rows["TopicPop@1@0@CG_pop@1795221354096@broker-a@ck"]
    key = CheckPointKey("TopicPop", "CG_pop", 1, 0, 1795221354096, "broker-a")
    with pop_broker(tmp_path, Clock(row["bornTimestamp"])) as broker:
        point = CheckPoint(key, 60_000, (0, 1, 2, 3, 4), 0)
        broker.pops.journal.check_point(point)
        broker.pops.journal.ack(point, [0])
        written = [_record(broker.store, number) for number in (0, 1)]
    for message, expected in zip(
        written, (row, rows["TopicPop@1@0@CG_pop@1795221354096@broker-a@ack"]), strict=True
    ):
        assert message.properties == expected["properties"]
        assert hashlib.sha256(message.body).hexdigest() == expected["bodySha256"]
        assert message.queue_id == expected["queueId"]


_KEYS = {key: value for key, value in SETTINGS.items() if key != "mappedFileSizeTimerLog"}


async def test_a_directory_of_apaches_broker(tmp_path: Path) -> None:
    """Three pops: two that it redelivered or saw acknowledged, and one whose invisible time has not ended."""
    store = unpack("clean", tmp_path)
    clock = Clock(1_795_221_500_000)
    with pop_broker(store, clock, **_KEYS) as broker:
        broker.offsets.decode((store / "config" / "consumerOffset.json").read_bytes())
        await broker.pops.load()
        (point,) = broker.pops.in_flight
        assert point.key == CheckPointKey("TopicPop", "CG_pop", 0, 0, 1_795_221_354_349, "broker-a")
        assert point.open_offsets() == [0, 1, 2, 3, 4]
        committed = broker.offsets.offsets_of("CG_pop", "TopicPop")
        assert committed == {0: 5, 1: 10}
        offsets = broker.offsets.encode()
    with pop_broker(store, clock, **_KEYS) as again:
        again.offsets.decode(offsets)
        await again.pops.load()
        assert [point.key for point in again.pops.in_flight] == [point.key]


async def test_check_points_in_the_revive_topic_of_apaches_broker(tmp_path: Path) -> None:
    """Its timer has delivered two check points that its revival did not process: they are redelivered."""
    store = unpack("clean", tmp_path)
    with pop_broker(store, Clock(1_795_221_500_000), **_KEYS) as broker:
        broker.offsets.decode((store / "config" / "consumerOffset.json").read_bytes())
        broker.offsets.remove_group("CID_RMQ_SYS_REVIVE_GROUP")
        await broker.pops.load()
        remaining = sorted((point.key.queue_id, *point.open_offsets()) for point in broker.pops.in_flight)
        assert remaining == [(0, 0, 1, 2, 3, 4), (1, 3, 4), (1, 8, 9)]

        def done() -> list[int]:
            group, topic = "CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_DefaultCluster"
            return [broker.offsets.query(group, topic, queue) for queue in (0, 1)]

        # Committed only once the journal, which now holds them, is flushed.
        broker.pops.commit_flushed(broker.store.max_phy_offset() - 1)
        assert done() == [-1, -1]
        broker.pops.commit_flushed(broker.store.max_phy_offset())
        assert done() == [3, 3]


def _record(store: MessageStore, number: int) -> MessageExt:
    entries = store.queue_entries("rmq_sys_wheel_timer", 0, number, 1)
    assert entries
    record = store.record_at(entries[0][0])
    assert record is not None
    return decode_stored_message(record)
