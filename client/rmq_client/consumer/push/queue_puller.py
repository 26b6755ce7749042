"""The pull loop of one queue, as fast as the listener consumes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...errors import Busy, ClientError, SubscriptionError
from ...network.routing import RouteTable, may_be_of_old_route
from ...pull_status import PullStatus, moved_text
from ..flow_control import FlowControl
from ..offsets.offset_store import OffsetStore
from ..processing.process_queue import ProcessQueue
from ..requests.pull_client import PullClient
from ..subscription import Subscription
from ..timing import ConsumerTiming
from .obstacles import Obstacles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PullerCallbacks:
    """What a puller asks of its consumer, and reports to it.

    `flow_control` returns the bounds that hold now. `subscription` returns None once the consumer has given
    up the topic. `start_offset` raises ClientError. `offset_illegal` gets the offset to go on at when the
    broker does not have the requested one. `announce` sends a heartbeat to the brokers, for one that does not
    know the subscription. `count_pull` gets the topic, the number of messages and the seconds of a pull.
    `obstacles` collects the errors of pulls. `failed` gets the error of each failed pull and its seconds.
    """

    flow_control: Callable[[], FlowControl]
    subscription: Callable[[], Subscription | None]
    consume: Callable[[ProcessQueue, list[MessageExt]], None]
    start_offset: Callable[[], Awaitable[int]]
    offset_illegal: Callable[[ProcessQueue, int], None]
    announce: Callable[[], Awaitable[None]]
    is_suspended: Callable[[], bool]
    count_pull: Callable[[str, int, float], None]
    obstacles: Obstacles
    failed: Callable[[MessageQueue, ClientError, float], None] | None = None


class QueuePuller:
    """Pulls one queue into its process queue until the queue is dropped. Runs on the network loop."""

    def __init__(
        self,
        process_queue: ProcessQueue,
        callbacks: PullerCallbacks,
        *,
        client: PullClient,
        routes: RouteTable,
        offsets: OffsetStore,
        timing: ConsumerTiming,
        commit_with_pulls: bool = True,
    ) -> None:
        """`commit_with_pulls`: pull requests carry the consumed offset, which the broker commits."""
        self.process_queue = process_queue
        self._client = client
        self._routes = routes
        self._offsets = offsets
        self._flow_control = callbacks.flow_control
        self._timing = timing
        self._subscription = callbacks.subscription
        self._consume = callbacks.consume
        self._start_offset = callbacks.start_offset
        self._offset_illegal = callbacks.offset_illegal
        self._announce = callbacks.announce
        self._is_suspended = callbacks.is_suspended
        self._count_pull = callbacks.count_pull
        self._obstacles = callbacks.obstacles
        self._tell_failed = callbacks.failed
        self._is_failing = False
        self._commit_with_pulls = commit_with_pulls
        self._next_offset = -1
        self._held_back = 0

    async def run(self, takeover_seconds: float) -> None:
        """Pull in a loop, after `takeover_seconds`, until the queue is dropped."""
        loop = asyncio.get_running_loop()
        if takeover_seconds:
            await asyncio.sleep(takeover_seconds)
        while not self.process_queue.dropped:
            self.process_queue.last_pull_at = loop.time()
            pause = self._reason_to_wait()
            if pause is None:
                pause = await self._turn()
            if pause:
                await asyncio.sleep(pause)

    def _reason_to_wait(self) -> float | None:
        if self._is_suspended():
            return self._timing.suspended_pause_seconds
        excess = self.process_queue.excess(self._flow_control())
        if excess is None:
            return None
        # Logged once in a thousand pauses: at 50 ms each, about once a minute.
        if self._held_back % 1000 == 0:
            log.info("queue not pulled for now queue=%s cause=%s", self.process_queue.queue, excess)
        self._held_back += 1
        return self._timing.flow_control_pause_seconds

    async def _turn(self) -> float:
        """Pull once, and return the pause before the next pull."""
        queue = self.process_queue.queue
        try:
            if self._next_offset < 0:
                self._next_offset = await self._start_offset()
                log.info("queue consumed queue=%s offset=%d", queue, self._next_offset)
            await self._pull()
        except Busy as error:
            log.debug("queue not pulled for now queue=%s cause=%s", queue, error)
            return self._timing.busy_pause_seconds
        except SubscriptionError as error:
            self._failed(error)
            await self._announce()
            return self._timing.error_pause_seconds
        except ClientError as error:
            self._failed(error)
            if may_be_of_old_route(error):
                self._routes.request_failed(queue.topic)
            return self._timing.error_pause_seconds
        if self._is_failing:
            self._is_failing = False
            self._obstacles.passed(queue)
        return 0.0

    def _failed(self, error: ClientError) -> None:
        log.warning("queue not pulled queue=%s cause=%s; retried", self.process_queue.queue, error)
        self._is_failing = True
        self._obstacles.met(self.process_queue.queue, error)
        if self._tell_failed is not None:
            elapsed = asyncio.get_running_loop().time() - self.process_queue.last_pull_at
            self._tell_failed(self.process_queue.queue, error, elapsed)

    async def _pull(self) -> None:
        process_queue = self.process_queue
        queue = process_queue.queue
        subscription = self._subscription()
        if subscription is None:
            process_queue.dropped = True
            return
        route = await self._routes.route(queue.topic)
        loop = asyncio.get_running_loop()
        began = loop.time()
        consumed = self._offsets.get(queue) if self._commit_with_pulls else None
        result = await self._client.pull(
            route, queue, self._next_offset, subscription, commit_offset=consumed
        )
        if process_queue.dropped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s queue=%s offset=%d first=%d end=%d; consuming continues at %d",
                moved_text(self._next_offset, result.min_offset, result.max_offset),
                queue,
                self._next_offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
            is_deleted = self._next_offset < result.next_offset == result.min_offset
            if not is_deleted or not len(process_queue):
                process_queue.dropped = True
                self._offset_illegal(process_queue, result.next_offset)
                return
            # Only the next messages are deleted: those held are consumed all the same.
        self._next_offset = result.next_offset
        if result.messages:
            self._count_pull(queue.topic, len(result.messages), loop.time() - began)
            self._consume(process_queue, process_queue.put(result.messages))
        elif not len(process_queue):
            # No message up to here matched: they all count as consumed.
            self._offsets.advance(queue, self._next_offset)
