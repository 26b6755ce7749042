"""Queues that a pull consumer begins to read and gives up, as it assigns them or shares their topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rmq_remoting.message_queue import MessageQueue

from ...tasks import uninterrupted
from ..rebalancing.rebalance_listener import RebalanceCalls
from .offset_committer import OffsetCommitter
from .prefetch_buffer import PrefetchBuffer
from .prefetched_queue import PrefetchedQueue
from .pull_source import PullSource


class QueueChanges:
    """Opens and closes the queues of a prefetch buffer. Belongs to the application's loop."""

    def __init__(
        self,
        buffer: PrefetchBuffer,
        source: PullSource,
        calls: RebalanceCalls,
        committer: OffsetCommitter | None,
        check_running: Callable[[], object],
    ) -> None:
        """`committer` commits the processed messages of queues that are given up (`auto_commit`).

        `check_running` raises NotRunning: no queue is opened after a stop.
        """
        self._buffer = buffer
        self._source = source
        self._calls = calls
        self._committer = committer
        self._check_running = check_running

    def read(self, queue: MessageQueue) -> None:
        """Begin to read a queue at the group's offset. Raises NotRunning."""
        self._check_running()
        self._buffer.open(queue, self._source)

    async def give_up(self, queues: list[MessageQueue]) -> None:
        """Stop reading these queues, and commit their processed messages with `auto_commit`."""
        if not queues:
            return
        processed = self._buffer.processed()
        done = {queue: processed[queue] for queue in queues if queue in processed}
        await uninterrupted(self._stop_and_commit(self._buffer.remove(queues), done))

    async def share(
        self,
        topic: str,
        queues: frozenset[MessageQueue],
        wait_seconds: float,
        is_shared: Callable[[], bool],
    ) -> None:
        """Read these queues of a topic, and no others of it.

        Wait `wait_seconds` before the first new one, so that the previous members can commit. By then the
        consumer may have been stopped, or have given the topic up: `is_shared` tells.
        """
        gone = [queue for queue in self._buffer.queues() if queue.topic == topic and queue not in queues]
        for queue in gone:  # so that on_revoked can commit what poll has returned
            self._buffer.hold(queue)
        await self._calls.revoked(gone)
        await self.give_up(gone)
        fresh = [queue for queue in sorted(queues) if self._buffer.get(queue) is None]
        if fresh and wait_seconds:
            await asyncio.sleep(wait_seconds)
        if is_shared():
            for queue in fresh:
                self.read(queue)
                self._buffer.hold(queue)
            await self._calls.assigned(fresh)
            for queue in fresh:
                self._buffer.let_go(queue)

    async def close_all(self) -> None:
        """Stop reading all queues, and commit nothing."""
        await _stop_each(self._buffer.remove(self._buffer.queues()))

    async def _stop_and_commit(self, fetched: list[PrefetchedQueue], done: dict[MessageQueue, int]) -> None:
        await _stop_each(fetched)
        if self._committer is not None and done:
            await self._committer.commit_or_log(done)


async def _stop_each(fetched: Iterable[PrefetchedQueue]) -> None:
    for one in fetched:
        await one.stop()
