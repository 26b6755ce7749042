"""The network side of a push consumer whose messages are popped: brokers say where, by the group's mode.

Nothing here waits for a listener. (Apache RocketMQ 5.3.3, DefaultMQPushConsumerImpl and RebalanceImpl with
clientRebalance=false.)
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.assignment import MessageQueueAssignment, MessageRequestMode
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
from .membership import GroupMembership
from .pop_client import PopClient, PopSource
from .pop_pulling import SourcePopper
from .pop_service import NoOffsets, PopQueue, PopService, PopSettings
from .pop_settling import PopSettling
from .reports import running_info
from .send_back import RetryRules, SendBack
from .statistics import SAMPLE_SECONDS
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


class PopEngine(GroupMembership):
    """Consumes from the sources that brokers give it. Belongs to the network loop."""

    service: PopService

    def __init__(
        self,
        settings: EngineSettings,
        pop_settings: PopSettings,
        strategy_name: str,
        instance: ClientInstance,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        """`strategy_name`: how brokers are to divide queues, by Apache's names."""
        super().__init__(settings, instance, subscriptions)
        self._pop_settings = pop_settings
        self._strategy_name = strategy_name
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
        await self._join()
        balanced = await self.rebalance()
        if self._to_be_pulled:
            raise UsageError(_PULL_HINT.format(group=self.group, topic=min(self._to_be_pulled)))
        self._start(self._keep_balanced(balanced), "rebalance")
        self._start(self._repeat(self._sample, SAMPLE_SECONDS), "statistics")

    async def stop(self) -> None:
        """Pop no more, wait for the listener, give back what it has not begun, leave the group."""
        stopping = [self._close(source) for source in list(self._running)]
        self._cancel_tasks()
        await asyncio.gather(*stopping)
        await self.service.stop(self.settings.timing.stop_grace_seconds)
        await self._settling.drain(self._instance.settings.request_timeout_seconds)
        await self._leave()

    async def commit(self) -> None:
        """Brokers know themselves how far the group is."""

    def assigned_queues(self) -> list[MessageQueue]:
        """Where it pops; the queue id -1 stands for all of a broker's queues."""
        return sorted(source.queue for source in self._running)

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

    def _task_failed(self) -> None:
        self.rebalance_soon()
