"""Batches as requests: encoding, sending, and a result for each message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_properties import PROPERTY_WAIT_STORE_MSG_OK
from rmq_remoting.message_queue import MessageQueue

from ..errors import TimedOut, UsageError
from ..results import SendResult
from .batching import Batch, Batcher, batch_item, can_batch
from .encoding import Outgoing, QueueEndpoint, Stored, queue_of
from .message_encoder import MessageEncoder
from .sender import MessageSender

_NOT_WAITING: Final = f"{PROPERTY_WAIT_STORE_MSG_OK}\x01false\x02".encode()


class BatchSender:
    """Sends the batches of one producer. Belongs to its loop."""

    def __init__(
        self, sender: MessageSender, encoder: MessageEncoder, timeout_seconds: float, *, tell_region: bool
    ) -> None:
        """`timeout_seconds` is for automatic batches; `tell_region`: results contain the region for
        traces.
        """
        self._sender = sender
        self._encoder = encoder
        self._timeout_seconds = timeout_seconds
        self._tell_region = tell_region

    def make(self, messages: Sequence[Message], queue: MessageQueue | None) -> Batch:
        """Return a batch of messages that are valid one by one.

        Raises UsageError if they cannot share a batch.
        """
        if not messages:
            raise UsageError("a batch needs at least one message")
        first = messages[0]
        batch = Batch(first.topic, queue, first.wait_store_ok)
        for message in messages:
            if message.topic != first.topic or message.wait_store_ok != first.wait_store_ok:
                raise UsageError("the messages of a batch must agree in topic and wait_store_ok")
            if not can_batch(message):
                raise UsageError(
                    "delayed, transactional and retried messages cannot be in a batch: send them one by one"
                )
            properties, msg_id = self._encoder.properties(message)
            batch.add(batch_item(message.flag, message.body, properties), msg_id)
        return batch

    async def send(self, batch: Batch, timeout_seconds: float) -> list[SendResult]:
        """Send a batch and return the results of its messages. Raises ClientError."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        publish_info = await self._sender.publish_info(batch.topic, timeout_seconds)
        timeout_seconds -= loop.time() - began
        batch.seal(self._encoder.plain)
        # The items contain all other properties. (Apache's client gives the batch an id of its own, and
        # brokers then store every message under that id. This client does not.)
        outgoing = Outgoing(b"".join(batch.items), b"" if batch.wait_store_ok else _NOT_WAITING, batch=True)
        endpoint, stored = await self._sender.send(publish_info, batch.queue, outgoing, timeout_seconds)
        return self._results(batch, endpoint, stored)

    async def send_one(
        self, batcher: Batcher, message: Message, queue: MessageQueue | None, timeout_seconds: float
    ) -> SendResult:
        """Send a message in an automatic batch, and wait for its result up to the timeout.

        Raises ClientError.
        """
        properties, msg_id = self._encoder.properties(message)
        item = batch_item(message.flag, message.body, properties)
        usual_seconds = self._timeout_seconds
        if (
            timeout_seconds == usual_seconds
        ):  # the batch itself ends in time: a timer for each message would be expensive
            return await batcher.add(message, queue, item, msg_id)
        longer_seconds = timeout_seconds if timeout_seconds > usual_seconds else 0.0
        try:
            async with asyncio.timeout(timeout_seconds):
                return await batcher.add(message, queue, item, msg_id, longer_seconds)
        except TimeoutError:
            late = TimedOut(
                f"a message to {message.topic} was not stored within {timeout_seconds:.3g} s; its batch may "
                "still be stored"
            )
            late.is_outcome_unknown = True
            raise late from None

    async def deliver(self, batch: Batch) -> None:
        """Send a batch of the batcher, and resolve the futures of its messages."""
        try:
            results = await self.send(batch, max(self._timeout_seconds, batch.timeout_seconds))
        except asyncio.CancelledError:
            for future in batch.waiting:
                future.cancel()
            raise
        except Exception as error:
            for future in batch.waiting:
                if not future.done():
                    future.set_exception(error)
            return
        for future, result in zip(batch.waiting, results, strict=True):
            if not future.done():
                future.set_result(result)

    def _results(self, batch: Batch, endpoint: QueueEndpoint, stored: Stored) -> list[SendResult]:
        status, first, queue = stored.status, stored.queue_offset, queue_of(endpoint, stored)
        region = stored.traced_region if self._tell_region else None
        offset_ids = stored.offset_msg_ids.split(",")
        if len(offset_ids) != len(batch.msg_ids):
            # A topic that stores a batch as one record: all messages have one position.
            offset_ids = offset_ids[:1] * len(batch.msg_ids)
        return [
            SendResult(status, msg_id, queue, first + index, offset_id, endpoint.address, region)
            for index, (msg_id, offset_id) in enumerate(zip(batch.msg_ids, offset_ids, strict=True))
        ]
