"""The pop loop of one source in virtual time: its requests and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from rmq_client import ClientError, ConsumerTiming, PopSettings
from rmq_client.consumer.pop.pop_process_queue import PopProcessQueue
from rmq_client.consumer.pop.source_popper import SourcePopper
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_client.consumer.processing.statistics import ConsumerStatistics
from rmq_client.consumer.requests.pop_client import PopResult
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.consumer.subscription import Subscription
from rmq_client.errors import TimedOut
from rmq_client.network.routing import TopicRoute
from rmq_remoting.message import MessageExt
from tests.unit.client.consumer.listener_support import messages

_ERROR_PAUSE_SECONDS = ConsumerTiming().error_pause_seconds


class _Client:
    """Answers pops from a script; after it there are no messages and no notifications."""

    def __init__(self, *script: list[MessageExt] | PopResult | ClientError) -> None:
        self.script = list(script)
        self.attempts: list[str | None] = []
        self.asked_for_news: list[bool] = []

    async def pop(
        self,
        address: str,
        source: PopSource,
        subscription: Subscription,
        max_messages: int,
        invisible_ms: int,
        *,
        in_order: bool,
        attempt_id: str | None,
    ) -> PopResult:
        self.attempts.append(attempt_id)
        outcome = self.script.pop(0) if self.script else []
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome if isinstance(outcome, PopResult) else PopResult(outcome, [])

    async def has_messages(self, address: str, source: PopSource, poll_ms: int, *, in_order: bool) -> bool:
        self.asked_for_news.append(in_order)
        await asyncio.sleep(poll_ms / 1000)
        return False


class _Routes:
    def __init__(self) -> None:
        self.existing = {"T": TopicRoute("T", (), (), {"b": {0: "b:1"}})}
        self.failed: list[str] = []

    def request_failed(self, topic: str) -> None:
        self.failed.append(topic)


class _Consumption:
    def __init__(self, *, in_order: bool) -> None:
        self.in_order = in_order
        self.statistics = ConsumerStatistics()
        self.consumed: list[int] = []
        self.given_back: list[int] = []

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        self.consumed += [message.queue_offset for message in messages]

    def ack_all(self, messages: Iterable[MessageExt]) -> None:
        """Expect no unwanted messages."""

    def make_visible(self, queue: PopProcessQueue, messages: list[MessageExt]) -> None:
        self.given_back += [message.queue_offset for message in messages]

    def close(self, queue: PopProcessQueue) -> None:
        queue.closing = True


class _Bench:
    def __init__(self, *script: list[MessageExt] | PopResult | ClientError, in_order: bool) -> None:
        self.client = _Client(*script)
        self.service = _Consumption(in_order=in_order)
        self.routes = _Routes()
        self.told: list[ClientError | None] = []
        self.popper = SourcePopper(
            PopProcessQueue(PopSource("T", "b"), asyncio.get_running_loop().time()),
            client=self.client,  # type: ignore[arg-type]
            service=self.service,
            routes=self.routes,  # type: ignore[arg-type]
            settings=PopSettings(),
            timing=ConsumerTiming(),
            subscription=lambda: Subscription("T", "*", 1),
            is_suspended=lambda: False,
            failing=lambda _, error: self.told.append(error),
        )

    async def run(self, seconds: float) -> None:
        task = asyncio.ensure_future(self.popper.run())
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.wait([task])
        await self.popper.finish()


@pytest.mark.virtual_time
async def test_a_lost_pop_answer_is_requested_again_with_the_same_attempt_id() -> None:
    """Otherwise the broker would hold back the queue until the invisible time of the lost messages ends."""
    bench = _Bench(messages([0]), TimedOut("no answer"), messages([1, 2]), in_order=True)
    await bench.run(_ERROR_PAUSE_SECONDS + 1)
    first, lost, again, last = bench.client.attempts
    assert lost == again
    assert len({first, lost, last}) == 3
    assert None not in bench.client.attempts
    assert bench.service.consumed == [0, 1, 2]
    assert bench.client.asked_for_news == [True]
    assert bench.routes.failed == ["T"]
    assert [type(error) for error in bench.told] == [TimedOut, type(None)]


@pytest.mark.virtual_time
async def test_concurrent_pops_have_no_attempt_id() -> None:
    bench = _Bench(messages([0]), TimedOut("no answer"), in_order=False)
    await bench.run(_ERROR_PAUSE_SECONDS + 1)
    assert bench.client.attempts == [None, None, None]
    assert bench.client.asked_for_news == [False]


@pytest.mark.virtual_time
async def test_messages_popped_after_the_stop_become_visible_again() -> None:
    bench = _Bench(messages([0]), in_order=True)
    task = asyncio.ensure_future(bench.popper.run())
    await asyncio.sleep(0)
    bench.service.close(bench.popper.queue)
    task.cancel()
    await asyncio.wait([task])
    await bench.popper.finish()
    assert (bench.service.consumed, bench.service.given_back) == ([], [0])


@pytest.mark.virtual_time
async def test_undecoded_messages_become_visible_again() -> None:
    bench = _Bench(
        PopResult(messages([0]), [], messages([1, 2])), PopResult([], [], messages([3])), in_order=False
    )
    await bench.run(1.0)
    assert (bench.service.consumed, bench.service.given_back) == ([0], [1, 2, 3])
    assert len(bench.client.attempts) == 3


class _FasterOthers(_Client):
    """Announces messages that other consumers have popped by the time of the pop."""

    def __init__(self) -> None:
        super().__init__()
        self.popped_at: list[float] = []

    async def pop(self, *arguments: Any, **options: Any) -> PopResult:
        self.popped_at.append(asyncio.get_running_loop().time())
        return await super().pop(*arguments, **options)

    async def has_messages(self, *_: Any, **__: Any) -> bool:
        return True


@pytest.mark.virtual_time
async def test_pauses_after_vain_pops_are_bounded_and_random() -> None:
    bench = _Bench(in_order=False)
    bench.client = bench.popper._client = client = _FasterOthers()  # type: ignore[assignment]
    await bench.run(20.0)

    pauses = [later - earlier for earlier, later in pairwise(client.popped_at)]
    longest = [0.01 * 2**number for number in range(6)]
    assert pauses[0] == 0.0
    shares = [pause / most for pause, most in zip(pauses[1:7], longest, strict=True)]
    shares += [pause / 0.64 for pause in pauses[7:]]
    assert len(shares) > 30
    assert 0.4999 < min(shares) < 0.99
    assert max(shares) < 1.0001
