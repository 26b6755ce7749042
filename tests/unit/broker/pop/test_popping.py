"""Pops, acknowledgements and redelivery, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.popping import Pop
from rmq_broker.store.api import StoreUnavailable
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.pop import OrderInfoTable
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.support.cold_log import make_cold
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of, messages_of, pop_broker, receipt_of

_QUEUE = QueueKey("T", GROUP, 0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    with pop_broker(tmp_path) as made:
        yield made


async def test_each_message_is_popped_once(broker: PopBroker) -> None:
    broker.put(5)
    assert bodies_of(broker.pop(most=2)) == [b"0", b"1"]
    rest = broker.pop(most=2)
    assert bodies_of(rest) == [b"2", b"3"]
    assert rest.rest == 1
    assert bodies_of(broker.pop()) == [b"4"]
    assert broker.pop().count == 0


async def test_a_pop_of_any_queue(broker: PopBroker) -> None:
    broker.put(2, queue_id=0)
    broker.put(2, queue_id=1)
    assert sorted(bodies_of(broker.pop(queue_id=-1))) == [b"0", b"0", b"1", b"1"]


async def test_a_message_is_redelivered_after_its_invisible_time_with_its_count(broker: PopBroker) -> None:
    broker.put(2)
    first = broker.pop(invisible_ms=10_000)
    broker.ack(first, 0)
    await broker.pass_seconds(9.9)
    assert broker.pop().count == 0
    await broker.pass_seconds(0.2)
    again = broker.pop()
    (message,) = messages_of(again)
    assert (message.body, message.reconsume_times, message.topic) == (b"1", 1, "T")
    assert message.properties["1ST_POP_TIME"] == str(first.pop_time)
    assert again.infos.start_offset_info == "1 0 0"
    assert broker.offsets.query(GROUP, "%RETRY%CG_T", 0) == 0


@pytest.mark.parametrize("most_retries", [0, 2])
async def test_a_maximum_of_n_means_n_plus_one_deliveries(broker: PopBroker, most_retries: int) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name=GROUP, retry_max_times=most_retries))
    broker.put(1)
    deliveries = 0
    while broker.pop(invisible_ms=1000).count:
        deliveries += 1
        await broker.pass_seconds(2)
    assert deliveries == most_retries + 1
    dead = broker.store.get("%DLQ%CG", 0, 0, 10, None)
    assert dead.count == 1
    assert b"DLQ_ORIGIN_TOPIC\x01T\x02" in dead.body
    assert len(broker.pops.in_flight) == 0


@pytest.mark.parametrize("version_2", [False, True])
async def test_both_forms_of_retry_topics(tmp_path: Path, version_2: bool) -> None:
    with pop_broker(tmp_path, enableRetryTopicV2=version_2) as broker:
        broker.put(1)
        for times in (1, 2):
            broker.pop(invisible_ms=1000)
            await broker.pass_seconds(2)
            topic = "%RETRY%CG+T" if version_2 else "%RETRY%CG_T"
            assert broker.store.max_offset(topic, 0) == times


async def test_messages_in_old_retry_topics_are_found_with_the_new_form(tmp_path: Path) -> None:
    with pop_broker(tmp_path) as broker:
        broker.put(1)
        broker.pop(invisible_ms=1000)
        await broker.pass_seconds(2)
        broker.settings.enable_retry_topic_v2 = True
        assert broker.pop().count == 1


@pytest.mark.parametrize("chance", [0, 1])
@pytest.mark.parametrize("version_2", [False, True])
async def test_both_forms_of_retry_topics_are_popped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_2: bool, chance: int
) -> None:
    with pop_broker(tmp_path, enableRetryTopicV2=version_2) as broker:
        broker.put(1)
        broker.pop(invisible_ms=1000)
        await broker.pass_seconds(2)
        for topic in ("%RETRY%CG_T", "%RETRY%CG+T"):
            broker.topics.update(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))
        broker.settings.enable_retry_topic_v2 = True
        monkeypatch.setattr(broker.pops.popping, "chance", SimpleNamespace(randrange=lambda end: chance))
        assert broker.pop().count == 1


async def test_changing_the_invisible_time_replaces_the_receipt(broker: PopBroker) -> None:
    broker.put(1)
    pop = broker.pop(invisible_ms=1000)
    acknowledging = broker.pops.acknowledging
    hidden = acknowledging.change_invisible_time(_QUEUE, receipt_of(pop), 0, 5000)
    assert hidden.pop_time > pop.pop_time, "the same millisecond needs another receipt"
    await broker.pass_seconds(2)
    assert broker.pop().count == 0
    with pytest.raises(CommandError) as refused:
        acknowledging.change_invisible_time(_QUEUE, receipt_of(pop), 0, 5000)
    assert refused.value.code == ResponseCode.NO_MESSAGE
    await broker.pass_seconds(4)
    assert broker.pop().count == 1


async def test_expired_receipts(broker: PopBroker) -> None:
    broker.put(1)
    pop = broker.pop(invisible_ms=1000)
    await broker.pass_seconds(3)
    with pytest.raises(CommandError, match="expired 2000 ms ago") as refused:
        broker.ack(pop, 0)
    assert refused.value.code == ResponseCode.NO_MESSAGE


async def test_acknowledgements_are_idempotent(broker: PopBroker) -> None:
    broker.put(2)
    pop = broker.pop()
    for _ in range(2):
        broker.ack(pop, 0)
        broker.ack(pop, 0, 1)
    with pytest.raises(CommandError) as refused:
        broker.ack(pop, 2)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_full_disk_loses_nothing(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.put(3)
    pop = broker.pop(most=1, invisible_ms=1000)
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise StoreUnavailable("the disk is full")

        patch.setattr(broker.store, "put", fail)
        assert broker.pop().count == 0
        with pytest.raises(CommandError) as refused:
            broker.ack(pop, 0)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await broker.pass_seconds(2)
    assert bodies_of(broker.pop()) == [b"1", b"2"]
    await broker.pass_seconds(2)
    assert bodies_of(broker.pop()) == [b"0"]


async def test_the_limit_of_messages_in_flight(tmp_path: Path) -> None:
    with pop_broker(tmp_path, enablePopMessageThreshold=True, popInflightMessageThreshold=2) as broker:
        broker.put(5)
        first = broker.pop(most=3)
        stopped = broker.pop()
        assert (stopped.count, stopped.rest) == (0, 2)
        broker.ack(first, 0)
        assert broker.pop().count == 2


async def test_a_full_disk_is_logged_once(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.put(1)
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise StoreUnavailable("the disk is full")

        patch.setattr(broker.store, "put", fail)
        for _ in range(3):
            assert broker.pop().is_blocked
    assert len(caplog.records) == 1
    assert broker.pop().count == 1


async def test_the_limit_of_pops_in_flight(tmp_path: Path) -> None:
    with pop_broker(tmp_path, popCkMaxBufferSize=2) as broker:
        broker.put(3)
        first = broker.pop(most=1)
        broker.pop(most=1)
        assert broker.pop().count == 0
        broker.ack(first, 0)
        assert broker.pop().count == 1


async def test_the_first_offset_of_a_new_group(tmp_path: Path) -> None:
    with pop_broker(tmp_path, initPopOffsetByCheckMsgInMem=False) as broker:
        broker.put(3)
        assert bodies_of(broker.pop(init_mode=1)) == [b"2"]
        broker.put(3, queue_id=1)
        assert broker.pop(queue_id=1, init_mode=0).count == 3


async def test_the_first_offset_of_a_new_group_while_the_queue_is_in_memory(broker: PopBroker) -> None:
    broker.put(3)
    assert broker.pop(init_mode=1).count == 3


async def test_the_next_pop_applies_a_reset(broker: PopBroker) -> None:
    broker.put(4)
    broker.pop()
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    assert bodies_of(broker.pop()) == [b"1", b"2", b"3"]


async def test_a_position_out_of_range(broker: PopBroker) -> None:
    broker.put(2)
    broker.offsets.commit(GROUP, "T", 0, 99)
    assert broker.pop().count == 0
    broker.put(1)
    assert bodies_of(broker.pop()) == [b"2"]


async def test_messages_that_the_filter_rejects_are_skipped(broker: PopBroker) -> None:
    broker.put(3)
    pop = broker.pop(tags_codes=frozenset({7}))
    assert (pop.count, pop.rest) == (0, 0)
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    assert broker.offsets.query(GROUP, "T", 0) == 3


async def test_messages_of_a_deleted_topic_are_not_redelivered(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(invisible_ms=1000)
    broker.topics.delete(["T"])
    await broker.pass_seconds(2)
    assert broker.store.max_offset("%RETRY%CG_T", 0) == 0
    assert len(broker.pops.in_flight) == 0


async def test_messages_of_a_deleted_group_are_not_redelivered(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(invisible_ms=1000)
    broker.groups.delete(GROUP)
    await broker.pass_seconds(2)
    assert broker.store.max_offset("%RETRY%CG_T", 0) == 0


# --- offsets ---


async def test_offsets_are_committed_once_their_check_points_are_flushed(broker: PopBroker) -> None:
    broker.put(4)
    broker.pop(most=2)
    end = broker.store.max_phy_offset()
    broker.pop(most=1)
    broker.pops.commit_flushed(end - 1)
    assert broker.offsets.query(GROUP, "T", 0) == 0
    broker.pops.commit_flushed(end)
    assert broker.offsets.query(GROUP, "T", 0) == 2
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    assert broker.offsets.query(GROUP, "T", 0) == 3


async def test_the_journal_is_released_once_the_acknowledgement_is_flushed(broker: PopBroker) -> None:
    positions = broker.pops.positions
    broker.put(2)
    pop = broker.pop()
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    assert positions.outstanding_from == 0
    flushed = broker.store.max_phy_offset()
    broker.ack(pop, 0, 1)
    broker.pops.commit_flushed(flushed)
    broker.pops.commit_flushed(flushed)
    assert positions.outstanding_from == 0
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    assert positions.outstanding_from == broker.pops.journal.end == 2


# --- in order ---


async def test_an_ordered_pop_blocks_the_queue_until_all_is_acknowledged(broker: PopBroker) -> None:
    broker.put(3)
    pop = broker.pop(in_order=True, most=2)
    assert broker.pop(in_order=True).count == 0
    broker.ack(pop, 1)
    assert broker.pop(in_order=True).count == 0
    broker.ack(pop, 0)
    assert bodies_of(broker.pop(in_order=True)) == [b"2"]
    assert broker.offsets.query(GROUP, "T", 0) == 2


async def test_an_ordered_pop_is_repeated_after_the_invisible_time(broker: PopBroker) -> None:
    broker.put(2)
    assert broker.pop(in_order=True, invisible_ms=1000).infos.order_count_info == "0 0 0"
    broker.clock.pass_seconds(2)
    again = broker.pop(in_order=True)
    assert bodies_of(again) == [b"0", b"1"]
    assert again.infos.order_count_info == "0 qo0%0 1;0 qo0%1 1;0 0 1"


async def test_a_repeated_attempt_gets_the_same_messages_and_does_not_count(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(in_order=True, attempt_id="a")
    again = broker.pop(in_order=True, attempt_id="a")
    assert bodies_of(again) == [b"0"]
    assert again.infos.order_count_info == "0 0 0"


async def test_an_ordered_pop_is_blocked_by_a_read_of_another_from_the_disk(broker: PopBroker) -> None:
    broker.put(1)
    make_cold(broker.store)
    gone = Pop("T", GROUP, 0, 1, 60_000, 0, True, None, partial(broker.store.get_now, tags_codes=None))
    walk = broker.pops.popping.walk(gone)
    next(walk)
    is_locked_out = broker.pop(in_order=True)
    assert (is_locked_out.count, is_locked_out.is_blocked) == (0, True)
    walk.close()
    assert bodies_of(broker.pop(in_order=True)) == [b"0"]
    assert not broker.pop(in_order=True).is_blocked, "no pop may have the messages behind those in flight"


async def test_a_receipt_is_refused_after_an_ordered_pop_was_repeated(broker: PopBroker) -> None:
    broker.put(1)
    late = broker.pop(in_order=True, invisible_ms=1000)
    broker.clock.pass_seconds(2)
    broker.pop(in_order=True)
    with pytest.raises(CommandError, match="popped again") as refused:
        broker.ack(late, 0)
    assert refused.value.code == ResponseCode.NO_MESSAGE
    with pytest.raises(CommandError):
        broker.pops.acknowledging.change_invisible_time(_QUEUE, receipt_of(late), 0, 1000)


async def test_a_forged_receipt_does_not_move_an_ordered_group(broker: PopBroker) -> None:
    broker.put(3)
    broker.clock.pass_seconds(1)
    pop = broker.pop(in_order=True)
    broker.pops.orders.clear(_QUEUE)
    for offset in (0, 2, 3, -1, 2**63 - 1):
        with pytest.raises(CommandError, match="message 0 is next") as refused:
            broker.ack(pop, offset)
        assert refused.value.code == ResponseCode.NO_MESSAGE
    assert broker.offsets.query(GROUP, "T", 0) == 0


async def test_a_receipt_from_before_the_start_is_valid_for_the_next_message(broker: PopBroker) -> None:
    """A crash may lose an ordered pop."""
    broker.put(1)
    pop = broker.pop(in_order=True)  # in the millisecond of the start
    broker.pops.orders.clear(_QUEUE)
    broker.ack(pop, 0)
    assert broker.offsets.query(GROUP, "T", 0) == 1
    with pytest.raises(CommandError, match="message 1 is next"):
        broker.ack(pop, 1)
    assert broker.offsets.query(GROUP, "T", 0) == 1


async def test_a_queue_is_unblocked_when_the_invisible_time_ends(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(in_order=True, invisible_ms=1000)
    freed: list[QueueKey] = []
    broker.pops.orders.wake_unblocked(freed.append)
    assert freed == []
    broker.clock.pass_seconds(1)
    broker.pops.orders.wake_unblocked(freed.append)
    assert freed == [_QUEUE]


async def test_queues_that_are_unblocked_together_are_woken_in_slices(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = broker.pops.orders
    for number in range(300):
        orders.popped(QueueKey("T", GROUP, number), broker.clock(), 1000, (0,), None)
    woken: list[QueueKey] = []
    monkeypatch.setattr(broker.pops, "_unblocked", woken.append)
    broker.clock.pass_seconds(1)
    broker.pops.tick()
    counts = [len(woken)]
    while len(woken) < 300:
        broker.pops.tick()  # begins no second round
        await asyncio.sleep(0)
        counts.append(len(woken))
    assert counts == [128, 256, 300]


async def test_the_file_of_ordered_pops_is_prepared_in_steps(broker: PopBroker) -> None:
    orders = broker.pops.orders
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1000, write_queue_nums=1000))
    for number in range(1000):
        orders.popped(QueueKey("T", GROUP, number), broker.clock(), 1000, (0, 1), None)
    steps = orders.prepare()
    next(steps)
    orders.ack(QueueKey("T", GROUP, 0), 0, broker.clock())
    orders.clear(QueueKey("T", GROUP, 1))
    orders.clear(QueueKey("T", GROUP, 999))
    assert len(list(steps)) >= 6
    content = orders.encode()
    written = OrderInfoTable.decode(content).table["T@CG"]
    assert written == orders._table["T@CG"] and len(written) == 998 and written[0].commit_offset_bit == 1
    orders.decode(content)
    orders.clear(QueueKey("T", GROUP, 5))
    assert 5 not in OrderInfoTable.decode(orders.encode()).table["T@CG"]


async def test_stale_unblock_times_are_bounded(broker: PopBroker) -> None:
    broker.put(1)
    pop = broker.pop(in_order=True, invisible_ms=1000)
    orders = broker.pops.orders
    for seconds in range(5000, 1000, -1):
        orders.change_visible_time(_QUEUE, 0, pop.pop_time, pop.pop_time + seconds * 1000)
    assert len(orders._unblock_heap) < 2000
    freed: list[QueueKey] = []
    broker.clock.pass_seconds(1000)
    orders.wake_unblocked(freed.append)
    assert freed == []
    broker.clock.pass_seconds(1)
    orders.wake_unblocked(freed.append)
    broker.clock.pass_seconds(5000)
    orders.wake_unblocked(freed.append)
    assert freed == [_QUEUE]


async def test_the_file_of_ordered_pops(broker: PopBroker) -> None:
    broker.put(2)
    pop = broker.pop(in_order=True)
    broker.ack(pop, 0)
    content = broker.pops.orders.encode()
    assert content.startswith(b'{"table":{"T@CG":{0:{')
    assert b'"cm":1,' in content and b'"o":[0,1]' in content
    broker.pops.orders.clear(_QUEUE)
    broker.pops.orders.decode(content)
    assert broker.pop(in_order=True).count == 0
    broker.clock.pass_seconds(25 * 3600)
    assert broker.pops.orders.encode() == b'{"table":{}}'
