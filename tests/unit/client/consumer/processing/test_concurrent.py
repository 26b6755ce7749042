"""Concurrent consumption in virtual time: outcomes, messages sent back, time-outs, a full pool."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client import ConsumeContext, ConsumeResult
from rmq_client.consumer.processing.concurrent import ConcurrentService, ConcurrentSettings
from rmq_client.consumer.processing.listener_call import ListenerCall
from rmq_client.consumer.processing.message_state import MessageState
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_client.consumer.processing.send_back import RetryRules
from rmq_client.errors import BrokerUnreachable
from rmq_remoting.errors import CommandError
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue
from tests.unit.client.consumer.listener_support import (
    QUEUE,
    HeldRunner,
    MemoryOffsets,
    finish,
    kind,
    messages,
)

_ACK_FIRST = ConsumeContext(QUEUE, ack_index=0, delay_level=4)


class _Bench:
    def __init__(
        self,
        batch_size: int = 1,
        *,
        broadcasting: bool = False,
        capacity: int = 1_000,
        none_means: ConsumeResult = ConsumeResult.SUCCESS,
        max_reconsume_times: int | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.offsets = MemoryOffsets()
        self.returned: list[tuple[int, int]] = []
        self.broken = 0
        self.failure: Exception = BrokerUnreachable("connection refused")
        self.service = ConcurrentService(
            kind(none_means=none_means),
            self.offsets,
            self.loop,
            ConcurrentSettings(batch_size),
            RetryRules("g", max_reconsume_times),
            None if broadcasting else self._send_back,
        )
        self.runner = HeldRunner(capacity)
        self.service.attach(self.runner)
        self.queue = ProcessQueue(QUEUE, self.loop.time())

    def submit(self, count: int) -> list[MessageExt]:
        pulled = messages(range(count))
        self.queue.put(pulled)
        self.service.submit(self.queue, pulled)
        return pulled

    def finish(
        self,
        call: ListenerCall,
        result: ConsumeResult | None = None,
        error: Exception | None = None,
        context: ConsumeContext | None = None,
    ) -> None:
        finish(self.service, call, result, error, context, now=self.loop.time())

    async def _send_back(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> None:
        if self.broken:
            self.broken -= 1
            raise self.failure
        await asyncio.sleep(0.01)
        self.returned.append((message.queue_offset, delay_level))


@pytest.mark.virtual_time
async def test_messages_are_divided_into_calls() -> None:
    bench = _Bench(batch_size=3)
    bench.submit(7)
    assert [len(call.messages) for call in bench.runner.call] == [3, 3, 1]
    bench.finish(bench.runner.call[1])
    assert bench.offsets.get(QUEUE) == 0
    bench.finish(bench.runner.call[0], ConsumeResult.SUCCESS)
    assert bench.offsets.get(QUEUE) == 6
    assert bench.service.statistics.topics["T"].counts.consumed == 6


@pytest.mark.virtual_time
async def test_refused_messages_are_sent_back_and_count_as_consumed() -> None:
    bench = _Bench()
    bench.submit(3)
    first, second, third = bench.runner.call
    bench.finish(first, ConsumeResult.LATER)
    bench.finish(second, error=RuntimeError("no"))
    bench.finish(third)
    assert bench.queue.in_state(MessageState.WAITING_RETRY) == [*first.messages, *second.messages]
    assert bench.offsets.get(QUEUE) == 0
    await asyncio.sleep(0.1)
    assert bench.returned == [(0, 0), (1, 0)]
    assert bench.offsets.get(QUEUE) == 3
    counts = bench.service.statistics.topics["T"].counts
    assert (counts.consumed, counts.refused, counts.calls) == (1, 2, 3)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("ack_index", "returned"), [(None, []), (-1, [0, 1, 2]), (0, [1, 2]), (2, []), (99, []), (-7, [0, 1, 2])]
)
async def test_part_of_a_batch(ack_index: int | None, returned: list[int]) -> None:
    bench = _Bench(batch_size=3)
    bench.submit(3)
    context = ConsumeContext(QUEUE, ack_index=ack_index)
    bench.finish(bench.runner.call[0], ConsumeResult.SUCCESS, context=context)
    await asyncio.sleep(0.1)
    assert [offset for offset, _ in bench.returned] == returned
    assert bench.offsets.get(QUEUE) == 3


@pytest.mark.virtual_time
async def test_the_meaning_of_no_result() -> None:
    bench = _Bench(none_means=ConsumeResult.LATER)
    bench.submit(2)
    bench.finish(bench.runner.call[0])
    bench.finish(bench.runner.call[1], ConsumeResult.SUCCESS)
    await asyncio.sleep(0.1)
    assert bench.returned == [(0, 0)]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "failure", [BrokerUnreachable("connection refused"), TypeError("a fault of this program")]
)
async def test_messages_that_cannot_be_sent_back_are_retried_here(failure: Exception) -> None:
    bench = _Bench(batch_size=2)
    bench.broken, bench.failure = 1, failure
    bench.submit(2)
    bench.finish(bench.runner.call[0], ConsumeResult.SUCCESS, context=ConsumeContext(QUEUE, -1, 4))
    await asyncio.sleep(4.9)
    assert bench.returned == [(1, 4)]
    assert len(bench.runner.call) == 1
    await asyncio.sleep(0.2)
    (again,) = bench.runner.call[1:]
    assert [(message.queue_offset, message.reconsume_times) for message in again.messages] == [(0, 1)]
    assert bench.offsets.get(QUEUE) == 0
    bench.finish(again)
    assert bench.offsets.get(QUEUE) == 2


@pytest.mark.virtual_time
@pytest.mark.parametrize(("delay_level", "limit"), [(-1, None), (0, 0)])
async def test_dead_letters_count_as_consumed(delay_level: int, limit: int | None) -> None:
    bench = _Bench(max_reconsume_times=limit)
    bench.submit(1)
    context = ConsumeContext(QUEUE, delay_level=delay_level)
    bench.finish(bench.runner.call[0], ConsumeResult.LATER, context=context)
    await asyncio.sleep(0.1)
    assert bench.returned == [(0, delay_level)]
    assert bench.offsets.get(QUEUE) == 1


@pytest.mark.virtual_time
async def test_refused_broadcast_messages_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    bench = _Bench(batch_size=2, broadcasting=True)
    bench.submit(2)
    bench.finish(bench.runner.call[0], ConsumeResult.SUCCESS, context=_ACK_FIRST)
    assert bench.offsets.get(QUEUE) == 2
    assert caplog.text.count("message skipped, broadcast") == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("result", [ConsumeResult.SUCCESS, ConsumeResult.LATER])
async def test_results_of_a_dropped_queue_are_ignored(result: ConsumeResult) -> None:
    bench = _Bench()
    bench.submit(2)
    bench.finish(bench.runner.call[0], ConsumeResult.LATER)
    bench.runner.call[1].begin(bench.loop.time())
    bench.queue.drop()
    bench.runner.call[1].result = result
    bench.service.done(bench.runner.call[1])
    await asyncio.sleep(10)
    assert len(bench.runner.call) == 2
    assert bench.offsets.get(QUEUE) is None


@pytest.mark.virtual_time
async def test_a_closing_queue_starts_no_calls_and_waits_for_running_ones() -> None:
    bench = _Bench()
    bench.submit(3)
    running, not_begun, _ = bench.runner.call
    assert running.begin(bench.loop.time())
    bench.queue.closing = True
    assert not not_begun.begin(bench.loop.time())
    bench.service.done(not_begun)
    bench.loop.call_later(0.4, bench.service.done, running)
    began = bench.loop.time()
    assert await bench.service.quiesce(bench.queue, 1.0)
    assert bench.loop.time() - began == pytest.approx(0.4, abs=0.01)
    assert bench.offsets.get(QUEUE) == 1, "what ended in time counts"


@pytest.mark.virtual_time
async def test_every_waiting_send_is_admitted() -> None:
    bench = _Bench()
    bench.submit(1)
    bench.runner.call[0].begin(bench.loop.time())
    bench.queue.closing = True
    began = bench.loop.time()
    assert not await bench.service.quiesce(bench.queue, 1.0)
    assert bench.loop.time() - began == pytest.approx(1.0, abs=0.01)


@pytest.mark.virtual_time
async def test_a_call_beyond_the_consume_timeout_is_sent_back_once() -> None:
    bench = _Bench(batch_size=2)
    bench.submit(4)
    slow, waiting = bench.runner.call
    slow.begin(bench.loop.time())
    await asyncio.sleep(899)
    bench.service.clean_expired()
    assert bench.returned == []
    await asyncio.sleep(2)
    bench.service.clean_expired()
    bench.service.clean_expired()
    await asyncio.sleep(1)
    assert bench.returned == [(0, 3), (1, 3)]
    assert bench.offsets.get(QUEUE) == 2
    slow.result = ConsumeResult.LATER
    bench.service.done(slow)
    await asyncio.sleep(1)
    assert bench.returned == [(0, 3), (1, 3)], "its result is ignored"
    bench.finish(waiting)
    assert bench.offsets.get(QUEUE) == 4


@pytest.mark.virtual_time
async def test_a_late_result_does_not_count_for_the_redelivery() -> None:
    bench = _Bench()
    bench.broken = 1
    bench.submit(1)
    (slow,) = bench.runner.call
    slow.begin(bench.loop.time())
    await asyncio.sleep(901)
    bench.service.clean_expired()
    await asyncio.sleep(5.1)
    again = bench.runner.call[1]
    bench.service.done(slow)
    assert bench.offsets.get(QUEUE) is None
    bench.finish(again)
    assert bench.offsets.get(QUEUE) == 1


@pytest.mark.virtual_time
async def test_calls_above_the_capacity_are_submitted_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = _Bench(capacity=2)
    bench.submit(5)
    assert len(bench.runner.call) == 2
    for call in bench.runner.call:
        bench.finish(call)
    bench.runner.call.clear()
    await asyncio.sleep(4.9)
    assert bench.runner.call == []
    await asyncio.sleep(0.2)
    assert [call.messages[0].queue_offset for call in bench.runner.call] == [2, 3]
    bench.runner.capacity = 10
    await asyncio.sleep(5)
    assert [call.messages[0].queue_offset for call in bench.runner.call] == [2, 3, 4]
    for call in bench.runner.call:
        bench.finish(call)
    assert bench.offsets.get(QUEUE) == 5
    assert "further_calls=3; these are submitted again in 5.0 s" in caplog.text


@pytest.mark.virtual_time
async def test_resubmission_ends_with_the_queue() -> None:
    bench = _Bench(capacity=1)
    bench.submit(2)
    bench.queue.drop()
    bench.runner.call.clear()
    await asyncio.sleep(6)
    assert bench.runner.call == []


@pytest.mark.virtual_time
async def test_direct_consumption_is_refused_by_a_full_pool() -> None:
    bench = _Bench(capacity=0)
    with pytest.raises(CommandError, match="too many messages wait"):
        await bench.service.consume_directly(messages([0])[0])


@pytest.mark.virtual_time
async def test_stop_waits_for_messages_being_sent_back() -> None:
    bench = _Bench()
    bench.submit(1)
    bench.finish(bench.runner.call[0], ConsumeResult.LATER)
    await bench.service.stop(5.0)
    assert bench.returned == [(0, 0)]
    assert bench.offsets.get(QUEUE) == 1
