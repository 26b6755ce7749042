"""Requests 324 and 325: replies, pushed to the requester (Apache RocketMQ 5.3.3, ReplyMessageProcessor).

A request is an ordinary message with the requester's client id in its properties. Its consumer sends a reply
with that id to the cluster's reply topic, through any broker that the requester is connected to.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import deferred_answer
from rmq_remoting.errors import CommandError, RequestError
from rmq_remoting.headers.reply import ReplyMessageRequestHeader
from rmq_remoting.headers.send import SendMessageRequestHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from rmq_remoting.message_properties import (
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_MSG_REGION,
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_TRACE_SWITCH,
    decode_properties,
    properties_to_string,
)
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.inner_message import InnerMessage
from ..store.api import MessageRejected, StoreUnavailable
from .born_host import born_host_of

if TYPE_CHECKING:
    from rmq_remoting.bounded_cache import BoundedCache
    from rmq_remoting.connection import Connection

    from ..clients.client import ConnectedClient
    from ..clients.producers import ProducerTable
    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from ..sending.target_check import TargetChecker
    from ..settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker.processors")

# The time-out for the requester's answer to the push (Broker2Client).
_PUSH_SECONDS: Final = 10.0
# The system flags that describe the body.
_BODY_FLAGS: Final = MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_MASK


class ReplyProcessor:
    """Pushes replies to their requesters, and answers whether they took them; replies are also stored."""

    def __init__(
        self,
        settings: BrokerSettings,
        checker: TargetChecker,
        producers: ProducerTable,
        writer: MessageWriter,
        store_host: tuple[str, int],
        packed_store_host: bytes,
        now_ms: ClockMs,
    ) -> None:
        """`packed_store_host`: the same address, packed as in records."""
        self._settings = settings
        self._checker = checker
        self._producers = producers
        self._writer = writer
        self._store_host = f"{store_host[0]}:{store_host[1]}"
        self._packed_store_host = packed_store_host
        self._now_ms = now_ms
        self._decoder = SendHeaderDecoder()

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches of replies, for their metrics."""
        return self._decoder.caches

    def reply(self, connection: Connection, request: RemotingCommand) -> Result:
        """Push one reply. Raises CommandError for an invalid reply."""
        header = self._decoder.decode(request)
        try:
            topic = self._checker.check(header.target, connection.peer)
            self._check_body(request.body)
            queue_id = header.target.queue_id
            if queue_id < 0:
                queue_id = random.randrange(max(1, topic.write_queue_nums))
        except CommandError as error:
            error.ext_fields = self._constant_fields()
            raise
        return deferred_answer(self._push_and_store(connection, request, header, queue_id), "push a reply")

    async def _push_and_store(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
    ) -> Answer:
        problem = await self._push(connection, request, header, queue_id)
        fields = self._constant_fields()
        # The place of a reply that is not stored: valid for clients, but no message is found by it.
        place = ("0", 0)
        if self._settings.store_reply_message_enable:
            place = self._store(connection, request, header, queue_id) or place
        if problem is not None:
            return request.response(ResponseCode.SYSTEM_ERROR, problem, fields)
        fields |= {"msgId": place[0], "queueId": str(queue_id), "queueOffset": str(place[1])}
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)

    # --- pushing ---

    async def _push(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
    ) -> str | None:
        """Push a reply and wait for the client's answer; return the problem, or None."""
        properties = decode_properties(header.properties)
        client_id = properties.get(PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if not client_id:
            return (
                f"the reply does not name its requester (property {PROPERTY_MESSAGE_REPLY_TO_CLIENT}): "
                "make it from the request"
            )
        client = self._producers.find_client(client_id)
        if client is None:
            return (
                f"the requester {client_id} is not connected to this broker as a producer: it has stopped, "
                "or it is connected to another broker"
            )
        properties[PROPERTY_PUSH_REPLY_TIME] = str(self._now_ms())
        push = self._push_request(connection, request, header, queue_id, properties_to_string(properties))
        return await _push_to(client, push)

    def _push_request(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
        properties: str,
    ) -> RemotingCommand:
        target = header.target
        fields = ReplyMessageRequestHeader(
            born_host=connection.peer,
            born_timestamp=header.born_timestamp_ms,
            default_topic=target.default_topic,
            default_topic_queue_nums=target.default_topic_queue_nums,
            flag=target.flag,
            producer_group=target.producer_group,
            properties=properties,
            queue_id=queue_id,
            reconsume_times=target.reconsume_times,
            store_host=self._store_host,
            store_timestamp=self._now_ms(),
            sys_flag=target.sys_flag,
            topic=target.topic,
            unit_mode=target.unit_mode,
        ).encode()
        return RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)

    # --- storing ---

    def _store(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
    ) -> tuple[str, int] | None:
        """Store a reply in its topic; return its message id and queue offset, or None if the store failed.

        The requester already has the reply then, so a failed store is no reason to send it again.
        """
        target = header.target
        message = InnerMessage(
            target.topic,
            queue_id,
            request.body,
            header.properties,
            target.flag,
            target.sys_flag & _BODY_FLAGS,
            target.reconsume_times,
            header.born_timestamp_ms,
            born_host_of(connection),
            self._packed_store_host,
        )
        try:
            placed = self._writer.put(message)
        except (StoreUnavailable, MessageRejected) as error:
            log.warning("reply not stored topic=%s cause=%s", target.topic, error)
            return None
        message_id = f"{self._packed_store_host.hex().upper()}{placed.physical_offset:016X}"
        return message_id, placed.queue_offset

    # --- inside ---

    def _check_body(self, body: bytes) -> None:
        limit = self._settings.max_message_size
        if not 0 < len(body) <= limit:
            remark = f"the reply's body has {len(body)} bytes: it must have 1 to {limit} (maxMessageSize)"
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _constant_fields(self) -> dict[str, str]:
        """Return the fields of every answer to a send."""
        return {
            PROPERTY_MSG_REGION: self._settings.region_id,
            PROPERTY_TRACE_SWITCH: "true" if self._settings.trace_on else "false",
        }


async def _push_to(client: ConnectedClient, push: RemotingCommand) -> str | None:
    """Push a reply; return the problem, or None if the client took it."""
    try:
        answer = await client.connection.send_request(push, _PUSH_SECONDS)
    except RequestError as error:
        return f"the reply was not pushed to {client}: {error}"
    if answer.code != ResponseCode.SUCCESS:
        return f"the requester {client} refused the reply: {answer.code} {answer.remark or ''}".rstrip()
    return None
