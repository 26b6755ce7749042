"""Peeks return the messages of the next pop, and change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.pop.peeking import Peek, Peeking
from rmq_broker.store.api import ColdRead
from tests.support.cold_log import make_cold
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of, messages_of, pop_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    with pop_broker(tmp_path) as made:
        yield made


class _Peeks:
    """Peeks one after the other; `cold_reads` counts the reads that needed the disk."""

    def __init__(self, broker: PopBroker) -> None:
        self.cold_reads = 0
        self._store = broker.store
        self._peeking = Peeking(broker.settings, broker.topics, broker.store, broker.pops.popping)

    def __call__(self, *, queue_id: int = -1, most: int = 32) -> Peek:
        peek = Peek("T", GROUP, queue_id, most)
        walk = self._peeking.walk(peek)
        try:
            stop = next(walk)
            while True:
                assert isinstance(stop, ColdRead)
                self.cold_reads += 1
                stop = walk.send(self._store.finish(stop.run()))
        except StopIteration:
            return peek


def _bodies(peek: Peek) -> list[bytes]:
    return sorted(message.body for message in messages_of(peek))


async def test_the_next_messages_and_the_number_of_the_rest(broker: PopBroker) -> None:
    broker.put(5, queue_id=0)
    broker.put(2, queue_id=1)
    peek = _Peeks(broker)
    broker.pop(queue_id=0, most=2)
    for _ in range(2):
        seen = peek()
        assert (_bodies(seen), seen.rest) == ([b"0", b"1", b"2", b"3", b"4"], 5)
    part = peek(queue_id=0, most=2)
    assert (_bodies(part), part.rest) == ([b"2", b"3"], 3)
    assert bodies_of(broker.pop(queue_id=0)) == [b"2", b"3", b"4"]


async def test_redelivered_messages_are_seen(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(invisible_ms=1000)
    peek = _Peeks(broker)
    assert peek().count == 0
    await broker.pass_seconds(2)
    (message,) = messages_of(peek(queue_id=1))
    assert (message.topic, message.reconsume_times) == ("%RETRY%CG_T", 1)


async def test_full_queues_do_not_hide_redelivered_messages_forever(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(invisible_ms=1000)
    await broker.pass_seconds(2)
    broker.put(5)
    peek = _Peeks(broker)
    topics = {messages_of(peek(most=1))[0].topic for _ in range(200)}
    assert topics == {"T", "%RETRY%CG_T"}


async def test_a_committed_offset_out_of_range(broker: PopBroker) -> None:
    broker.put(3)
    broker.offsets.commit(GROUP, "T", 0, 99)
    broker.put(1, queue_id=1)
    peek = _Peeks(broker)
    assert _bodies(peek()) == [b"0"]
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    queue.min_offset = 1
    broker.offsets.put(GROUP, "T", 0, 0)
    assert _bodies(peek(queue_id=0)) == [b"1", b"2"]
    assert broker.offsets.query(GROUP, "T", 0) == 0


async def test_messages_that_are_not_in_memory_are_read_from_the_disk(broker: PopBroker) -> None:
    broker.put(3)
    make_cold(broker.store)
    peek = _Peeks(broker)
    assert _bodies(peek()) == [b"0", b"1", b"2"]
    assert peek.cold_reads == 1
