"""The queues assigned to this consumer: taken, given up and rebuilt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rmq_remoting.message_queue import MessageQueue

from ...tasks import StartTask
from ..offsets.offset_store import OffsetStore
from ..processing.process_queue import ProcessQueue
from ..processing.service import ConsumeService
from ..rebalancing.rebalance_listener import RebalanceCalls
from ..rebalancing.share import Share
from ..timing import ConsumerTiming
from .queue_locks import LOCK_LIFE_SECONDS, QueueLocks

log = logging.getLogger(__name__)

StartOffset = Callable[[], Awaitable[int]]


class MakePuller(Protocol):
    """Returns the pull loop of a queue."""

    def __call__(
        self, process_queue: ProcessQueue, start_offset: StartOffset | None, takeover_seconds: float
    ) -> Coroutine[Any, Any, None]:
        """Without `start_offset` the loop begins at the group's offset."""


@dataclass(slots=True)
class _Assigned:
    """An assigned queue and the task that pulls it."""

    process_queue: ProcessQueue
    puller: asyncio.Task[None]


class AssignedQueues:
    """The assigned queues of one push consumer. Belongs to the network loop.

    With `locks`, for ordered consumption, a queue is taken only once the broker has granted its lock. The
    lock is released only when the listener has finished.
    """

    def __init__(
        self,
        group: str,
        service: ConsumeService,
        offsets: OffsetStore,
        locks: QueueLocks | None,
        timing: ConsumerTiming,
        make_puller: MakePuller,
        start_task: StartTask,
        calls: RebalanceCalls,
    ) -> None:
        self._calls = calls
        self._group = group
        self._service = service
        self._offsets = offsets
        self._locks = locks
        self._timing = timing
        self._make_puller = make_puller
        self._start_task = start_task
        self._loop = asyncio.get_running_loop()
        self._assigned: dict[MessageQueue, _Assigned] = {}
        # Given up, but the listener has not finished with them yet.
        self._leaving: dict[MessageQueue, ProcessQueue] = {}
        # Of those, the revoked and lost ones: the rebalance listener knows of them.
        self._told: set[ProcessQueue] = set()
        self._stopping = False

    def queues(self) -> list[MessageQueue]:
        """Return the assigned queues, in order."""
        return sorted(self._assigned)

    def count(self, topic: str) -> int:
        """Return the number of assigned queues of the topic."""
        return sum(queue.topic == topic for queue in self._assigned)

    def process_queues(self) -> list[ProcessQueue]:
        """Return their process queues."""
        return [assigned.process_queue for assigned in self._assigned.values()]

    async def apply(self, topic: str, share: Share) -> bool:
        """Take and give up queues of the topic to match the share; whether that is complete."""
        now = self._loop.time()
        held = [queue for queue in self._assigned if queue.topic == topic]
        stuck = [queue for queue in held if self._is_stuck(self._assigned[queue], now)]
        for queue in stuck:
            log.error("queue not pulled for too long queue=%s; it is dropped and rebuilt", queue)
        await self.give_up([queue for queue in held if queue not in share.queues or queue in stuck])
        if self._stopping:
            return True
        new = [queue for queue in sorted(share.queues) if queue not in self._assigned]
        free = [queue for queue in new if queue not in self._leaving]
        taken = await self._take_all(free, 0.0 if share.sole_member else self._timing.takeover_seconds)
        if taken:
            log.info(
                "queues taken group=%s taken=%d share=%d topic=%s",
                self._group,
                taken,
                len(share.queues),
                topic,
            )
        return taken == len(new)

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Give queues up: start no more calls, wait shortly for those in progress, commit, unlock."""
        leaving = [self._close(queue) for queue in queues]
        at_rest = await asyncio.gather(
            *(self._service.quiesce(one, self._timing.drop_wait_seconds) for one in leaving)
        )
        done = []
        for process_queue, is_at_rest in zip(leaving, at_rest, strict=True):
            if is_at_rest or self._locks is None:
                done.append(process_queue)
            else:
                # No other member may begin before the listener has finished: the lock is kept until then.
                process_queue.unlock_attempts += 1
                self._start_task(self._release_later(process_queue), f"release {process_queue.queue}")
        await self._release(done)

    def move(self, process_queue: ProcessQueue, offset: int) -> None:
        """Restart a queue at `offset`, and drop its pulled messages."""
        queue = process_queue.queue
        assigned = self._assigned.get(queue)
        process_queue.drop()
        if assigned is None or assigned.process_queue is not process_queue or self._stopping:
            return
        self._offsets.set(queue, offset)
        self._start_task(self._offsets.commit([queue]), "commit a moved offset")

        async def start_offset() -> int:
            return offset

        self._take(queue, 0.0, start_offset, lock=process_queue)
        if assigned.puller is not asyncio.current_task():
            assigned.puller.cancel()

    def move_queue(self, queue: MessageQueue, offset: int) -> None:
        """Restart an assigned queue at `offset`; nothing for other queues."""
        assigned = self._assigned.get(queue)
        if assigned is not None:
            self.move(assigned.process_queue, offset)

    async def stop(self, grace_seconds: float) -> None:
        """Stop pulling, wait for the listener, commit and unlock all."""
        self._stopping = True
        for assigned in self._assigned.values():
            assigned.puller.cancel()
            assigned.process_queue.closing = True
        await self._service.stop(grace_seconds)
        process_queues = [*self.process_queues(), *self._leaving.values()]
        # Queues that the listener still has stay locked: the broker's lock expires after a minute.
        busy = [one.queue for one in process_queues if self._service.is_busy(one)]
        for process_queue in process_queues:
            process_queue.drop()
        await self._calls.revoked(one.queue for one in process_queues if one not in self._told)
        await self._offsets.commit()
        if self._locks is not None:
            await self._locks.unlock_all_but(busy)
        self._assigned.clear()
        self._leaving.clear()

    # --- locks ---

    async def renew_locks(self) -> bool:
        """Renew all locks, and drop queues whose lock another member has; whether none was lost."""
        process_queues = [*self.process_queues(), *self._leaving.values()]
        return await self._lock(one for one in process_queues if not one.dropped)

    async def relock(self, process_queue: ProcessQueue) -> bool:
        """Renew one lock; whether this consumer has it."""
        await self._lock([process_queue])
        return not process_queue.dropped and self._loop.time() < process_queue.lock_expires_at

    async def _lock(self, process_queues: Iterable[ProcessQueue]) -> bool:
        if self._locks is None:
            return True
        by_queue = {one.queue: one for one in process_queues}
        now = self._loop.time()
        lost: list[MessageQueue] = []
        for queue, locked in (await self._locks.lock(by_queue)).items():
            process_queue = by_queue[queue]
            if locked:
                _note_lock(process_queue, now)
            elif not process_queue.dropped:
                lost.append(queue)
                self._drop_lost(process_queue)
        if lost:
            self._start_task(self._calls.lost(lost), "report lost queues")
        return not lost

    def _drop_lost(self, process_queue: ProcessQueue) -> None:
        """Drop a queue that another consumer has locked: it continues at the committed offset."""
        queue = process_queue.queue
        log.warning("queue dropped, another consumer has its lock group=%s queue=%s", self._group, queue)
        process_queue.drop()
        self._offsets.forget(queue)
        assigned = self._assigned.get(queue)
        if assigned is not None and assigned.process_queue is process_queue:
            del self._assigned[queue]
            assigned.puller.cancel()
        elif self._leaving.get(queue) is process_queue:
            self._told.add(process_queue)

    # --- one queue ---

    async def _take_all(self, queues: list[MessageQueue], takeover_seconds: float) -> int:
        """Take queues, and return how many were taken."""
        if not queues:
            return 0
        now = self._loop.time()
        taken = queues
        if self._locks is not None:
            outcomes = await self._locks.lock(queues)
            taken = [queue for queue in queues if outcomes.get(queue)]
        if not self._stopping:
            await self._calls.assigned(taken)
            if self._stopping:
                await self._calls.revoked(taken)
        if self._stopping:
            if self._locks is not None:
                await self._locks.unlock(taken)
            return 0
        for queue in taken:
            if self._locks is None:
                self._take(queue, takeover_seconds)
            else:
                # The previous owner of the lock has committed before it released the lock.
                _note_lock(self._take(queue, 0.0), now)
        if len(taken) < len(queues):
            log.info(
                "queues still locked by others group=%s count=%d; retried",
                self._group,
                len(queues) - len(taken),
            )
        return len(taken)

    def _take(
        self,
        queue: MessageQueue,
        takeover_seconds: float,
        start_offset: StartOffset | None = None,
        lock: ProcessQueue | None = None,
    ) -> ProcessQueue:
        process_queue = ProcessQueue(queue, self._loop.time())
        if lock is not None:
            process_queue.last_locked_at = lock.last_locked_at
            process_queue.lock_expires_at = lock.lock_expires_at
        pulling = self._make_puller(process_queue, start_offset, takeover_seconds)
        self._assigned[queue] = _Assigned(process_queue, self._start_task(pulling, f"pull {queue}"))
        return process_queue

    def _close(self, queue: MessageQueue) -> ProcessQueue:
        assigned = self._assigned.pop(queue)
        assigned.process_queue.closing = True
        assigned.puller.cancel()
        self._leaving[queue] = assigned.process_queue
        log.info("queue given up group=%s queue=%s", self._group, queue)
        return assigned.process_queue

    async def _release_later(self, process_queue: ProcessQueue) -> None:
        log.warning(
            "queue given up while the listener has messages of it queue=%s; it stays locked until the call "
            "ends",
            process_queue.queue,
        )
        await self._service.quiesce(process_queue, self._timing.consume_timeout_seconds)
        await self._release([process_queue])

    async def _release(self, process_queues: Collection[ProcessQueue]) -> None:
        queues = [process_queue.queue for process_queue in process_queues]
        for process_queue in process_queues:
            process_queue.drop()
        await self._calls.revoked(one.queue for one in process_queues if one not in self._told)
        self._told.update(process_queues)
        await self._offsets.commit(queues)
        if self._locks is not None and queues:
            await self._locks.unlock(queues)
        for queue in queues:
            self._offsets.forget(queue)
            self._leaving.pop(queue, None)
        self._told.difference_update(process_queues)

    def _is_stuck(self, assigned: _Assigned, now: float) -> bool:
        idle = now - assigned.process_queue.last_pull_at
        return idle > self._timing.stuck_seconds or assigned.puller.done()


def _note_lock(process_queue: ProcessQueue, now: float) -> None:
    process_queue.last_locked_at = now
    process_queue.lock_expires_at = now + LOCK_LIFE_SECONDS
