"""Calls of rebalance listeners: in turn, bounded, and without effect on the consumer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rmq_client import MessageQueue, RebalanceListener
from rmq_client.consumer.rebalancing.rebalance_listener import RebalanceCalls
from rmq_client.namespaces import Namespace

_QUEUE = MessageQueue("T", "b", 0)


def _calls(
    listener: RebalanceListener | None, namespace: str = "", timeout_seconds: float = 5
) -> RebalanceCalls:
    loop = asyncio.get_running_loop()
    return RebalanceCalls(listener, loop, Namespace(namespace), timeout_seconds=timeout_seconds)


class _Recorder(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[list[MessageQueue]] = []

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        self.calls.append(queues)


async def test_names_are_those_of_the_application_without_retry_topics() -> None:
    recorder = _Recorder()
    calls = _calls(recorder, "shop")
    await calls.revoked([MessageQueue("shop%U", "b", 1), MessageQueue("shop%T", "b", 0)])
    await calls.revoked([MessageQueue("%RETRY%shop%g", "b", 0)])
    await calls.revoked([])
    await calls.assigned([_QUEUE])
    await calls.lost([_QUEUE])
    assert recorder.calls == [[_QUEUE, MessageQueue("U", "b", 1)]]


async def test_without_a_listener_nothing_happens() -> None:
    calls = _calls(None)
    for call in (calls.assigned, calls.revoked, calls.lost):
        with pytest.raises(StopIteration):
            call([_QUEUE]).send(None)


async def test_one_call_at_a_time() -> None:
    running = 0

    class Listener(RebalanceListener):
        async def on_lost(self, queues: list[MessageQueue]) -> None:
            await self.on_assigned(queues)

        async def on_assigned(self, queues: list[MessageQueue]) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1

    calls = _calls(Listener())
    await asyncio.gather(*(call([_QUEUE]) for call in (calls.lost, calls.assigned) for _ in range(3)))
    assert running == 0


async def test_exceptions_and_slow_calls_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    cancelled = asyncio.Event()

    class Listener(RebalanceListener):
        def on_assigned(self, queues: list[MessageQueue]) -> None:
            raise RuntimeError("no")

        async def on_revoked(self, queues: list[MessageQueue]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    await _calls(Listener()).assigned([_QUEUE])
    await _calls(Listener(), timeout_seconds=0.01).revoked([_QUEUE])
    assert cancelled.is_set()
    assert "rebalance listener failed method=on_assigned" in caplog.text
    assert "rebalance listener too slow method=on_revoked after_seconds=0.01" in caplog.text


def test_coroutines_run_on_the_loop_of_the_application() -> None:
    threads: list[str] = []

    class Listener(RebalanceListener):
        async def on_assigned(self, queues: list[MessageQueue]) -> None:
            threads.append(threading.current_thread().name)

    application = asyncio.new_event_loop()
    thread = threading.Thread(target=application.run_forever, name="application")
    thread.start()

    async def call() -> None:
        await RebalanceCalls(Listener(), application, Namespace("")).assigned([_QUEUE])

    try:
        asyncio.run(call())
    finally:
        application.call_soon_threadsafe(application.stop)
        thread.join()
        application.close()
    asyncio.run(call())
    assert threads == ["application"], "a loop that has ended gets no calls"
