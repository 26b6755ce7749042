"""Ordered consumption in virtual time: one call at a time, pauses, attempts, commits by hand, locks."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rmq_client import ConsumeResult, OrderlyContext
from rmq_client.consumer.processing.listener_call import ListenerCall
from rmq_client.consumer.processing.orderly import OrderlyService, OrderlySettings
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_client.errors import BrokerUnreachable
from rmq_remoting.message import MessageExt
from tests.unit.client.consumer.listener_support import (
    QUEUE,
    HeldRunner,
    MemoryOffsets,
    finish,
    kind,
    messages,
)


class _Bench:
    def __init__(self, settings: OrderlySettings | None = None, *, broadcasting: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.offsets = MemoryOffsets()
        self.buried: list[int] = []
        self.grave_is_open = True
        self.failure: Exception = BrokerUnreachable("connection refused")
        self.relocks: list[float] = []
        self.lock_answers: list[bool] = []
        self.service = OrderlyService(
            kind(orderly=True),
            self.offsets,
            self.loop,
            settings or OrderlySettings(),
            self._relock,
            None if broadcasting else self._send_to_dead_letters,
        )
        self.runner = HeldRunner()
        self.service.attach(self.runner)
        self.queue = self.new_queue()

    def new_queue(self) -> ProcessQueue:
        return ProcessQueue(QUEUE, self.loop.time())

    def submit(self, *offsets: int, queue: ProcessQueue | None = None) -> None:
        pulled = messages(offsets)
        process_queue = self.queue if queue is None else queue
        process_queue.put(pulled)
        self.service.submit(process_queue, pulled)

    def next(self) -> ListenerCall:
        """The only waiting call."""
        (call,) = self.runner.call
        self.runner.call.clear()
        return call

    def finish(
        self,
        call: ListenerCall,
        result: ConsumeResult | None = None,
        error: Exception | None = None,
        context: OrderlyContext | None = None,
    ) -> None:
        finish(self.service, call, result, error, context, now=self.loop.time())

    async def _send_to_dead_letters(self, message: MessageExt) -> None:
        if not self.grave_is_open:
            raise self.failure
        self.buried.append(message.queue_offset)

    async def _relock(self, process_queue: ProcessQueue) -> bool:
        self.relocks.append(self.loop.time())
        locked = self.lock_answers.pop(0)
        if locked:
            process_queue.lock_expires_at = self.loop.time() + 30
        return locked


def _offsets(call: ListenerCall) -> list[int]:
    return [message.queue_offset for message in call.messages]


@pytest.mark.virtual_time
async def test_an_ordered_queue_has_one_call_at_a_time() -> None:
    bench = _Bench(OrderlySettings(batch_size=2))
    bench.submit(0, 1, 2)
    first = bench.next()
    assert _offsets(first) == [0, 1]
    bench.submit(3)
    assert bench.runner.call == [], "the first call is not over"
    bench.finish(first)
    assert bench.offsets.get(QUEUE) == 2
    second = bench.next()
    assert _offsets(second) == [2, 3]
    bench.finish(second, ConsumeResult.SUCCESS)
    assert bench.runner.call == []
    assert bench.offsets.get(QUEUE) == 4
    bench.submit(9)
    assert _offsets(bench.next()) == [9]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(None, 1.0), (0.2, 0.2), (0, 0.01), (timedelta(milliseconds=50), 0.05), (1e6, 30.0)],
)
async def test_the_queue_pauses_before_a_refused_message_is_repeated(
    asked: float | timedelta | None, seconds: float
) -> None:
    bench = _Bench()
    bench.submit(0, 1)
    context = OrderlyContext(QUEUE, suspend_seconds=asked)
    bench.finish(bench.next(), ConsumeResult.LATER, context=context)
    await asyncio.sleep(0)
    bench.submit(2)
    await asyncio.sleep(seconds - 0.005)
    assert bench.runner.call == []
    await asyncio.sleep(0.01)
    again = bench.next()
    assert _offsets(again) == [0]
    assert again.messages[0].reconsume_times == 1
    assert bench.offsets.get(QUEUE) is None


@pytest.mark.virtual_time
async def test_a_listener_exception_counts_as_later() -> None:
    bench = _Bench()
    bench.submit(0)
    bench.finish(bench.next(), error=RuntimeError("no"))
    await asyncio.sleep(1.1)
    assert _offsets(bench.next()) == [0]


@pytest.mark.virtual_time
async def test_an_exhausted_message_is_dead_lettered_and_the_queue_continues() -> None:
    bench = _Bench(OrderlySettings(max_reconsume_times=2))
    bench.submit(0, 1)
    for attempt in range(3):
        call = bench.next()
        assert (_offsets(call), call.messages[0].reconsume_times) == ([0], attempt)
        bench.finish(call, ConsumeResult.LATER)
        await asyncio.sleep(1.1)
    assert bench.buried == [0]
    assert bench.offsets.get(QUEUE) == 1
    assert _offsets(bench.next()) == [1]


@pytest.mark.virtual_time
async def test_only_exhausted_messages_of_a_batch_are_dead_lettered() -> None:
    bench = _Bench(OrderlySettings(batch_size=2, max_reconsume_times=1))
    bench.submit(0)
    bench.finish(bench.next(), ConsumeResult.LATER)
    await asyncio.sleep(0.1)
    bench.submit(1)
    await asyncio.sleep(1)
    call = bench.next()
    assert _offsets(call) == [0, 1]
    bench.finish(call, ConsumeResult.LATER)
    await asyncio.sleep(1.1)
    assert bench.buried == [0]
    assert _offsets(bench.next()) == [1]
    assert bench.offsets.get(QUEUE) == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("error", [None, ValueError("no such account")])
async def test_rejected_messages_are_dead_lettered_at_once(error: Exception | None) -> None:
    bench = _Bench(OrderlySettings(batch_size=2))
    bench.submit(0, 1, 2)
    result = ConsumeResult.LATER if error is None else None
    bench.finish(bench.next(), result, error, OrderlyContext(QUEUE, dead_letter=True))
    await asyncio.sleep(0.01)
    assert bench.buried == [0, 1]
    assert bench.offsets.get(QUEUE) == 2
    assert _offsets(bench.next()) == [2], "the queue goes on without a pause"


@pytest.mark.virtual_time
async def test_consumed_messages_are_not_rejected() -> None:
    bench = _Bench()
    bench.submit(0)
    bench.finish(bench.next(), ConsumeResult.SUCCESS, context=OrderlyContext(QUEUE, dead_letter=True))
    await asyncio.sleep(0.01)
    assert bench.buried == []
    assert bench.offsets.get(QUEUE) == 1


@pytest.mark.virtual_time
async def test_a_broadcasting_consumer_skips_rejected_messages() -> None:
    bench = _Bench(broadcasting=True)
    bench.submit(0, 1)
    bench.finish(bench.next(), ConsumeResult.LATER, context=OrderlyContext(QUEUE, dead_letter=True))
    await asyncio.sleep(0.01)
    assert _offsets(bench.next()) == [1]


@pytest.mark.virtual_time
async def test_a_message_is_repeated_if_dead_lettering_fails() -> None:
    bench = _Bench(OrderlySettings(max_reconsume_times=0))
    bench.grave_is_open = False
    bench.submit(0)
    bench.finish(bench.next(), ConsumeResult.LATER)
    await asyncio.sleep(1.1)
    again = bench.next()
    assert again.messages[0].reconsume_times == 1
    bench.grave_is_open = True
    bench.finish(again, ConsumeResult.LATER)
    await asyncio.sleep(1.1)
    assert bench.buried == [0]
    assert bench.offsets.get(QUEUE) == 1


@pytest.mark.virtual_time
async def test_a_message_is_repeated_if_dead_lettering_fails_unexpectedly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = _Bench(OrderlySettings(max_reconsume_times=0))
    bench.grave_is_open, bench.failure = False, TypeError("a fault of this program")
    bench.submit(0)
    bench.finish(bench.next(), ConsumeResult.LATER)
    await asyncio.sleep(1.1)
    assert _offsets(bench.next()) == [0]
    assert "a fault of this program" in caplog.text


@pytest.mark.virtual_time
async def test_messages_are_repeated_for_ever_without_a_limit() -> None:
    for bench in (_Bench(), _Bench(OrderlySettings(max_reconsume_times=0), broadcasting=True)):
        bench.submit(0)
        for _ in range(50):
            bench.finish(bench.next(), ConsumeResult.LATER)
            await asyncio.sleep(1.1)
        assert bench.buried == []


@pytest.mark.virtual_time
async def test_commit_and_rollback_by_hand() -> None:
    bench = _Bench()
    manual = OrderlyContext(QUEUE, auto_commit=False, suspend_seconds=0.1)
    bench.submit(0, 1, 2, 3)
    bench.finish(bench.next(), ConsumeResult.SUCCESS, context=manual)
    bench.finish(bench.next(), ConsumeResult.SUCCESS, context=manual)
    assert bench.offsets.get(QUEUE) is None
    bench.finish(bench.next(), ConsumeResult.ROLLBACK, context=manual)
    assert bench.runner.call == []
    await asyncio.sleep(0.2)
    for offset in (0, 1):
        call = bench.next()
        assert (_offsets(call), call.messages[0].reconsume_times) == ([offset], 0)
        bench.finish(call, ConsumeResult.SUCCESS, context=manual)
    bench.finish(bench.next(), ConsumeResult.COMMIT, context=manual)
    assert bench.offsets.get(QUEUE) == 3
    bench.finish(bench.next(), ConsumeResult.LATER, context=manual)
    await asyncio.sleep(0.2)
    bench.finish(bench.next(), ConsumeResult.COMMIT, context=manual)
    assert bench.offsets.get(QUEUE) == 4


@pytest.mark.virtual_time
@pytest.mark.parametrize("result", [ConsumeResult.COMMIT, ConsumeResult.ROLLBACK])
async def test_without_manual_commits_commit_and_rollback_mean_consumed(result: ConsumeResult) -> None:
    bench = _Bench()
    bench.submit(0)
    bench.finish(bench.next(), result)
    assert bench.offsets.get(QUEUE) == 1


@pytest.mark.virtual_time
async def test_after_a_minute_a_queue_yields_to_others() -> None:
    bench = _Bench()
    bench.submit(*range(100))
    for _ in range(61):
        call = bench.next()
        await asyncio.sleep(1)
        bench.finish(call)
    assert bench.runner.call == []
    await asyncio.sleep(0.02)
    bench.finish(bench.next())
    assert len(bench.runner.call) == 1, "the next minute"


@pytest.mark.virtual_time
async def test_no_call_begins_without_the_lock() -> None:
    bench = _Bench()
    bench.queue.lock_expires_at = bench.loop.time()
    bench.lock_answers = [False, True]
    began = bench.loop.time()
    bench.submit(0, 1)
    assert bench.runner.call == []
    await asyncio.sleep(3.05)
    assert bench.runner.call == []
    await asyncio.sleep(0.1)
    assert [round(when - began, 2) for when in bench.relocks] == [0.1, 3.1]
    assert _offsets(bench.next()) == [0]


@pytest.mark.virtual_time
async def test_a_call_does_not_begin_after_the_lock_expired() -> None:
    bench = _Bench()
    bench.queue.lock_expires_at = bench.loop.time() + 30
    bench.lock_answers = [True]
    bench.submit(0, 1)
    call = bench.next()
    await asyncio.sleep(31)
    bench.finish(call)
    assert call.skipped
    assert bench.offsets.get(QUEUE) is None
    await asyncio.sleep(0.2)
    assert _offsets(bench.next()) == [0]


@pytest.mark.virtual_time
async def test_a_retaken_queue_waits_for_the_old_call() -> None:
    bench = _Bench()
    bench.submit(0, 1)
    old = bench.next()
    assert old.begin(bench.loop.time())
    bench.queue.drop()
    retaken = bench.new_queue()
    bench.submit(0, 1, queue=retaken)
    assert bench.runner.call == [], "two calls for one queue"
    bench.service.done(old)
    assert bench.offsets.get(QUEUE) is None
    assert bench.next().process_queue is retaken


@pytest.mark.virtual_time
async def test_a_retaken_queue_is_busy_until_the_old_call_has_ended() -> None:
    bench = _Bench()
    bench.submit(0)
    old = bench.next()
    assert old.begin(bench.loop.time())
    bench.queue.drop()
    retaken = bench.new_queue()
    retaken.closing = True
    assert not await bench.service.quiesce(retaken, 1.0)
    waiting = asyncio.ensure_future(bench.service.quiesce(retaken, 1.0))
    await asyncio.sleep(0.5)
    bench.service.done(old)
    assert await waiting
    assert not bench.service.is_busy(retaken)


@pytest.mark.virtual_time
async def test_calls_refused_by_a_full_pool_are_submitted_again() -> None:
    bench = _Bench()
    bench.runner.capacity = 0
    bench.submit(0)
    await asyncio.sleep(4.9)
    bench.runner.capacity = 1
    assert bench.runner.call == []
    await asyncio.sleep(0.2)
    assert _offsets(bench.next()) == [0]


@pytest.mark.virtual_time
async def test_a_closing_queue_is_not_resumed() -> None:
    bench = _Bench()
    bench.submit(0, 1)
    bench.finish(bench.next(), ConsumeResult.LATER)
    await asyncio.sleep(0)
    bench.queue.closing = True
    assert await bench.service.quiesce(bench.queue, 1.0)
    await asyncio.sleep(5)
    assert bench.runner.call == []
