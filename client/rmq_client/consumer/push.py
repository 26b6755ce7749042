"""PushConsumer: messages come to a listener."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION
from rmq_remoting.message_queue import MessageQueue

from ..errors import NotRunning, UsageError
from ..instance import ClientInstance, now_ms
from ..names import check_group
from ..settings import ClientSettings
from ..tasks import uninterrupted
from .allocation import Allocation, averagely
from .engine import ConsumerEngine, EngineSettings
from .listener import Listener, make_runner
from .process_queue import FlowControl
from .pull_client import PullSettings
from .pulling import ConsumerTiming
from .start_position import ConsumeFrom, check_consume_from
from .subscription import Subscription

_DEFAULT_PULL: Final = PullSettings()
_DEFAULT_FLOW_CONTROL: Final = FlowControl()
_DEFAULT_TIMING: Final = ConsumerTiming()
_DEFAULT_SETTINGS: Final = ClientSettings()


class PushConsumer:
    """Gives the messages of its topics to a listener; the consumers of a group share the queues.

    ::

        async def pay(messages: list[MessageExt]) -> None:
            ...

        topics = {"orders": "paid || sent"}
        async with PushConsumer("127.0.0.1:9876", group="till", topics=topics, listener=pay) as consumer:
            await consumer.wait_stopped()

    The listener is a function, which runs in one of `workers` threads, or a coroutine function, which runs on
    the loop that the consumer was started on. What it refuses, by ConsumeResult.LATER or any exception, comes
    again later. A message may come more than once, after a crash or when queues change hands.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        listener: Listener,
        topics: Mapping[str, str] | Sequence[str] = (),
        consume_from: ConsumeFrom = "last",
        workers: int = 20,
        consume_batch_size: int = 1,
        pull: PullSettings = _DEFAULT_PULL,
        flow_control: FlowControl = _DEFAULT_FLOW_CONTROL,
        allocation: Allocation = averagely,
        timing: ConsumerTiming = _DEFAULT_TIMING,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """`topics`: names, or names with tag expressions such as `paid || sent` (`*` is all).

        `consume_from` counts for queues that the group has never consumed. `consume_batch_size`: how many
        messages one call of the listener gets at most. Raises UsageError.
        """
        check_group(group)
        if consume_batch_size < 1:
            raise UsageError("consume_batch_size must be at least 1")
        self.group = group
        self._namesrv = namesrv
        self._listener = listener
        self._settings = settings
        self._engine_settings = EngineSettings(
            group=group,
            consume_from=check_consume_from(consume_from),
            workers=workers,
            batch_size=consume_batch_size,
            pull=pull,
            flow_control=flow_control,
            allocation=allocation,
            timing=timing,
        )
        expressions = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, "*")
        self._subscriptions = {
            topic: Subscription(topic, expression, now_ms()) for topic, expression in expressions.items()
        }
        self._instance: ClientInstance | None = None
        self._engine: ConsumerEngine | None = None
        self._stopped: asyncio.Event

    async def start(self) -> None:
        """Join the group and begin. A topic that does not exist yet is waited for. Raises ClientError."""
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        if not self._subscriptions:
            raise UsageError(f"consumer {self.group} has no topics: name some with topics=... or subscribe()")
        self._stopped = asyncio.Event()
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        try:
            self._engine = await instance.run(self._start_engine(instance, asyncio.get_running_loop()))
        except BaseException:
            await uninterrupted(instance.release())
            raise
        self._instance = instance

    async def stop(self) -> None:
        """Pull no more, wait for the listener (`timing.stop_grace_seconds`), commit, leave the group."""
        instance, engine = self._instance, self._engine
        if instance is None or engine is None:
            return
        self._instance = self._engine = None
        await uninterrupted(self._stop(instance, engine))

    async def _stop(self, instance: ClientInstance, engine: ConsumerEngine) -> None:
        try:
            await instance.run(engine.stop())
        finally:
            await instance.release()
            self._stopped.set()

    async def wait_stopped(self) -> None:
        """Wait until somebody stops this consumer."""
        await self._stopped.wait()

    async def subscribe(
        self, topic: str, expression: str = "*", *, expression_type: str = TAG_EXPRESSION
    ) -> None:
        """Consume a topic, or another part of it, from now on. Raises ClientError."""
        subscription = Subscription(topic, expression, now_ms(), expression_type)
        self._subscriptions[topic] = subscription
        if self._instance is not None and self._engine is not None:
            await self._instance.run(self._engine.subscribe(subscription))

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer."""
        self._subscriptions.pop(topic, None)
        if self._instance is not None and self._engine is not None:
            await self._instance.run(self._engine.unsubscribe(topic))

    async def commit(self) -> None:
        """Tell the brokers now how far this consumer is (it happens every 5 s by itself)."""
        instance, engine = self._running()
        await instance.run(engine.commit())

    def suspend(self) -> None:
        """Pull no more for now; the queues stay this consumer's."""
        self._running()[1].suspended = True

    def resume(self) -> None:
        """Pull again."""
        self._running()[1].suspended = False

    async def assigned_queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's share now."""
        instance, engine = self._running()

        async def ask() -> list[MessageQueue]:
            return engine.assigned_queues()

        return await instance.run(ask())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start_engine(
        self, instance: ClientInstance, application_loop: asyncio.AbstractEventLoop
    ) -> ConsumerEngine:
        """On the network loop."""
        engine = ConsumerEngine(self._engine_settings, instance, self._subscriptions)
        runner = make_runner(
            self._listener,
            self._engine_settings.workers,
            f"rmq-{self.group}",
            application_loop,
            instance.loop,
            engine.service.done,
        )
        engine.service.attach(runner)
        try:
            await engine.start()
        except BaseException:
            await uninterrupted(engine.stop())
            raise
        return engine

    def _running(self) -> tuple[ClientInstance, ConsumerEngine]:
        if self._instance is None or self._engine is None:
            raise NotRunning(f"consumer {self.group} is not running: use `async with PushConsumer(...)`")
        return self._instance, self._engine
