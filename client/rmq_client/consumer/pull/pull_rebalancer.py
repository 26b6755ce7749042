"""Rebalancing of a pull consumer whose group shares the queues of topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rmq_remoting.message_queue import MessageQueue

from ...errors import NotRunning
from ...network.instance import ClientInstance
from ..rebalancing.allocation import Allocation
from ..rebalancing.rebalance import ClientRebalance
from ..timing import ConsumerTiming

log = logging.getLogger(__name__)

Apply = Callable[[str, frozenset[MessageQueue], float], Awaitable[None]]
"""Has a consumer read these queues of a topic and no others. It waits this number of seconds before it
takes any, so that their previous members can commit.
"""


class PullRebalancer:
    """Keeps a consumer's queues equal to its share. Belongs to the application's loop."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        allocation: Allocation,
        timing: ConsumerTiming,
        apply: Apply,
    ) -> None:
        self.topics: set[str] = set()
        self._instance = instance
        self._rebalancer = ClientRebalance(
            group,
            instance.client_id,
            routes=instance.routes,
            api=instance.api,
            allocation=allocation,
            announce=instance.announce,
        )
        self._group = group
        self._timing = timing
        self._apply = apply
        self._loop = asyncio.get_running_loop()
        self._requested = asyncio.Event()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def request_rebalance(self) -> None:
        """Rebalance soon, because the group or a topic has changed. May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._requested.set)

    async def add_topic(self, topic: str) -> None:
        """Share this topic, too. Raises NotRunning if `stop` comes first."""
        self._check_running()
        self.topics.add(topic)
        balanced = await self.rebalance()
        self._check_running()
        if self._task is None:
            self._task = asyncio.create_task(self._keep_balanced(balanced), name=f"rmq share {self._group}")
        elif not balanced:
            self._requested.set()

    async def remove_topic(self, topic: str) -> None:
        """Stop sharing this topic."""
        self.topics.discard(topic)
        async with self._lock:
            await self._apply(topic, frozenset(), 0.0)

    async def stop(self) -> None:
        """Stop rebalancing; the queues stay as they are."""
        self._is_stopped = True
        self.topics.clear()
        task, self._task = self._task, None
        if task is not None:
            async with self._lock:  # no rebalance is interrupted halfway
                task.cancel()
            await asyncio.wait([task])

    def _check_running(self) -> None:
        if self._is_stopped:
            raise NotRunning(f"the consumer of group {self._group} was stopped in the meantime")

    async def rebalance(self) -> bool:
        """Take and give up queues; whether all shares were known."""
        balanced = True
        async with self._lock:
            for topic in list(self.topics):
                share = await self._instance.run(self._rebalancer.share(topic))
                if share is None:
                    balanced = False
                elif topic in self.topics:
                    wait_seconds = 0.0 if share.sole_member else self._timing.takeover_seconds
                    await self._apply(topic, share.queues, wait_seconds)
        return balanced

    async def _keep_balanced(self, balanced: bool) -> None:
        timing = self._timing
        while True:
            seconds = timing.rebalance_seconds if balanced else timing.rebalance_again_seconds
            try:
                async with asyncio.timeout(seconds):
                    await self._requested.wait()
            except TimeoutError:
                pass
            self._requested.clear()
            try:
                balanced = await self.rebalance()
            except Exception:
                log.exception("group not rebalanced group=%s; retried", self._group)
                balanced = False
            await asyncio.sleep(timing.rebalance_again_seconds)
