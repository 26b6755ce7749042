"""Ordered consumption: one call at a time for each queue, and no message before its predecessor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...checks import check_seconds
from ...errors import ClientError
from ..offsets.offset_store import OffsetStore
from .listener import ConsumeResult, ListenerKind, OrderlyContext
from .listener_call import ListenerCall, is_unreadable, result_of
from .message_state import MessageEvent, MessageState
from .process_queue import ProcessQueue
from .service import Clock, ConsumeService

log = logging.getLogger(__name__)

# Apache RocketMQ 5.3.3, ConsumeMessageOrderlyService.
_MAX_SECONDS_IN_A_ROW: Final = 60.0
_YIELD_SECONDS: Final = 0.01
_LOCK_SECONDS: Final = 0.1
_LOCK_AGAIN_SECONDS: Final = 3.0
_MIN_SUSPEND_SECONDS: Final = 0.01
_MAX_SUSPEND_SECONDS: Final = 30.0

SendToDeadLetters = Callable[[MessageExt], Awaitable[None]]
"""Makes a message a dead letter. Raises ClientError."""
Relock = Callable[[ProcessQueue], Awaitable[bool]]
"""Requests the lock of a queue from the broker; whether this consumer has it."""


@dataclass(frozen=True, slots=True)
class OrderlySettings:
    """`max_reconsume_times`: repetitions before a message becomes a dead letter; None: no limit."""

    batch_size: int = 1
    retry_seconds: float = 5.0
    suspend_seconds: float = 1.0
    max_reconsume_times: int | None = None


class OrderlyService(ConsumeService):
    """Calls the listener for one batch of a queue after the other."""

    def __init__(
        self,
        kind: ListenerKind,
        offsets: OffsetStore,
        clock: Clock,
        settings: OrderlySettings,
        relock: Relock,
        send_to_dead_letters: SendToDeadLetters | None,
    ) -> None:
        """Without `send_to_dead_letters`, in broadcasting, a message is repeated until it is consumed.

        A message that is rejected, or whose body is unreadable, is skipped then.
        """
        super().__init__(kind, offsets, clock)
        self._settings = settings
        self._relock = relock
        self._send_to_dead_letters = send_to_dead_letters
        # Queues with a call, or a follow-up of its result, in progress. By queue and not by process queue, so
        # that a queue that was dropped and taken again has one call at a time, too.
        self._turns: dict[MessageQueue, ProcessQueue] = {}
        self._next: dict[MessageQueue, ProcessQueue] = {}
        self._paused: dict[ProcessQueue, asyncio.TimerHandle] = {}
        self._busy_since: dict[MessageQueue, float] = {}

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Start the next call of the queue, if it is idle."""
        self._start_next_call(process_queue)

    def _start_next_call(self, process_queue: ProcessQueue) -> None:
        """Start the next call, unless something prevents it."""
        queue = process_queue.queue
        if process_queue.closing or process_queue in self._paused:
            return
        if queue in self._turns:
            if self._turns[queue] is not process_queue:
                self._next[queue] = process_queue
            return
        now = self._clock.time()
        if now >= process_queue.lock_expires_at:
            self._pause(process_queue, _LOCK_SECONDS, self._lock_again)
            return
        if now - self._busy_since.setdefault(queue, now) > _MAX_SECONDS_IN_A_ROW:
            # Other queues wait for a worker, too.
            del self._busy_since[queue]
            self._pause(process_queue, _YIELD_SECONDS, self._start_next_call)
            return
        messages = process_queue.take(self._settings.batch_size)
        if not messages:
            self._busy_since.pop(queue, None)
            return
        self._turns[queue] = process_queue
        if not self._hand_over([ListenerCall(messages, process_queue)]):
            process_queue.move(messages, MessageEvent.NOT_BEGUN)
            self._end_turn(process_queue)
            self._pause(process_queue, self._settings.retry_seconds, self._start_next_call)

    def _concerns(self, one: ProcessQueue, process_queue: ProcessQueue) -> bool:
        """Compare by queue: the listener may still work for a process queue that was replaced."""
        return one.queue == process_queue.queue

    # --- outcomes ---

    def _handle_outcome(self, call: ListenerCall, process_queue: ProcessQueue) -> None:
        if process_queue.dropped:
            self._end_turn(process_queue)
        elif call.skipped:
            process_queue.move(call.messages, MessageEvent.NOT_BEGUN)
            self._end_turn(process_queue)
            self._start_next_call(process_queue)
        else:
            self._handle_result(call, process_queue)

    def _handle_result(self, call: ListenerCall, process_queue: ProcessQueue) -> None:
        result = result_of(call, self._kind)
        context = call.context if isinstance(call.context, OrderlyContext) else None
        if context is None or context.auto_commit:
            # Without manual commits, COMMIT and ROLLBACK both mean that the messages are consumed.
            result = ConsumeResult.LATER if result is ConsumeResult.LATER else ConsumeResult.COMMIT
        is_refused = result in (ConsumeResult.LATER, ConsumeResult.ROLLBACK)
        count = len(call.messages)
        self._count(process_queue, call, 0 if is_refused else count, count if is_refused else 0)
        if result is ConsumeResult.LATER:
            self._log_error(call, process_queue)
            process_queue.move(call.messages, MessageEvent.REFUSED)
            self._start_follow_up(process_queue, self._repeat(process_queue, call, context))
            return
        process_queue.uncommitted += call.messages
        if result is not ConsumeResult.SUCCESS:
            uncommitted, process_queue.uncommitted = process_queue.uncommitted, []
            if result is ConsumeResult.ROLLBACK:
                process_queue.move(uncommitted, MessageEvent.REFUSED)
                self._suspend(process_queue, context)
                return
            self._finish(process_queue, uncommitted, MessageEvent.SUCCEEDED)
        self._end_turn(process_queue)
        self._start_next_call(process_queue)

    async def _repeat(
        self, process_queue: ProcessQueue, call: ListenerCall, context: OrderlyContext | None
    ) -> None:
        """Make rejected, unreadable and exhausted messages dead letters, and redeliver the others after a
        pause.
        """
        left = True
        try:
            rejects = context is not None and context.dead_letter
            left = await self._dead_letter_some(process_queue, call, rejects)
        except Exception:
            log.exception("refused messages not handled queue=%s; they are retried", process_queue.queue)
        if left:
            self._suspend(process_queue, context)
        else:
            self._end_turn(process_queue)
            self._start_next_call(process_queue)

    async def _dead_letter_some(self, process_queue: ProcessQueue, call: ListenerCall, rejects: bool) -> bool:
        """Make those messages dead letters that are not retried; whether any message is left for a retry.

        `rejects`: the listener wants no retry of any message.
        """
        left = [
            message
            for message in call.messages
            if not await self._is_dead_lettered(
                process_queue, message, rejects or is_unreadable(call, message)
            )
        ]
        for message in left:
            message.reconsume_times += 1
        return bool(left)

    async def _is_dead_lettered(
        self, process_queue: ProcessQueue, message: MessageExt, is_hopeless: bool
    ) -> bool:
        limit = self._settings.max_reconsume_times
        send = self._send_to_dead_letters
        is_exhausted = send is not None and limit is not None and message.reconsume_times >= limit
        if not (is_hopeless or is_exhausted):
            return False
        try:
            if send is not None:
                await send(message)
        except ClientError as error:
            log.warning(
                "message not sent to the dead letters id=%s cause=%s; it is retried", message.msg_id, error
            )
            return False
        if not process_queue.dropped:
            self._finish(process_queue, [message], MessageEvent.DEAD_LETTERED)
        return True

    def _suspend(self, process_queue: ProcessQueue, context: OrderlyContext | None) -> None:
        """Pause the queue; its refused messages come first afterwards."""
        seconds = self._settings.suspend_seconds
        if context is not None and context.suspend_seconds is not None:
            seconds = check_seconds("context.suspend_seconds", context.suspend_seconds)
        self._end_turn(process_queue)
        seconds = min(max(seconds, _MIN_SUSPEND_SECONDS), _MAX_SUSPEND_SECONDS)
        self._pause(process_queue, seconds, self._retry_refused)

    def _retry_refused(self, process_queue: ProcessQueue) -> None:
        process_queue.move(process_queue.in_state(MessageState.WAITING_RETRY), MessageEvent.TRIED_AGAIN)
        self._start_next_call(process_queue)

    def _end_turn(self, process_queue: ProcessQueue) -> None:
        """End the turn of a process queue; its replacement may begin."""
        queue = process_queue.queue
        if self._turns.get(queue) is process_queue:
            del self._turns[queue]
        following = self._next.pop(queue, None)
        if following is not None:
            self._busy_since.pop(queue, None)
            self._start_next_call(following)

    # --- pauses and locks ---

    def _pause(
        self, process_queue: ProcessQueue, seconds: float, then: Callable[[ProcessQueue], None]
    ) -> None:
        if process_queue.closing or process_queue in self._paused:
            return
        self._busy_since.pop(process_queue.queue, None)
        self._paused[process_queue] = self._clock.call_later(seconds, self._pause_ended, process_queue, then)

    def _pause_ended(self, process_queue: ProcessQueue, then: Callable[[ProcessQueue], None]) -> None:
        del self._paused[process_queue]
        if not process_queue.closing:
            then(process_queue)

    def _lock_again(self, process_queue: ProcessQueue) -> None:
        self._start_follow_up(process_queue, self._relock_and_continue(process_queue))

    async def _relock_and_continue(self, process_queue: ProcessQueue) -> None:
        if await self._relock(process_queue):
            self._start_next_call(process_queue)
        else:
            self._pause(process_queue, _LOCK_AGAIN_SECONDS, self._lock_again)
