"""Producer: sends messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import NotRunning, TimedOut, UsageError
from ..hooks.send import SendContext, SendHook, SendHooks, with_hook_properties
from ..lifetime import Lifetime
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from ..results import SendResult
from ..settings import ClientSettings
from ..tasks import uninterrupted
from ..trace.dispatcher import Tracing
from ..trace.tracer import Tracer
from .backpressure import BackPressure, InFlightLimits
from .batch_sender import BatchSender
from .batching import Batch, Batcher, BatchPolicy, can_batch
from .encoding import queue_of
from .fault_tolerance import FaultTolerance
from .in_flight import InFlightCalls
from .message_encoder import MessageEncoder
from .policies import Compression, RetryPolicy
from .publish_info import TopicPublishInfo
from .recalls import Recalls
from .request_reply import RequestReply
from .selection import QueueSelector, by_key_hash
from .sender import MessageSender
from .transactions import Transaction, TransactionCheck, TransactionResult, Transactions, TransactionWork
from .validation import check_extras, check_size

log = logging.getLogger("rmq.client.producer")

# Apache RocketMQ 5.3.3, AsyncTraceDispatcher.
_TRACE_TIMEOUT_SECONDS: Final = 5.0
_DEFAULT_RETRY: Final = RetryPolicy()
_DEFAULT_COMPRESSION: Final = Compression()
_DEFAULT_LIMITS: Final = InFlightLimits()
_DEFAULT_SETTINGS: Final = ClientSettings()


class Producer(Lifetime):
    """Sends messages of one group to any topic.

    ::

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            result = await producer.send(Message("orders", b"...", tags="paid", keys=["4711"]))

    It belongs to the loop that it was started on; any number of tasks may send at the same time.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        timeout_seconds: float = 3.0,
        retry: RetryPolicy = _DEFAULT_RETRY,
        fault_tolerance: FaultTolerance | None = None,
        batching: BatchPolicy | None = None,
        check_transaction: TransactionCheck | None = None,
        compression: Compression | None = _DEFAULT_COMPRESSION,
        limits: InFlightLimits = _DEFAULT_LIMITS,
        hooks: Sequence[SendHook] = (),
        trace: Tracing | None = None,
        max_message_bytes: int = 4 * 1024 * 1024,
        new_topic_queues: int = 4,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """`namesrv`: `host:port;host:port` (without one: the variable NAMESRV_ADDR).

        `timeout_seconds` bounds a whole send, all attempts together. `fault_tolerance` leaves brokers alone
        for a while that are slow or do not answer. `batching` turns automatic batching on.
        `check_transaction` tells brokers what became of transactions of the group, also of other processes'.
        `hooks` see every message; `trace` has it told what became of them.
        `new_topic_queues`: how many queues a broker gives a topic that it creates for the first message.
        Raises UsageError for a bad group name.
        """
        self.group = group
        self._group = Namespace(settings.namespace).checked_group(group)
        self._namesrv = namesrv
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._retry = retry
        self._fault_tolerance = fault_tolerance
        self._batch_policy = batching
        self._check_transaction = check_transaction
        self._compression = compression
        self._max_message_bytes = max_message_bytes
        self._new_topic_queues = new_topic_queues
        self._send_hooks = tuple(hooks)
        self._tracing = trace
        self._limits = limits
        self._pressure = BackPressure(limits)
        # Calls that back-pressure does not count, or not yet: they look for their way.
        self._in_flight = InFlightCalls()
        self._running = False
        self._instance: ClientInstance | None = None
        # Made by start().
        self._sender: MessageSender
        self._encoder: MessageEncoder
        self._requests: RequestReply
        self._transactions: Transactions
        self._recalls: Recalls
        self._batches: BatchSender
        self._leaving: AsyncExitStack
        # None where there are none: what is not looked at costs nothing.
        self._hooks: SendHooks | None = None
        self._batcher: Batcher | None = None
        self._loop: asyncio.AbstractEventLoop

    # --- life ---

    async def start(self) -> None:
        """Begin; no request is sent before the first message. Raises UsageError."""
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
        """Become one of the group. `leaving` is given what undoes each step, also of one that fails halfway.

        (A group's producers are counted by the client: one that was never added must not be removed.)
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
        """The application's, and those of the trace: they see what the others have made of a message."""
        hooks = list(self._send_hooks)
        if self._tracing is not None:
            sender = partial(trace_producer, self._namesrv, self._settings)
            tracer = Tracer(self._tracing, instance, self.group, sender)
            leaving.push_async_callback(tracer.stop)
            await tracer.start()
            hooks += tracer.send_hooks()
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
            self._batcher = Batcher(self._batch_policy, self._batches.deliver)

    async def stop(self) -> None:
        """Wait for what is under way, leave the group, give the connections back."""
        instance, self._instance = self._instance, None
        if instance is not None:
            self._running = False
            await uninterrupted(self._stop())

    async def _stop(self) -> None:
        # Every send ends within its timeout, and so does this.
        await self._in_flight.wait_idle()
        if self._batcher is not None:
            self._batcher.flush()
        await self._pressure.wait_idle()
        if self._batcher is not None:
            await self._batcher.stop()
        await self._sender.stop()
        # What was decided is told while brokers still know the producer.
        await self._transactions.stop()
        await self._leaving.aclose()

    # --- sending ---

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send a message and wait until the broker has it.

        It goes to the topic's queues in turn; or to `queue`; or where `selector(queues, message, key)` says;
        or, with a `key` alone, to the queue that the key's hash chooses. A message without an own choice of
        queue is tried again on another broker. Raises ClientError: TopicNotFound, TimedOut, BrokerError …
        """
        size = self._check(message)
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        sender = self._sender
        publish_info = sender.known(message.topic)
        if publish_info is None:
            began = self._loop.time()
            with self._in_flight:
                publish_info = await sender.publish_info(message.topic, timeout_seconds)
            timeout_seconds -= self._loop.time() - began
        if selector is not None or key is not None:
            queue = _select(publish_info, message, queue, selector, key)
        if not self._pressure.try_acquire(size):
            timeout_seconds = await self._wait_for_admission(size, timeout_seconds)
        hooks, context = self._hooks, None
        try:
            if hooks is not None:
                context = hooks.begin(message)
                message = with_hook_properties(context)
            if self._batcher is not None and size < self._encoder.compress_from_bytes and can_batch(message):
                result = await self._batches.send_one(self._batcher, message, queue, timeout_seconds)
            else:
                outgoing, msg_id = await self._encoder.outgoing(message)
                endpoint, stored = await sender.send(publish_info, queue, outgoing, timeout_seconds)
                result = SendResult(
                    stored.status,
                    msg_id,
                    queue_of(endpoint, stored),
                    stored.queue_offset,
                    stored.offset_msg_ids,
                    endpoint.address,
                    None if hooks is None else stored.traced_region,
                    # Nothing can be taken back but what waits for a time, which is a property.
                    stored.recall_handle if message.properties else None,
                )
        except BaseException as error:
            if hooks is not None and context is not None:
                hooks.end(context, None, error)
            raise
        finally:
            self._pressure.release(size)
        if hooks is not None and context is not None:
            hooks.end(context, result)
        return result

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> str:
        """Send a message without waiting for an answer; returns its id. Whether it arrives, nobody learns.

        Raises ClientError where it cannot even be sent.
        """
        size = self._check(message)
        with self._in_flight:
            return await self._send_oneway(message, size, queue, selector, key)

    async def _send_oneway(
        self,
        message: Message,
        size: int,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
    ) -> str:
        publish_info = await self._sender.publish_info(message.topic, self._timeout_seconds)
        if selector is not None or key is not None:
            queue = _select(publish_info, message, queue, selector, key)
        sender, hooks, context = self._sender, self._hooks, None
        endpoint = sender.choose(publish_info) if queue is None else sender.endpoint_of(publish_info, queue)
        try:
            if hooks is not None:
                context = hooks.begin(message)
                message = with_hook_properties(context)
            outgoing, msg_id = await self._encoder.outgoing(message)
            await sender.connect(endpoint)
            if not self._pressure.try_acquire(size):
                await self._wait_for_admission(size, self._timeout_seconds)
            written = sender.post(endpoint, outgoing)
            written.add_done_callback(lambda ended: self._oneway_written(ended, size))
            if written.done():  # nobody is there (any more) to write it
                written.result()
        except BaseException as error:
            if hooks is not None and context is not None:
                hooks.end(context, None, error)
            raise
        if hooks is not None and context is not None:
            hooks.end(context, None)
        return msg_id

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic as one request, to one queue; one result for each.

        They are stored together or not at all. Raises UsageError for messages that cannot go together, and
        ClientError as `send`.
        """
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        self._check_running()
        messages = list(messages)
        for message in messages:
            self._check(message)
        hooks, contexts = self._hooks, list[SendContext]()
        try:
            if hooks is not None:
                contexts = [hooks.begin(message) for message in messages]
                messages = [with_hook_properties(context) for context in contexts]
            results = await self._send_batch(self._batches.make(messages, queue), timeout_seconds)
        except BaseException as error:
            if hooks is not None:
                hooks.end_all(contexts, [None] * len(contexts), error)
            raise
        if hooks is not None:
            hooks.end_all(contexts, results)
        return results

    async def _send_batch(self, batch: Batch, timeout_seconds: float) -> list[SendResult]:
        size = batch.size_bytes
        if size > self._max_message_bytes:
            raise UsageError(
                f"the batch takes {size} bytes, {self._max_message_bytes} are allowed: send it in parts"
            )
        if not self._pressure.try_acquire(size):
            timeout_seconds = await self._wait_for_admission(size, timeout_seconds)
        try:
            return await self._batches.send(batch, timeout_seconds)
        finally:
            self._pressure.release(size)

    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: float | None = None,
    ) -> Transaction:
        """A transaction, for `async with`: the message is sent as the block begins, and committed at its end.

        An exception that leaves the block rolls it back. Where it goes is chosen as by `send`. Raises
        UsageError for a delayed message; where it begins TransactionNotBegun, and ClientError as `send`.
        """
        self._check(message)
        where = {"queue": queue, "selector": selector, "key": key, "timeout_seconds": timeout_seconds}
        return self._transactions.new(message, where)

    async def send_in_transaction(
        self,
        message: Message,
        work: TransactionWork,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: float | None = None,
    ) -> TransactionResult:
        """Send a message, have `work` done with it, and commit it or not, as that says.

        Where `work` raises, the transaction stays open and the error is raised here: the broker will ask
        `check_transaction`. Raises as `transaction`, too.
        """
        transaction = self.transaction(
            message, queue=queue, selector=selector, key=key, timeout_seconds=timeout_seconds
        )
        return await transaction.run(work)

    async def recall(self, handle: str, *, timeout_seconds: float | None = None) -> str:
        """Take back a message that waits for its time; returns its id.

        `handle` is the `recall_handle` of its SendResult. The broker says nothing of a message that is not
        there: whoever takes one back at the last moment may see it come all the same. Raises UsageError for
        what is no handle, PermissionDenied where the broker does not take messages back
        (`recallMessageEnable`), and ClientError as `send`.
        """
        self._check_running()
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        with self._in_flight:
            return await self._recalls.recall(handle, timeout_seconds)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: float | None = None,
    ) -> MessageExt:
        """Send a request and wait for the reply of who consumes it; where it goes is chosen as by `send`.

        `timeout_seconds` bounds both. Raises NoReply where the request was sent and no reply came in time,
        and ClientError as `send`.
        """
        self._check(message)
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        return await self._requests.request(message, timeout_seconds, queue=queue, selector=selector, key=key)

    async def reply(
        self, request: Message, body: bytes, *, timeout_seconds: float | None = None
    ) -> SendResult:
        """Reply to a message that somebody waits for a reply to; returns when that has it.

        Raises UsageError where nobody waits for one, and ClientError as `send`: Unavailable where no broker
        knows the requester (any more).
        """
        self._check_running()
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        return await self._requests.reply(request, body, timeout_seconds)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of `topic` can go to now. Raises ClientError."""
        self._check_running()
        return (await self._sender.publish_info(topic, self._timeout_seconds)).queues

    @property
    def in_flight(self) -> int:
        """How many messages are under way (a batch sent as such counts as one)."""
        return self._pressure.messages

    # --- checks ---

    def _check(self, message: Message) -> int:
        """The body's size. Raises UsageError."""
        if not self._running or asyncio.get_running_loop() is not self._loop:
            self._check_running()
        if message.properties or message.flag:
            check_extras(message)
        return check_size(message, self._max_message_bytes)

    def _check_running(self) -> None:
        if not self._running:
            raise NotRunning(
                f"producer {self.group} is not running: use `async with Producer(...)`, "
                "or `await start()` first"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                f"producer {self.group} belongs to another event loop: use one producer per loop, "
                "or rmq_client.blocking"
            )

    async def _wait_for_admission(self, size: int, timeout_seconds: float) -> float:
        """Wait for room; returns how much of the time is left."""
        began = self._loop.time()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._pressure.acquire(size)
        except TimeoutError:
            raise TimedOut(
                f"not sent within {timeout_seconds} s: {self._pressure.messages} messages "
                f"({self._pressure.bytes} bytes) are under way; send slower, or allow more with "
                "limits=InFlightLimits(...)"
            ) from None
        return timeout_seconds - (self._loop.time() - began)

    def _oneway_written(self, ended: asyncio.Future[None], size: int) -> None:
        self._pressure.release(size)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            log.warning("a one-way message was not sent: %s", error)


def trace_producer(namesrv: str | Sequence[str] | None, settings: ClientSettings, group: str) -> Producer:
    """What sends spans. It is not traced itself, and does not spend time on making its messages smaller.

    The trace topic is in no namespace, as with Apache's clients.
    """
    return Producer(
        namesrv,
        group=group,
        timeout_seconds=_TRACE_TIMEOUT_SECONDS,
        compression=None,
        settings=replace(settings, namespace=""),
    )


def _select(
    publish_info: TopicPublishInfo,
    message: Message,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
    key: object,
) -> MessageQueue:
    if queue is not None:
        raise UsageError("give either a queue, or a selector or key that chooses one")
    chosen = (selector or by_key_hash)(publish_info.queues, message, key)
    if not isinstance(chosen, MessageQueue):
        raise UsageError(f"the selector must return one of the queues, not {chosen!r}")
    return chosen
