"""The broker's producer: runs FastStream's commands with the producer of the SDK."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from rmq_client import ClientError, Message, MessageExt, Producer, SendResult, reply_to

from .encoding import encode_batch, encode_body, encode_message, header_properties
from .parser import RocketParser
from .response import RocketPublishCommand

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import AsyncCallable, CustomCallable

log = logging.getLogger(__name__)


class RocketProducer(ProducerProto[RocketPublishCommand]):
    """Encodes commands and sends them. Between `connect` and `disconnect` it has the SDK's producer."""

    _parser: AsyncCallable
    _decoder: AsyncCallable

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        """`parser` and `decoder`: those of the application, for replies."""
        default = RocketParser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self.codec: CodecProto = DefaultCodec()
        self.serializer: SerializerProto | None = None
        self._producer: Producer | None = None

    def connect(
        self, producer: Producer, serializer: SerializerProto | None, codec: CodecProto | None
    ) -> None:
        """Use a running producer."""
        self._producer = producer
        self.serializer = serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Forget the producer."""
        self._producer = None

    async def publish(self, cmd: RocketPublishCommand) -> SendResult | None:
        """Send a message and return where it is stored; None for a reply that nobody waits for any more.

        Raises ClientError.
        """
        if cmd.request is not None:
            return await self._reply(cmd, cmd.request)
        message = await encode_message(cmd, self.codec, self.serializer)
        return await self._connected().send(message, key=cmd.sharding_key, timeout_seconds=cmd.timeout)

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendResult]:
        """Send messages as one batch to one queue, and return one result for each. Raises ClientError."""
        if cmd.sharding_key:
            raise FeatureNotSupportedException(
                f"sharding_key={cmd.sharding_key!r}: a batch goes to one queue, which the producer chooses; "
                "publish messages with a sharding key one by one"
            )
        messages = await encode_batch(cmd, self.codec, self.serializer)
        if not messages:
            return []
        return await self._connected().send_batch(messages, timeout_seconds=cmd.timeout)

    async def request(self, cmd: RocketPublishCommand) -> MessageExt:
        """Send a request and return the reply. Raises NoReply after `cmd.timeout`, and ClientError."""
        message = await encode_message(cmd, self.codec, self.serializer)
        return await self._connected().request(message, key=cmd.sharding_key, timeout_seconds=cmd.timeout)

    async def _reply(self, cmd: RocketPublishCommand, request: MessageExt) -> SendResult | None:
        """Send a reply with its headers. A failure is logged: a redelivered request would not find the
        requester either.
        """
        try:
            body, content_type = await encode_body(cmd, self.codec, self.serializer)
            return await self._send_reply(request, body, header_properties(cmd, content_type), cmd.timeout)
        except ClientError as error:
            log.warning("reply not sent request=%s topic=%s cause=%s", request.msg_id, request.topic, error)
            return None

    async def _send_reply(
        self, request: MessageExt, body: bytes, properties: dict[str, str], timeout: float | None
    ) -> SendResult:
        producer = self._connected()
        reply: Message = reply_to(request, body)
        for name, value in properties.items():
            reply.put_user_property(name, value)
        # Only a broker that the requester is connected to can pass the reply on: that of the request can.
        queues = await producer.queues(reply.topic)
        queue = next((queue for queue in queues if queue.broker_name == request.broker_name), None)
        return await producer.send(reply, queue=queue, timeout_seconds=timeout)

    def _connected(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("the broker is not connected: call `await broker.connect()` first")
        return self._producer


class NoProducer(RocketProducer):
    """The producer of a router that no broker includes yet."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def __bool__(self) -> bool:
        return False

    def connect(self, *_: Any) -> None:
        """Raises IncorrectState."""
        raise IncorrectState("a router has no connection: include it in a RocketBroker")
