"""Pops and peeks of more messages than fit into a frame: the rest stays for the next request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmq_broker.pop import answer_size
from rmq_broker.pop.answer_size import fitting, records_of
from rmq_broker.pop.peeking import Peek, Peeking
from rmq_broker.store.api import GetResult
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of, messages_of, pop_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    with pop_broker(tmp_path) as made:
        yield made


@pytest.fixture
async def room_for_three(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> int:
    """Two queues with two messages each, of which three fit into a response; return a message's size."""
    broker.put(2, queue_id=0)
    broker.put(2, queue_id=1)
    size = len(_read(broker).body) // 2
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", 3 * size)
    return size


def _read(broker: PopBroker) -> GetResult:
    return broker.store.get("T", 0, 0, 32, None)


async def test_the_messages_that_fit(broker: PopBroker, room_for_three: int) -> None:
    read, size = _read(broker), room_for_three
    assert fitting(read, size) is read
    part = fitting(read, size + 1)
    assert part is not None
    assert (part.count, part.next_offset, part.max_offset) == (1, 1, 2)
    assert records_of(part.body) == [(0, read.body[:size])]
    assert fitting(read, 2 * size + 1) is None


async def test_the_first_message_always_fits(
    broker: PopBroker, room_for_three: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", room_for_three - 1)
    part = fitting(_read(broker), 0)
    assert part is not None
    assert (part.count, part.next_offset) == (1, 1)
    assert fitting(part, 0) is part
    assert fitting(part, 1) is None


@pytest.mark.parametrize("in_order", [False, True])
async def test_only_given_messages_become_invisible(
    broker: PopBroker, room_for_three: int, in_order: bool
) -> None:
    pop = broker.pop(queue_id=-1, in_order=in_order)
    assert (pop.count, pop.rest, pop.size_bytes) == (3, 1, 3 * room_for_three)
    assert len(bodies_of(pop)) == 3
    assert broker.pops.in_flight.messages == (0 if in_order else 3)
    broker.clock.pass_seconds(1)
    if in_order:
        for queue in pop.infos.msg_offset_info.split(";"):
            _, queue_id, offsets = queue.split(" ")
            broker.ack(pop, *map(int, offsets.split(",")), queue_id=int(queue_id))
    last = broker.pop(queue_id=-1, in_order=in_order)
    assert bodies_of(last) == [b"1"]
    assert last.rest == 0


async def test_a_queue_of_which_no_message_fits_is_unchanged(
    broker: PopBroker, room_for_three: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", 2 * room_for_three)
    monkeypatch.setattr(broker.pops.popping, "chance", SimpleNamespace(randrange=lambda end: 0))
    pop = broker.pop(queue_id=-1)
    assert (pop.count, pop.rest) == (2, 2)
    assert pop.infos.start_offset_info == "0 0 0"
    assert bodies_of(broker.pop(queue_id=-1)) == [b"0", b"1"]


async def test_redelivered_messages_that_do_not_fit_wait_for_the_next_pop(
    broker: PopBroker, room_for_three: int
) -> None:
    broker.pop(queue_id=0, invisible_ms=1000)
    await broker.pass_seconds(2)
    broker.put(1, queue_id=0)
    assert len(bodies_of(broker.pop(queue_id=-1))) == 3
    assert len(bodies_of(broker.pop(queue_id=-1))) == 2


async def test_a_peek(broker: PopBroker, room_for_three: int) -> None:
    peek = Peek("T", GROUP, -1, 32)
    peeking = Peeking(broker.settings, broker.topics, broker.store, broker.pops.popping)
    assert list(peeking.walk(peek)) == []
    assert (peek.count, peek.rest, len(messages_of(peek))) == (3, 4, 3)
