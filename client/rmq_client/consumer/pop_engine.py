"""The network side of a push consumer whose messages are popped: brokers say where, by the group's mode.

Nothing here waits for a listener. (Apache RocketMQ 5.3.3, DefaultMQPushConsumerImpl and RebalanceImpl with
clientRebalance=false.)
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmq_remoting.bodies.assignment import MessageQueueAssignment, MessageRequestMode
from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION, ConsumerData, ConsumeType, MessageModel
from rmq_remoting.bodies.running_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    PopProcessQueueInfo,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import ClientError, RouteError, UsageError
from ..instance import ClientInstance, now_ms
from .acks import AckSender
from .engine_settings import EngineSettings
from .pop_client import PopClient, PopSource
from .pop_pulling import SourcePopper
from .pop_service import NoOffsets, PopQueue, PopService, PopSettings
from .pop_settling import PopSettling
from .reports import running_info
from .send_back import RetryRules, SendBack
from .start_position import to_wire
from .statistics import SAMPLE_SECONDS, TopicStatistics
from .subscription import Subscription

log = logging.getLogger("rmq.client.consumer")

_PULL_HINT: Final = (
    "the brokers have group {group} pull topic {topic}: have it pop with "
    "`mqadmin setConsumeMode -m POP -t {topic} -g {group}`, or leave client_rebalance as it is"
)


@dataclass(slots=True, eq=False)
class _Running:
    popper: SourcePopper
    task: asyncio.Task[None]


class PopEngine:
    """Consumes from the sources that brokers give it. Belongs to the network loop."""

    def __init__(
        self,
        settings: EngineSettings,
        pop_settings: PopSettings,
        strategy_name: str,
        instance: ClientInstance,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        """`strategy_name`: how brokers are to divide queues, by Apache's names."""
        self.settings = settings
        self.subscriptions = dict(subscriptions)
        self.suspended = False
        self._pop_settings = pop_settings
        self._strategy_name = strategy_name
        self._instance = instance
        self._loop = instance.loop
        self._started_ms = now_ms()
        self._rebalance_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: dict[PopSource, _Running] = {}
        self._to_be_pulled: set[str] = set()
        from_newest = settings.consume_from == "last"
        self._client = PopClient(
            instance.links, settings.group, instance.settings, now_ms, from_newest=from_newest
        )
        rules = RetryRules(settings.group, settings.max_reconsume_times)
        self._settling = PopSettling(
            self._client,
            AckSender(self._client),
            instance.routes,
            SendBack(rules, instance.api, instance.links, instance.routes, instance.settings),
        )
        self.service = PopService(
            settings.kind,
            self._loop,
            pop_settings,
            self._settling,
            call_size=settings.batch_size,
            max_reconsume_times=settings.max_reconsume_times,
        )

    # --- ConsumerMember ---

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.settings.group

    def heartbeat_data(self) -> ConsumerData:
        """How it consumes, and its subscriptions."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=to_wire(self.settings.consume_from),
            subscription_data_set=[subscription.data for subscription in self.subscriptions.values()],
        )

    def rebalance_soon(self) -> None:
        """The group or a topic has changed."""
        self._rebalance_wanted.set()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Brokers know themselves where the group goes on."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Known only to the brokers."""
        return {}

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Give this one message to the listener, apart from all queues."""
        return await self.service.consume_directly(message)

    def running_info(self) -> ConsumerRunningInfo:
        """Everything that an administrator may want to know."""
        now = self._loop.time()
        info = running_info(
            self.settings,
            self.subscriptions.values(),
            (),
            NoOffsets(),
            self.service.statistics,
            addresses=self._instance.addresses,
            started_ms=self._started_ms,
            now=now,
        )
        info.mq_pop_table = {
            source.queue: PopProcessQueueInfo(
                dropped=running.popper.queue.dropped,
                last_pop_timestamp=now_ms() - round((now - running.popper.queue.last_pull_at) * 1000),
                wait_ack_count=running.popper.queue.unsettled,
            )
            for source, running in self._running.items()
        }
        return info

    # --- life ---

    async def start(self) -> None:
        """Join the group.

        Raises UsageError where this client has a consumer of the group already, or brokers have the group
        pull a topic; BrokerError for an expression that a broker cannot filter by.
        """
        routes = self._instance.routes
        await self._instance.add_consumer(self)
        for topic in self.subscriptions:
            routes.watch(topic)
        routes.on_change.append(self._route_changed)
        await asyncio.gather(*(routes.refresh(topic) for topic in self.subscriptions), return_exceptions=True)
        for subscription in self.subscriptions.values():
            await self._check_expression(subscription)
        await self._instance.announce()
        balanced = await self.rebalance()
        if self._to_be_pulled:
            raise UsageError(_PULL_HINT.format(group=self.group, topic=min(self._to_be_pulled)))
        self._start(self._keep_balanced(balanced), "rebalance")
        self._start(self._keep_sampling(), "statistics")

    async def stop(self) -> None:
        """Pop no more, wait for the listener, give back what it has not begun, leave the group."""
        stopping = [self._close(source) for source in list(self._running)]
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*stopping)
        await self.service.stop(self.settings.timing.stop_grace_seconds)
        await self._settling.drain(self._instance.settings.request_timeout_seconds)
        if self._route_changed in self._instance.routes.on_change:
            self._instance.routes.on_change.remove(self._route_changed)
        await self._instance.remove_consumer(self)

    async def subscribe(self, subscription: Subscription) -> None:
        """Consume another topic, or another part of one."""
        routes = self._instance.routes
        routes.watch(subscription.topic)
        await asyncio.gather(routes.refresh(subscription.topic), return_exceptions=True)
        await self._check_expression(subscription)
        self.subscriptions[subscription.topic] = subscription
        await self._instance.announce()
        self.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer."""
        if self.subscriptions.pop(topic, None) is not None:
            await self._instance.announce()
            self.rebalance_soon()

    async def commit(self) -> None:
        """Brokers know themselves how far the group is."""

    def assigned_queues(self) -> list[MessageQueue]:
        """Where it pops; the queue id -1 stands for all of a broker's queues."""
        return sorted(source.queue for source in self._running)

    def statistics(self) -> dict[str, TopicStatistics]:
        """What it has done lately, per topic."""
        now = self._loop.time()
        recorders = self.service.statistics.topics
        return {topic: recorder.statistics(now) for topic, recorder in recorders.items()}

    # --- where to pop ---

    async def rebalance(self) -> bool:
        """Pop where brokers say; whether all could be asked."""
        wanted: set[PopSource] = set()
        is_whole = True
        for topic in list(self.subscriptions):
            sources = await self._sources(topic)
            if sources is None:
                is_whole = False
                sources = {source for source in self._running if source.topic == topic}
            wanted |= sources
        given_up = [
            source for source, running in self._running.items() if source not in wanted or running.task.done()
        ]
        await asyncio.gather(*(self._close(source) for source in given_up))
        for source in wanted - self._running.keys():
            if source.topic in self.subscriptions:
                self._open(source)
        return is_whole

    async def _sources(self, topic: str) -> set[PopSource] | None:
        """Where to pop a topic; None where that cannot be told now."""
        try:
            assignments = await self._assignments(topic)
        except RouteError as error:
            log.info("group %s waits for its topic: %s", self.group, error)
            return None
        except ClientError as error:
            log.warning("group %s cannot be rebalanced: %s", self.group, error)
            return None
        if assignments is None:
            await self._instance.announce()  # the broker does not know this consumer yet
            return None
        queues = [one.message_queue for one in assignments if one.mode is MessageRequestMode.POP]
        if len(queues) < len(assignments):
            if topic not in self._to_be_pulled:
                log.error("%s; nothing of it is consumed", _PULL_HINT.format(group=self.group, topic=topic))
            self._to_be_pulled.add(topic)
        else:
            self._to_be_pulled.discard(topic)
        return {
            PopSource(queue.topic, queue.broker_name, queue.queue_id) for queue in queues if queue is not None
        }

    async def _assignments(self, topic: str) -> list[MessageQueueAssignment] | None:
        """Any broker of the topic knows the group. Raises ClientError if none answers."""
        route = await self._instance.routes.route(topic)
        names = list(route.brokers)
        random.shuffle(names)
        failure: ClientError = RouteError(f"topic {topic} has no broker")
        for name in names:
            address = route.broker_address(name)
            if address is None:
                continue
            try:
                return await self._client.assignments(
                    address, topic, self._instance.client_id, self._strategy_name
                )
            except ClientError as error:
                failure = error
        self._instance.routes.request_failed(topic)
        raise failure

    def _open(self, source: PopSource) -> None:
        queue = PopQueue(source, self._loop.time())
        popper = SourcePopper(
            queue,
            client=self._client,
            service=self.service,
            routes=self._instance.routes,
            settings=self._pop_settings,
            timing=self.settings.timing,
            subscription=lambda: self.subscriptions.get(source.topic),
            is_suspended=lambda: self.suspended,
        )
        self._running[source] = _Running(popper, self._start(popper.run(), f"pop {source.queue}"))
        log.info("group %s: messages are popped from %s", self.group, source.queue)

    async def _close(self, source: PopSource) -> None:
        """Pop there no more. What the listener has not begun goes back; the rest is settled as ever."""
        running = self._running.pop(source)
        running.popper.queue.closing = True
        running.task.cancel()
        await asyncio.wait([running.task])
        await running.popper.finish()

    async def _check_expression(self, subscription: Subscription) -> None:
        """Brokers are asked only about what can be wrong: not about tags."""
        route = self._instance.routes.existing.get(subscription.topic)
        if subscription.data.expression_type == TAG_EXPRESSION or route is None:
            return
        for name in route.brokers:
            address = route.broker_address(name)
            if address is not None:
                await self._instance.api.check_client(
                    address, self._instance.client_id, self.group, subscription.data
                )

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.rebalance_soon()

    # --- in the background ---

    async def _keep_balanced(self, balanced: bool) -> None:
        timing = self.settings.timing
        while True:
            seconds = timing.rebalance_seconds if balanced else timing.rebalance_again_seconds
            try:
                async with asyncio.timeout(seconds):
                    await self._rebalance_wanted.wait()
            except TimeoutError:
                pass
            self._rebalance_wanted.clear()
            try:
                balanced = await self.rebalance()
            except Exception:
                log.exception("group %s could not be rebalanced", self.group)
                balanced = False
            await asyncio.sleep(timing.rebalance_again_seconds)

    async def _keep_sampling(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self.service.statistics.sample(self._loop.time())

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.set_name(f"rmq {self.group}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended by an error", task.get_name(), exc_info=error)
            self.rebalance_soon()
