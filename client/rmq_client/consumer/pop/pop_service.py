"""Concurrent consumption by POP: calls of the listener and the handling of their outcomes.

A popped message belongs to this consumer until the end of its invisible time, whatever happens to the group.
(Apache RocketMQ 5.3.3, ConsumeMessagePopConcurrentlyService.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from rmq_remoting.message import MessageExt

from ...errors import ClientError
from ..offsets.offset_store import NoOffsets
from ..processing.listener import DEAD_LETTER, ConsumeContext, ListenerKind
from ..processing.listener_call import ListenerCall, consumed_count, is_unreadable
from ..processing.process_queue import ProcessQueue
from ..processing.service import Clock, ConsumeService
from .acknowledger import PopAcknowledger, retry_seconds
from .pop_process_queue import PopProcessQueue, pop_queue
from .settings import PopSettings

log = logging.getLogger(__name__)

# Invisible time of messages that found too many calls waiting (Apache RocketMQ 5.3.3: 5 s).
_FULL_SECONDS: Final = 5.0


class PopListenerCall(ListenerCall):
    """A call with messages that belong to this consumer until `expires_at`."""

    __slots__ = ("expires_at",)

    def __init__(self, messages: list[MessageExt], queue: PopProcessQueue, expires_at: float) -> None:
        super().__init__(messages, queue)
        self.expires_at = expires_at

    def begin(self, now: float) -> bool:
        """Start the call, on the worker; whether the listener may be called."""
        if now < self.expires_at:
            return super().begin(now)
        self.skip()
        return False

    def exceeded(self, limit_seconds: float) -> bool:
        """Whether others may have got the messages before the end of the call."""
        return self.started_at is not None and self.started_at + self.elapsed_seconds >= self.expires_at


class PopService(ConsumeService):
    """Divides popped messages into calls of the listener. Belongs to the network loop."""

    in_order: Final = False

    def __init__(
        self,
        kind: ListenerKind,
        clock: Clock,
        settings: PopSettings,
        acknowledger: PopAcknowledger,
        *,
        call_size: int = 1,
        max_reconsume_times: int | None = None,
    ) -> None:
        """`call_size`: messages of one call.

        After `max_reconsume_times` repetitions a message becomes a dead letter; None leaves it to the broker.
        """
        super().__init__(kind, NoOffsets(), clock)
        self._settings = settings
        self._acknowledger = acknowledger
        self._call_size = call_size
        self._max_reconsume_times = max_reconsume_times

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Submit messages of the last pop to the listener."""
        queue = pop_queue(process_queue)
        expires_at = queue.last_pull_at + self._settings.invisible_seconds
        size = self._call_size
        calls: list[ListenerCall] = [
            PopListenerCall(messages[start : start + size], queue, expires_at)
            for start in range(0, len(messages), size)
        ]
        queue.unacknowledged += len(messages)
        taken = self._hand_over(calls)
        if taken < len(calls):
            log.warning(
                "listener overloaded waiting_calls=%d; further messages are redelivered", len(self._in_flight)
            )
        for call in calls[taken:]:
            queue.unacknowledged -= len(call.messages)
            self.make_visible(queue, call.messages, _FULL_SECONDS)

    def close(self, queue: PopProcessQueue) -> None:
        """Start no more calls; waiting messages become visible again when their calls come up."""
        queue.closing = True

    def make_visible(self, queue: PopProcessQueue, messages: list[MessageExt], seconds: float = 0.0) -> None:
        """Make messages visible again after that time."""
        self._start_follow_up(queue, self._acknowledger.make_visible(messages, seconds))

    def ack_all(self, messages: Iterable[MessageExt]) -> None:
        """Acknowledge messages."""
        self._acknowledger.ack_all(messages)

    def _handle_outcome(self, call: ListenerCall, process_queue: ProcessQueue) -> None:
        queue = pop_queue(process_queue)
        messages = call.messages
        queue.unacknowledged -= len(messages)
        queue.has_room.set()
        now = self._clock.time()
        queue.last_consumed_at = now
        is_late = isinstance(call, PopListenerCall) and now >= call.expires_at
        if call.skipped:
            if is_late:
                log.warning(
                    "messages waited longer than their invisible time count=%d queue=%s; they are "
                    "redelivered",
                    len(messages),
                    queue.queue,
                )
            else:
                self.make_visible(queue, messages)
            return
        consumed = 0 if is_late else consumed_count(call, self._kind)
        self._count(queue, call, consumed, len(messages) - consumed)
        if is_late:
            log.warning(
                "listener took longer than the invisible time message=%s queue=%s; the message is "
                "redelivered",
                messages[0].msg_id,
                queue.queue,
            )
            return
        self.ack_all(messages[:consumed])
        if consumed < len(messages):
            self._log_error(call, queue)
            level = call.context.delay_level if isinstance(call.context, ConsumeContext) else 0
            levels = {
                id(message): DEAD_LETTER if is_unreadable(call, message) else level for message in messages
            }
            self._start_follow_up(queue, self._refuse(messages[consumed:], levels))

    async def _refuse(self, messages: list[MessageExt], delay_levels: dict[int, int]) -> None:
        """Redeliver messages; their delay levels are by object id."""
        await asyncio.gather(*(self._refuse_one(message, delay_levels[id(message)]) for message in messages))

    async def _refuse_one(self, message: MessageExt, delay_level: int) -> None:
        limit = self._max_reconsume_times
        try:
            if delay_level <= DEAD_LETTER or (limit is not None and message.reconsume_times >= limit):
                await self._acknowledger.send_to_dead_letters(message)
                self._acknowledger.ack(message)
            else:
                await self._acknowledger.retry(message, retry_seconds(message, delay_level))
        except ClientError as error:
            log.warning(
                "message not sent back id=%s cause=%s; it is redelivered after its invisible time",
                message.msg_id,
                error,
            )
