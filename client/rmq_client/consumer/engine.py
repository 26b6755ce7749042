"""The part of a push consumer that lives on the network loop: queues taken, pulled, committed and given up.

Nothing here waits for a listener: heartbeats, rebalancing, pulls and commits go on while all listeners hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION, ConsumerData, ConsumeType, MessageModel
from rmq_remoting.bodies.running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import BrokerUnreachable
from ..instance import ClientInstance, now_ms
from .allocation import Allocation
from .concurrent import ConcurrentService
from .offset_store import OffsetStore
from .process_queue import FlowControl, ProcessQueue
from .pull_client import PullClient, PullSettings
from .pulling import ConsumerTiming, QueuePuller
from .rebalance import Rebalancer, Share
from .start_position import ConsumeFrom, start_offset, to_wire
from .subscription import Subscription

log = logging.getLogger("rmq.client.consumer")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What a push consumer was asked to be."""

    group: str
    consume_from: ConsumeFrom
    workers: int
    batch_size: int
    pull: PullSettings
    flow_control: FlowControl
    allocation: Allocation
    timing: ConsumerTiming


@dataclass(slots=True)
class _Assigned:
    """A queue that is this consumer's, and the task that pulls it."""

    process_queue: ProcessQueue
    puller: asyncio.Task[None]


