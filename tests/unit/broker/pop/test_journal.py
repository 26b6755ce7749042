"""Journal entries refer to messages before them in the log, whatever the clock says."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from rmq_broker.pop.journal_reader import JournalReader
from rmq_broker.pop.popping import Pop
from rmq_broker.pop.recovery import Recovery
from rmq_broker.store.api import ColdRead, GetResult
from rmq_broker.topics.names import revive_topic
from rmq_remoting.bodies.topic import TopicConfig
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of


@pytest.mark.parametrize("in_order", [False, True])
async def test_recovery_after_the_clock_was_set_back(broker: PopBroker, in_order: bool) -> None:
    offsets = broker.offsets.encode()
    broker.put(2)
    broker.clock.now_ms -= 5
    broker.ack(broker.pop(in_order=in_order), 0, 1)
    async with opened_again(broker, offsets) as again:
        assert again.pop(in_order=in_order).count == 0


async def test_a_recreated_topic_does_not_get_old_check_points(broker: PopBroker) -> None:
    broker.topics.update(TopicConfig(topic_name="Other", read_queue_nums=1, write_queue_nums=1))
    broker.put(1, topic="Other")
    _pop_for_long(broker, "Other")  # the journal is read from here on
    broker.put(3)
    broker.pop(invisible_ms=60_000)
    broker.topics.delete(["T"])
    broker.offsets.remove_topic("T")
    broker.store.delete_topics(["T"]).result()
    broker.clock.pass_seconds(1)
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    broker.put(3)
    broker.ack(broker.pop(), 0, 1, 2)
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    async with opened_again(broker, broker.offsets.encode()) as again:
        assert [point.key.topic for point in again.pops.in_flight] == ["Other"]
        await again.pass_seconds(61)
        assert again.pop().count == 0


async def test_a_reset_of_a_recreated_topic(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(3)
    broker.pop(most=1)
    broker.offsets.assign_reset(GROUP, "T", 0, 2)
    assert bodies_of(broker.pop(most=1)) == [b"2"]
    broker.topics.delete(["T"])
    broker.offsets.remove_topic("T")
    broker.store.delete_topics(["T"]).result()
    broker.put(4)
    async with opened_again(broker, offsets) as again:
        assert again.pop().count == 4


async def test_a_pop_under_way_does_not_undo_a_reset(broker: PopBroker) -> None:
    broker.put(4)
    broker.ack(broker.pop(most=2), 0, 1)
    walk = broker.pops.popping.walk(pop := _cold_pop())
    next(walk)
    broker.offsets.assign_reset(GROUP, "T", 0, 0)
    offsets = broker.offsets.encode()
    result = broker.store.get_now("T", 0, 2, 1, None)
    assert isinstance(result, GetResult)
    with pytest.raises(StopIteration):
        walk.send(result)
    assert bodies_of(pop) == [b"2"]
    async with opened_again(broker, offsets) as again:
        assert bodies_of(again.pop(most=2)) == [b"0", b"1"]


@pytest.mark.parametrize("written", ["before the reset", "after the reset"])
async def test_pops_after_a_reset_are_recovered(broker: PopBroker, written: str) -> None:
    broker.put(4)
    broker.ack(broker.pop(), 0, 1, 2, 3)
    offsets = broker.offsets.encode()
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    if written == "after the reset":
        offsets = broker.offsets.encode()
    broker.ack(broker.pop(most=1), 1)
    async with opened_again(broker, offsets) as again:
        assert bodies_of(again.pop()) == [b"2", b"3"]


async def test_two_crashes_after_a_reset_that_was_not_applied(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(4)
    broker.ack(broker.pop(), 0, 1, 2, 3)
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    async with opened_again(broker, offsets) as again:
        again.ack(again.pop(most=1), 1)
        async with opened_again(again, offsets) as third:
            assert bodies_of(third.pop()) == [b"2", b"3"]


async def test_complete_check_points_are_not_recovered(broker: PopBroker) -> None:
    broker.put(1, queue_id=1)
    broker.pop(queue_id=1, invisible_ms=3_600_000)  # the journal is read from here on
    broker.put(3)
    for number in range(3):
        broker.ack(broker.pop(most=1), number)
    pops = broker.pops
    settings = broker.settings
    topic = revive_topic(settings.broker_cluster_name)
    journal = JournalReader(broker.store, topic, settings.broker_name)
    recovery = Recovery(journal, pops.positions, broker.offsets, pops.orders, broker.store)
    recovered = recovery.run(topic, 0, settings.config_dir / "timercheck")
    recovery.apply()
    assert [point.key.queue_id for point in recovered.points] == [1]
    assert recovered.entries_read == 7


def _pop_for_long(broker: PopBroker, topic: str) -> None:
    pop = Pop(
        topic,
        GROUP,
        0,
        32,
        3_600_000,
        0,
        False,
        None,
        lambda name, queue_id, offset, count: broker.store.get_now(name, queue_id, offset, count, None),
    )
    assert not list(broker.pops.popping.walk(pop))
    assert pop.count == 1


def _cold_pop() -> Pop:
    """A pop whose read needs the disk."""
    return Pop(
        "T",
        GROUP,
        0,
        1,
        60_000,
        0,
        False,
        None,
        lambda name, queue_id, offset, count: Mock(spec=ColdRead),
    )
