"""Events of a completion queue: failures of the queue, its end, and closed loops. The queue is a stand-in."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from grpc._cython import cygrpc

from rmq_proxy.event_failures import EventFailures
from rmq_proxy.network.completions import MOST_FAILURES, Completions
from tests.support.waiting import until


class _Queue:
    """A queue of events, errors among them. As gRPC's, it ends after `shutdown` and its last event."""

    def __init__(self) -> None:
        self.items: queue.Queue[Any] = queue.Queue()
        # Raised by each poll as long as it is set.
        self.always: Exception | None = None
        self.shutdowns = 0
        self.timeouts = 0  # polls without an event
        self._is_over = False

    def poll(self, deadline: float | None = None) -> Any:
        if self.always is not None:
            raise self.always
        if self._is_over:
            return _event(cygrpc.CompletionType.queue_shutdown)
        try:
            item = self.items.get(block=deadline is None)
        except queue.Empty:
            self.timeouts += 1
            return _event(cygrpc.CompletionType.queue_timeout)
        if self.always is not None:
            raise self.always
        if isinstance(item, Exception):
            raise item
        self._is_over = item.completion_type == cygrpc.CompletionType.queue_shutdown
        return item

    def has_timed_out_after(self, timeouts: int) -> Callable[[], bool]:
        """Return the condition that there are more timeouts than this."""
        return lambda: self.timeouts > timeouts

    def shutdown(self) -> None:
        self.shutdowns += 1
        if self.shutdowns == 1:
            self.items.put(_event(cygrpc.CompletionType.queue_shutdown))


def _event(kind: Any, tag: Callable[[Any], None] | None = None) -> Any:
    return SimpleNamespace(completion_type=kind, tag=tag)


