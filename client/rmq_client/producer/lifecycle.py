"""Lifecycle of a producer: its parameters, its parts, and its graceful shutdown."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_queue import MessageQueue

from ..bodies.serializers import Serializer, check_serializer
from ..checks import (
    Seconds,
    check_each,
    check_instance,
    check_int,
    check_message,
    check_optional,
    check_optional_callable,
    check_seconds,
)
from ..errors import UsageError
from ..hooks.send import SendHook, SendHooks
from ..lifetime import Lifetime, not_running
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from ..results import SendResult
from ..settings import ClientSettings, check_namesrv, checked_settings
from ..tasks import uninterrupted
from ..trace.dispatcher import Tracing
from ..trace.hooks import SendTraceHook
from ..trace.tracer import SpanSender, Tracer
from .backpressure import BackPressure, InFlightLimits
from .batch_sender import BatchSender
from .batching import Batcher, BatchPolicy
from .fault_tolerance import FaultTolerance
from .in_flight import InFlightCalls
from .message_encoder import MessageEncoder
from .policies import Compression, RetryPolicy
from .recalls import Recalls
from .request_reply import RequestReply
from .selection import QueueSelector
from .sender import MessageSender
from .transactions import TransactionCheck, Transactions
from .validation import check_extras, check_size

_DEFAULT_RETRY: Final = RetryPolicy()
_DEFAULT_COMPRESSION: Final = Compression()
_DEFAULT_LIMITS: Final = InFlightLimits()
_DEFAULT_SETTINGS: Final = ClientSettings()


class ProducerLifecycle(Lifetime):
    """Starts and stops the parts of a producer. `Producer` adds the sends."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        timeout_seconds: Seconds = 3.0,
        retry: RetryPolicy = _DEFAULT_RETRY,
        fault_tolerance: FaultTolerance | None = None,
        batching: BatchPolicy | None = None,
        check_transaction: TransactionCheck | None = None,
        compression: Compression | None = _DEFAULT_COMPRESSION,
        limits: InFlightLimits = _DEFAULT_LIMITS,
        hooks: Sequence[SendHook] = (),
        trace: Tracing | None = None,
        serializer: Serializer | None = None,
        max_message_bytes: int = 4 * 1024 * 1024,
        new_topic_queues: int = 4,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """Prepare a producer. Raises InvalidArgumentError.

        `namesrv`: `host:port;host:port` (without it: the variable NAMESRV_ADDR). `timeout_seconds` bounds a
        whole send, all attempts together. `fault_tolerance` avoids slow and unreachable brokers for a while.
        `batching` turns automatic batching on. `check_transaction` answers brokers that ask for the outcome
        of transactions of the group, also those of other processes. `hooks` see every message. `trace` writes
        message traces. `serializer` writes the values of `send` and `encode`. `new_topic_queues`: queues that
        a broker gives a topic which it creates for the first message.
        """
        self._settings = checked_settings(settings)
        self._group = Namespace(settings.namespace).checked_group(group)
        self.group = group
        self._namesrv = check_namesrv(namesrv)
        self._timeout_seconds = check_seconds("timeout_seconds", timeout_seconds, above=0)
        self._retry = check_instance("retry", retry, RetryPolicy, "pass RetryPolicy(...)")
        self._fault_tolerance = check_optional(
            "fault_tolerance", fault_tolerance, FaultTolerance, "pass FaultTolerance.v5() or None"
        )
        self._batch_policy = check_optional(
            "batching", batching, BatchPolicy, "pass BatchPolicy(...) or None"
        )
        check_optional_callable("check_transaction", check_transaction, 1, "a message")
        self._check_transaction = check_transaction
        self._compression = check_optional(
            "compression", compression, Compression, "pass Compression(...) or None"
        )
        self._max_message_bytes = check_int("max_message_bytes", max_message_bytes, least=1)
        self._new_topic_queues = check_int("new_topic_queues", new_topic_queues, least=1)
        self._send_hooks = tuple(check_each("hooks", hooks, SendHook, "derive hooks from SendHook"))
        self._tracing = check_optional("trace", trace, Tracing, "pass Tracing() or None")
        self._serializer = None if serializer is None else check_serializer("serializer", serializer)
        self._limits = check_instance("limits", limits, InFlightLimits, "pass InFlightLimits(...)")
        self._pressure = BackPressure(limits)
        # Calls that back-pressure does not count, or not yet: they look up a route.
        self._in_flight = InFlightCalls()
        self._running = False
        self._instance: ClientInstance | None = None
        # Created by start().
        self._sender: MessageSender
        self._encoder: MessageEncoder
        self._requests: RequestReply
        self._transactions: Transactions
        self._recalls: Recalls
        self._batches: BatchSender
        self._leaving: AsyncExitStack
        # None without hooks: sends then spend nothing on them.
        self._hooks: SendHooks | None = None
        # The hook of the trace, if there is no other one: single sends then call it without a SendContext.
        self._only_trace: SendTraceHook | None = None
        self._batcher: Batcher | None = None
        self._loop: asyncio.AbstractEventLoop

    # --- lifecycle ---

    @property
    def hooks(self) -> tuple[SendHook, ...]:
        """The hooks, in the order in which they are called."""
        return self._send_hooks

    def add_hook(self, hook: SendHook) -> None:
        """Add a hook to those of `hooks`, before the start. Raises UsageError, InvalidArgumentError."""
        check_instance("hook", hook, SendHook, "derive hooks from SendHook")
        if self._instance is not None:
            raise UsageError(f"producer {self.group} has been started already: add hooks before its start")
        self._send_hooks = (*self._send_hooks, hook)

    @property
    def namespace(self) -> str:
        """The namespace of the topics and the group, empty for none."""
        return self._settings.namespace

    async def start(self) -> None:
        """Start the producer. No request is sent before the first message. Raises UsageError."""
        if self._instance is not None:
            raise UsageError(f"producer {self.group} has been started already")
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        self._loop = asyncio.get_running_loop()
        leaving = AsyncExitStack()
        leaving.push_async_callback(instance.release)
        try:
            await self._join(instance, leaving)
        except BaseException:
            await uninterrupted(leaving.aclose())
            raise
        self._sender.start()
        self._instance, self._leaving = instance, leaving
        self._running = True

    async def _join(self, instance: ClientInstance, leaving: AsyncExitStack) -> None:
        """Join the group. `leaving` gets the undo of each step, also of a step that fails halfway.

        (The client counts the producers of a group: a producer that was never added must not be removed.)
        """
        self._sender = MessageSender(
            instance, self._group, self._retry, self._new_topic_queues, self._fault_tolerance
        )
        await self._start_hooks(instance, leaving)
        self._make_parts(instance)
        leaving.push_async_callback(self._transactions.stop)
        await uninterrupted(self._transactions.start())
        leaving.push_async_callback(self._leave_group, instance)
        await uninterrupted(instance.run(instance.add_producer(self._group)))

    async def _leave_group(self, instance: ClientInstance) -> None:
        await instance.run(instance.remove_producer(self._group))

    async def _start_hooks(self, instance: ClientInstance, leaving: AsyncExitStack) -> None:
        """Collect the application's hooks, then those of the trace: traces see what the others changed."""
        hooks = list(self._send_hooks)
        if self._tracing is not None:
            tracer = Tracer(self._tracing, instance, self.group, self._trace_producer)
            leaving.push_async_callback(tracer.stop)
            await tracer.start()
            hook = tracer.send_hook()
            self._only_trace = None if hooks else hook
            hooks.append(hook)
        self._hooks = SendHooks(self.group, hooks) if hooks else None

    def _make_parts(self, instance: ClientInstance) -> None:
        sender, hooks = self._sender, self._hooks
        self._encoder = MessageEncoder(instance.unique_keys, self._compression, self._settings.namespace)
        self._requests = RequestReply(instance, sender, self.send, self._limits.max_messages)
        self._transactions = Transactions(
            instance, sender, self.send, self._group, self._check_transaction, hooks
        )
        self._recalls = Recalls(instance, sender, self._group, hooks)
        self._batches = BatchSender(
            sender, self._encoder, self._timeout_seconds, tell_region=hooks is not None
        )
        if self._batch_policy is not None:
            self._batcher = Batcher(self._batch_policy, self._batches.deliver, self._encoder.plain)

    async def stop(self) -> None:
        """Wait for sends and recalls in flight, leave the group, and release the connections."""
        instance, self._instance = self._instance, None
        if instance is not None:
            self._running = False
            if not instance.is_forked:
                await uninterrupted(self._stop())

    async def _stop(self) -> None:
        # Every send ends within its timeout, so this does, too.
        await self._in_flight.wait_idle()
        if self._batcher is not None:
            self._batcher.flush()
        await self._pressure.wait_idle()
        if self._batcher is not None:
            await self._batcher.stop()
        await self._sender.stop()
        # Outcomes of transactions are sent while brokers still know the producer.
        await self._transactions.stop()
        await self._leaving.aclose()

    # --- for sends ---

    @abstractmethod
    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: Seconds | None = None,
    ) -> SendResult:
        """Send a message: requests, replies and transactions go through here, too."""

    @abstractmethod
    def _trace_producer(self, group: str) -> SpanSender:
        """Return an untraced producer of the group, which sends the spans."""

    def _check(self, message: Message) -> int:
        """Return the size of the body. Raises UsageError."""
        if type(message) is not Message or type(message.body) is not bytes:
            check_message("message", message)
        if not self._running or asyncio.get_running_loop() is not self._loop:
            self._check_running()
        if message.properties or message.flag:
            check_extras(message)
        size = len(message.body)
        return size if 0 < size <= self._max_message_bytes else check_size(message, self._max_message_bytes)

    def _check_running(self) -> None:
        if not self._running:
            self._check_process()
            raise not_running(f"producer {self.group}")
        if asyncio.get_running_loop() is not self._loop:
            self._check_process()
            raise UsageError(
                f"producer {self.group} belongs to another event loop: use one producer per loop, "
                "or rmq_client.blocking"
            )
