"""Concurrent consumption by POP in virtual time: handling of outcomes."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client import ConsumeContext, ConsumeResult, PopSettings, UsageError
from rmq_client.consumer.pop.acknowledger import PopAcknowledger, retry_seconds
from rmq_client.consumer.pop.pop_process_queue import PopProcessQueue
from rmq_client.consumer.pop.pop_service import PopService
from rmq_client.consumer.processing.listener_call import ListenerCall
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.errors import BrokerUnreachable
from rmq_remoting.message import MessageExt
from tests.unit.client.consumer.listener_support import QUEUE, HeldRunner, finish, kind, messages

_INVISIBLE_SECONDS = 60.0


class _Acknowledger(PopAcknowledger):
    """Records acknowledgements and changes of invisible times."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.later: list[tuple[int, float]] = []
        self.buried: list[int] = []
        self.broken = False

    def ack(self, message: MessageExt) -> None:
        if self.broken:
            raise BrokerUnreachable("connection refused")
        self.acked.append(message.queue_offset)

    async def change_invisible_time(self, message: MessageExt, seconds: float) -> None:
        if self.broken:
            raise BrokerUnreachable("connection refused")
        self.later.append((message.queue_offset, seconds))

    async def retry(self, message: MessageExt, seconds: float) -> None:
        await self.change_invisible_time(message, seconds)

    async def send_to_dead_letters(self, message: MessageExt) -> None:
        self.buried.append(message.queue_offset)


class _Bench:
    def __init__(
        self, call_size: int = 1, *, capacity: int = 1_000, max_reconsume_times: int | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.acknowledger = _Acknowledger()
        self.service = PopService(
            kind(),
            self.loop,
            PopSettings(invisible_seconds=_INVISIBLE_SECONDS),
            self.acknowledger,
            call_size=call_size,
            max_reconsume_times=max_reconsume_times,
        )
        self.runner = HeldRunner(capacity)
        self.service.attach(self.runner)
        self.queue = PopProcessQueue(PopSource("T", "b"), self.loop.time())

    def submit(self, count: int, reconsume_times: int = 0) -> list[ListenerCall]:
        popped = messages(range(count))
        for message in popped:
            message.reconsume_times = reconsume_times
        self.service.submit(self.queue, popped)
        return self.runner.call

    async def finish(
        self,
        call: ListenerCall,
        result: ConsumeResult | None = None,
        error: Exception | None = None,
        context: ConsumeContext | None = None,
    ) -> None:
        finish(self.service, call, result, error, context, now=self.loop.time())
        await self.service.quiesce(self.queue, 1.0)


@pytest.mark.virtual_time
async def test_consumed_messages_are_acknowledged() -> None:
    bench = _Bench(call_size=3)
    calls = bench.submit(7)
    assert [len(call.messages) for call in calls] == [3, 3, 1]
    assert bench.queue.unacknowledged == 7
    await bench.finish(calls[1])
    await bench.finish(calls[0], ConsumeResult.SUCCESS)
    assert bench.acknowledger.acked == [3, 4, 5, 0, 1, 2]
    assert bench.queue.unacknowledged == 1
    assert bench.queue.has_room.is_set()


@pytest.mark.virtual_time
async def test_refused_messages_are_redelivered_with_growing_delays() -> None:
    bench = _Bench(call_size=2)
    (call,) = bench.submit(2, reconsume_times=1)
    await bench.finish(call, error=ValueError("no"))
    assert bench.acknowledger.later == [(0, 30), (1, 30)]
    call = bench.submit(2)[-1]
    await bench.finish(call, ConsumeResult.SUCCESS, context=ConsumeContext(QUEUE, ack_index=0, delay_level=5))
    assert bench.acknowledger.acked == [0]
    assert bench.acknowledger.later[2:] == [(1, 60)]


@pytest.mark.virtual_time
async def test_dead_letters() -> None:
    bench = _Bench(max_reconsume_times=2)
    await bench.finish(bench.submit(1, reconsume_times=1)[-1], ConsumeResult.LATER)
    assert (bench.acknowledger.buried, bench.acknowledger.later) == ([], [(0, 30)])
    await bench.finish(bench.submit(1, reconsume_times=2)[-1], ConsumeResult.LATER)
    assert bench.acknowledger.buried == [0]
    assert bench.acknowledger.acked == [0]
    at_once = ConsumeContext(QUEUE, delay_level=-1)
    await bench.finish(bench.submit(1)[-1], ConsumeResult.LATER, context=at_once)
    assert bench.acknowledger.buried == [0, 0]


@pytest.mark.virtual_time
async def test_a_late_result_is_ignored() -> None:
    bench = _Bench()
    (call,) = bench.submit(1)
    assert call.begin(bench.loop.time())
    await asyncio.sleep(_INVISIBLE_SECONDS)
    call.elapsed_seconds = _INVISIBLE_SECONDS
    bench.service.done(call)
    assert call.exceeded(1e9), "it took longer than it could, however long calls may take"
    assert bench.acknowledger.acked == []
    assert bench.queue.unacknowledged == 0
    assert bench.service.statistics.topics["T"].counts.refused == 1


@pytest.mark.virtual_time
async def test_no_call_begins_after_the_invisible_time() -> None:
    bench = _Bench()
    first, second = bench.submit(2)
    bench.queue.closing = True
    await bench.finish(first)
    assert bench.acknowledger.later == [(0, 0)]
    bench.queue.closing = False
    await asyncio.sleep(_INVISIBLE_SECONDS)
    await bench.finish(second)
    assert second.skipped
    assert bench.acknowledger.later == [(0, 0)]
    assert bench.acknowledger.acked == []


@pytest.mark.virtual_time
async def test_popped_messages_without_a_worker_are_redelivered() -> None:
    bench = _Bench(capacity=1)
    bench.submit(3)
    await bench.service.quiesce(bench.queue, 1.0)
    assert bench.acknowledger.later == [(1, 5.0), (2, 5.0)]
    assert bench.queue.unacknowledged == 1


@pytest.mark.virtual_time
async def test_acknowledgement_failures_are_logged_and_messages_redelivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = _Bench()
    bench.acknowledger.broken = True
    first, second = bench.submit(2)
    await bench.finish(first)
    await bench.finish(second, ConsumeResult.LATER)
    assert [record.message.count("is redelivered") for record in caplog.records] == [1, 1]


def test_retry_delays_of_popped_messages() -> None:
    message = MessageExt("T")
    for attempts, seconds in ((0, 10), (1, 30), (2, 60), (12, 1200), (15, 7200), (99, 7200)):
        message.reconsume_times = attempts
        assert retry_seconds(message, 0) == seconds
    assert [retry_seconds(message, level) for level in (1, 2, 18, 99)] == [1, 5, 7200, 7200]


@pytest.mark.parametrize("bad", [{"max_messages": 0}, {"max_messages": 33}, {"invisible_seconds": 0.5}])
def test_settings_that_brokers_would_refuse(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        PopSettings(**bad)
