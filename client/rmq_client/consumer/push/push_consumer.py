"""PushConsumer: messages are delivered to a listener."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rmq_remoting.message_queue import MessageQueue

from ...checks import (
    Seconds,
    check_callable,
    check_each,
    check_flag,
    check_instance,
    check_int,
    check_optional,
    check_optional_callable,
    check_optional_int,
    check_seconds,
    refuse,
)
from ...clock import now_ms
from ...errors import UsageError
from ...hooks.consume import ConsumeHook
from ...hooks.consumption import ConsumptionHooks, HookedConsumer
from ...lifetime import not_running
from ...namespaces import Namespace
from ...network.instance import ClientInstance
from ...producer.producer import trace_producer
from ...settings import ClientSettings, check_namesrv, checked_settings
from ...tasks import uninterrupted
from ...trace.dispatcher import Tracing
from ...trace.tracer import Tracer
from ..flow_control import FlowControl
from ..offsets.local_offsets import DEFAULT_FOLDER
from ..offsets.offset_reader import OffsetReader, expand_brokers
from ..offsets.start_position import ConsumeFrom, check_consume_from
from ..pop.settings import PopSettings
from ..processing.body_listener import takes_one_message
from ..processing.listener import ConsumeResult, Listener, inspect_listener
from ..processing.listener_call import ListenerCaller
from ..processing.runners import make_runner
from ..processing.statistics import TopicStatistics
from ..rebalancing.allocation import Allocation, averagely
from ..rebalancing.broker_rebalance import STRATEGY_NAMES
from ..rebalancing.rebalance_listener import RebalanceCalls, RebalanceListener
from ..rebalancing.share_changes import ShareChangeNotifier, ShareListener
from ..requests.pull_client import PullSettings
from ..subscription import Subscription, Topics, subscriptions_to
from ..timing import ConsumerTiming
from .engine import ConsumerEngine
from .engine_settings import EngineSettings
from .obstacles import ErrorListener, Obstacles
from .pop_engine import PopEngine

_DEFAULT_PULL: Final = PullSettings()
_DEFAULT_FLOW_CONTROL: Final = FlowControl()
_DEFAULT_TIMING: Final = ConsumerTiming()
_DEFAULT_POP: Final = PopSettings()
_DEFAULT_SETTINGS: Final = ClientSettings()


class PushConsumer(OffsetReader, HookedConsumer):
    """Delivers the messages of its topics to a listener; the consumers of a group share the queues.

    ::

        async def pay(messages: list[MessageExt]) -> None:
            ...

        topics = {"orders": "paid || sent"}
        async with PushConsumer("127.0.0.1:9876", group="till", topics=topics, listener=pay) as consumer:
            await consumer.wait_stopped()

    The listener is a function, which runs in one of `workers` threads, or a coroutine function, which runs on
    the loop that the consumer was started on. Messages that it refuses, by ConsumeResult.LATER or any
    exception, are sent back to the broker and redelivered later, at most `max_reconsume_times` times. After
    that they are dead letters. A message may be delivered more than once, after a crash or when queues move
    to another member.

    `orderly`: the messages of a queue are delivered one after the other; a refused one is repeated before the
    next one. `broadcasting`: every consumer of the group gets every message; refused messages are not
    redelivered, and each consumer keeps its offsets on its own disk. Without `client_rebalance` the brokers
    divide the queues, and decide whether messages are pulled or popped.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        listener: Listener,
        topics: Topics = (),
        orderly: bool = False,
        broadcasting: bool = False,
        consume_from: ConsumeFrom = "last",
        workers: int = 20,
        max_messages: int = 1,
        max_reconsume_times: int | None = None,
        suspend_seconds: Seconds = 1.0,
        none_means: ConsumeResult = ConsumeResult.SUCCESS,
        hooks: Sequence[ConsumeHook] = (),
        trace: Tracing | None = None,
        offsets_folder: str | Path = DEFAULT_FOLDER,
        pull: PullSettings = _DEFAULT_PULL,
        flow_control: FlowControl = _DEFAULT_FLOW_CONTROL,
        allocation: Allocation = averagely,
        share_listener: ShareListener | None = None,
        rebalance_listener: RebalanceListener | None = None,
        error_listener: ErrorListener | None = None,
        client_rebalance: bool = True,
        pop: PopSettings = _DEFAULT_POP,
        timing: ConsumerTiming = _DEFAULT_TIMING,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """Prepare a consumer. Raises InvalidArgumentError.

        `topics`: one name, several names, or a mapping of names to tags such as `paid || sent` (`*`: all
        messages) or to an `Sql` expression. `consume_from` counts for queues that the group has never
        consumed. `max_messages`: the most messages of one call. `max_reconsume_times`: None
        leaves it to the group's configuration on the broker; an orderly listener then repeats a message for
        ever. `suspend_seconds`: pause before an orderly listener gets a refused message again.
        `none_means`: result of a listener that returns nothing.

        `offsets_folder`: folder for the offsets of a broadcasting consumer. `share_listener` is called when
        this consumer has got other queues. `rebalance_listener` is waited for when queues come and leave.
        `error_listener` is called with the ClientError that keeps it from
        messages: a topic that does not exist, a broker that cannot be reached or that refuses. It is called
        once for each topic or queue, until that works again. `trace` writes message traces.
        `client_rebalance=False`: brokers divide the queues among the group. It pops topics in POP mode
        (`mqadmin setConsumeMode -m POP`) by `pop`, and pulls the others by `pull` and `flow_control`.
        """
        self._settings = checked_settings(settings)
        self._namespace = Namespace(settings.namespace)
        full_group = self._namespace.checked_group(group)
        for name, flag in (
            ("orderly", orderly),
            ("broadcasting", broadcasting),
            ("client_rebalance", client_rebalance),
        ):
            check_flag(name, flag)
        self._consume_from = check_consume_from(consume_from)
        check_callable("allocation", allocation, 3, "client id, queues and client ids")
        if not isinstance(offsets_folder, (str, Path)):
            raise refuse("offsets_folder", offsets_folder, "must be the path of a folder")
        check_instance("pop", pop, PopSettings, "pass PopSettings(...)")
        if not client_rebalance and broadcasting:
            raise UsageError(
                "client_rebalance=False excludes broadcasting, in which each member takes all queues"
            )
        if not client_rebalance and consume_from not in ("first", "last"):
            raise UsageError("client_rebalance=False: consume_from must be 'first' or 'last'")
        if not client_rebalance and allocation not in STRATEGY_NAMES:
            raise UsageError(
                "client_rebalance=False: allocation must be averagely or by_circle, which brokers know"
            )
        self.group = group
        self.broadcasting = broadcasting
        self._pop = None if client_rebalance else pop
        self._share_listener = check_optional_callable("share_listener", share_listener, 1, "a ShareChange")
        self._rebalance_listener = check_optional(
            "rebalance_listener", rebalance_listener, RebalanceListener, "derive it from RebalanceListener"
        )
        self._error_listener = check_optional_callable("error_listener", error_listener, 1, "a ClientError")
        self._namesrv = check_namesrv(namesrv)
        self._hooks = check_each("hooks", hooks, ConsumeHook, "derive hooks from ConsumeHook")
        self._tracing = check_optional("trace", trace, Tracing, "pass Tracing() or None")
        self._tracer: Tracer | None = None
        if takes_one_message(listener) and max_messages != 1:
            raise refuse("max_messages", max_messages, "must be 1: a body listener gets one message a call")
        self._engine_settings = EngineSettings(
            group=full_group,
            kind=inspect_listener(listener, orderly=orderly, none_means=none_means),
            broadcasting=broadcasting,
            consume_from=consume_from,
            workers=check_int("workers", workers, least=1),
            batch_size=check_int("max_messages", max_messages, least=1),
            max_reconsume_times=check_optional_int("max_reconsume_times", max_reconsume_times, least=0),
            suspend_seconds=check_seconds("suspend_seconds", suspend_seconds),
            offsets_folder=Path(offsets_folder),
            pull=check_instance("pull", pull, PullSettings, "pass PullSettings(...)"),
            flow_control=check_instance("flow_control", flow_control, FlowControl, "pass FlowControl(...)"),
            allocation=allocation,
            timing=check_instance("timing", timing, ConsumerTiming, "pass ConsumerTiming(...)"),
        )
        self._subscriptions = subscriptions_to(topics, self._namespace, now_ms())
        self._instance: ClientInstance | None = None
        self._engine: ConsumerEngine | None = None
        # Set when the start in progress has ended, even by an error.
        self._started: asyncio.Event | None = None
        self._stopped: asyncio.Event | None = None

    async def start(self) -> None:
        """Join the group and start to consume.

        The consumer waits for topics that do not exist yet, and for brokers: `wait_ready` and
        `error_listener` tell. Raises ClientError.
        """
        if self._instance is not None or self._started is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        if not self._subscriptions:
            raise UsageError(f"consumer {self.group} has no topics: name some with topics=... or subscribe()")
        self._stopped = asyncio.Event()
        started = self._started = asyncio.Event()
        try:
            await self._begin()
        except BaseException:
            self._stopped.set()
            raise
        finally:
            self._started = None
            started.set()

    async def _begin(self) -> None:
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        try:
            hooks = await self._start_hooks(instance)
            loop = asyncio.get_running_loop()
            self._engine = await instance.run(self._start_engine(instance, loop, hooks))
        except BaseException:
            await uninterrupted(self._release(instance))
            raise
        self._instance = instance

    async def stop(self) -> None:
        """Stop pulling, wait for the listener (`timing.stop_grace_seconds`), commit, leave the group.

        A start in progress is waited for.
        """
        if self._started is not None:
            await self._started.wait()
        instance, engine = self._instance, self._engine
        if instance is None or engine is None:
            return
        self._instance = self._engine = None
        if not instance.is_forked:
            await uninterrupted(self._stop(instance, engine))

    async def _stop(self, instance: ClientInstance, engine: ConsumerEngine) -> None:
        try:
            await instance.run(engine.stop())
        finally:
            await self._release(instance)
            if self._stopped is not None:
                self._stopped.set()

    async def _release(self, instance: ClientInstance) -> None:
        tracer, self._tracer = self._tracer, None
        try:
            if tracer is not None:
                await tracer.stop()
        finally:
            await instance.release()

    async def _start_hooks(self, instance: ClientInstance) -> list[ConsumeHook]:
        """Return the hooks of the trace, then the application's."""
        if self._tracing is None:
            return list(self._hooks)
        sender = partial(trace_producer, self._namesrv, self._settings)
        self._tracer = Tracer(self._tracing, instance, self.group, sender)
        await self._tracer.start()
        return [*self._tracer.consume_hooks(), *self._hooks]

    async def wait_ready(self, timeout_seconds: Seconds = 30.0) -> None:
        """Wait until all topics exist, and the group has given this consumer its share of their queues.

        The share may be empty, if the group has more members than queues. Raises the ClientError that is in
        the way after `timeout_seconds`: TopicNotFound, BrokerUnreachable and others.
        """
        seconds = check_seconds("timeout_seconds", timeout_seconds, above=0)
        instance, engine = self._running()
        await instance.run(engine.wait_ready(seconds))

    async def wait_stopped(self) -> None:
        """Wait until this consumer is stopped. Raises NotRunning for one that was never started."""
        if self._stopped is None:
            self._running()
        else:
            await self._stopped.wait()

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Consume another topic, or change its filter, from now on. Raises ClientError."""
        subscription = Subscription(self._namespace.checked_topic(topic), expression, now_ms())
        self._subscriptions[subscription.topic] = subscription
        if self._instance is not None and self._engine is not None:
            await self._instance.run(self._engine.subscribe(subscription))

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        topic = self._namespace.checked_topic(topic)
        self._subscriptions.pop(topic, None)
        if self._instance is not None and self._engine is not None:
            await self._instance.run(self._engine.unsubscribe(topic))

    async def commit(self) -> None:
        """Commit the consumed offsets now (the consumer also does so every 5 s).

        Raises ClientError for the first queue that could not be committed; the other queues are.
        """
        instance, engine = self._running()
        await instance.run(engine.commit())

    def suspend(self) -> None:
        """Stop pulling for now; the queues stay assigned."""
        self._running()[1].suspended = True

    def resume(self) -> None:
        """Pull again."""
        self._running()[1].suspended = False

    async def assigned_queues(self) -> list[MessageQueue]:
        """Return the assigned queues, without those of the group's retry topic."""
        instance, engine = self._running()

        async def ask() -> list[MessageQueue]:
            return self._namespace.unwrap_queues(engine.assigned_queues())

        return await instance.run(ask())

    async def statistics(self) -> dict[str, TopicStatistics]:
        """Return the statistics of this consumer per topic.

        Redelivered messages count for the group's retry topic.
        """
        instance, engine = self._running()

        async def ask() -> dict[str, TopicStatistics]:
            return {self._namespace.unwrap(topic): one for topic, one in engine.statistics().items()}

        return await instance.run(ask())

    # --- offsets ---

    def _offset_instance(self) -> ClientInstance:
        return self._running()[0]

    def _offset_group(self) -> str:
        return self._engine_settings.group

    async def _own_queues(self) -> list[MessageQueue]:
        queues = self._namespace.wrap_queues(await self.assigned_queues())
        return await expand_brokers(self._offset_instance(), queues)

    async def _position(self, queue: MessageQueue) -> int | None:
        instance, engine = self._running()

        async def ask() -> int | None:
            return engine.position(queue)

        return await instance.run(ask())

    async def _committed(self, queue: MessageQueue) -> int | None:
        instance, engine = self._running()
        if self._engine_settings.broadcasting:
            return await instance.run(engine.committed(queue))
        return await super()._committed(queue)

    async def _start_engine(
        self,
        instance: ClientInstance,
        application_loop: asyncio.AbstractEventLoop,
        hooks: Sequence[ConsumeHook],
    ) -> ConsumerEngine:
        """Called on the network loop."""
        settings = self._engine_settings
        news = None
        if self._share_listener is not None:
            news = ShareChangeNotifier(
                self._share_listener, instance.routes, application_loop, self._namespace
            )
        obstacles = Obstacles(self._error_listener, application_loop)
        calls = RebalanceCalls(self._rebalance_listener, application_loop, self._namespace)
        told = ConsumptionHooks.of(self.group, self._namespace, hooks)
        if self._pop is None:
            engine = ConsumerEngine(
                settings, instance, self._subscriptions, obstacles, news, told, calls=calls
            )
        else:
            engine = PopEngine(
                settings, self._pop, instance, self._subscriptions, obstacles, news, told, calls=calls
            )
        caller = ListenerCaller(
            settings.kind,
            self.group,
            hooks,
            timeout_seconds=settings.timing.consume_timeout_seconds,
            namespace=self._namespace,
        )
        runner = make_runner(
            caller,
            settings.workers,
            f"rmq-{self.group}",
            application_loop,
            instance.loop,
            engine.done,
        )
        engine.attach(runner)
        try:
            await engine.start()
        except BaseException:
            await uninterrupted(engine.stop())
            raise
        return engine

    def _running(self) -> tuple[ClientInstance, ConsumerEngine]:
        if self._instance is None or self._engine is None:
            raise not_running(f"consumer {self.group}")
        self._check_process()
        return self._instance, self._engine
