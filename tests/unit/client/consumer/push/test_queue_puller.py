"""The pull loop in virtual time: its pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmq_client import FlowControl
from rmq_client.consumer.offsets.offset_store import RemoteOffsetStore
from rmq_client.consumer.processing.message_state import MessageEvent
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_client.consumer.push.obstacles import Obstacles
from rmq_client.consumer.push.queue_puller import PullerCallbacks, QueuePuller
from rmq_client.consumer.requests.pull_client import PullResult
from rmq_client.consumer.subscription import Subscription
from rmq_client.consumer.timing import ConsumerTiming
from rmq_client.errors import BrokerUnreachable, Busy, ClientError, broker_error
from rmq_client.network.routing import TopicRoute
from rmq_client.pull_status import PullStatus
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

_QUEUE = MessageQueue("T", "b", 0)
_ROUTE = TopicRoute("T", (_QUEUE,), (_QUEUE,), {"b": {0: "127.0.0.1:1"}})


class _Client:
    """Answers pulls from a script, and records their times and offsets. After the script, pulls hang."""

    def __init__(self, script: list[PullResult | ClientError]) -> None:
        self.script = script
        self.pulls: list[tuple[float, int, int | None]] = []

    async def pull(
        self, route: TopicRoute, queue: MessageQueue, offset: int, subscription: Subscription, **options: Any
    ) -> PullResult:
        self.pulls.append((asyncio.get_running_loop().time(), offset, options["commit_offset"]))
        if not self.script:
            await asyncio.Event().wait()
        outcome = self.script.pop(0)
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome


class _Routes:
    def __init__(self) -> None:
        self.failed: list[str] = []

    async def route(self, topic: str) -> TopicRoute:
        return _ROUTE

    def request_failed(self, topic: str) -> None:
        self.failed.append(topic)


class _Bench:
    def __init__(
        self,
        *script: PullResult | ClientError,
        flow_control: FlowControl = FlowControl(),  # noqa: B008  # a value
        start: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.client = _Client(list(script))
        self.routes = _Routes()
        self.offsets = RemoteOffsetStore("g", None, lambda queue: None)  # type: ignore[arg-type]  # commits nothing
        self.process_queue = ProcessQueue(_QUEUE, self.loop.time())
        self.consumed: list[MessageExt] = []
        self.moved: list[int] = []
        self.announced = 0
        self.told: list[ClientError] = []
        self.suspended = False
        callbacks = PullerCallbacks(
            flow_control=lambda: flow_control,
            subscription=lambda: Subscription("T", "*", 1),
            consume=lambda _, messages: self.consumed.extend(messages),
            start_offset=start or self._start,
            offset_illegal=lambda _, offset: self.moved.append(offset),
            announce=self._announce,
            is_suspended=lambda: self.suspended,
            count_pull=lambda topic, messages, seconds: None,
            obstacles=Obstacles(self.told.append, self.loop),
        )
        self.puller = QueuePuller(
            self.process_queue,
            callbacks,
            client=self.client,  # type: ignore[arg-type]
            routes=self.routes,  # type: ignore[arg-type]
            offsets=self.offsets,
            timing=ConsumerTiming(),
        )

    async def run(self, seconds: float, takeover_seconds: float = 0.0) -> list[float]:
        """Run for some (virtual) time, and return the times of the pulls since the start."""
        began = self.loop.time()
        task = asyncio.ensure_future(self.puller.run(takeover_seconds))
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return [round(when - began, 3) for when, _, _ in self.client.pulls]

    def take_away(self) -> None:
        """Simulate that the listener has consumed all messages."""
        self.process_queue.move(self.consumed, MessageEvent.TAKEN)
        self.process_queue.finish(self.consumed, MessageEvent.SUCCEEDED, 0.0)

    async def _start(self) -> int:
        return 7

    async def _announce(self) -> None:
        self.announced += 1


def _found(*offsets: int) -> PullResult:
    messages = [MessageExt("T", b"x" * 10, queue_offset=offset) for offset in offsets]
    return PullResult(PullStatus.FOUND, max(offsets) + 1, 0, 100, messages)


def _nothing(next_offset: int) -> PullResult:
    return PullResult(PullStatus.NO_NEW_MESSAGE, next_offset, 0, 100, [])


@pytest.mark.virtual_time
async def test_pulls_follow_one_another() -> None:
    bench = _Bench(_found(7, 8), _found(9), _nothing(20))
    assert await bench.run(1.0) == [0, 0, 0, 0]
    assert [offset for _, offset, _ in bench.client.pulls] == [7, 9, 10, 20]
    assert [message.queue_offset for message in bench.consumed] == [7, 8, 9]
    assert len(bench.process_queue) == 3


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("error", "pause", "announced", "route_asked"),
    [
        (broker_error(ResponseCode.SYSTEM_BUSY, "", "b"), 0.02, 0, 0),
        (broker_error(ResponseCode.FLOW_CONTROL, "", "b"), 0.02, 0, 0),
        (broker_error(ResponseCode.SYSTEM_ERROR, "", "b"), 3.0, 0, 0),
        (broker_error(ResponseCode.SUBSCRIPTION_NOT_LATEST, "", "b"), 3.0, 1, 0),
        (BrokerUnreachable("gone"), 3.0, 0, 1),
    ],
)
async def test_pull_failures_are_retried_after_a_pause(
    error: ClientError, pause: float, announced: int, route_asked: int
) -> None:
    bench = _Bench(error, _found(7))
    assert await bench.run(10.0) == [0, pause, pause]
    assert (bench.announced, len(bench.routes.failed)) == (announced, route_asked)
    assert bench.told == ([] if isinstance(error, Busy) else [error])


@pytest.mark.virtual_time
async def test_flow_control_pauses_the_pulls() -> None:
    bench = _Bench(_found(7, 8, 9), flow_control=FlowControl(max_messages=2))
    bench.loop.call_later(1.01, bench.take_away)
    assert await bench.run(10.0) == [0, 1.05]
    assert bench.process_queue.last_pull_at > 1000


@pytest.mark.virtual_time
async def test_a_suspended_consumer_does_not_pull() -> None:
    bench = _Bench()
    bench.suspended = True
    bench.loop.call_later(2.5, lambda: setattr(bench, "suspended", False))
    assert await bench.run(10.0) == [3.0]


@pytest.mark.virtual_time
async def test_the_takeover_of_a_queue_is_delayed() -> None:
    bench = _Bench()
    assert await bench.run(10.0, takeover_seconds=0.5) == [0.5]


@pytest.mark.virtual_time
async def test_the_start_offset_is_requested_until_known() -> None:
    answers: list[int | ClientError] = [BrokerUnreachable("gone"), BrokerUnreachable("gone"), 42]

    async def start() -> int:
        answer = answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    bench = _Bench(start=start)
    assert await bench.run(10.0) == [6.0]
    assert bench.client.pulls[0][1] == 42


@pytest.mark.virtual_time
async def test_an_empty_queue_advances_to_the_pulled_offset() -> None:
    bench = _Bench(_nothing(20), _found(20), _nothing(30))
    await bench.run(1.0)
    assert bench.offsets.get(_QUEUE) == 20, "offset 20 is not consumed yet"
    assert [commit for _, _, commit in bench.client.pulls] == [None, 20, 20, 20]


@pytest.mark.virtual_time
async def test_an_illegal_offset_ends_the_loop() -> None:
    bench = _Bench(PullResult(PullStatus.OFFSET_ILLEGAL, 50, 50, 60, []))
    assert await bench.run(10.0) == [0]
    assert bench.moved == [50]
    assert bench.process_queue.dropped


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("illegal", "pulled_from"),
    [
        (PullResult(PullStatus.OFFSET_ILLEGAL, 50, 50, 60, []), [7, 9, 50, 51]),  # 9 to 49 are deleted
        (PullResult(PullStatus.OFFSET_ILLEGAL, 55, 50, 60, []), [7, 9]),  # reset by an administrator
        (PullResult(PullStatus.OFFSET_ILLEGAL, 3, 0, 3, []), [7, 9]),  # the queue was recreated
    ],
)
async def test_held_messages_survive_the_deletion_of_later_ones(
    illegal: PullResult, pulled_from: list[int]
) -> None:
    bench = _Bench(_found(7, 8), illegal, _found(50))
    await bench.run(1.0)
    assert [offset for _, offset, _ in bench.client.pulls] == pulled_from
    goes_on = len(pulled_from) > 2
    assert bench.process_queue.dropped is not goes_on
    assert bench.moved == ([] if goes_on else [illegal.next_offset])
    assert bench.offsets.get(_QUEUE) is None, "nothing is consumed yet"
    if goes_on:
        assert [message.queue_offset for message in bench.process_queue.messages()] == [7, 8, 50]


@pytest.mark.virtual_time
async def test_a_dropped_queue_is_pulled_no_more() -> None:
    bench = _Bench(_found(7), _found(8))
    bench.puller._consume = lambda queue, _: setattr(queue, "dropped", True)
    assert await bench.run(10.0) == [0]