class _Port:
    """Completions of a stand-in queue, with all that they report."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self.failures = EventFailures()
        self.lost = 0
        self.broken = 0
        self.handled: list[int] = []
        self.pauses: list[float] = []
        self.completions = Completions(
            asyncio.get_running_loop(), self.failures, self._on_lost, self._on_broken, self.pauses.append
        )
        self.queue: _Queue = self.completions.queue

    def put(self, number: int) -> None:
        """Add an event, which is handled by noting the number."""
        tag = lambda event: self.handled.append(number)  # noqa: E731 (a tag)
        self.queue.items.put(_event(cygrpc.CompletionType.operation_complete, tag))

    def has_lost(self, number: int) -> Callable[[], bool]:
        """Return the condition that this number of events was lost."""
        return lambda: self.lost == number

    def threads(self) -> list[threading.Thread]:
        """Return the threads that wait for events of the queue."""
        return [each for each in set(threading.enumerate()) - self._before if each.name == "gRPC: events"]

    def _on_lost(self) -> None:
        self.lost += 1

    def _on_broken(self) -> None:
        self.broken += 1


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Callable[[], _Port]:
    monkeypatch.setattr(cygrpc, "CompletionQueue", _Queue)
    return _Port


# --- a queue that raises ---


async def test_events_go_on_after_an_error_in_the_thread(
    port: Callable[[], _Port], caplog: pytest.LogCaptureFixture
) -> None:
    tested = port()
    tested.queue.items.put(MemoryError("no memory"))
    tested.completions.start()
    await until(lambda: tested.lost == 1)
    tested.put(1)
    await until(lambda: tested.handled == [1])
    assert (tested.failures.lost, tested.broken, tested.failures.is_broken) == (1, 0, False)
    assert "gRPC's library lost events count=1 cause=MemoryError: no memory" in caplog.text
    await tested.completions.close()


async def test_events_go_on_after_an_error_in_the_loop(port: Callable[[], _Port]) -> None:
    tested = port()
    tested.put(1)
    # The loop polls for those after the first event.
    for item in (ValueError("bad event"), ValueError("bad event")):
        tested.queue.items.put(item)
    tested.put(2)
    tested.completions.start()
    await until(lambda: tested.handled == [1, 2])
    assert (tested.lost, tested.failures.lost, tested.broken) == (2, 2, 0)
    await tested.completions.close()


async def test_errors_are_logged_once_a_minute(
    port: Callable[[], _Port], caplog: pytest.LogCaptureFixture
) -> None:
    tested = port()
    for number in range(5):
        tested.queue.items.put(ValueError("bad event"))
        tested.put(number)
    tested.completions.start()
    await until(lambda: len(tested.handled) == 5)
    assert tested.lost == 5
    assert caplog.text.count("gRPC's library lost events") == 1
    await tested.completions.close()


async def test_any_number_of_errors_between_events_breaks_nothing(port: Callable[[], _Port]) -> None:
    tested = port()
    for number in range(2 * MOST_FAILURES):
        tested.queue.items.put(ValueError("bad event"))
        tested.put(number)
    tested.completions.start()
    await until(lambda: len(tested.handled) == 2 * MOST_FAILURES)
    assert (tested.lost, tested.broken) == (2 * MOST_FAILURES, 0)
    await tested.completions.close()


async def test_errors_while_nothing_happens_break_nothing(port: Callable[[], _Port]) -> None:
    tested = port()
    tested.completions.start()
    for number in range(2 * MOST_FAILURES):
        answered = tested.queue.timeouts
        tested.queue.items.put(ValueError("bad event"))
        await until(tested.has_lost(number + 1))
        # The thread finds that the queue answers again.
        await until(tested.queue.has_timed_out_after(answered))
    assert tested.broken == 0
    await tested.completions.close()


async def test_a_queue_that_raises_without_end_is_given_up(
    port: Callable[[], _Port], caplog: pytest.LogCaptureFixture
) -> None:
    tested = port()
    tested.queue.always = OSError("no queue")
    tested.completions.start()
    async with asyncio.timeout(20):
        assert await tested.failures.broken() == "OSError: no queue"
        await tested.completions.close()
    assert (tested.failures.lost, tested.lost, tested.broken) == (MOST_FAILURES, MOST_FAILURES - 1, 1)
    assert not tested.completions.is_open
    assert len(tested.pauses) == MOST_FAILURES - 3
    assert tested.pauses == sorted(tested.pauses)
    assert (tested.pauses[0], tested.pauses[-1]) == (0.01, 1.0)
    await until(lambda: not tested.threads())
    assert caplog.text.count("gRPC's library lost events") == 1


async def test_a_queue_that_begins_to_raise_in_the_loop_is_given_up(port: Callable[[], _Port]) -> None:
    tested = port()

    def fail(event: Any) -> None:
        tested.queue.always = OSError("no queue")

    tested.queue.items.put(_event(cygrpc.CompletionType.operation_complete, fail))
    tested.completions.start()
    async with asyncio.timeout(20):
        await tested.failures.broken()
        await tested.completions.close()
    assert tested.broken == 1


async def test_a_tag_that_raises_stops_no_other(
    port: Callable[[], _Port], caplog: pytest.LogCaptureFixture
) -> None:
    tested = port()

    def fail(event: Any) -> None:
        raise ValueError("bad tag")

    for _ in range(3):
        tested.queue.items.put(_event(cygrpc.CompletionType.operation_complete, fail))
    tested.put(1)
    tested.completions.start()
    await until(lambda: tested.handled == [1])
    assert caplog.text.count("events of gRPC calls not handled") == 1
    assert tested.lost == 0
    await tested.completions.close()


# --- the end ---


async def test_a_close_may_be_repeated(port: Callable[[], _Port]) -> None:
    tested = port()
    tested.completions.start()
    async with asyncio.timeout(20):
        await asyncio.gather(tested.completions.close(), tested.completions.close())
        await tested.completions.close()
    assert tested.queue.shutdowns == 1
    await until(lambda: not tested.threads())


async def test_a_cancelled_close_leaves_others_waiting(port: Callable[[], _Port]) -> None:
    tested = port()
    closing = asyncio.ensure_future(tested.completions.close())
    closing.cancel()
    await asyncio.wait([closing])
    async with asyncio.timeout(20):
        await tested.completions.close()


async def test_a_close_before_the_start_handles_what_is_there(port: Callable[[], _Port]) -> None:
    tested = port()
    tested.put(1)
    async with asyncio.timeout(20):
        await tested.completions.close()
    assert tested.handled == [1]
    tested.completions.start()
    await until(lambda: not tested.threads())


async def test_a_repeated_start_has_one_thread(port: Callable[[], _Port]) -> None:
    tested = port()
    tested.completions.start()
    tested.completions.start()
    assert len(tested.threads()) == 1
    await tested.completions.close()


async def test_a_start_without_a_thread_can_be_repeated(
    port: Callable[[], _Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = port()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            tested.completions.start()
    tested.completions.start()
    async with asyncio.timeout(20):
        await tested.completions.close()


@pytest.mark.parametrize("item", ["event", "error"])
def test_the_thread_ends_with_a_closed_loop(
    port: Callable[[], _Port], item: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()

    async def create() -> _Port:
        tested = port()
        tested.completions.start()
        return tested

    tested = loop.run_until_complete(create())
    (thread,) = tested.threads()
    loop.close()
    if item == "event":
        tested.put(1)
    else:
        tested.queue.items.put(ValueError("bad event"))
    thread.join(20)
    assert not thread.is_alive()
    assert tested.handled == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
