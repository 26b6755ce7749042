"""Prefetching of one queue for the application that reads it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...errors import Busy, ClientError, NotRunning
from ...pull_status import PullStatus, moved_text
from ..flow_control import FlowControl
from ..requests.pull_client import PullResult

log = logging.getLogger(__name__)

_BUSY_PAUSE_SECONDS: Final = 0.02
_ERROR_PAUSE_SECONDS: Final = 1.0


class Source(Protocol):
    """Source of the messages."""

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first pull. Raises ClientError."""

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Pull from `offset`. Raises ClientError."""


class PrefetchedQueue:
    """A bounded buffer of one queue's next messages, and the position of the application in the queue.

    Belongs to one loop. `position` is the offset of the next message that is taken, None until it is known.
    `failure` is the reason why no messages arrive, until some do.
    """

    def __init__(
        self,
        queue: MessageQueue,
        source: Source,
        limits: Callable[[], FlowControl],
        arrived: Callable[[PrefetchedQueue], None],
        moved: Callable[[PrefetchedQueue], None],
    ) -> None:
        """`limits` returns the current bounds.

        `arrived` is called when there are messages to take again, or a failure to report. `moved` is called
        when the broker continues at another offset.
        """
        self.queue = queue
        self.position: int | None = None
        self.failure: ClientError | None = None
        self._source = source
        self._limits = limits
        self._arrived = arrived
        self._moved = moved
        self._messages: deque[MessageExt] = deque()
        self._bytes = 0
        self._next_offset: int | None = None
        self._paused = False
        self._held = False
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_given_up = False
        # Counts the moves to another offset.
        self.moves = 0

    # --- for the reader ---

    def __len__(self) -> int:
        """Return how many messages can be taken now."""
        return 0 if self._paused or self._held else len(self._messages)

    def take(self, max_messages: int) -> list[MessageExt]:
        """Return the next messages."""
        messages = [self._messages.popleft() for _ in range(min(len(self), max_messages))]
        if messages:
            self._bytes -= sum(len(message.body) for message in messages)
            # Messages that do not match the subscription may follow the last one.
            after = self._messages[0].queue_offset if self._messages else self._next_offset
            self.position = max(messages[-1].queue_offset + 1, after or 0)
            self._room.set()
        return messages

    def give_back(self, messages: list[MessageExt]) -> None:
        """Put messages that were taken last back to the front."""
        self._messages.extendleft(reversed(messages))
        self._bytes += sum(len(message.body) for message in messages)
        self.position = messages[0].queue_offset
        self._arrived(self)

    def pause(self) -> None:
        """Return no messages, and prefetch no further."""
        self._paused = True

    def resume(self) -> None:
        """Return messages again."""
        self._paused = False
        self._continue()

    def hold(self) -> None:
        """Return no messages while a rebalance listener runs. `resume` does not end this."""
        self._held = True

    def let_go(self) -> None:
        """Return messages again, unless the queue is paused."""
        self._held = False
        self._continue()

    def _continue(self) -> None:
        self._room.set()
        if self._messages:
            self._arrived(self)

    # --- fetching ---

    def start(self, offset: int | None) -> None:
        """Fetch from `offset` on; None: from the group's offset. Not after `stop`."""
        self._go_to(offset)
        if self._is_given_up:
            return
        self._task = asyncio.create_task(self._fetch(), name=f"rmq fetch {self.queue}")
        self._task.add_done_callback(_ended)

    async def stop(self) -> None:
        """Stop fetching: the queue is given up."""
        self._is_given_up = True
        await self._end_task()

    async def restart(self, offset: int | None) -> None:
        """Drop the prefetched messages, and continue at `offset`. The last call wins."""
        self._go_to(offset)
        try:
            await self._end_task()
        finally:  # even for a cancelled caller, fetching must go on
            if self._task is None:
                self.start(self._next_offset)

    async def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _go_to(self, offset: int | None) -> None:
        """Drop the prefetched messages, and set the next offset."""
        self.moves += 1
        self._messages.clear()
        self._bytes = 0
        self._next_offset = self.position = offset

    async def _fetch(self) -> None:
        while True:
            if self._paused or self._held or self._is_full():
                self._room.clear()
                await self._room.wait()
                continue
            try:
                if self._next_offset is None:
                    self._next_offset = self.position = await self._source.first_offset(self.queue)
                result = await self._source.pull(self.queue, self._next_offset)
                self._take_in(result)
            except Busy:
                await asyncio.sleep(_BUSY_PAUSE_SECONDS)
            except NotRunning as error:
                self._fail(error)
                return
            except ClientError as error:
                log.info("queue not readable queue=%s cause=%s; retried", self.queue, error)
                self._fail(error)
                await asyncio.sleep(_ERROR_PAUSE_SECONDS)
            except Exception as error:
                log.exception("queue not readable queue=%s; retried", self.queue)
                failure = ClientError(f"{self.queue} cannot be read now: {error!r}")
                failure.__cause__ = error
                self._fail(failure)
                await asyncio.sleep(_ERROR_PAUSE_SECONDS)

    def _fail(self, error: ClientError) -> None:
        self.failure = error
        self._arrived(self)

    def _is_full(self) -> bool:
        limits = self._limits()
        return len(self._messages) >= limits.max_messages or self._bytes >= limits.max_bytes

    def _take_in(self, result: PullResult) -> None:
        self.failure = None
        moved = False
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s queue=%s offset=%s first=%d end=%d; reading continues at %d",
                moved_text(self._next_offset, result.min_offset, result.max_offset),
                self.queue,
                self._next_offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
            # After an administrator's reset of the group, prefetched messages are useless. If the broker has
            # deleted the next ones, they are still valid.
            moved = not ((self._next_offset or 0) < result.next_offset == result.min_offset)
        self._next_offset = result.next_offset
        if moved:
            self._go_to(result.next_offset)
            self._moved(self)
        if result.messages:
            self._messages.extend(result.messages)
            self._bytes += sum(len(message.body) for message in result.messages)
            self._arrived(self)
        elif not self._messages:
            self.position = result.next_offset


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task failed name=%s", task.get_name(), exc_info=error)
