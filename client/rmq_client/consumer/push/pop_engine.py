"""The network side of a push consumer whose queues the brokers divide: they say whether it pulls or pops.

Nothing here waits for a listener. (Apache RocketMQ 5.3.3, DefaultMQPushConsumerImpl and RebalanceImpl with
clientRebalance=false.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final

from rmq_remoting.bodies.running_info import ConsumerRunningInfo, PopProcessQueueInfo
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.pop_receipt import pop_retry_topics

from ...clock import now_ms
from ...errors import ClientError
from ...hooks.consumption import ConsumptionHooks
from ...network.instance import ClientInstance
from ...tasks import uninterrupted
from ..pop.acknowledger import PopAcknowledger
from ..pop.pop_orderly import PopOrderlyService, PoppedBatch
from ..pop.pop_process_queue import PopProcessQueue
from ..pop.pop_service import PopService
from ..pop.pop_sources import PopSources
from ..pop.settings import PopSettings
from ..pop.source_popper import SourcePopper
from ..processing.listener_call import ListenerCall
from ..processing.process_queue import ProcessQueue
from ..processing.runners import Runner
from ..rebalancing.broker_rebalance import BrokerRebalance
from ..rebalancing.rebalance import Rebalance
from ..rebalancing.rebalance_listener import RebalanceCalls
from ..rebalancing.share import Share
from ..rebalancing.share_changes import ShareChangeNotifier
from ..requests.ack_sender import AckSender
from ..requests.pop_client import PopClient
from ..requests.pop_source import PopSource
from ..subscription import Subscription
from .engine import ConsumerEngine
from .engine_settings import EngineSettings
from .obstacles import Obstacles

# Renewals of the invisible time of ordered messages per invisible time.
_RENEWALS_PER_INVISIBLE_TIME: Final = 6


class PopEngine(ConsumerEngine):
    """Consumes the queues and sources that brokers assign. Belongs to the network loop."""

    def __init__(
        self,
        settings: EngineSettings,
        pop_settings: PopSettings,
        instance: ClientInstance,
        subscriptions: Mapping[str, Subscription],
        obstacles: Obstacles,
        share_changes: ShareChangeNotifier | None = None,
        hooks: ConsumptionHooks | None = None,
        *,
        calls: RebalanceCalls,
    ) -> None:
        self._pop_settings = pop_settings
        from_newest = settings.consume_from == "last"
        self._pop_client = PopClient(
            instance.connections, settings.group, instance.settings, now_ms, from_newest=from_newest
        )
        super().__init__(settings, instance, subscriptions, obstacles, share_changes, hooks, calls=calls)
        self._acknowledger = PopAcknowledger(
            self._pop_client, AckSender(self._pop_client), instance.routes, self._send_back, hooks
        )
        self._popping = self._make_pop_service()
        self._popping.statistics = self.service.statistics
        self._pop_sources = PopSources(settings.group, self._popping, self._make_popper, self._start)
        # POP retry topics, by which brokers redeliver, of topics that are pulled now.
        self._pop_retries: dict[str, str] = {}

    # --- ConsumerMember ---

    def running_info(self) -> ConsumerRunningInfo:
        """Return the state of the consumer for administrators."""
        info = super().running_info()
        now = self._loop.time()
        info.mq_pop_table = {
            queue.queue: PopProcessQueueInfo(
                dropped=queue.dropped,
                last_pop_timestamp=now_ms() - round((now - queue.last_pull_at) * 1000),
                wait_ack_count=queue.unacknowledged,
            )
            for queue in self._pop_sources.queues()
        }
        return info

    # --- lifecycle ---

    def attach(self, runner: Runner) -> None:
        """Set the runner of the listener; its outcomes are passed to `done`."""
        super().attach(runner)
        self._popping.attach(runner)

    def done(self, call: ListenerCall) -> None:
        """Handle a call that has ended, or was cancelled before it began."""
        if isinstance(call.process_queue, (PopProcessQueue, PoppedBatch)):
            self._popping.done(call)
        else:
            super().done(call)

    async def start(self) -> None:
        """Join the group and start to consume. Raises as ConsumerEngine.start."""
        await super().start()
        if isinstance(self._popping, PopOrderlyService):
            self._start(
                self._repeat(
                    self._popping.renew, self._pop_settings.invisible_seconds / _RENEWALS_PER_INVISIBLE_TIME
                ),
                "renew invisible times",
                stop_last=True,
            )

    async def _end(self) -> None:
        timing = self.settings.timing
        stopped = await self._pop_sources.stop()
        await super()._end()
        await self._calls.revoked(source.queue for source in stopped)
        await self._popping.finish_follow_ups(timing.stop_grace_seconds)
        await self._acknowledger.drain(self._instance.settings.request_timeout_seconds)

    def assigned_queues(self) -> list[MessageQueue]:
        """Return the assigned queues; the queue id -1 stands for all queues of a broker."""
        return sorted([*super().assigned_queues(), *(source.queue for source in self._pop_sources.sources())])

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        self._stop_pulling_retries(topic)
        await super().unsubscribe(topic)

    # --- pulling and popping ---

    async def rebalance(self) -> bool:
        """Pull and pop as the brokers say; whether that is complete."""
        await self._close_sources(lambda source: source.topic not in self.subscriptions)
        return await super().rebalance()

    async def _apply(self, topic: str, share: Share) -> bool:
        await self._close_sources(lambda source: source.topic == topic and source not in share.sources)
        is_reached = await super()._apply(topic, share)
        if topic in self.subscriptions and not self._is_retry_topic(topic):
            await self._open_sources(share)
            await self._follow_mode(topic, share)
        return is_reached

    async def _close_sources(self, is_unwanted: Callable[[PopSource], bool]) -> None:
        # A stop cancels the rebalance, but the listener must still learn of these sources.
        await uninterrupted(self._close_and_tell(is_unwanted))

    async def _close_and_tell(self, is_unwanted: Callable[[PopSource], bool]) -> None:
        closed = await self._pop_sources.close(is_unwanted)
        await self._calls.revoked(source.queue for source in closed)

    async def _open_sources(self, share: Share) -> None:
        new = set(share.sources).difference(self._pop_sources.sources())
        await self._calls.assigned(source.queue for source in new)
        self._pop_sources.open(share.sources)
        # The consumer may be stopping since.
        await self._calls.revoked(source.queue for source in new.difference(self._pop_sources.sources()))

    async def _follow_mode(self, topic: str, share: Share) -> None:
        """Pull the POP retry topics of a topic that is pulled: pops include them, pulls do not."""
        if share.sources:
            is_changed = self._stop_pulling_retries(topic)
        else:
            is_changed = bool(share.queues) and self._pull_retries(topic)
        if is_changed:
            await self._instance.announce()
            self.rebalance_soon()

    def _pull_retries(self, topic: str) -> bool:
        """Subscribe to the POP retry topics; whether that changes anything."""
        if topic in self._pop_retries.values():
            return False
        for retry_topic in pop_retry_topics(topic, self.group):
            self._pop_retries[retry_topic] = topic
            self.subscriptions[retry_topic] = Subscription(retry_topic, None, now_ms())
            self._instance.routes.watch(retry_topic)
        return True

    def _stop_pulling_retries(self, topic: str) -> bool:
        """Unsubscribe from the POP retry topics; whether that changes anything."""
        retry_topics = [one for one, origin in self._pop_retries.items() if origin == topic]
        for retry_topic in retry_topics:
            del self._pop_retries[retry_topic]
            self.subscriptions.pop(retry_topic, None)
        return bool(retry_topics)

    def _is_retry_topic(self, topic: str) -> bool:
        return topic in self._pop_retries or super()._is_retry_topic(topic)

    def _consume(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        origin = self._pop_retries.get(process_queue.queue.topic)
        if origin is not None:
            for message in messages:
                message.topic = origin
        super()._consume(process_queue, messages)

    # --- parts ---

    def _make_rebalance(self) -> Rebalance:
        instance, settings = self._instance, self.settings
        return BrokerRebalance(
            settings.group,
            instance.client_id,
            routes=instance.routes,
            client=self._pop_client,
            allocation=settings.allocation,
            announce=instance.announce,
        )

    def _make_pop_service(self) -> PopService | PopOrderlyService:
        settings = self.settings
        if settings.kind.orderly:
            return PopOrderlyService(
                settings.kind,
                self._loop,
                self._orderly_settings(),
                self._pop_settings,
                self._acknowledger,
                consume_timeout_seconds=settings.timing.consume_timeout_seconds,
            )
        return PopService(
            settings.kind,
            self._loop,
            self._pop_settings,
            self._acknowledger,
            call_size=settings.batch_size,
            max_reconsume_times=settings.max_reconsume_times,
        )

    def _make_popper(self, source: PopSource) -> SourcePopper:
        queue = PopProcessQueue(source, self._loop.time())
        return SourcePopper(
            queue,
            client=self._pop_client,
            service=self._popping,
            routes=self._instance.routes,
            settings=self._pop_settings,
            timing=self.settings.timing,
            subscription=lambda: self.subscriptions.get(source.topic),
            is_suspended=lambda: self.suspended,
            failing=lambda source, error: self._pop_failing(queue, source, error),
            received=None if self._hooks is None else partial(self._hooks.received, prefetched=True),
        )

    def _pop_failing(self, queue: PopProcessQueue, source: PopSource, error: ClientError | None) -> None:
        if error is None:
            self._obstacles.passed(source)
            return
        self._obstacles.met(source, error)
        if self._hooks is not None:
            elapsed = self._loop.time() - queue.last_pull_at
            self._hooks.not_received([source.topic], error, elapsed, prefetched=True)

    def _consumed(self) -> set[Hashable]:
        return {*super()._consumed(), *self._pop_sources.sources()}

    def _task_failed(self) -> None:
        """Rebalance soon, which restarts ended loops."""
        self.rebalance_soon()
