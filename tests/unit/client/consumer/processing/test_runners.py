"""Runners of listeners: bounds, stops, listeners that cancel, contexts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rmq_client import (
    CallStatus,
    ConsumeContext,
    ConsumeHook,
    ConsumeResult,
    HookContext,
    MessageExt,
    OrderlyContext,
    UsageError,
)
from rmq_client.consumer.processing.listener import inspect_listener
from rmq_client.consumer.processing.listener_call import ListenerCall, ListenerCaller
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_client.consumer.processing.runners import TaskRunner, ThreadRunner, make_runner
from tests.support.rows import each_row
from tests.support.waiting import until
from tests.unit.client.consumer.listener_support import QUEUE, messages


def _calls(count: int, queue: ProcessQueue | None = None) -> list[ListenerCall]:
    queue = queue if queue is not None else ProcessQueue(QUEUE, 0.0)
    return [ListenerCall(messages([offset]), queue) for offset in range(count)]


def _tasks(listener: Callable[..., Any], done: list[ListenerCall], **options: int) -> TaskRunner:
    loop = asyncio.get_running_loop()
    workers = options.pop("workers", 3)
    return TaskRunner(
        ListenerCaller(inspect_listener(listener), "g"), workers, loop, loop, done.append, **options
    )


class _Exits(ConsumeHook):
    """Ends its thread, or the loop, before or after a call."""

    def __init__(self, when: str) -> None:
        self._when = when

    def before(self, context: HookContext) -> None:
        if self._when == "before":
            raise SystemExit(3)

    def after(self, context: HookContext) -> None:
        if self._when == "after":
            raise SystemExit(3)


async def test_a_listener_that_never_waits_needs_few_tasks_and_lets_others_run() -> None:
    done: list[ListenerCall] = []
    tasks: set[object] = set()
    others = 0

    async def listen(received: list[MessageExt]) -> None:
        tasks.add(asyncio.current_task())

    runner = _tasks(listen, done, workers=20)
    assert runner.submit(_calls(500)) == 500
    while len(done) < 500:
        await asyncio.sleep(0)
        others += 1
    assert len(tasks) <= 20
    assert others > 5
    assert all(call.error is None for call in done)


async def test_a_listener_that_waits_gets_all_workers_and_no_more() -> None:
    done: list[ListenerCall] = []
    running = most = 0
    release = asyncio.Event()

    async def listen(received: list[MessageExt]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    runner = _tasks(listen, done, workers=3)
    runner.submit(_calls(2))
    runner.submit(_calls(8))
    await until(lambda: running == 3)
    release.set()
    await until(lambda: len(done) == 10)
    assert most == 3


@pytest.mark.parametrize("when", ["before a wait", "at the end", "by a cancelled future"])
async def test_a_listener_that_cancels_its_task_affects_only_its_message(when: str) -> None:
    done: list[ListenerCall] = []

    async def listen(received: list[MessageExt]) -> None:
        if received[0].queue_offset % 3:
            return
        task = asyncio.current_task()
        assert task is not None
        if when == "by a cancelled future":
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        task.cancel()
        if when == "before a wait":
            await asyncio.sleep(1)

    runner = _tasks(listen, done, workers=2)
    runner.submit(_calls(30))
    await until(lambda: len(done) == 30)
    failed = {call.messages[0].queue_offset for call in done if call.error is not None}
    assert failed == (set() if when == "at the end" else set(range(0, 30, 3)))
    assert await runner.stop(1.0)


async def test_a_worker_thread_survives_any_exception() -> None:
    done: list[ListenerCall] = []
    errors: list[BaseException] = [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), OSError()]

    def listen(received: list[MessageExt]) -> None:
        raise errors[received[0].queue_offset]

    loop = asyncio.get_running_loop()
    runner = ThreadRunner(ListenerCaller(inspect_listener(listen), "g"), 1, "t", loop, done.append)
    runner.submit(_calls(4))
    await until(lambda: len(done) == 4)
    assert [call.error for call in done] == errors
    assert await runner.stop(1.0)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_thread_survives_any_hook_exception(when: str) -> None:
    done: list[ListenerCall] = []
    got: list[int] = []
    loop = asyncio.get_running_loop()
    caller = ListenerCaller(
        inspect_listener(lambda received: got.append(received[0].queue_offset)), "g", [_Exits(when)]
    )
    runner = ThreadRunner(caller, 1, "t", loop, done.append)
    runner.submit(_calls(2))
    await until(lambda: len(done) == 2)
    if when == "before":
        assert [type(call.error) for call in done] == [SystemExit] * 2
        assert got == []
    else:
        assert [call.error for call in done] == [None] * 2
        assert got == [0, 1]
    assert await runner.stop(1.0)


async def test_a_hook_that_exits_counts_as_a_listener_failure() -> None:
    got: list[int] = []

    async def listen(received: list[MessageExt]) -> None:
        got.append(received[0].queue_offset)

    (call,) = _calls(1)
    with pytest.raises(SystemExit):
        await ListenerCaller(inspect_listener(listen), "g", [_Exits("before")]).invoke_async(call)
    assert isinstance(call.error, SystemExit)
    assert got == []


async def test_stopping_threads_accept_no_calls() -> None:
    loop = asyncio.get_running_loop()
    runner = ThreadRunner(ListenerCaller(inspect_listener(print), "g"), 2, "t", loop, lambda call: None)
    assert await runner.stop(1.0)
    assert runner.submit(_calls(1)) == 0


class _Notes(ConsumeHook):
    """Notes the calls that have ended."""

    def __init__(self) -> None:
        self.ended: list[HookContext] = []

    def after(self, context: HookContext) -> None:
        self.ended.append(context)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (None, CallStatus.SUCCESS),
        (ConsumeResult.LATER, CallStatus.FAILED),
        (OSError("down"), CallStatus.EXCEPTION),
    ],
)
async def test_hooks_get_the_outcome_of_each_call(
    kind: str, outcome: ConsumeResult | OSError | None, status: CallStatus
) -> None:
    now = 100.0

    def listen(received: list[MessageExt]) -> ConsumeResult | None:
        nonlocal now
        now += 2.0
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    async def listen_async(received: list[MessageExt]) -> ConsumeResult | None:
        return listen(received)

    hook, (call,) = _Notes(), _calls(1)
    listener = inspect_listener(listen if kind == "function" else listen_async)
    caller = ListenerCaller(listener, "g", [hook], now=lambda: now)
    if kind == "function":
        caller.invoke(call)
    else:
        await caller.invoke_async(call)
    (ended,) = hook.ended
    assert (ended.group, ended.queue, ended.messages) == ("g", QUEUE, call.messages)
    assert (ended.status, ended.elapsed_seconds) == (status, 2.0)
    assert ended.success is (outcome is None)
    assert ended.error is (outcome if isinstance(outcome, OSError) else None)


@each_row("kind", ["function", "coroutine"])
@each_row(
    ("name", "value", "orderly"),
    [
        ("ack_index", "0", False),
        ("ack_index", 0.5, False),
        ("delay_level", "3", False),
        ("delay_level", None, False),
        ("suspend_seconds", "500", True),
        ("suspend_seconds", float("nan"), True),
    ],
)
@each_row("error", [None, OSError()])
async def test_an_invalid_context_counts_as_a_listener_failure(
    kind: str, name: str, value: object, orderly: bool, error: Exception | None
) -> None:
    def listen(received: list[MessageExt], context: object) -> ConsumeResult:
        setattr(context, name, value)
        if error is not None:
            raise error
        return ConsumeResult.SUCCESS

    async def listen_async(received: list[MessageExt], context: object) -> ConsumeResult:
        return listen(received, context)

    (call,) = _calls(1)
    if kind == "function":
        ListenerCaller(inspect_listener(listen, orderly=orderly), "g").invoke(call)
    else:
        await ListenerCaller(inspect_listener(listen_async, orderly=orderly), "g").invoke_async(call)
    if error is None:
        assert isinstance(call.error, UsageError)
        assert name in str(call.error)
    else:
        assert call.error is error
    assert call.context is None, "nothing of it counts"


async def test_a_listener_may_modify_its_list() -> None:
    (call,) = _calls(1)
    ListenerCaller(inspect_listener(lambda received: received.clear()), "g").invoke(call)
    assert len(call.messages) == 1


async def test_calls_above_the_capacity_are_returned() -> None:
    done: list[ListenerCall] = []
    release = asyncio.Event()
    thread_release = threading.Event()

    async def wait(received: list[MessageExt]) -> None:
        await release.wait()

    def sleep(received: list[MessageExt]) -> None:
        thread_release.wait()

    loop = asyncio.get_running_loop()
    threads = ThreadRunner(
        ListenerCaller(inspect_listener(sleep), "g"), 1, "t", loop, done.append, capacity=5
    )
    for runner in (_tasks(wait, done, workers=1, capacity=5), threads):
        assert runner.submit(_calls(3)) == 3
        assert runner.submit(_calls(3)) == 2
        assert runner.submit(_calls(3)) == 0
    release.set()
    thread_release.set()
    await until(lambda: len(done) == 10)
    assert threads.submit(_calls(9)) == 5
    await until(lambda: len(done) == 15)
    assert await threads.stop(1.0)


async def test_a_closing_queue_starts_no_calls() -> None:
    done: list[ListenerCall] = []
    got: list[int] = []
    queue = ProcessQueue(QUEUE, 0.0)

    async def listen(received: list[MessageExt]) -> None:
        got.append(received[0].queue_offset)
        queue.closing = True

    runner = _tasks(listen, done, workers=1)
    runner.submit(_calls(5, queue))
    await until(lambda: len(done) == 5)
    assert got == [0]
    assert [call.skipped for call in done] == [False, True, True, True, True]


async def test_stop_starts_no_calls_and_cancels_hanging_ones() -> None:
    done: list[ListenerCall] = []
    got: list[int] = []

    async def listen(received: list[MessageExt]) -> None:
        got.append(received[0].queue_offset)
        await asyncio.Event().wait()

    runner = _tasks(listen, done, workers=2)
    runner.submit(_calls(10))
    await until(lambda: len(got) == 2)
    assert not await runner.stop(0.01)
    await until(lambda: len(done) == 10)
    assert got == [0, 1]
    assert [type(call.error) for call in done if not call.skipped] == [asyncio.CancelledError] * 2


async def test_listeners_get_a_context_if_they_want_one() -> None:
    contexts: list[object] = []

    def one(received: list[MessageExt]) -> None:
        contexts.append(None)

    def two(received: list[MessageExt], context: object) -> None:
        contexts.append(context)

    def optional(received: list[MessageExt], mine: int = 7) -> None:
        contexts.append(mine)

    for listener, orderly in ((one, False), (two, False), (two, True), (optional, False)):
        (call,) = _calls(1)
        ListenerCaller(inspect_listener(listener, orderly=orderly), "g").invoke(call)
        assert call.error is None
    assert contexts == [None, ConsumeContext(QUEUE), OrderlyContext(QUEUE), 7]
    direct = ListenerCall(messages([3]), None)
    ListenerCaller(inspect_listener(two), "g").invoke(direct)
    assert contexts[-1] == ConsumeContext(QUEUE.__class__("T", "", 0))


async def test_invalid_listeners_and_results_are_refused() -> None:
    with pytest.raises(UsageError, match="must be a function"):
        inspect_listener(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="none_means"):
        inspect_listener(print, none_means=ConsumeResult.COMMIT)
    with pytest.raises(UsageError, match="0 workers"):
        loop = asyncio.get_running_loop()
        make_runner(ListenerCaller(inspect_listener(print), "g"), 0, "t", loop, loop, lambda call: None)
    (call,) = _calls(1)
    ListenerCaller(inspect_listener(lambda received: ConsumeResult.COMMIT), "g").invoke(call)
    assert "only orderly listeners" in str(call.error)
