"""Polls of one pull consumer: messages of its prefetched queues, for `poll` and for iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rmq_remoting.message import MessageExt

from ...trace.tracer import Tracer
from ..read_ahead import ReadAhead
from .offset_committer import OffsetCommitter
from .prefetch_buffer import PrefetchBuffer, Taken

# Messages that cross to the application's thread at once.
_READ_AHEAD_MESSAGES: Final = 32


class Polling:
    """Takes messages out of a prefetch buffer. Belongs to the application's loop.

    With `committer` set, a poll commits the messages of earlier polls in intervals (`auto_commit`). With
    `tracer` set, polled messages are traced as consumed.
    """

    def __init__(
        self, buffer: PrefetchBuffer, check_running: Callable[[], object], is_running: Callable[[], bool]
    ) -> None:
        """`check_running` raises NotRunning. Waiting ends as soon as `is_running` returns False."""
        # For iterating on the blocking face.
        self.read_ahead: ReadAhead[Taken] = ReadAhead(self._fill_read_ahead)
        self.committer: OffsetCommitter | None = None
        self.tracer: Tracer | None = None
        self._buffer = buffer
        self._check_running = check_running
        self._is_running = is_running

    async def poll(self, max_messages: int, seconds: float) -> list[MessageExt]:
        """Return up to `max_messages` messages; none if none arrive in time. Raises ClientError."""
        self._begin()
        messages = self._take(max_messages)
        if messages or not seconds:
            return messages
        try:
            async with asyncio.timeout(seconds):
                while not messages and self._is_running():
                    await self._wait_for_more()
                    messages = self._take(max_messages)
        except TimeoutError:
            pass
        return messages

    def settle(self) -> None:
        """Take back the messages that the blocking face has not yielded."""
        ahead = self.read_ahead
        if ahead or ahead.last is not None:
            last, ahead.last = ahead.last, None
            self._buffer.give_back(ahead.take_back(), last)

    async def _fill_read_ahead(self) -> None:
        """Wait for messages, and put them into `read_ahead`. Raises ClientError."""
        self._check_running()
        self._begin()
        taken = self._buffer.take_ahead(_READ_AHEAD_MESSAGES)
        while not taken and self._is_running():
            await self._wait_for_more()
            taken = self._buffer.take_ahead(_READ_AHEAD_MESSAGES)
        self._trace([one.message for one in taken])
        self.read_ahead.put(taken)

    def _begin(self) -> None:
        self.settle()
        self._buffer.begin_poll()
        if self.committer is not None and self.committer.is_due():
            self.committer.commit_in_background(self._buffer.positions())

    async def _wait_for_more(self) -> None:
        self._buffer.changed.clear()
        self._buffer.raise_failure()
        await self._buffer.changed.wait()

    def _take(self, max_messages: int) -> list[MessageExt]:
        messages = self._buffer.take(max_messages)
        self._trace(messages)
        return messages

    def _trace(self, messages: list[MessageExt]) -> None:
        if messages and self.tracer is not None:
            self.tracer.consumed_by_poll(messages)
