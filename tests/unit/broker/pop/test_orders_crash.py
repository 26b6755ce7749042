"""Ordered pops after a crash."""

from __future__ import annotations

import pytest

from rmq_broker.pop.check_point import QueueKey
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of, receipt_of

_QUEUE = QueueKey("T", GROUP, 0)


async def test_an_acknowledgement_from_before_a_reset_does_not_undo_it(broker: PopBroker) -> None:
    broker.put(6)
    broker.ack(broker.pop(in_order=True, most=4), 0, 1, 2, 3)
    pop = broker.pop(in_order=True, most=2)
    broker.offsets.assign_reset(GROUP, "T", 0, 1)
    offsets = broker.offsets.encode()
    broker.ack(pop, 4)
    broker.ack(broker.pop(in_order=True, most=1), 1)
    async with opened_again(broker, offsets) as again:
        assert bodies_of(again.pop(in_order=True, most=2)) == [b"2", b"3"]


async def test_the_receipt_of_a_second_pop_stays_valid(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(4)
    broker.ack(broker.pop(in_order=True, most=2), 0, 1)
    broker.clock.pass_seconds(1)
    second = broker.pop(in_order=True, most=2)
    async with opened_again(broker, offsets) as again:
        again.ack(second, 2)
        async with opened_again(again, offsets) as third:
            third.ack(second, 3)
            assert third.offsets.query(GROUP, "T", 0) == 4


async def test_a_batch_of_acknowledgements_of_a_lost_pop(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(2)
    receipt = receipt_of(broker.pop(in_order=True))
    async with opened_again(broker, offsets) as again:
        acknowledging = again.pops.acknowledging
        found = acknowledging.offsets_of(_QUEUE, receipt, 0b11)
        assert found == [0, 1]
        acknowledging.ack(_QUEUE, receipt, found)
        assert again.offsets.query(GROUP, "T", 0) == 2
        absurd = acknowledging.offsets_of(_QUEUE, receipt, (1 << 1000) - 4)
        with pytest.raises(CommandError) as raised:
            acknowledging.ack(_QUEUE, receipt, absurd)
        assert raised.value.code == ResponseCode.NO_MESSAGE
        assert len(absurd) == 32


async def test_consumed_messages_do_not_block_the_queue(broker: PopBroker) -> None:
    broker.put(3)
    pop = broker.pop(in_order=True, most=2, invisible_ms=3_600_000)
    orders = broker.pops.orders.encode()
    broker.ack(pop, 0, 1)
    for _ in range(3):
        broker.pops.commit_flushed(broker.store.max_phy_offset())
    async with opened_again(broker, broker.offsets.encode(), orders) as again:
        assert bodies_of(again.pop(in_order=True)) == [b"2"]


async def test_the_recovered_order_is_written_into_its_file(broker: PopBroker) -> None:
    broker.settings.config_dir.mkdir()
    offsets = broker.offsets.encode()
    broker.put(3)
    broker.ack(broker.pop(in_order=True), 1)
    async with opened_again(broker, offsets) as again:
        await again.pops.save_orders()
        again.pops.orders.clear(_QUEUE)
        assert again.pops.orders_file.load()
        info = again.pops.orders.get(_QUEUE)
        assert info is not None and info.commit_offset_bit == 0b010
        await again.pops.orders_file.close()
