"""Membership of a push consumer in its group: joining, leaving, subscriptions, background tasks.

Subclasses decide where the messages come from. All of this belongs to the network loop.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from rmq_remoting.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel

from ...clock import now_ms
from ...network.instance import ClientInstance
from ...network.members import ConsumerMember
from ..offsets.start_position import to_wire
from ..processing.service import ConsumeService
from ..processing.statistics import TopicStatistics
from ..subscription import Subscription
from .engine_settings import EngineSettings

log = logging.getLogger(__name__)


class GroupMembership(ConsumerMember):
    """Answers brokers for a push consumer, and supervises its tasks."""

    service: ConsumeService
    """Created by subclasses."""

    def __init__(
        self,
        settings: EngineSettings,
        instance: ClientInstance,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self.settings = settings
        self.subscriptions = dict(subscriptions)
        self.suspended = False
        self._instance = instance
        self._loop = instance.loop
        self._started_ms = now_ms()
        self._rebalance_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        # Tasks that the listener needs until its calls have ended.
        self._stopped_last: set[asyncio.Task[Any]] = set()

    # --- ConsumerMember ---

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.settings.group

    def heartbeat_data(self) -> ConsumerData:
        """Return the consumer's mode and subscriptions."""
        broadcasting = self.settings.broadcasting
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.BROADCASTING if broadcasting else MessageModel.CLUSTERING,
            consume_from_where=to_wire(self.settings.consume_from),
            subscription_data_set=[subscription.data for subscription in self.subscriptions.values()],
        )

    def rebalance_soon(self) -> None:
        """Rebalance soon, because the group or a topic has changed."""
        self._rebalance_wanted.set()

    # --- for the application ---

    async def subscribe(self, subscription: Subscription) -> None:
        """Consume another topic, or change its filter."""
        routes = self._instance.routes
        routes.watch(subscription.topic)
        await asyncio.gather(routes.refresh(subscription.topic), return_exceptions=True)
        await self._check_expression(subscription)
        self.subscriptions[subscription.topic] = subscription
        await self._instance.announce()
        self.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        if self.subscriptions.pop(topic, None) is not None:
            await self._instance.announce()
            self.rebalance_soon()

    def statistics(self) -> dict[str, TopicStatistics]:
        """Return the statistics per topic."""
        now = self._loop.time()
        recorders = self.service.statistics.topics
        return {topic: recorder.statistics(now) for topic, recorder in recorders.items()}

    # --- for subclasses ---

    async def _join(self) -> None:
        """Join the group and announce it to the brokers.

        Raises UsageError if this client already has a consumer of the group, BrokerError for an expression
        that a broker cannot filter by.
        """
        routes = self._instance.routes
        await self._instance.add_consumer(self)
        for topic in self.subscriptions:
            routes.watch(topic)
        routes.on_change.append(self._route_changed)
        # Brokers must know this consumer before they are asked for the group's members.
        await asyncio.gather(*(routes.refresh(topic) for topic in self.subscriptions), return_exceptions=True)
        for subscription in self.subscriptions.values():
            await self._check_expression(subscription)
        await self._instance.announce()

    async def _leave(self) -> None:
        """Leave the group, also after a failed join."""
        if self._route_changed in self._instance.routes.on_change:
            self._instance.routes.on_change.remove(self._route_changed)
        await self._instance.remove_consumer(self)

    def _start(
        self, work: Coroutine[Any, Any, Any], name: str, *, stop_last: bool = False
    ) -> asyncio.Task[Any]:
        """Run a supervised background task; `stop_last`: until the listener's calls have ended."""
        task = asyncio.ensure_future(work)
        task.set_name(f"rmq {self.group}: {name}")
        self._tasks.add(task)
        if stop_last:
            self._stopped_last.add(task)
        task.add_done_callback(self._task_ended)
        return task

    @abstractmethod
    def _task_failed(self) -> None:
        """Handle a failed task; its error is logged."""

    def _cancel_tasks(self) -> None:
        for task in self._tasks - self._stopped_last:
            task.cancel()

    def _cancel_last_tasks(self) -> None:
        for task in self._stopped_last:
            task.cancel()

    async def _repeat(
        self, work: Callable[[], Awaitable[None]], seconds: float, first_seconds: float | None = None
    ) -> None:
        await asyncio.sleep(seconds if first_seconds is None else first_seconds)
        while True:
            try:
                await work()
            except Exception:
                log.exception(
                    "background work failed group=%s work=%s; repeated at the next interval",
                    self.group,
                    work.__name__,
                )
            await asyncio.sleep(seconds)

    async def _sample(self) -> None:
        self.service.statistics.sample(self._loop.time())

    # --- internal ---

    async def _check_expression(self, subscription: Subscription) -> None:
        """Ask brokers about expressions that can be invalid, not about tags."""
        route = self._instance.routes.existing.get(subscription.topic)
        if subscription.is_by_properties and route is not None:
            await self._instance.check_expression(self.group, subscription.data, route)

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.rebalance_soon()

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._stopped_last.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed name=%s", task.get_name(), exc_info=error)
            self._task_failed()
