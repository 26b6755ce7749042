"""Groups that were deleted with their offsets and recreated begin without state."""

from __future__ import annotations

import pytest

from rmq_broker.pop.check_point import QueueKey
from rmq_remoting.bodies.assignment import MessageRequestMode, SetMessageRequestModeRequestBody
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of


@pytest.mark.parametrize("in_order", [False, True])
async def test_a_recreated_group(broker: PopBroker, in_order: bool) -> None:
    broker.put(3)
    broker.pop(in_order=in_order)
    _make_again(broker)
    assert len(broker.pops.in_flight) == 0
    assert bodies_of(broker.pop(in_order=in_order, most=1)) == [b"0"]
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    assert broker.offsets.query(GROUP, "T", 0) == (0 if in_order else 1)


async def test_its_request_modes_are_forgotten(broker: PopBroker) -> None:
    broker.settings.config_dir.mkdir()
    mode = SetMessageRequestModeRequestBody(
        topic="T", consumer_group=GROUP, mode=MessageRequestMode.POP, pop_share_queue_num=3
    )
    broker.pops.modes.set(mode)
    _make_again(broker)
    assert broker.pops.modes.get("T", GROUP).pop_share_queue_num != 3
    await broker.pops.modes_file.close()


@pytest.mark.parametrize("is_written", [False, True])
async def test_after_a_crash(broker: PopBroker, is_written: bool) -> None:
    offsets = broker.offsets.encode()
    broker.put(1, queue_id=1)
    broker.pop(queue_id=1, invisible_ms=3_600_000)
    broker.put(3)
    broker.ack(broker.pop(most=2), 1)
    broker.pops.commit_flushed(broker.store.max_phy_offset())
    _make_again(broker)
    if is_written:
        offsets = broker.offsets.encode()
    async with opened_again(broker, offsets) as again:
        assert len(again.pops.in_flight) == 0
        assert bodies_of(again.pop()) == [b"0", b"1", b"2"]


async def test_nothing_is_journaled_of_groups_that_do_not_pop(broker: PopBroker) -> None:
    end = broker.pops.journal.end
    broker.offsets.commit("Other", "T", 0, 3)
    broker.offsets.remove_group("Other")
    assert broker.pops.journal.end == end
    assert broker.pops.positions.get(QueueKey("T", "Other", 0)) == -1


def _make_again(broker: PopBroker) -> None:
    broker.groups.delete(GROUP)
    broker.offsets.remove_group(GROUP)
    broker.groups.update(SubscriptionGroupConfig(group_name=GROUP))
