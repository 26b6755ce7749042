"""Acknowledgements that arrive together, and changes of an invisible time that cannot be stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq_broker.pop.acknowledging import SingleAck
from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.journal import Acked
from rmq_broker.pop.journal_reader import JournalReader
from rmq_broker.pop.popping import Pop
from rmq_broker.store.api import StoreUnavailable
from rmq_broker.topics.names import revive_topic
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, receipt_of


def _refuse(*arguments: object, **named: object) -> None:
    raise StoreUnavailable("full")


async def test_a_receipt_stays_valid_if_its_change_cannot_be_stored(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put(1)
    pop = broker.pop()
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", _refuse)
        with pytest.raises(CommandError, match="Try again"):
            broker.pops.acknowledging.change_invisible_time(QueueKey("T", GROUP, 0), receipt_of(pop), 0, 1000)
    broker.ack(pop, 0)
    assert len(broker.pops.in_flight) == 0
    await broker.pass_seconds(2)
    assert broker.pop().count == 0


def _acks(pop: Pop, *offsets: int) -> list[SingleAck]:
    return [(QueueKey("T", GROUP, 0), receipt_of(pop), offset) for offset in offsets]


async def test_acknowledgements_of_one_pop_become_one_entry(broker: PopBroker) -> None:
    offsets = broker.offsets.encode()
    broker.put(6)
    first, second = broker.pop(most=4), broker.pop(most=2)
    begin = broker.pops.journal.end
    acks = _acks(first, 3, 0, 0) + _acks(second, 4) + _acks(first, 2)
    assert broker.pops.acknowledging.ack_all(acks) == [None] * 5
    reader = JournalReader(broker.store, revive_topic("DefaultCluster"), "broker-a")
    assert [entry.offsets for _, entry in reader.read(begin) if isinstance(entry, Acked)] == [
        (0, 2, 3),
        (4,),
    ]
    assert [point.open_offsets() for point in broker.pops.in_flight] == [[1], [5]]
    async with opened_again(broker, offsets) as again:
        assert [point.open_offsets() for point in again.pops.in_flight] == [[1], [5]]


async def test_each_bad_receipt_is_refused_alone(broker: PopBroker) -> None:
    broker.put(2)
    pop = broker.pop()
    forged = (QueueKey("T", "Other", 0), receipt_of(pop), 0)
    refusals = broker.pops.acknowledging.ack_all([forged, *_acks(pop, 9, 1, 0)])
    codes = [refusal.code if refusal else None for refusal in refusals]
    assert codes == [ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, None, None]
    assert len(broker.pops.in_flight) == 0
    assert broker.pops.acknowledging.ack_all(_acks(pop, 1, 0)) == [None, None], "idempotent"


async def test_acknowledgements_in_order_among_others(broker: PopBroker) -> None:
    broker.put(1)
    broker.put(1, queue_id=1)
    unordered, ordered = broker.pop(), broker.pop(queue_id=1, in_order=True)
    receipt = replace(receipt_of(unordered), revive_queue_id=999, pop_time=ordered.pop_time)
    in_order = (QueueKey("T", GROUP, 1), receipt, 0)
    assert broker.pops.acknowledging.ack_all([*_acks(unordered, 0), in_order]) == [None, None]
    assert broker.offsets.query(GROUP, "T", 1) == 1


async def test_acknowledgements_that_cannot_be_stored(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put(3)
    pop = broker.pop()
    broker.ack(pop, 0)
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", _refuse)
        refusals = broker.pops.acknowledging.ack_all(_acks(pop, 0, 1, 2))
    codes = [refusal.code if refusal else None for refusal in refusals]
    assert codes == [None, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE]
    assert broker.pops.acknowledging.ack_all(_acks(pop, 1, 2)) == [None, None]
