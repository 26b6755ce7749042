"""Ordered consumption by POP: a queue with unacknowledged messages is not popped again by the group.

This needs neither locks nor shares. A queue belongs to this consumer as long as it has unacknowledged
messages of it that are invisible to the others. So the consumer keeps them invisible until the listener has
consumed them. (Apache RocketMQ 5.3.3, ConsumerOrderInfoManager; its Java client pulls ordered topics.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...errors import ClientError
from ..offsets.offset_store import NoOffsets
from ..processing.listener import ListenerKind
from ..processing.message_state import MessageEvent
from ..processing.orderly import OrderlyService, OrderlySettings
from ..processing.process_queue import ProcessQueue
from ..processing.service import Clock
from .acknowledger import PopAcknowledger
from .pop_process_queue import PopProcessQueue, pop_queue
from .settings import PopSettings

log = logging.getLogger(__name__)


class PoppedBatch(ProcessQueue):
    """Messages of one pop and one queue; invisible to others until `lock_expires_at`."""

    __slots__ = ("source", "visibility_lock")

    def __init__(
        self, queue: MessageQueue, source: PopProcessQueue, lock_expires_at: float, now: float
    ) -> None:
        super().__init__(queue, now)
        self.source = source
        self.lock_expires_at = lock_expires_at
        # Held while the invisible times of the messages are changed.
        self.visibility_lock = asyncio.Lock()


class PopOrderlyService(OrderlyService):
    """Calls the listener for one batch of a queue after the other. Belongs to the network loop."""

    in_order: Final = True

    def __init__(
        self,
        kind: ListenerKind,
        clock: Clock,
        settings: OrderlySettings,
        pop_settings: PopSettings,
        acknowledger: PopAcknowledger,
        *,
        consume_timeout_seconds: float,
    ) -> None:
        """A call that takes longer than `consume_timeout_seconds` no longer keeps its queue invisible."""
        super().__init__(
            kind, NoOffsets(), clock, settings, self._on_expired, acknowledger.send_to_dead_letters
        )
        self._invisible_seconds = pop_settings.invisible_seconds
        self._acknowledger = acknowledger
        self._consume_timeout_seconds = consume_timeout_seconds
        self._batches: set[PoppedBatch] = set()

    # --- popped messages ---

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Submit messages of the last pop, those of each queue in their order."""
        source = pop_queue(process_queue)
        source.unacknowledged += len(messages)
        by_queue: defaultdict[MessageQueue, list[MessageExt]] = defaultdict(list)
        for message in messages:
            queue = MessageQueue(source.queue.topic, message.broker_name, message.queue_id)
            by_queue[queue].append(message)
        expires_at = source.last_pull_at + self._invisible_seconds
        for queue, own in by_queue.items():
            popped = PoppedBatch(queue, source, expires_at, self._clock.time())
            popped.put(sorted(own, key=lambda message: message.queue_offset))
            self._batches.add(popped)
            self._start_next_call(popped)

    def ack_all(self, messages: Iterable[MessageExt]) -> None:
        """Acknowledge messages."""
        self._acknowledger.ack_all(messages)

    def make_visible(self, queue: PopProcessQueue, messages: list[MessageExt]) -> None:
        """Make messages visible again."""
        self._start_follow_up(queue, self._acknowledger.make_visible(messages))

    def close(self, queue: PopProcessQueue) -> None:
        """Start no more calls; messages whose call has not begun become visible again."""
        queue.closing = True
        for popped in [popped for popped in self._batches if popped.source is queue]:
            popped.closing = True
            if self._turns.get(popped.queue) is not popped:
                self._release(popped)

    async def renew(self) -> None:
        """Renew the invisible times of all messages; to be called several times per invisible time."""
        now = self._clock.time()
        soon = now + self._invisible_seconds / 2
        due = [popped for popped in self._batches if popped.lock_expires_at < soon]
        await asyncio.gather(*(self._renew(popped, now) for popped in due))

    # --- outcomes ---

    def _finish(self, process_queue: ProcessQueue, messages: list[MessageExt], event: MessageEvent) -> None:
        super()._finish(process_queue, messages, event)
        self._acknowledger.ack_all(messages)
        popped = _batch_of(process_queue)
        self._count_down(popped, len(messages))
        if not len(popped):
            self._batches.discard(popped)

    def _end_turn(self, process_queue: ProcessQueue) -> None:
        popped = _batch_of(process_queue)
        if popped.closing and not popped.dropped:
            self._release(popped)
        super()._end_turn(process_queue)

    def _count_down(self, popped: PoppedBatch, count: int) -> None:
        popped.source.unacknowledged -= count
        popped.source.has_room.set()

    # --- renewing and releasing ---

    async def _renew(self, popped: PoppedBatch, now: float) -> None:
        if now >= popped.lock_expires_at:
            self._drop_expired(popped)
            return
        if self._is_overdue(popped, now):
            return
        async with popped.visibility_lock:
            asked_at = self._clock.time()
            # All of them: one invisible message is enough to keep the queue from the other members.
            messages = [] if popped.dropped else popped.messages()
            kept = await asyncio.gather(*(self._renew_message(message) for message in messages))
            if all(
                is_kept or not popped.holds(message) for message, is_kept in zip(messages, kept, strict=True)
            ):
                popped.lock_expires_at = asked_at + self._invisible_seconds

    async def _renew_message(self, message: MessageExt) -> bool:
        try:
            await self._acknowledger.change_invisible_time(message, self._invisible_seconds)
        except ClientError as error:
            log.info("invisible time not renewed id=%s cause=%s", message.msg_id, error)
            return False
        return True

    def _is_overdue(self, popped: PoppedBatch, now: float) -> bool:
        return any(
            call.process_queue is popped
            and call.started_at is not None
            and now - call.started_at > self._consume_timeout_seconds
            for call in self._in_flight
        )

    async def _on_expired(self, process_queue: ProcessQueue) -> bool:
        """Drop an expired batch: another consumer may have its messages, and they cannot be recovered."""
        self._drop_expired(_batch_of(process_queue))
        return False

    def _drop_expired(self, popped: PoppedBatch) -> None:
        log.warning(
            "invisible time expired queue=%s messages=%d; they are redelivered",
            popped.queue,
            len(popped),
        )
        self._forget(popped)

    def _release(self, popped: PoppedBatch) -> None:
        messages = popped.messages()
        self._forget(popped)
        if messages:
            self._start_follow_up(popped, self._make_visible(popped, messages))

    async def _make_visible(self, popped: PoppedBatch, messages: list[MessageExt]) -> None:
        async with popped.visibility_lock:
            await self._acknowledger.make_visible(messages)

    def _forget(self, popped: PoppedBatch) -> None:
        popped.drop()
        if popped in self._batches:
            self._batches.discard(popped)
            self._count_down(popped, len(popped))


def _batch_of(process_queue: ProcessQueue) -> PoppedBatch:
    assert isinstance(process_queue, PoppedBatch), "this service creates all of them"
    return process_queue
