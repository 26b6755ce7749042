"""Producer: sends messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import UsageError
from ..hooks.send import SendContext, with_hook_properties
from ..results import SendResult
from ..settings import ClientSettings
from .batching import Batch, can_batch
from .encoding import queue_of
from .lifecycle import ProducerLifecycle
from .selection import QueueSelector, select_queue
from .transactions import Transaction, TransactionResult, TransactionWork

log = logging.getLogger("rmq.client.producer")

# Apache RocketMQ 5.3.3, AsyncTraceDispatcher.
_TRACE_TIMEOUT_SECONDS: Final = 5.0


class Producer(ProducerLifecycle):
    """Sends messages of one group to any topic.

    ::

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            result = await producer.send(Message("orders", b"...", tags="paid", keys=["4711"]))

    It belongs to the loop that it was started on; any number of tasks may send at the same time.
    """

    def _trace_producer(self, group: str) -> Producer:
        return trace_producer(self._namesrv, self._settings, group)

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
            queue = select_queue(publish_info.queues, message, queue, selector, key)
        if not self._pressure.try_acquire(size):
            timeout_seconds = await self._pressure.acquire_within(size, timeout_seconds)
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
            queue = select_queue(publish_info.queues, message, queue, selector, key)
        sender, hooks, context = self._sender, self._hooks, None
        endpoint = sender.choose(publish_info) if queue is None else sender.endpoint_of(publish_info, queue)
        try:
            if hooks is not None:
                context = hooks.begin(message)
                message = with_hook_properties(context)
            outgoing, msg_id = await self._encoder.outgoing(message)
            await sender.connect(endpoint)
            if not self._pressure.try_acquire(size):
                await self._pressure.acquire_within(size, self._timeout_seconds)
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