class ConsumerEngine:
    """Consumes the queues that are this consumer's share. Belongs to the network loop."""

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
        self._offsets = OffsetStore(settings.group, instance.api, self._address_of)
        self._client = PullClient(instance.links, settings.group, settings.pull, instance.settings)
        self.service = ConcurrentService(
            self._offsets,
            self._loop,
            batch_size=settings.batch_size,
            retry_seconds=settings.timing.retry_seconds,
        )
        self._rebalancer = Rebalancer(
            settings.group,
            instance.client_id,
            routes=instance.routes,
            api=instance.api,
            allocation=settings.allocation,
            announce=instance.announce,
        )
        self._assigned: dict[MessageQueue, _Assigned] = {}
        self._rebalance_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

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
        """An administrator moves the group: go on from these offsets."""
        for queue, offset in offsets.items():
            assigned = self._assigned.get(queue)
            if queue.topic == topic and assigned is not None:
                self._move(assigned.process_queue, offset)

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """How far it has consumed each of its queues of the topic."""
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Give this one message to the listener, apart from all queues."""
        return await self.service.consume_directly(message)

    def running_info(self) -> ConsumerRunningInfo:
        """Everything that an administrator may want to know."""
        return ConsumerRunningInfo(
            properties={
                PROP_NAMESERVER_ADDR: ";".join(self._instance.addresses) + ";",
                PROP_CONSUME_TYPE: ConsumeType.CONSUME_PASSIVELY.value,
                PROP_CONSUME_ORDERLY: "false",
                PROP_THREADPOOL_CORE_SIZE: str(self.settings.workers),
                PROP_CONSUMER_START_TIMESTAMP: str(self._started_ms),
                PROP_CLIENT_VERSION: "V5_3_3",
            },
            subscription_set=[subscription.data for subscription in self.subscriptions.values()],
            mq_table={
                queue: self._queue_info(assigned.process_queue) for queue, assigned in self._assigned.items()
            },
            status_table={topic: self._status(topic) for topic in self.subscriptions},
        )

    # --- life ---

    async def start(self) -> None:
        """Join the group.

        Raises UsageError where this client has a consumer of the group already, BrokerError for an expression
        that a broker cannot filter by.
        """
        routes = self._instance.routes
        await self._instance.add_consumer(self)
        for topic in self.subscriptions:
            routes.watch(topic)
        routes.on_change.append(self._route_changed)
        # Brokers must know this consumer before they are asked who is in the group.
        await asyncio.gather(*(routes.refresh(topic) for topic in self.subscriptions), return_exceptions=True)
        for subscription in self.subscriptions.values():
            await self._check_expression(subscription)
        await self._instance.announce()
        self._start(self._keep_balanced(), "rebalance")
        self._start(self._keep_committing(), "commit offsets")

    async def stop(self) -> None:
        """Pull no more, wait for the listener, commit, leave the group."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        for assigned in self._assigned.values():
            assigned.puller.cancel()
        await self.service.stop(self.settings.timing.stop_grace_seconds)
        for assigned in self._assigned.values():
            assigned.process_queue.dropped = True
        await self._offsets.commit()
        if self._route_changed in self._instance.routes.on_change:
            self._instance.routes.on_change.remove(self._route_changed)
        await self._instance.remove_consumer(self)
        self._assigned.clear()

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

    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now."""
        return sorted(self._assigned)

    async def commit(self) -> None:
        """Tell the brokers how far this consumer is."""
        await self._offsets.commit()

    # --- queues taken and given up ---

    async def _keep_balanced(self) -> None:
        timing = self.settings.timing
        while True:
            self._rebalance_wanted.clear()
            try:
                balanced = await self.rebalance()
            except Exception:
                log.exception("group %s could not be rebalanced", self.group)
                balanced = False
            await asyncio.sleep(timing.rebalance_again_seconds)
            wait = max(0.0, timing.rebalance_seconds - timing.rebalance_again_seconds) if balanced else 0.0
            try:
                async with asyncio.timeout(wait):
                    await self._rebalance_wanted.wait()
            except TimeoutError:
                pass

    async def rebalance(self) -> bool:
        """Take and give up queues so that they are this consumer's share; whether every share is known."""
        balanced = True
        await self._give_up([queue for queue in self._assigned if queue.topic not in self.subscriptions])
        shares = await self._rebalancer.shares(dict(self.subscriptions))
        for topic, share in shares.items():
            if share is None:
                balanced = False
            else:
                await self._apply(topic, share)
        return balanced

    async def _apply(self, topic: str, share: Share) -> None:
        now = self._loop.time()
        held = [queue for queue in self._assigned if queue.topic == topic]
        stuck = [
            queue
            for queue in held
            if now - self._assigned[queue].process_queue.last_pull_at > self.settings.timing.stuck_seconds
            or self._assigned[queue].puller.done()
        ]
        for queue in stuck:
            log.error("%s has not been pulled for too long: it is dropped and built anew", queue)
        await self._give_up([queue for queue in held if queue not in share.queues or queue in stuck])
        new = [queue for queue in sorted(share.queues) if queue not in self._assigned]
        if self._stopping:
            return
        for queue in new:
            self._take(queue, 0.0 if share.alone else self.settings.timing.takeover_seconds)
        if new:
            log.info("group %s: %d queues of %s are mine now", self.group, len(share.queues), topic)

    async def _give_up(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            assigned = self._assigned.pop(queue)
            assigned.process_queue.dropped = True
            assigned.puller.cancel()
            log.info("group %s: %s is given up", self.group, queue)
        await self._offsets.commit(queues)
        for queue in queues:
            self._offsets.forget(queue)

    def _take(self, queue: MessageQueue, takeover_seconds: float, start: int | None = None) -> None:
        process_queue = ProcessQueue(queue, self._loop.time())

        async def where_to_start() -> int:
            return await self._start_offset(queue) if start is None else start

        puller = QueuePuller(
            process_queue,
            client=self._client,
            routes=self._instance.routes,
            offsets=self._offsets,
            flow_control=self.settings.flow_control,
            timing=self.settings.timing,
            subscription=lambda: self.subscriptions.get(queue.topic),
            consume=self.service.submit,
            start_offset=where_to_start,
            offset_illegal=self._move,
            announce=self._instance.announce,
            is_suspended=lambda: self.suspended,
        )
        task = self._start(puller.run(takeover_seconds), f"pull {queue}")
        self._assigned[queue] = _Assigned(process_queue, task)

    def _move(self, process_queue: ProcessQueue, offset: int) -> None:
        """Begin a queue anew at `offset`; what was pulled of it counts no more."""
        queue = process_queue.queue
        assigned = self._assigned.get(queue)
        process_queue.dropped = True
        if assigned is None or assigned.process_queue is not process_queue or self._stopping:
            return
        self._offsets.set(queue, offset)
        self._start(self._offsets.commit([queue]), "commit a moved offset")
        self._take(queue, 0.0, start=offset)
        if assigned.puller is not asyncio.current_task():
            assigned.puller.cancel()

    async def _start_offset(self, queue: MessageQueue) -> int:
        route = await self._instance.routes.route(queue.topic)
        address = route.broker_address(queue.broker_name)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {queue.broker_name} is known for {queue}")
        return await start_offset(self._instance.api, address, self.group, queue, self.settings.consume_from)

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

    def _address_of(self, queue: MessageQueue) -> str | None:
        route = self._instance.routes.existing.get(queue.topic)
        return None if route is None else route.broker_address(queue.broker_name)

    # --- in the background ---

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(self.settings.timing.commit_seconds)
            try:
                await self._offsets.commit(list(self._assigned))
            except Exception:
                log.exception("the offsets of group %s could not be committed", self.group)

    def _start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        task.set_name(f"rmq {self.group}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            # A puller that ends so is noticed and replaced by the next rebalance.
            log.error("%s ended by an error", task.get_name(), exc_info=error)

    # --- for administrators ---

    def _queue_info(self, process_queue: ProcessQueue) -> ProcessQueueInfo:
        wall_minus_monotonic = now_ms() - self._loop.time() * 1000
        return ProcessQueueInfo(
            cached_msg_count=len(process_queue),
            cached_msg_min_offset=process_queue.min_offset or 0,
            cached_msg_max_offset=process_queue.max_offset or 0,
            cached_msg_size_mib=process_queue.bytes // (1024 * 1024),
            commit_offset=self._offsets.get(process_queue.queue) or 0,
            dropped=process_queue.dropped,
            last_pull_timestamp=int(process_queue.last_pull_at * 1000 + wall_minus_monotonic),
            last_consume_timestamp=int(process_queue.last_consumed_at * 1000 + wall_minus_monotonic),
        )

    def _status(self, topic: str) -> ConsumeStatus:
        counts = self.service.counts.get(topic)
        if counts is None:
            return ConsumeStatus()
        calls = counts.consumed + counts.refused
        return ConsumeStatus(
            consume_failed_msgs=counts.refused,
            consume_time_ms=counts.seconds * 1000 / calls if calls else 0.0,
        )
