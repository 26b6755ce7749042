"""Concurrent consumption in virtual time: when refused messages come again, and the seam for sending back."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client import ConsumeResult
from rmq_client.consumer.concurrent import ConcurrentService, SendBack
from rmq_client.consumer.listener import Work
from rmq_client.consumer.offset_store import OffsetStore
from rmq_client.consumer.process_queue import ProcessQueue
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

_QUEUE = MessageQueue("T", "b", 0)


class _Runner:
    """Keeps the work; the test says what becomes of it."""

    def __init__(self) -> None:
        self.work: list[Work] = []

    def submit(self, work: Work) -> None:
        self.work.append(work)

    async def stop(self, grace_seconds: float) -> None:
        pass


class _Bench:
    def __init__(self, batch_size: int = 1, send_back: SendBack | None = None) -> None:
        self.offsets = OffsetStore("g", None, lambda queue: None)  # type: ignore[arg-type]  # commits nothing
        self.loop = asyncio.get_running_loop()
        self.service = ConcurrentService(
            self.offsets, self.loop, batch_size=batch_size, retry_seconds=5.0, send_back=send_back
        )
        self.runner = _Runner()
        self.service.attach(self.runner)
        self.queue = ProcessQueue(_QUEUE, self.loop.time())

    def submit(self, count: int) -> list[MessageExt]:
        messages = [MessageExt("T", b"x", queue_offset=offset) for offset in range(count)]
        self.queue.put(messages)
        self.service.submit(self.queue, messages)
        return messages

    def finish(self, work: Work, result: ConsumeResult | None = None, error: Exception | None = None) -> None:
        work.result, work.error = result, error
        self.service.done(work)


@pytest.mark.virtual_time
async def test_work_is_cut_into_calls() -> None:
    bench = _Bench(batch_size=3)
    bench.submit(7)
    assert [len(work.messages) for work in bench.runner.work] == [3, 3, 1]
    bench.finish(bench.runner.work[1])
    assert bench.offsets.get(_QUEUE) == 0
    bench.finish(bench.runner.work[0], ConsumeResult.SUCCESS)
    assert bench.offsets.get(_QUEUE) == 6
    assert bench.service.counts["T"].consumed == 6


@pytest.mark.virtual_time
async def test_refused_messages_come_again_after_the_delay() -> None:
    bench = _Bench()
    bench.submit(2)
    first, second = bench.runner.work
    bench.finish(first, ConsumeResult.LATER)
    bench.finish(second, error=RuntimeError("no"))
    await asyncio.sleep(4.9)
    assert len(bench.runner.work) == 2
    await asyncio.sleep(0.2)
    again = bench.runner.work[2:]
    assert [work.messages[0].reconsume_times for work in again] == [1, 1]
    assert bench.offsets.get(_QUEUE) is None
    for work in again:
        bench.finish(work)
    assert bench.offsets.get(_QUEUE) == 2
    assert bench.service.counts["T"].refused == 2


@pytest.mark.virtual_time
async def test_nothing_counts_for_a_queue_that_was_given_up() -> None:
    bench = _Bench()
    bench.submit(2)
    bench.finish(bench.runner.work[0], ConsumeResult.LATER)
    bench.queue.dropped = True
    bench.finish(bench.runner.work[1])
    await asyncio.sleep(10)
    assert len(bench.runner.work) == 2
    assert bench.offsets.get(_QUEUE) is None


@pytest.mark.virtual_time
async def test_work_that_was_skipped_stays_unconsumed() -> None:
    bench = _Bench()
    bench.submit(1)
    bench.runner.work[0].skipped = True
    bench.finish(bench.runner.work[0])
    assert bench.offsets.get(_QUEUE) is None


@pytest.mark.virtual_time
async def test_what_is_sent_back_counts_as_consumed_and_the_rest_comes_again() -> None:
    sent: list[MessageExt] = []

    async def send_back(messages: list[MessageExt]) -> list[MessageExt]:
        sent.extend(messages[:2])
        return messages[2:]

    bench = _Bench(batch_size=3, send_back=send_back)
    messages = bench.submit(3)
    bench.finish(bench.runner.work[0], ConsumeResult.LATER)
    await asyncio.sleep(0.1)
    assert sent == messages[:2]
    assert bench.offsets.get(_QUEUE) == 2
    await asyncio.sleep(5)
    assert bench.runner.work[1].messages == messages[2:]


@pytest.mark.virtual_time
async def test_what_cannot_be_sent_back_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    async def send_back(messages: list[MessageExt]) -> list[MessageExt]:
        raise OSError("no broker")

    bench = _Bench(send_back=send_back)
    bench.submit(1)
    bench.finish(bench.runner.work[0], ConsumeResult.LATER)
    await asyncio.sleep(5.1)
    assert len(bench.runner.work) == 2
    assert "could not be sent back" in caplog.text
