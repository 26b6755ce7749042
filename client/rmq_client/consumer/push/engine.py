"""The network side of a push consumer: it connects the parts and keeps them running.

Nothing here waits for a listener: heartbeats, rebalancing, pulls and commits go on while all listeners hang.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import replace
from typing import Any, Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.errors import RequestError
from rmq_remoting.host import local_address
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...clock import now_ms
from ...errors import BrokerUnreachable, ClientError, request_failure
from ...hooks.consumption import ConsumptionHooks
from ...namespaces import Namespace
from ...network.instance import ClientInstance
from ..flow_control import FlowControl
from ..offsets.local_offsets import LocalOffsetStore
from ..offsets.offset_store import OffsetStore, RemoteOffsetStore
from ..offsets.start_position import offset_of
from ..processing.concurrent import ConcurrentService, ConcurrentSettings
from ..processing.listener import DEAD_LETTER
from ..processing.listener_call import ListenerCall
from ..processing.orderly import OrderlyService, OrderlySettings
from ..processing.process_queue import ProcessQueue
from ..processing.runners import Runner
from ..processing.send_back import RetryRules, SendBack
from ..processing.service import ConsumeService
from ..processing.statistics import SAMPLE_SECONDS
from ..rebalancing.allocation import with_namespace
from ..rebalancing.rebalance import ClientRebalance, Rebalance
from ..rebalancing.rebalance_listener import RebalanceCalls
from ..rebalancing.share import Share
from ..rebalancing.share_changes import ShareChangeNotifier
from ..requests.pull_client import PullClient
from ..subscription import Subscription
from .assigned_queues import AssignedQueues, StartOffset
from .engine_settings import EngineSettings
from .group_membership import GroupMembership
from .obstacles import Obstacles
from .queue_locks import QueueLocks
from .queue_puller import PullerCallbacks, QueuePuller
from .running_info import running_info

log = logging.getLogger(__name__)

_MAX_CLEANING_SECONDS: Final = 60.0
_LOCK_FIRST_SECONDS: Final = 1.0
# Of a `commit_seconds` of 0, which makes a pull consumer commit with every poll.
_LEAST_COMMIT_SECONDS: Final = 0.01


class ConsumerEngine(GroupMembership):
    """Consumes the queues of this consumer's share. Belongs to the network loop."""

    def __init__(
        self,
        settings: EngineSettings,
        instance: ClientInstance,
        subscriptions: Mapping[str, Subscription],
        obstacles: Obstacles,
        share_changes: ShareChangeNotifier | None = None,
        hooks: ConsumptionHooks | None = None,
        *,
        calls: RebalanceCalls,
    ) -> None:
        """`hooks` get receptions and settlements."""
        super().__init__(settings, instance, subscriptions)
        self._calls = calls
        self._hooks = hooks
        self._obstacles = obstacles
        self._share_changes = share_changes
        self._namespace = Namespace(instance.settings.namespace)
        self._rules = RetryRules(settings.group, settings.max_reconsume_times)
        if not settings.broadcasting:
            retries = Subscription(self._rules.retry_topic, None, now_ms())
            self.subscriptions[retries.topic] = retries
        self._offsets = self._make_offsets()
        self._client = PullClient(instance.connections, settings.group, settings.pull, instance.settings)
        self._send_back = SendBack(
            self._rules, instance.api, instance.connections, instance.routes, instance.settings, hooks
        )
        self.service = self._make_service()
        self._rebalance = self._make_rebalance()
        locks = None
        if self._is_locking:
            locks = QueueLocks(
                settings.group, instance.client_id, instance.api, self._master_of, self._lock_refused
            )
        self._assigned = AssignedQueues(
            settings.group,
            self.service,
            self._offsets,
            locks,
            settings.timing,
            self._pull,
            self._start,
            self._calls,
        )

    # --- ConsumerMember ---

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets, by an administrator's order."""
        for queue, offset in offsets.items():
            if queue.topic == topic:
                self._assigned.move_queue(queue, offset)

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return the consumed offset of each of its queues of the topic."""
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Pass this one message to the listener, apart from all queues."""
        self._rules.restore_topic(message)
        self._namespace.unwrap_topics([message])
        return await self.service.consume_directly(message)

    def running_info(self) -> ConsumerRunningInfo:
        """Return the state of the consumer for administrators."""
        return running_info(
            self.settings,
            self.subscriptions.values(),
            self._assigned.process_queues(),
            self._offsets,
            self.service.statistics,
            addresses=self._instance.addresses,
            started_ms=self._started_ms,
            now=self._loop.time(),
        )

    # --- lifecycle ---

    def attach(self, runner: Runner) -> None:
        """Set the runner of the listener; its outcomes are passed to `done`."""
        self.service.attach(runner)

    def done(self, call: ListenerCall) -> None:
        """Handle a call that has ended, or was cancelled before it began."""
        self.service.done(call)

    async def start(self) -> None:
        """Join the group and start to consume.

        Raises UsageError if this client already has a consumer of the group, BrokerError for an expression
        that a broker cannot filter by.
        """
        await self._join()
        self._start(self._keep_balanced(), "rebalance")
        timing = self.settings.timing
        self._start(
            self._repeat(self._commit, max(timing.commit_seconds, _LEAST_COMMIT_SECONDS)), "commit offsets"
        )
        self._start(self._repeat(self._sample, SAMPLE_SECONDS), "statistics")
        if isinstance(self.service, ConcurrentService):
            cleaning = min(_MAX_CLEANING_SECONDS, timing.consume_timeout_seconds / 4)
            self._start(self._repeat(self._clean_expired, cleaning), "clean expired messages")
        if self._is_locking:
            renewal = timing.lock_renewal_seconds
            first = min(_LOCK_FIRST_SECONDS, renewal)
            self._start(self._repeat(self._renew_locks, renewal, first), "renew locks", stop_last=True)

    async def stop(self) -> None:
        """Stop consuming, wait for the listener, commit, leave the group."""
        await self._end()
        await self._leave()

    async def _end(self) -> None:
        stopping = asyncio.ensure_future(self._assigned.stop(self.settings.timing.stop_grace_seconds))
        await asyncio.sleep(0)  # from here on, no queue is taken
        self._cancel_tasks()
        try:
            await stopping
        finally:
            self._cancel_last_tasks()

    def assigned_queues(self) -> list[MessageQueue]:
        """Return the assigned queues, without those of the group's retry topic."""
        return [queue for queue in self._assigned.queues() if not self._is_retry_topic(queue.topic)]

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to consume, None if the queue is not consumed here."""
        return self._offsets.get(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the persisted offset of a queue, None without one. Raises ClientError."""
        return await self._offsets.read(queue)

    async def commit(self) -> None:
        """Commit the consumed offsets. Raises the ClientError of the first queue that failed."""
        failures: list[ClientError] = []
        await self._offsets.commit(failures=failures)
        if failures:
            raise failures[0]

    async def rebalance(self) -> bool:
        """Take and give up queues to match this consumer's share; whether that is complete."""
        balanced = True
        unwanted = [queue for queue in self._assigned.queues() if queue.topic not in self.subscriptions]
        await self._assigned.give_up(unwanted)
        for topic in list(self.subscriptions):
            share = await self._rebalance.share(topic)
            if topic not in self.subscriptions:
                continue  # unsubscribed in the meantime
            self._note_failure(topic)
            if share is None or not await self._apply(topic, share):
                balanced = False
        if self._share_changes is not None:
            self._share_changes.compare(self.assigned_queues())
        self._obstacles.forget_all_but(self._consumed().__contains__)
        if balanced:
            self._obstacles.balanced()
        return balanced

    async def wait_ready(self, timeout_seconds: float) -> None:
        """Wait until this consumer has its share, and connections to the brokers of its topics.

        Raises the ClientError that is in the way.
        """
        deadline = self._loop.time() + timeout_seconds
        await self._obstacles.wait_ready(f"consumer {self.group}", timeout_seconds)
        routes = self._instance.routes.existing
        for topic in [topic for topic in self.subscriptions if topic in routes]:
            for name in routes[topic].brokers:
                address = routes[topic].broker_address(name)
                if address is None:
                    continue
                about = f"connection to broker {name}"
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._instance.connections.connect(address)
                except RequestError as error:
                    raise request_failure(error, about) from error
                except TimeoutError:
                    late = f"{about} at {address} not open within {timeout_seconds:g} s"
                    raise BrokerUnreachable(late) from None

    def _consumed(self) -> set[Hashable]:
        """Return the topics and queues that obstacles are noted for."""
        return {*self.subscriptions, *self._assigned.queues()}

    def _note_failure(self, topic: str) -> None:
        failure = self._rebalance.failures.get(topic)
        if failure is None:
            self._obstacles.passed(topic)
        else:
            self._obstacles.met(topic, failure)

    async def _apply(self, topic: str, share: Share) -> bool:
        return await self._assigned.apply(topic, share)

    # --- parts ---

    def _make_rebalance(self) -> Rebalance:
        instance, settings = self._instance, self.settings
        return ClientRebalance(
            settings.group,
            instance.client_id,
            routes=instance.routes,
            api=instance.api,
            allocation=None
            if settings.broadcasting
            else with_namespace(self._namespace, settings.allocation),
            announce=instance.announce,
        )

    @property
    def _is_locking(self) -> bool:
        return self.settings.kind.orderly and not self.settings.broadcasting

    def _make_offsets(self) -> OffsetStore:
        instance, settings = self._instance, self.settings
        if settings.broadcasting:
            # As Apache's clients name themselves: the name must be the same after a restart.
            client_name = f"{local_address().strip('[]')}@{instance.settings.instance_name}"
            return LocalOffsetStore(settings.offsets_folder, client_name, settings.group)
        return RemoteOffsetStore(
            settings.group,
            instance.api,
            self._address_of,
            # Ordered queues: the next owner relies on the commit of the last one.
            None if self._is_locking else instance.connections.post_oneway,
            instance.settings.serialization,
            None if self._hooks is None else self._hooks.committed,
            self._on_broker,
        )

    def _make_service(self) -> ConsumeService:
        settings = self.settings
        alone = settings.broadcasting
        if settings.kind.orderly:
            send_to_dead_letters = None if alone else self._send_to_dead_letters
            return OrderlyService(
                settings.kind,
                self._offsets,
                self._loop,
                self._orderly_settings(),
                self._relock,
                send_to_dead_letters,
            )
        concurrent = ConcurrentSettings(
            settings.batch_size, settings.timing.retry_seconds, settings.timing.consume_timeout_seconds
        )
        send_back = None if alone else self._return_to_broker
        return ConcurrentService(settings.kind, self._offsets, self._loop, concurrent, self._rules, send_back)

    def _orderly_settings(self) -> OrderlySettings:
        settings = self.settings
        return OrderlySettings(
            settings.batch_size,
            settings.timing.retry_seconds,
            settings.suspend_seconds,
            settings.max_reconsume_times,
        )

    def _pull(
        self, process_queue: ProcessQueue, start_offset: StartOffset | None, takeover_seconds: float
    ) -> Coroutine[Any, Any, None]:
        queue = process_queue.queue

        async def committed_or_start() -> int:
            return await self._start_offset(queue)

        callbacks = PullerCallbacks(
            flow_control=self._make_flow_control(queue.topic),
            subscription=lambda: self.subscriptions.get(queue.topic),
            consume=self._consume,
            start_offset=start_offset or committed_or_start,
            offset_illegal=self._assigned.move,
            announce=self._instance.announce,
            is_suspended=lambda: self.suspended,
            count_pull=self._count_pull,
            obstacles=self._obstacles,
            failed=None if self._hooks is None else self._pull_failed,
        )
        puller = QueuePuller(
            process_queue,
            callbacks,
            client=self._client,
            routes=self._instance.routes,
            offsets=self._offsets,
            timing=self.settings.timing,
            commit_with_pulls=not (self._is_locking or self.settings.broadcasting),
        )
        return puller.run(takeover_seconds)

    def _make_flow_control(self, topic: str) -> Callable[[], FlowControl]:
        """Return the bounds of a queue, which may change with the number of the topic's queues."""
        bounds = self.settings.flow_control
        if self.settings.kind.orderly:
            # Ordered queues are consumed without gaps: a bound on the span would prevent no redelivery.
            bounds = replace(bounds, max_span=sys.maxsize)
        if not bounds.is_per_topic:
            return lambda: bounds
        return lambda: bounds.for_queues(self._assigned.count(topic))

    def _is_retry_topic(self, topic: str) -> bool:
        """Whether the topic is one of the group's own."""
        return topic == self._rules.retry_topic

    def _consume(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if process_queue.queue.topic == self._rules.retry_topic:
            for message in messages:
                self._rules.restore_topic(message)
        self._namespace.unwrap_topics(messages)
        if self._hooks is not None:
            elapsed = self._loop.time() - process_queue.last_pull_at
            self._hooks.received(messages, elapsed, prefetched=True)
        self.service.submit(process_queue, messages)

    def _pull_failed(self, queue: MessageQueue, error: ClientError, elapsed_seconds: float) -> None:
        if self._hooks is not None:
            self._hooks.not_received([queue.topic], error, elapsed_seconds, prefetched=True)

    def _count_pull(self, topic: str, messages: int, seconds: float) -> None:
        self.service.statistics.of(topic, self._loop.time()).pulled(messages, seconds)

    async def _return_to_broker(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> None:
        await self._send_back.send_back(message, queue, delay_level)
        self._await_retries()

    async def _send_to_dead_letters(self, message: MessageExt) -> None:
        await self._send_back.resend(message, DEAD_LETTER)

    def _await_retries(self) -> None:
        """Rebalance soon, because the retry topic may have been created just now."""
        if self._rules.retry_topic not in self._instance.routes.existing:
            self.rebalance_soon()

    async def _relock(self, process_queue: ProcessQueue) -> bool:
        if not self._is_locking:
            return True
        return await self._assigned.relock(process_queue)

    async def _start_offset(self, queue: MessageQueue) -> int:
        consume_from = self.settings.consume_from
        if self._is_retry_topic(queue.topic):
            consume_from = "first"  # the group's own messages
        offset = await self._offsets.read(queue, zero_for_young_queues=consume_from == "last")
        if offset is not None and offset > 0:
            return offset
        if offset is None:
            address, asked = self._address_of(queue), self._on_broker(queue)
            if address is None:
                raise BrokerUnreachable(f"no address of broker {asked.broker_name} is known for {queue}")
            offset = await offset_of(self._instance.api, address, asked, consume_from)
        # Another member that continues with the queue must begin there, too, even if nothing has been
        # consumed until then: by then the end is another one, and a queue that is young now (0) no longer is.
        self._offsets.advance(queue, offset)
        return offset

    def _address_of(self, queue: MessageQueue) -> str | None:
        route = self._instance.routes.existing.get(queue.topic)
        return None if route is None else route.address_of(queue)

    def _on_broker(self, queue: MessageQueue) -> MessageQueue:
        route = self._instance.routes.existing.get(queue.topic)
        return queue if route is None else route.on_broker(queue)

    def _lock_refused(self, queue: MessageQueue) -> None:
        """Look for another leader of a logical queue: the former one refuses its lock."""
        route = self._instance.routes.existing.get(queue.topic)
        if route is not None and route.is_static:
            self._instance.routes.request_failed(queue.topic)

    def _master_of(self, queue: MessageQueue) -> str | None:
        """Return the master's address. Locks of slaves would not count for members that ask the master."""
        route = self._instance.routes.existing.get(queue.topic)
        if route is None:
            return None
        return route.brokers.get(route.broker_of(queue), {}).get(MASTER_BROKER_ID)

    # --- in the background ---

    async def _keep_balanced(self) -> None:
        timing = self.settings.timing
        while True:
            self._rebalance_wanted.clear()
            try:
                balanced = await self.rebalance()
            except Exception:
                log.exception("group not rebalanced group=%s; retried", self.group)
                balanced = False
            await asyncio.sleep(timing.rebalance_again_seconds)
            wait = max(0.0, timing.rebalance_seconds - timing.rebalance_again_seconds) if balanced else 0.0
            try:
                async with asyncio.timeout(wait):
                    await self._rebalance_wanted.wait()
            except TimeoutError:
                pass

    async def _commit(self) -> None:
        await self._offsets.commit_routinely(self._assigned.queues())

    async def _clean_expired(self) -> None:
        if isinstance(self.service, ConcurrentService):
            self.service.clean_expired()

    async def _renew_locks(self) -> None:
        if not await self._assigned.renew_locks():
            self.rebalance_soon()

    def _task_failed(self) -> None:
        """Do nothing: the next rebalance notices a failed puller and replaces it."""
