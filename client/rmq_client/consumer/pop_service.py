"""Consuming what was popped: calls of the listener, and what their outcomes ask for.

A popped message is this consumer's until its invisible time ends, whatever becomes of the group meanwhile.
(Apache RocketMQ 5.3.3, ConsumeMessagePopConcurrentlyService.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import ClientError, UsageError
from .calls import Work, consumed_count
from .listener import DEAD_LETTER, ConsumeContext, ListenerKind
from .offset_store import OffsetStore
from .pop_client import MAX_POPPED, PopSource
from .pop_settling import PopSettling, retry_seconds
from .process_queue import ProcessQueue
from .service import Clock, ConsumeService

log = logging.getLogger("rmq.client.consume")

# Until what found too many calls waiting comes again (Apache RocketMQ 5.3.3: 5 s).
_FULL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class PopSettings:
    """How a push consumer pops, where brokers divide the queues.

    `invisible_seconds`: for so long no other consumer gets a message; what the listener has for longer comes
    again, whatever it says. `batch_size`: messages of one pop. `max_unsettled`: over so many messages of one
    source that wait for the listener or are in its hands, no more are popped.
    """

    invisible_seconds: float = 60.0
    batch_size: int = MAX_POPPED
    max_unsettled: int = 96

    def __post_init__(self) -> None:
        """Refuse what brokers would refuse, or what lets nothing through."""
        if not 1 <= self.batch_size <= MAX_POPPED:
            raise UsageError(
                f"batch_size {self.batch_size}: 1 to {MAX_POPPED} messages can be popped at once"
            )
        if self.invisible_seconds < 1 or self.max_unsettled < 0:
            raise UsageError(f"{self}: at least 1 s, and no negative bound")

    @property
    def invisible_ms(self) -> int:
        """As brokers take it."""
        return round(self.invisible_seconds * 1000)


class PopQueue(ProcessQueue):
    """Where a consumer pops: of a broker's queues, or of one of them. Belongs to one loop.

    `last_pull_at` is when the last pop began. `room` is set when there may be room for more.
    """

    __slots__ = ("room", "source", "unsettled")

    def __init__(self, source: PopSource, now: float) -> None:
        super().__init__(source.queue, now)
        self.source = source
        self.unsettled = 0
        self.room = asyncio.Event()


class PopWork(Work):
    """A call with messages that are this consumer's until `expires_at`."""

    __slots__ = ("expires_at",)

    def __init__(self, messages: list[MessageExt], queue: PopQueue, expires_at: float) -> None:
        super().__init__(messages, queue)
        self.expires_at = expires_at

    def begin(self, now: float) -> bool:
        """Called by a worker first; whether the listener may be called."""
        if now < self.expires_at:
            return super().begin(now)
        self.skip()
        return False

    def overran(self, limit_seconds: float) -> bool:
        """Whether others may have got the messages before the call was over."""
        return self.started_at is not None and self.started_at + self.elapsed_seconds >= self.expires_at


class PopService(ConsumeService):
    """Cuts what was popped into calls of the listener. Belongs to the network loop."""

    in_order: Final = False

    def __init__(
        self,
        kind: ListenerKind,
        clock: Clock,
        settings: PopSettings,
        settling: PopSettling,
        *,
        call_size: int = 1,
        max_reconsume_times: int | None = None,
    ) -> None:
        """`call_size`: messages of one call. After `max_reconsume_times` repetitions a message becomes a dead
        letter; None leaves it to the broker.
        """
        super().__init__(kind, NoOffsets(), clock)
        self._settings = settings
        self._settling = settling
        self._call_size = call_size
        self._max_reconsume_times = max_reconsume_times

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Have messages of the last pop consumed."""
        queue = pop_queue(process_queue)
        expires_at = queue.last_pull_at + self._settings.invisible_seconds
        size = self._call_size
        works: list[Work] = [
            PopWork(messages[start : start + size], queue, expires_at)
            for start in range(0, len(messages), size)
        ]
        queue.unsettled += len(messages)
        taken = self._hand_over(works)
        if taken < len(works):
            log.warning("%d calls wait for the listener: the rest comes again", len(self._under_way))
        for work in works[taken:]:
            queue.unsettled -= len(work.messages)
            self.give_back(queue, work.messages, _FULL_SECONDS)

    def close(self, queue: PopQueue) -> None:
        """Begin nothing more of it: what waits for the listener goes back when it comes to its turn."""
        queue.closing = True

    def give_back(self, queue: PopQueue, messages: list[MessageExt], seconds: float = 0.0) -> None:
        """These messages are to come again, here or elsewhere, after that time."""
        self._start_chore(queue, self._settling.give_back(messages, seconds))

    def acknowledge(self, messages: Iterable[MessageExt]) -> None:
        """These messages are done with."""
        self._settling.acknowledge(messages)

    def _judge(self, work: Work, process_queue: ProcessQueue) -> None:
        queue = pop_queue(process_queue)
        messages = work.messages
        queue.unsettled -= len(messages)
        queue.room.set()
        now = self._clock.time()
        queue.last_consumed_at = now
        is_late = isinstance(work, PopWork) and now >= work.expires_at
        if work.skipped:
            if is_late:
                log.warning(
                    "%d messages of %s waited for the listener for too long", len(messages), queue.queue
                )
            else:
                self.give_back(queue, messages)
            return
        consumed = 0 if is_late else consumed_count(work, self._kind)
        self._count(queue, work, consumed, len(messages) - consumed)
        if is_late:
            log.warning(
                "the listener had message %s (%s) for longer than its invisible time: it comes again",
                messages[0].msg_id,
                queue.queue,
            )
            return
        self.acknowledge(messages[:consumed])
        if consumed < len(messages):
            self._log_error(work, queue)
            level = work.context.delay_level if isinstance(work.context, ConsumeContext) else 0
            self._start_chore(queue, self._refuse(messages[consumed:], level))

    async def _refuse(self, messages: list[MessageExt], delay_level: int) -> None:
        await asyncio.gather(*(self._refuse_one(message, delay_level) for message in messages))

    async def _refuse_one(self, message: MessageExt, delay_level: int) -> None:
        limit = self._max_reconsume_times
        try:
            if delay_level <= DEAD_LETTER or (limit is not None and message.reconsume_times >= limit):
                await self._settling.bury(message)
                self._settling.ack(message)
            else:
                await self._settling.retry_later(message, retry_seconds(message, delay_level))
        except ClientError as error:
            log.warning("message %s comes again when its invisible time ends: %s", message.msg_id, error)


class NoOffsets(OffsetStore):
    """Brokers know themselves how far a group that pops is."""

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """There is none."""
        return None

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """There is nothing to do."""
        return True


def pop_queue(process_queue: ProcessQueue) -> PopQueue:
    assert isinstance(process_queue, PopQueue), "what is popped comes from such a queue"
    return process_queue
