"""Common part of concurrent and ordered consumption: listener calls in flight and direct consumption."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message import MessageExt

from ...errors import UnreadableBody
from ..offsets.offset_store import OffsetStore
from .listener import ConsumeResult, ListenerKind, OrderlyContext
from .listener_call import ListenerCall
from .message_state import MessageEvent
from .process_queue import ProcessQueue
from .runners import Runner
from .statistics import ConsumerStatistics

log = logging.getLogger(__name__)

_DIRECT_RESULTS = {
    ConsumeResult.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeResult.LATER: CMResult.CR_LATER,
    ConsumeResult.COMMIT: CMResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: CMResult.CR_ROLLBACK,
}


class Clock(Protocol):
    """The part of a loop that decides about delays."""

    def time(self) -> float:
        """Return seconds of a monotonic clock."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call back after a delay."""


class ConsumeService(ABC):
    """Has the listener called for pulled messages, and handles the outcomes.

    Belongs to the network loop.
    """

    def __init__(self, kind: ListenerKind, offsets: OffsetStore, clock: Clock) -> None:
        self.statistics = ConsumerStatistics()
        self._kind = kind
        self._offsets = offsets
        self._clock = clock
        self._runner: Runner | None = None
        self._in_flight: set[ListenerCall] = set()
        self._direct: dict[ListenerCall, asyncio.Future[None]] = {}
        # Tasks besides calls that must end before a process queue is idle.
        self._follow_ups: dict[asyncio.Task[None], ProcessQueue] = {}
        self._watched: dict[ProcessQueue, asyncio.Event] = {}

    def attach(self, runner: Runner) -> None:
        """Set the runner of the listener; its outcomes are passed to `done`."""
        self._runner = runner

    @abstractmethod
    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Submit messages to the listener; the process queue holds them already."""

    @abstractmethod
    def _handle_outcome(self, call: ListenerCall, process_queue: ProcessQueue) -> None:
        """Handle the end of a call. Its result is ignored if the queue was dropped."""

    def done(self, call: ListenerCall) -> None:
        """Handle a call that has ended, or was cancelled before it began."""
        process_queue = call.process_queue
        if process_queue is None:
            waiting = self._direct.pop(call, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
            return
        self._in_flight.discard(call)
        if process_queue.dropped:
            log.debug("result of a call ignored, the queue was given up queue=%s", process_queue.queue)
        self._handle_outcome(call, process_queue)
        self._notify(process_queue)

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Have one message consumed apart from all queues, for an administrator. Raises CommandError."""
        call = ListenerCall([message], None)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._direct[call] = waiting
        try:
            if not self._attached().submit([call]):
                raise CommandError(
                    ResponseCode.SYSTEM_BUSY,
                    "too many messages wait for the listener, or the consumer is shutting down",
                )
            await waiting
        finally:
            self._direct.pop(call, None)
        if call.skipped:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the consumer is shutting down")
        context = call.context
        return ConsumeMessageDirectlyResult(
            consume_result=self._direct_result(call),
            remark=None if call.error is None else repr(call.error),
            spent_time_ms=int(call.elapsed_seconds * 1000),
            order=self._kind.orderly,
            auto_commit=context.auto_commit if isinstance(context, OrderlyContext) else True,
        )

    async def quiesce(self, process_queue: ProcessQueue, timeout_seconds: float) -> bool:
        """Wait until a closing process queue is idle; whether that came in time."""
        event = self._watched[process_queue] = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.is_busy(process_queue):
                    event.clear()
                    await event.wait()
        except TimeoutError:
            return False
        finally:
            del self._watched[process_queue]
        return True

    def is_busy(self, process_queue: ProcessQueue) -> bool:
        """Whether the listener has messages of it, or some are being sent back to a broker."""
        return any(self._concerns(one, process_queue) for one in self._follow_ups.values()) or any(
            call.process_queue is not None
            and call.is_running
            and self._concerns(call.process_queue, process_queue)
            for call in self._in_flight
        )

    def _concerns(self, one: ProcessQueue, process_queue: ProcessQueue) -> bool:
        """Whether work for `one` keeps the other from being idle."""
        return one is process_queue

    async def stop(self, grace_seconds: float) -> None:
        """Wait for calls in progress and their follow-ups."""
        if self._runner is not None:
            await self._runner.stop(grace_seconds)
        await self.finish_follow_ups(grace_seconds)

    async def finish_follow_ups(self, grace_seconds: float) -> None:
        """Wait for the follow-ups of finished calls."""
        if self._follow_ups:
            await asyncio.wait(list(self._follow_ups), timeout=grace_seconds)
        for task in list(self._follow_ups):
            task.cancel()

    # --- for the services ---

    def _hand_over(self, calls: list[ListenerCall]) -> int:
        """Submit calls, and return how many were accepted."""
        taken = self._attached().submit(calls)
        self._in_flight.update(calls if taken == len(calls) else calls[:taken])
        return taken

    def _finish(self, process_queue: ProcessQueue, messages: list[MessageExt], event: MessageEvent) -> None:
        """Remove finished messages, and advance the offset."""
        offset = process_queue.finish(messages, event, self._clock.time())
        if offset is not None and not process_queue.dropped:
            self._offsets.advance(process_queue.queue, offset)

    def _count(self, process_queue: ProcessQueue, call: ListenerCall, consumed: int, refused: int) -> None:
        recorder = self.statistics.of(process_queue.queue.topic, self._clock.time())
        recorder.called(consumed, refused, call.elapsed_seconds)

    def _start_follow_up(self, process_queue: ProcessQueue, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        task.set_name(f"rmq refused messages of {process_queue.queue}")
        self._follow_ups[task] = process_queue
        task.add_done_callback(self._follow_up_ended)

    def _follow_up_ended(self, task: asyncio.Task[None]) -> None:
        process_queue = self._follow_ups.pop(task)
        self._notify(process_queue)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed name=%s", task.get_name(), exc_info=error)

    def _notify(self, process_queue: ProcessQueue) -> None:
        for watched, event in self._watched.items():
            if self._concerns(process_queue, watched):
                event.set()

    def _log_error(self, call: ListenerCall, process_queue: ProcessQueue) -> None:
        if call.error is not None and not isinstance(call.error, UnreadableBody):
            log.error(
                "listener failed message=%s queue=%s; the message is redelivered",
                call.messages[0].msg_id,
                process_queue.queue,
                exc_info=call.error,
            )

    def _direct_result(self, call: ListenerCall) -> CMResult:
        if call.error is not None:
            return CMResult.CR_THROW_EXCEPTION
        if call.result is None and self._kind.none_means is ConsumeResult.LATER:
            return CMResult.CR_RETURN_NULL
        return _DIRECT_RESULTS[call.result or ConsumeResult.SUCCESS]

    def _attached(self) -> Runner:
        assert self._runner is not None, "attach() comes before the first message"
        return self._runner
