"""Concurrent consumption: messages of a queue in any order; refused ones are sent back to the broker."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...errors import ClientError
from ..offsets.offset_store import OffsetStore
from .listener import DEAD_LETTER, ConsumeContext, ListenerKind
from .listener_call import ListenerCall, consumed_count, is_unreadable
from .message_state import MessageEvent
from .process_queue import ProcessQueue
from .send_back import RetryRules
from .service import Clock, ConsumeService

log = logging.getLogger(__name__)

# Delay level of messages that time out (Apache RocketMQ 5.3.3, ProcessQueue.cleanExpiredMsg).
_TIMED_OUT_LEVEL: Final = 3

SendMessageBack = Callable[[MessageExt, MessageQueue, int], Awaitable[None]]
"""Has a message of a queue redelivered after a delay level. Raises ClientError."""


@dataclass(frozen=True, slots=True)
class ConcurrentSettings:
    """`retry_seconds`: pause after a message could not be sent back, or too many calls waited."""

    batch_size: int = 1
    retry_seconds: float = 5.0
    timeout_seconds: float = 900.0


class ConcurrentService(ConsumeService):
    """Divides pulled messages into calls of the listener.

    The rules are those of Apache RocketMQ 5.3.3, ConsumeMessageConcurrentlyService.
    """

    def __init__(
        self,
        kind: ListenerKind,
        offsets: OffsetStore,
        clock: Clock,
        settings: ConcurrentSettings,
        rules: RetryRules,
        send_back: SendMessageBack | None,
    ) -> None:
        """Without `send_back`, in broadcasting, refused messages are logged and skipped."""
        super().__init__(kind, offsets, clock)
        self._settings = settings
        self._rules = rules
        self._send_back = send_back

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Submit messages to the listener; the process queue holds them already."""
        process_queue.move(messages, MessageEvent.TAKEN)
        size = self._settings.batch_size
        if size == 1:
            calls = [ListenerCall([message], process_queue) for message in messages]
        else:
            calls = [
                ListenerCall(messages[start : start + size], process_queue)
                for start in range(0, len(messages), size)
            ]
        self._submit(calls)

    def clean_expired(self) -> None:
        """Send back messages whose calls took too long; later results of these calls are ignored."""
        now = self._clock.time()
        for call in list(self._in_flight):
            process_queue, began = call.process_queue, call.started_at
            if process_queue is None or began is None or call.abandoned:
                continue
            if now - began > self._settings.timeout_seconds and not process_queue.dropped:
                log.warning(
                    "listener timed out message=%s queue=%s after_seconds=%.0f; the message is redelivered",
                    call.messages[0].msg_id,
                    process_queue.queue,
                    now - began,
                )
                call.abandoned = True
                self._count(process_queue, call, 0, len(call.messages))
                self._handle_refused(process_queue, call.messages, _TIMED_OUT_LEVEL, MessageEvent.TIMED_OUT)

    # --- outcomes ---

    def _handle_outcome(self, call: ListenerCall, process_queue: ProcessQueue) -> None:
        if process_queue.dropped or call.abandoned:
            return
        messages = call.messages
        if call.skipped:
            process_queue.move(messages, MessageEvent.NOT_BEGUN)
            return
        consumed = consumed_count(call, self._kind)
        self._count(process_queue, call, consumed, len(messages) - consumed)
        if consumed == len(messages):
            self._finish(process_queue, messages, MessageEvent.SUCCEEDED)
            return
        self._log_error(call, process_queue)
        if consumed:
            self._finish(process_queue, messages[:consumed], MessageEvent.SUCCEEDED)
        level = call.context.delay_level if isinstance(call.context, ConsumeContext) else 0
        unreadable = [message for message in messages if is_unreadable(call, message)]
        if unreadable:
            self._handle_refused(process_queue, unreadable, DEAD_LETTER, MessageEvent.REFUSED)
        refused = [message for message in messages[consumed:] if not is_unreadable(call, message)]
        if refused:
            self._handle_refused(process_queue, refused, level, MessageEvent.REFUSED)

    def _handle_refused(
        self, process_queue: ProcessQueue, messages: list[MessageExt], delay_level: int, event: MessageEvent
    ) -> None:
        if self._send_back is None:
            for message in messages:
                log.warning(
                    "message skipped, broadcast messages are not redelivered id=%s queue=%s",
                    message.msg_id,
                    process_queue.queue,
                )
            self._finish(process_queue, messages, MessageEvent.SUCCEEDED)
            return
        process_queue.move(messages, event)
        self._start_follow_up(
            process_queue, self._send_back_all(self._send_back, process_queue, messages, delay_level)
        )

    async def _send_back_all(
        self,
        send_back: SendMessageBack,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        delay_level: int,
    ) -> None:
        """Send messages back one by one, and retry here those that cannot be sent back."""
        kept: list[MessageExt] = []
        for message in messages:
            try:
                is_last = self._rules.is_last(message, delay_level)
                await send_back(message, process_queue.queue, delay_level)
            except ClientError as error:
                log.warning("message not sent back id=%s cause=%s; it is retried here", message.msg_id, error)
                kept.append(message)
                continue
            except Exception:
                log.exception("message not sent back id=%s; it is retried here", message.msg_id)
                kept.append(message)
                continue
            if process_queue.dropped:
                return
            event = MessageEvent.DEAD_LETTERED if is_last else MessageEvent.SENT_BACK
            self._finish(process_queue, [message], event)
        if kept and not process_queue.dropped:
            self._clock.call_later(self._settings.retry_seconds, self._resubmit, process_queue, kept)
            for message in kept:
                message.reconsume_times += 1

    def _resubmit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if process_queue.closing:
            return
        process_queue.move(messages, MessageEvent.TRIED_AGAIN)
        self.submit(process_queue, messages)

    # --- overload ---

    def _submit(self, calls: list[ListenerCall]) -> None:
        taken = self._hand_over(calls)
        if taken < len(calls):
            log.warning(
                "listener overloaded waiting_calls=%d further_calls=%d; these are submitted again in %s s",
                len(self._in_flight),
                len(calls) - taken,
                self._settings.retry_seconds,
            )
            self._clock.call_later(self._settings.retry_seconds, self._submit_again, calls[taken:])

    def _submit_again(self, calls: list[ListenerCall]) -> None:
        wanted = [call for call in calls if call.process_queue is not None and not call.process_queue.closing]
        if wanted:
            self._submit(wanted)
