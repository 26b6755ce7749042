"""Producer: sends messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..bodies.encoding import encode_body
from ..checks import (
    Seconds,
    check_callable,
    check_each,
    check_queue,
    check_seconds,
    check_text,
    check_timeout,
)
from ..errors import UsageError
from ..hooks.send import with_hook_properties
from ..names import check_topic_to_send
from ..replies import check_body, check_request
from ..results import SendResult
from ..settings import ClientSettings
from .batching import Batch, Batcher, can_batch
from .encoding import queue_of
from .lifecycle import ProducerLifecycle
from .selection import QueueSelector, select_queue
from .transactions import Transaction, TransactionResult, TransactionWork

log = logging.getLogger(__name__)

# Apache RocketMQ 5.3.3, AsyncTraceDispatcher.
_TRACE_TIMEOUT_SECONDS: Final = 5.0


class Producer(ProducerLifecycle):
    """Sends messages of one group to any topic.

    ::

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            result = await producer.send(Message("orders", b"...", tags="paid", keys=["4711"]))

    It belongs to the loop that it was started on. Any number of tasks may send at the same time.
    """

    def _trace_producer(self, group: str) -> Producer:
        return trace_producer(self._namesrv, self._settings, group)

    async def send(
        self,
        message: Message,
        value: object = ...,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: Seconds | None = None,
    ) -> SendResult:
        """Send a message and wait until the broker has stored it.

        The message goes to the topic's queues in turn, to `queue`, to the result of `selector(queues,
        message, key)`, or, with a `key` alone, to the queue that the hash of the key selects. A message
        without a chosen queue is retried on another broker. With a `value`, which the producer's serializer
        writes, the message has no body yet: `send(Message("orders"), order)`. See `encode`.

        `timeout_seconds` bounds all attempts together; None: that of the producer. Raises ClientError:
        TopicNotFound, TimedOut, BrokerError … Whether the message may have been stored all the same says
        `is_outcome_unknown` of the error. Cancelling a call is no recall: once the request is written, the
        broker stores the message, and nothing says so to the caller.
        """
        if queue is not None or selector is not None:
            _check_choice(queue, selector)
        if timeout_seconds is not None:
            timeout_seconds = check_seconds("timeout_seconds", timeout_seconds, above=0)
        if value is not ...:
            message = self.encode(message, value)
        size = self._check(message)
        if queue is None and selector is None and key is None and timeout_seconds is None:
            batcher = self._batcher
            if batcher is not None and self._is_plain(batcher, message, size):
                trace, began_ns = self._only_trace, 0
                if trace is not None:
                    began_ns = trace.now_ns()
                try:
                    result = await batcher.add_plain(message.topic, message.body)
                finally:
                    self._pressure.release(size)
                if trace is not None:
                    trace.sent(message, result, began_ns)
                return result
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds
        sender, hooks, context, sent = self._sender, self._hooks, None, message
        trace, began_ns = self._only_trace, 0
        try:
            if trace is not None:
                began_ns = trace.now_ns()
            elif hooks is not None:
                context = hooks.begin(message)
                sent = with_hook_properties(context)
            publish_info = sender.known(message.topic)
            if publish_info is None:
                began = self._loop.time()
                with self._in_flight:
                    publish_info = await sender.publish_info(message.topic, timeout_seconds)
                timeout_seconds -= self._loop.time() - began
            if selector is not None or key is not None:
                queue = select_queue(publish_info.queues, message, queue, selector, key)
            if not self._pressure.try_acquire(size):
                timeout_seconds = await self._pressure.acquire_within(size, timeout_seconds)
            try:
                if self._batcher is not None and size < self._encoder.compress_from_bytes and can_batch(sent):
                    result = await self._batches.send_one(self._batcher, sent, queue, timeout_seconds)
                else:
                    outgoing, msg_id = await self._encoder.outgoing(sent)
                    endpoint, stored = await sender.send(publish_info, queue, outgoing, timeout_seconds)
                    result = SendResult(
                        stored.status,
                        msg_id,
                        queue_of(endpoint, stored),
                        stored.queue_offset,
                        stored.offset_msg_ids,
                        endpoint.address,
                        None if hooks is None else stored.traced_region,
                        # Only delayed messages can be recalled, and a delay is a property.
                        stored.recall_handle if sent.properties else None,
                    )
            finally:
                self._pressure.release(size)
        except BaseException as error:
            if hooks is not None and context is not None:
                hooks.end(context, None, error)
            raise
        if trace is not None:
            trace.sent(message, result, began_ns)
        elif hooks is not None and context is not None:
            hooks.end(context, result)
        return result

    def _is_plain(self, batcher: Batcher, message: Message, size: int) -> bool:
        """Whether a message can be sent in the short way: in an automatic batch, and without a wait."""
        if message.properties or message.flag or size >= self._encoder.compress_from_bytes:
            return False
        if self._hooks is not None and self._only_trace is None:
            return False
        topic = message.topic
        if not batcher.is_open(topic) and (self._sender.known(topic) is None or not can_batch(message)):
            return False
        return self._pressure.try_acquire(size)

    def encode(self, message: Message, value: object) -> Message:
        """Return a copy of a message with `value` as its body, for any of the sends.

        The producer's serializer writes the body, and its content type goes into the property
        `content_type`. Raises UnwritableBody for a value that the serializer cannot write, and
        InvalidArgumentError for a message that has a body.
        """
        return encode_body(message, value, self._serializer)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> str:
        """Send a message without waiting for an answer, and return its id. Whether it arrives is unknown.

        Raises ClientError if it cannot even be sent.
        """
        _check_choice(queue, selector)
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
        sender, hooks, context, sent = self._sender, self._hooks, None, message
        try:
            if hooks is not None:
                context = hooks.begin(message)
                sent = with_hook_properties(context)
            publish_info = await sender.publish_info(message.topic, self._timeout_seconds)
            if selector is not None or key is not None:
                queue = select_queue(publish_info.queues, message, queue, selector, key)
            endpoint = (
                sender.choose(publish_info) if queue is None else sender.endpoint_of(publish_info, queue)
            )
            outgoing, msg_id = await self._encoder.outgoing(sent)
            await sender.connect(endpoint)
            if not self._pressure.try_acquire(size):
                await self._pressure.acquire_within(size, self._timeout_seconds)
            written = sender.post(endpoint, outgoing)
            written.add_done_callback(lambda ended: self._oneway_written(ended, size))
            if written.done():  # the network thread has ended
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
        timeout_seconds: Seconds | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic as one request to one queue, and return one result for each.

        They are stored together or not at all. Raises UsageError for messages that cannot share a batch, and
        ClientError as `send`.
        """
        timeout = check_timeout("timeout_seconds", timeout_seconds, self._timeout_seconds)
        _check_choice(queue, None)
        messages = check_each("messages", messages, Message, "build them with Message(topic, body)")
        self._check_running()
        for message in messages:
            self._check(message)
        hooks = self._hooks
        if hooks is None:
            return await self._send_batch(self._batches.make(messages, queue), timeout)
        batch = hooks.begin_batch(messages)
        try:
            messages = [with_hook_properties(context) for context in batch.contexts]
            results = await self._send_batch(self._batches.make(messages, queue), timeout)
        except BaseException as error:
            hooks.end_batch(batch, [], error)
            raise
        hooks.end_batch(batch, results)
        return results

    async def _send_batch(self, batch: Batch, timeout_seconds: float) -> list[SendResult]:
        size = batch.size_bytes
        if size > self._max_message_bytes:
            raise UsageError(
                f"the batch takes {size} bytes, {self._max_message_bytes} are allowed: send it in parts"
            )
        if not self._pressure.try_acquire(size):
            timeout_seconds = await self._pressure.acquire_within(size, timeout_seconds)
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
        timeout_seconds: Seconds | None = None,
    ) -> Transaction:
        """Return a transaction for `async with`: the block sends the message first, and commits it at its
        end.

        An exception that leaves the block rolls it back. The queue is chosen as by `send`. Raises UsageError
        for a delayed message. The beginning of the block raises TransactionNotBegun, and ClientError as
        `send`.
        """
        _check_choice(queue, selector)
        if timeout_seconds is not None:
            timeout_seconds = check_seconds("timeout_seconds", timeout_seconds, above=0)
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
        timeout_seconds: Seconds | None = None,
    ) -> TransactionResult:
        """Send a message, run `work`, and end the transaction with the state that `work` returns.

        If `work` raises, the transaction stays open and the error is raised here: the broker will ask
        `check_transaction`. Raises as `transaction`, too.
        """
        check_callable("work", work, 1, "the message")
        transaction = self.transaction(
            message, queue=queue, selector=selector, key=key, timeout_seconds=timeout_seconds
        )
        return await transaction.run(work)

    async def recall(self, handle: str, *, timeout_seconds: Seconds | None = None) -> str:
        """Recall a delayed message, and return its id.

        `handle` is the `recall_handle` of its SendResult. The broker does not say whether the message was
        still there: a recall at the last moment may come too late. Raises UsageError for an invalid handle,
        PermissionDenied if the broker allows no recalls (`recallMessageEnable`), and ClientError as `send`.
        """
        check_text("handle", handle)
        timeout = check_timeout("timeout_seconds", timeout_seconds, self._timeout_seconds)
        self._check_running()
        with self._in_flight:
            return await self._recalls.recall(handle, timeout)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: Seconds | None = None,
    ) -> MessageExt:
        """Send a request and return the reply of its consumer; the queue is chosen as by `send`.

        `timeout_seconds` bounds both. Raises NoReply if the request was sent and no reply came in time, and
        ClientError as `send`.
        """
        _check_choice(queue, selector)
        timeout = check_timeout("timeout_seconds", timeout_seconds, self._timeout_seconds)
        self._check(message)
        return await self._requests.request(message, timeout, queue=queue, selector=selector, key=key)

    async def reply(
        self, request: Message, body: bytes, *, timeout_seconds: Seconds | None = None
    ) -> SendResult:
        """Reply to a request. Returns when the requester has the reply.

        Raises UsageError for a message that is not a request, and ClientError as `send`: Unavailable if no
        broker knows the requester (any more).
        """
        check_request("request", request)
        check_body("body", body)
        timeout = check_timeout("timeout_seconds", timeout_seconds, self._timeout_seconds)
        self._check_running()
        return await self._requests.reply(request, body, timeout)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that messages of `topic` can go to. Raises ClientError."""
        check_topic_to_send(topic)
        self._check_running()
        return (await self._sender.publish_info(topic, self._timeout_seconds)).queues

    @property
    def in_flight(self) -> int:
        """The number of messages in flight (a batch of `send_batch` counts as one)."""
        return self._pressure.messages

    def _oneway_written(self, ended: asyncio.Future[None], size: int) -> None:
        self._pressure.release(size)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            log.warning("one-way message not sent cause=%s", error)


def _check_choice(queue: object, selector: object) -> None:
    """Check the arguments that choose a queue, except for the key: any object has a hash."""
    if queue is not None:
        check_queue("queue", queue)
    if selector is not None:
        check_callable("selector", selector, 3, "queues, message and key")  # type: ignore[type-var]


def trace_producer(namesrv: str | Sequence[str] | None, settings: ClientSettings, group: str) -> Producer:
    """Return a producer that sends spans: not traced itself, and without compression.

    The trace topic is in no namespace, as with Apache's clients.
    """
    return Producer(
        namesrv,
        group=group,
        timeout_seconds=_TRACE_TIMEOUT_SECONDS,
        compression=None,
        settings=replace(settings, namespace=""),
    )
