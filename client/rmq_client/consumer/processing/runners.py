"""Runners of listeners: functions in the consumer's own threads, coroutines on the application's loop.

The network thread hands calls over and gets their outcomes back. It waits for neither. The number of waiting
calls is bounded; further calls are returned to their submitter.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ...errors import UsageError
from ...network.mailbox import Mailbox
from .listener_call import ListenerCall, ListenerCaller

log = logging.getLogger(__name__)

# Calls that may wait for a worker.
DEFAULT_CAPACITY: Final = 32_768
# Yield to other tasks after this number of calls: a coroutine that never waits would block the loop.
_CALLS_BEFORE_OTHERS: Final = 16


class Runner(Protocol):
    """Runs the listener."""

    def submit(self, calls: Sequence[ListenerCall]) -> int:
        """Have the listener called for each; outcomes are passed to the runner's `on_done`, on the network
        loop.

        Returns how many calls were accepted, from the front: fewer than all if too many wait.
        """

    async def stop(self, grace_seconds: float) -> bool:
        """Wait for calls in progress, and start no others; whether all ended in time."""


OnDone = Callable[[ListenerCall], None]


def make_runner(
    caller: ListenerCaller,
    workers: int,
    name: str,
    application_loop: asyncio.AbstractEventLoop,
    network_loop: asyncio.AbstractEventLoop,
    on_done: OnDone,
) -> Runner:
    """Return the runner for the kind of listener."""
    if workers < 1:
        raise UsageError(f"{workers} workers: must be at least 1")
    if caller.kind.is_coroutine:
        return TaskRunner(caller, workers, application_loop, network_loop, on_done)
    return ThreadRunner(caller, workers, name, network_loop, on_done)


class ThreadRunner:
    """Calls a function in its own threads."""

    def __init__(
        self,
        caller: ListenerCaller,
        workers: int,
        name: str,
        network_loop: asyncio.AbstractEventLoop,
        on_done: OnDone,
        *,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self._caller = caller
        self._calls: queue.SimpleQueue[ListenerCall | None] = queue.SimpleQueue()
        self._done: Mailbox[ListenerCall | None] = Mailbox(network_loop, self._collect)
        self._on_done = on_done
        self._capacity = capacity
        self._handed_over = 0
        self._running = workers
        self._all_ended = asyncio.Event()
        self._stopping = False
        self._name = name
        for number in range(workers):
            threading.Thread(target=self._main, name=f"{name}-{number}", daemon=True).start()

    def submit(self, calls: Sequence[ListenerCall]) -> int:
        """Queue the calls; none once the threads are stopping."""
        if self._stopping:
            return 0
        taken = min(len(calls), max(0, self._capacity - self._handed_over))
        self._handed_over += taken
        for call in calls[:taken]:
            self._calls.put(call)
        return taken

    async def stop(self, grace_seconds: float) -> bool:
        """Let calls in progress end within the grace time."""
        self._stopping = True
        for _ in range(self._running):
            self._calls.put(None)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._all_ended.wait()
        except TimeoutError:
            log.warning(
                "listener still running at the stop consumer=%s calls=%d after_seconds=%s; their messages "
                "are redelivered",
                self._name,
                self._running,
                grace_seconds,
            )
            return False
        return True

    def _main(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._stopping:
                call.skip()
            else:
                self._caller.invoke(call)
            self._done.put(call)
        self._done.put(None)

    def _collect(self, done: list[ListenerCall | None]) -> None:
        for call in done:
            if call is not None:
                self._handed_over -= 1
                _tell(self._on_done, call)
            else:
                self._running -= 1
                if not self._running:
                    self._all_ended.set()


class TaskRunner:
    """Calls a coroutine function in tasks on the application's loop, at most `workers` at a time.

    A task continues with the next call as long as there is one. Each task starts another one if there are
    more calls than its own. So a listener that never waits is served by few tasks, and one that waits by all
    of them.
    """

    def __init__(
        self,
        caller: ListenerCaller,
        workers: int,
        application_loop: asyncio.AbstractEventLoop,
        network_loop: asyncio.AbstractEventLoop,
        on_done: OnDone,
        *,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self._caller = caller
        self._workers = workers
        self._loop = application_loop
        self._incoming: Mailbox[Sequence[ListenerCall]] = Mailbox(application_loop, self._accept)
        self._done: Mailbox[ListenerCall] = Mailbox(network_loop, self._collect)
        self._on_done = on_done
        self._capacity = capacity
        self._waiting: deque[ListenerCall] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        # Calls handed over without an outcome so far, counted on the network loop.
        self._handed_over = 0
        self._idle = asyncio.Event()
        self._idle.set()

    # --- on the network loop ---

    def submit(self, calls: Sequence[ListenerCall]) -> int:
        """Hand the calls over to the application's loop."""
        taken = min(len(calls), max(0, self._capacity - self._handed_over))
        if taken:
            self._handed_over += taken
            self._idle.clear()
            self._incoming.put(calls if taken == len(calls) else calls[:taken])
        return taken

    async def stop(self, grace_seconds: float) -> bool:
        """Let calls in progress end within the grace time; then cancel them."""
        self._stopping = True
        if self._loop.is_closed():
            return True
        try:
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning(
                "listener still running at the stop calls=%d after_seconds=%s; cancelled, their messages "
                "are redelivered",
                self._handed_over,
                grace_seconds,
            )
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._cancel_all)
            return False
        return True

    def _collect(self, done: list[ListenerCall]) -> None:
        self._handed_over -= len(done)
        for call in done:
            _tell(self._on_done, call)
        if not self._handed_over:
            self._idle.set()

    # --- on the application's loop ---

    def _accept(self, submitted: list[Sequence[ListenerCall]]) -> None:
        for calls in submitted:
            self._waiting.extend(calls)
        self._start_worker()

    def _start_worker(self) -> None:
        if self._waiting and len(self._tasks) < self._workers:
            task = self._loop.create_task(self._main(), name="rmq listener")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _main(self) -> None:
        waiting, invoke, done = self._waiting, self._caller.invoke_async, self._done.put
        task = asyncio.current_task()
        assert task is not None
        finished = 0
        while waiting:
            call = waiting.popleft()
            if not finished:
                self._start_worker()
            finished += 1
            try:
                if self._stopping:
                    call.skip()
                else:
                    await invoke(call)
            finally:
                done(call)
            if task.cancelling():
                return  # by its listener, for example; another task takes its place
            if finished % _CALLS_BEFORE_OTHERS == 0:
                await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start_worker()

    def _cancel_all(self) -> None:
        for call in self._waiting:
            call.skip()
            self._done.put(call)
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()


def _tell(on_done: OnDone, call: ListenerCall) -> None:
    """Pass an outcome on; a failure must not lose the others."""
    try:
        on_done(call)
    except Exception:
        log.exception("outcome of a listener call lost")
