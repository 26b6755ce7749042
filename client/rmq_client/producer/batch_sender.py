"""Messages that go together: made into one request, and each told its own result."""

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
    """The batches of one producer. Belongs to its loop."""

    def __init__(
        self, sender: MessageSender, encoder: MessageEncoder, timeout_seconds: float, *, tell_region: bool
    ) -> None:
        """`timeout_seconds` is for automatic batches; `tell_region`: results say where traces go."""
        self._sender = sender
        self._encoder = encoder
        self._timeout_seconds = timeout_seconds
        self._tell_region = tell_region

    def make(self, messages: Sequence[Message], queue: MessageQueue | None) -> Batch:
        """A batch of messages that are right one by one. Raises UsageError where they cannot go together."""
        if not messages:
            raise UsageError("a batch needs at least one message")
        first = messages[0]
        batch = Batch(first.topic, queue, first.wait_store_ok)
        for message in messages:
            if message.topic != first.topic or message.wait_store_ok != first.wait_store_ok:
                raise UsageError("the messages of a batch must agree in topic and wait_store_ok")
            if not can_batch(message):
                raise UsageError("delayed, transactional and retried messages cannot go in a batch")
            properties, msg_id = self._encoder.properties(message)
            batch.add(batch_item(message.flag, message.body, properties), msg_id)
        return batch

    async def send(self, batch: Batch, timeout_seconds: float) -> list[SendResult]:
        """Send a batch; the results of its messages. Raises ClientError."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        publish_info = await self._sender.publish_info(batch.topic, timeout_seconds)
        timeout_seconds -= loop.time() - began
        # Its items carry all else. (Apache's client gives the batch an id of its own, which brokers then put
        # into every message in the place of the message's: not so here.)
        outgoing = Outgoing(b"".join(batch.items), b"" if batch.wait_store_ok else _NOT_WAITING, batch=True)
        endpoint, stored = await self._sender.send(publish_info, batch.queue, outgoing, timeout_seconds)
        return self._results(batch, endpoint, stored)

    async def send_one(
        self, batcher: Batcher, message: Message, queue: MessageQueue | None, timeout_seconds: float
    ) -> SendResult:
        """Send a message in an automatic batch, and wait so long for its result. Raises ClientError."""
        properties, msg_id = self._encoder.properties(message)
        item = batch_item(message.flag, message.body, properties)
        usual_seconds = self._timeout_seconds
        if timeout_seconds == usual_seconds:  # the batch ends in time by itself: a timer for each is dear
            return await batcher.add(message, queue, item, msg_id)
        longer_seconds = timeout_seconds if timeout_seconds > usual_seconds else 0.0
        try:
            async with asyncio.timeout(timeout_seconds):
                return await batcher.add(message, queue, item, msg_id, longer_seconds)
        except TimeoutError:
            late = TimedOut(
                f"a message to {message.topic} was not stored within {timeout_seconds:.3g} s: its batch may "
                "still be"
            )
            late.is_outcome_unknown = True
            raise late from None

    async def deliver(self, batch: Batch) -> None:
        """For the batcher: send, and tell everybody who waits."""
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
            # A topic that stores a batch as one record: all of it has one place.
            offset_ids = offset_ids[:1] * len(batch.msg_ids)
        return [
            SendResult(status, msg_id, queue, first + index, offset_id, endpoint.address, region)
            for index, (msg_id, offset_id) in enumerate(zip(batch.msg_ids, offset_ids, strict=True))
        ]
