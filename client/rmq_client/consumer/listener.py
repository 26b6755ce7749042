"""Listeners: what an application does with messages, and where that runs.

A function runs in one of the consumer's own threads, a coroutine as a task on the loop that the consumer was
started on. Either way the network thread hands the work over and gets the outcome back; it waits for neither.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias, cast

from rmq_remoting.message import MessageExt

from ..crossing import Mailbox
from ..errors import UsageError
from .process_queue import ProcessQueue

log = logging.getLogger("rmq.client.listener")


class ConsumeResult(Enum):
    """What a listener says about the messages that it was given."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


ListenerOutcome: TypeAlias = ConsumeResult | None
Listener: TypeAlias = (
    Callable[[list[MessageExt]], ListenerOutcome] | Callable[[list[MessageExt]], Awaitable[ListenerOutcome]]
)
"""Gets messages of one queue, at most `consume_batch_size`. To return nothing means that all went well;
ConsumeResult.LATER, or any exception, that the messages are to come again."""


@dataclass(slots=True, eq=False)
class Work:
    """Messages for one call of the listener. An administrator's order has no process queue."""

    messages: list[MessageExt]
    process_queue: ProcessQueue | None
    result: ListenerOutcome = None
    error: BaseException | None = None
    skipped: bool = False
    elapsed_seconds: float = 0.0

    @property
    def is_void(self) -> bool:
        """Whether nobody wants it done any more."""
        return self.process_queue is not None and self.process_queue.dropped


class Runner(Protocol):
    """Where listeners run."""

    def submit(self, work: Work) -> None:
        """Have the listener called; the outcome comes to the runner's `on_done`, on the network loop."""

    async def stop(self, grace_seconds: float) -> None:
        """Wait for the calls under way, and begin no others."""


def make_runner(
    listener: Listener,
    workers: int,
    name: str,
    application_loop: asyncio.AbstractEventLoop,
    network_loop: asyncio.AbstractEventLoop,
    on_done: Callable[[Work], None],
) -> Runner:
    """The runner that fits the listener."""
    if workers < 1:
        raise UsageError(f"{workers} workers cannot consume anything: at least 1 is needed")
    if _is_coroutine_function(listener):
        coroutine = cast(Callable[[list[MessageExt]], Awaitable[ListenerOutcome]], listener)
        return TaskRunner(coroutine, workers, application_loop, network_loop, on_done)
    function = cast(Callable[[list[MessageExt]], ListenerOutcome], listener)
    return ThreadRunner(function, workers, name, network_loop, on_done)


def _is_coroutine_function(listener: Listener) -> bool:
    function: object = listener
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        raise UsageError(f"the listener must be a function or a coroutine function, not {listener!r}")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # its kind is asked, not whether it is there
    )


class ThreadRunner:
    """Calls a function in threads of its own.

    What waits here is bounded by the flow control of the process queues.
    """

    def __init__(
        self,
        listener: Callable[[list[MessageExt]], ListenerOutcome],
        workers: int,
        name: str,
        network_loop: asyncio.AbstractEventLoop,
        on_done: Callable[[Work], None],
    ) -> None:
        self._listener = listener
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: Mailbox[Work | None] = Mailbox(network_loop, self._collect)
        self._on_done = on_done
        self._running = workers
        self._all_ended = asyncio.Event()
        self._stopping = False
        self._name = name
        for number in range(workers):
            threading.Thread(target=self._main, name=f"{name}-{number}", daemon=True).start()

    def submit(self, work: Work) -> None:
        """Queue the work."""
        self._work.put(work)

    async def stop(self, grace_seconds: float) -> None:
        """Let the calls under way end, but no longer than the grace."""
        self._stopping = True
        for _ in range(self._running):
            self._work.put(None)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._all_ended.wait()
        except TimeoutError:
            log.warning(
                "%s: %d calls of the listener did not end within %s s; their messages will come again",
                self._name,
                self._running,
                grace_seconds,
            )

    def _main(self) -> None:
        while (work := self._work.get()) is not None:
            if self._stopping or work.is_void:
                work.skipped = True
            else:
                _call(self._listener, work)
            self._done.put(work)
        self._done.put(None)

    def _collect(self, done: list[Work | None]) -> None:
        for work in done:
            if work is not None:
                _tell(self._on_done, work)
            else:
                self._running -= 1
                if not self._running:
                    self._all_ended.set()


def _call(listener: Callable[[list[MessageExt]], ListenerOutcome], work: Work) -> None:
    began = time.monotonic()
    try:
        work.result = _checked(listener(work.messages))
    except BaseException as error:  # whatever a listener does, its thread lives on
        work.error = error
    work.elapsed_seconds = time.monotonic() - began


class TaskRunner:
    """Calls a coroutine function in tasks on the application's loop, at most `workers` at a time."""

    def __init__(
        self,
        listener: Callable[[list[MessageExt]], Awaitable[ListenerOutcome]],
        workers: int,
        application_loop: asyncio.AbstractEventLoop,
        network_loop: asyncio.AbstractEventLoop,
        on_done: Callable[[Work], None],
    ) -> None:
        self._listener = listener
        self._workers = workers
        self._loop = application_loop
        self._incoming: Mailbox[Work] = Mailbox(application_loop, self._accept)
        self._done: Mailbox[Work] = Mailbox(network_loop, self._collect)
        self._on_done = on_done
        self._waiting: deque[Work] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        # Counted on the network loop: what was handed over and has not come back.
        self._handed_over = 0
        self._idle = asyncio.Event()
        self._idle.set()

    # --- on the network loop ---

    def submit(self, work: Work) -> None:
        """Hand the work over to the application's loop."""
        self._handed_over += 1
        self._idle.clear()
        self._incoming.put(work)

    async def stop(self, grace_seconds: float) -> None:
        """Let the tasks under way end, but no longer than the grace; then they are cancelled."""
        self._stopping = True
        if self._loop.is_closed():
            return
        try:
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning(
                "%d calls of the listener did not end within %s s and are cancelled; their messages will "
                "come again",
                self._handed_over,
                grace_seconds,
            )
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._cancel_all)

    def _collect(self, done: list[Work]) -> None:
        self._handed_over -= len(done)
        for work in done:
            _tell(self._on_done, work)
        if not self._handed_over:
            self._idle.set()

    # --- on the application's loop ---

    def _accept(self, works: list[Work]) -> None:
        self._waiting.extend(works)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._tasks) < self._workers:
            work = self._waiting.popleft()
            if self._stopping or work.is_void:
                work.skipped = True
                self._done.put(work)
                continue
            task = self._loop.create_task(self._run(work), name="rmq listener")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _run(self, work: Work) -> None:
        began = self._loop.time()
        try:
            work.result = _checked(await self._listener(work.messages))
        except BaseException as error:
            work.error = error
            if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit)):
                raise
        finally:
            work.elapsed_seconds = self._loop.time() - began
            self._done.put(work)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start_waiting()

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()


def _tell(on_done: Callable[[Work], None], work: Work) -> None:
    """One outcome that cannot be dealt with must not take the others with it."""
    try:
        on_done(work)
    except Exception:
        log.exception("the outcome of a listener's call was lost")


def _checked(outcome: object) -> ListenerOutcome:
    if outcome is None or isinstance(outcome, ConsumeResult):
        return outcome
    if inspect.iscoroutine(outcome):
        outcome.close()
        raise UsageError(
            "the listener gave back a coroutine: define it with `async def`, so that it is awaited"
        )
    raise UsageError(f"the listener must return None or a ConsumeResult, not {outcome!r}")
