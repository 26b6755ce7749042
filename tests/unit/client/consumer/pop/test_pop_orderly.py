"""Ordered consumption by POP in virtual time: one call at a time for a queue, renewed invisible times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from rmq_client import ConsumeResult, OrderlyContext, PopSettings
from rmq_client.consumer.pop.acknowledger import PopAcknowledger
from rmq_client.consumer.pop.pop_orderly import PopOrderlyService
from rmq_client.consumer.pop.pop_process_queue import PopProcessQueue
from rmq_client.consumer.processing.listener_call import ListenerCall
from rmq_client.consumer.processing.orderly import OrderlySettings
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.errors import BrokerUnreachable
from rmq_remoting.message import MessageExt
from tests.support.waiting import loop_passes
from tests.unit.client.consumer.listener_support import QUEUE, HeldRunner, finish, kind

_INVISIBLE_SECONDS = 60.0
_CONSUME_TIMEOUT_SECONDS = 300.0


class _Acknowledger(PopAcknowledger):
    """Records changes of invisible times: (queue id, offset) and seconds."""

    def __init__(self) -> None:
        self.acked: list[tuple[int, int]] = []
        self.later: list[tuple[int, int, float]] = []
        self.buried: list[int] = []
        self.broken = False

    def ack(self, message: MessageExt) -> None:
        self.acked.append((message.queue_id, message.queue_offset))

    async def change_invisible_time(self, message: MessageExt, seconds: float) -> None:
        if self.broken:
            raise BrokerUnreachable("connection refused")
        self.later.append((message.queue_id, message.queue_offset, seconds))

    async def send_to_dead_letters(self, message: MessageExt) -> None:
        self.buried.append(message.queue_offset)


class _Bench:
    def __init__(self, call_size: int = 1, max_reconsume_times: int | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.acknowledger = _Acknowledger()
        self.service = PopOrderlyService(
            kind(orderly=True),
            self.loop,
            OrderlySettings(call_size, max_reconsume_times=max_reconsume_times),
            PopSettings(invisible_seconds=_INVISIBLE_SECONDS),
            self.acknowledger,
            consume_timeout_seconds=_CONSUME_TIMEOUT_SECONDS,
        )
        self.runner = HeldRunner()
        self.service.attach(self.runner)
        self.source = PopProcessQueue(PopSource("T", "b"), self.loop.time())

    def pop(self, offsets: Iterable[int], queue_id: int = 0) -> None:
        """Simulate a pop with these messages of one queue."""
        self.source.last_pull_at = self.loop.time()
        self.service.submit(
            self.source,
            [
                MessageExt("T", b"x", queue_id=queue_id, queue_offset=offset, broker_name="b")
                for offset in offsets
            ],
        )

    @property
    def calls(self) -> list[tuple[int, list[int]]]:
        """Return the calls that wait for the listener: queue id and offsets."""
        return [
            (call.messages[0].queue_id, [message.queue_offset for message in call.messages])
            for call in self.runner.call
        ]

    def finish(
        self, result: ConsumeResult | None = None, context: OrderlyContext | None = None, number: int = 0
    ) -> ListenerCall:
        """Simulate the return of the listener from a call."""
        call = self.runner.call.pop(number)
        finish(self.service, call, result, context=context, now=self.loop.time())
        return call

    async def renew(self, seconds: float) -> None:
        """Let time pass, and renew invisible times."""
        ends_at = self.loop.time() + seconds
        while self.loop.time() < ends_at:
            await asyncio.sleep(_INVISIBLE_SECONDS / 6)
            await self.service.renew()


@pytest.mark.virtual_time
async def test_one_call_at_a_time_for_each_queue() -> None:
    bench = _Bench(call_size=2)
    bench.pop([2, 0, 1])
    bench.pop([7], queue_id=1)
    assert bench.calls == [(0, [0, 1]), (1, [7])]
    assert bench.source.unacknowledged == 4
    bench.finish()
    assert bench.acknowledger.acked == [(0, 0), (0, 1)]
    assert bench.calls == [(1, [7]), (0, [2])]
    bench.finish()
    bench.finish(ConsumeResult.SUCCESS)
    assert bench.acknowledger.acked[2:] == [(1, 7), (0, 2)]
    assert bench.source.unacknowledged == 0
    assert bench.source.has_room.is_set()
    await bench.renew(_INVISIBLE_SECONDS)
    assert bench.acknowledger.later == [], "there is nothing left to keep"


@pytest.mark.virtual_time
async def test_a_refused_message_is_repeated_before_the_next() -> None:
    bench = _Bench()
    bench.pop([0, 1])
    bench.finish(ConsumeResult.LATER)
    await asyncio.sleep(0.5)
    assert bench.calls == [], "the queue rests"
    await asyncio.sleep(0.6)
    assert bench.calls == [(0, [0])]
    assert bench.finish().messages[0].reconsume_times == 1
    assert bench.calls == [(0, [1])]
    assert bench.acknowledger.acked == [(0, 0)]


@pytest.mark.virtual_time
async def test_exhausted_messages_are_dead_lettered_and_acknowledged() -> None:
    bench = _Bench(max_reconsume_times=1)
    bench.pop([0, 1])
    bench.finish(ConsumeResult.LATER)
    await asyncio.sleep(1.1)
    bench.finish(ConsumeResult.LATER)
    await asyncio.sleep(0)
    assert bench.acknowledger.buried == [0]
    assert bench.acknowledger.acked == [(0, 0)]
    assert bench.calls == [(0, [1])]


@pytest.mark.virtual_time
async def test_commits_by_hand() -> None:
    bench = _Bench()
    bench.pop([0, 1, 2])
    for _ in range(2):
        bench.finish(ConsumeResult.SUCCESS, OrderlyContext(QUEUE, auto_commit=False))
    assert bench.acknowledger.acked == []
    bench.finish(ConsumeResult.COMMIT, OrderlyContext(QUEUE, auto_commit=False))
    assert bench.acknowledger.acked == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.virtual_time
async def test_invisible_times_are_renewed_while_the_listener_works() -> None:
    bench = _Bench()
    bench.pop([0, 1])
    call = bench.runner.call[0]
    assert call.begin(bench.loop.time())
    await bench.renew(2 * _INVISIBLE_SECONDS)
    assert set(bench.acknowledger.later) == {(0, offset, _INVISIBLE_SECONDS) for offset in (0, 1)}
    assert len(bench.acknowledger.later) <= 10, "not more often than needed"
    bench.runner.call.clear()
    bench.service.done(call)
    assert bench.acknowledger.acked == [(0, 0)]
    await asyncio.sleep(0.1)  # after a minute without a pause it yields to other queues
    assert bench.calls == [(0, [1])]
    bench.finish()
    assert bench.acknowledger.acked == [(0, 0), (0, 1)]


@pytest.mark.virtual_time
async def test_quiesce_gives_up_on_a_hanging_call() -> None:
    bench = _Bench()
    bench.pop([0])
    call = bench.runner.call.pop()
    assert call.begin(bench.loop.time())
    await bench.renew(_CONSUME_TIMEOUT_SECONDS + 2 * _INVISIBLE_SECONDS)
    kept = len(bench.acknowledger.later)
    await bench.renew(_INVISIBLE_SECONDS)
    assert len(bench.acknowledger.later) == kept
    bench.pop([0])
    assert bench.calls == [], "a redelivered message waits: its queue has one call at a time"
    bench.service.done(call)
    assert bench.acknowledger.acked == [], "late results are ignored"
    assert bench.calls == [(0, [0])]
    bench.finish()
    assert bench.acknowledger.acked == [(0, 0)]


@pytest.mark.virtual_time
async def test_messages_with_an_expired_invisible_time_are_dropped() -> None:
    bench = _Bench()
    bench.acknowledger.broken = True
    bench.pop([0, 1])
    await bench.renew(_INVISIBLE_SECONDS)
    assert bench.source.unacknowledged == 0, "another consumer may have it: it is redelivered"
    skipped = bench.finish()
    assert skipped.skipped
    assert bench.calls == []
    bench.pop([0, 1])
    assert bench.calls == [(0, [0])]


@pytest.mark.virtual_time
async def test_a_closed_source_makes_unstarted_messages_visible() -> None:
    bench = _Bench()
    bench.pop([0, 1])
    bench.pop([7], queue_id=1)
    working = bench.runner.call[0]
    assert working.begin(bench.loop.time())
    bench.service.close(bench.source)
    await bench.renew(_INVISIBLE_SECONDS)
    assert set(bench.acknowledger.later) >= {(0, 0, _INVISIBLE_SECONDS), (0, 1, _INVISIBLE_SECONDS)}
    skipped = bench.finish(number=1)
    assert skipped.skipped
    await loop_passes()
    assert bench.acknowledger.later[-1] == (1, 7, 0.0)
    bench.runner.call.clear()
    bench.service.done(working)
    await loop_passes()
    assert bench.acknowledger.acked == [(0, 0)]
    assert bench.acknowledger.later[-1] == (0, 1, 0.0)
    assert bench.source.unacknowledged == 0
    assert bench.calls == []


@pytest.mark.virtual_time
async def test_a_paused_queue_is_released_at_once() -> None:
    bench = _Bench()
    bench.pop([0, 1])
    bench.finish(ConsumeResult.LATER)
    await asyncio.sleep(0.1)
    bench.service.close(bench.source)
    await asyncio.sleep(2)
    assert bench.acknowledger.later == [(0, 0, 0.0), (0, 1, 0.0)]
    assert bench.calls == []
