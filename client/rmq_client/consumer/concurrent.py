"""Consuming without order: messages of a queue side by side, and later again what the listener refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult
from rmq_remoting.message import MessageExt

from .listener import ConsumeResult, Runner, Work
from .offset_store import OffsetStore
from .process_queue import ProcessQueue

log = logging.getLogger("rmq.client.consume")

SendBack = Callable[[list[MessageExt]], Awaitable[list[MessageExt]]]
"""Gives refused messages to the broker, which delivers them again later; returns those that it did not take.

The seam for the brokers' retry topics: what is not sent back is tried again from here.
"""


class Clock(Protocol):
    """What of a loop decides about delays."""

    def time(self) -> float:
        """Seconds of a monotonic clock."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call back after a delay."""


@dataclass(slots=True)
class ConsumeCounts:
    """Plain counters of one topic."""

    consumed: int = 0
    refused: int = 0
    seconds: float = 0.0


class ConcurrentService:
    """Cuts what was pulled into calls of the listener, and does what their outcomes ask for.

    Belongs to the network loop.
    """

    def __init__(
        self,
        offsets: OffsetStore,
        clock: Clock,
        *,
        batch_size: int,
        retry_seconds: float,
        send_back: SendBack | None = None,
    ) -> None:
        """`retry_seconds`: after which a refused message is tried again from here."""
        self._offsets = offsets
        self._clock = clock
        self._batch_size = batch_size
        self._retry_seconds = retry_seconds
        self._send_back = send_back
        self._runner: Runner | None = None
        self._direct: dict[int, asyncio.Future[Work]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: dict[str, ConsumeCounts] = {}

    def attach(self, runner: Runner) -> None:
        """Where the listener runs; its outcomes come to `done`."""
        self._runner = runner

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Have the messages consumed; the process queue holds them already."""
        size = self._batch_size
        runner = self._attached()
        for start in range(0, len(messages), size):
            runner.submit(Work(messages[start : start + size], process_queue))

    def done(self, work: Work) -> None:
        """A call of the listener has ended."""
        process_queue = work.process_queue
        if process_queue is None:
            waiting = self._direct.pop(id(work), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(work)
            return
        if work.skipped or process_queue.dropped:
            return
        counts = self.counts.setdefault(process_queue.queue.topic, ConsumeCounts())
        counts.seconds += work.elapsed_seconds
        if work.error is None and work.result is not ConsumeResult.LATER:
            counts.consumed += len(work.messages)
            self._consumed(process_queue, work.messages)
            return
        counts.refused += len(work.messages)
        if work.error is not None:
            log.error(
                "the listener failed with message %s (%s); it comes again in %s s",
                work.messages[0].msg_id,
                process_queue.queue,
                self._retry_seconds,
                exc_info=work.error,
            )
        self._refused(process_queue, [message for message in work.messages if process_queue.holds(message)])

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """One message apart from all queues, on an administrator's order."""
        work = Work([message], None)
        waiting: asyncio.Future[Work] = asyncio.get_running_loop().create_future()
        self._direct[id(work)] = waiting
        try:
            self._attached().submit(work)
            await waiting
        finally:
            self._direct.pop(id(work), None)
        result = CMResult.CR_SUCCESS
        if work.error is not None:
            result = CMResult.CR_THROW_EXCEPTION
        elif work.result is ConsumeResult.LATER:
            result = CMResult.CR_LATER
        return ConsumeMessageDirectlyResult(
            consume_result=result,
            remark=None if work.error is None else repr(work.error),
            spent_time_ms=int(work.elapsed_seconds * 1000),
        )

    async def stop(self, grace_seconds: float) -> None:
        """Wait for the calls under way."""
        if self._runner is not None:
            await self._runner.stop(grace_seconds)
        for task in list(self._tasks):
            task.cancel()

    def _consumed(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        offset = process_queue.remove(messages, self._clock.time())
        if offset is not None and not process_queue.dropped:
            self._offsets.advance(process_queue.queue, offset)

    def _refused(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if self._send_back is None:
            self._later(process_queue, messages)
            return
        task = asyncio.ensure_future(self._give_back(self._send_back, process_queue, messages))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back(
        self, send_back: SendBack, process_queue: ProcessQueue, messages: list[MessageExt]
    ) -> None:
        try:
            kept = await send_back(messages)
        except Exception:
            log.exception(
                "messages of %s could not be sent back; they are tried again here", process_queue.queue
            )
            kept = messages
        kept_offsets = {message.queue_offset for message in kept}
        self._consumed(
            process_queue, [message for message in messages if message.queue_offset not in kept_offsets]
        )
        if kept:
            self._later(process_queue, kept)

    def _later(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        self._clock.call_later(self._retry_seconds, self._again, process_queue, messages)

    def _again(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if process_queue.dropped:
            return
        for message in messages:
            message.reconsume_times += 1
        self.submit(process_queue, messages)

    def _attached(self) -> Runner:
        assert self._runner is not None, "attach() comes before the first message"
        return self._runner
