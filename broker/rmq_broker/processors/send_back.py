"""Request 36: a consumer sends back a message that it failed to consume.

Source: Apache RocketMQ 5.3.3, AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result, answer_of
from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.access.broker_requests import SUB
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from rmq_remoting.integer_bounds import INT32_MAX
from rmq_remoting.message_properties import decode_properties
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.cold_reads import ClientGone, ColdReads
from ..delivery.inner_message import InnerMessage, read_message
from ..delivery.retries import Failure, Redelivery
from ..delivery.store_refusals import refusal
from ..store.api import ColdData, MessageRejected, StoreUnavailable
from ..topics.permissions import WRITE
from .durable_answers import respond_if_durable

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ..access.stored_topics import StoredTopics
    from ..delivery.message_writer import MessageWriter
    from ..delivery.retries import Retries
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore

log = logging.getLogger("rmq.broker")

_NOT_SENT: Final = (MessageSysFlag.TRANSACTION_PREPARED, MessageSysFlag.TRANSACTION_ROLLBACK)


class SendBackProcessor:
    """Stores a message again for redelivery to its group, or as a dead letter."""

    def __init__(
        self,
        settings: BrokerSettings,
        retries: Retries,
        writer: MessageWriter,
        store: MessageStore,
        store_host: bytes,
        cold: ColdReads,
        stored_topics: StoredTopics,
    ) -> None:
        """`store_host`: this broker's address, packed as in records."""
        self._settings = settings
        self._retries = retries
        self._writer = writer
        self._store = store
        self._store_host = store_host
        self._cold = cold
        self._stored_topics = stored_topics

    def send_back(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer once the message is stored, with SYNC_FLUSH once it is flushed."""
        header = ConsumerSendMsgBackRequestHeader.decode(request.ext_fields)
        config = self._retries.group_of(header.group)
        if not self._settings.broker_permission & WRITE:
            raise CommandError(ResponseCode.NO_PERMISSION, "sending messages to this broker is forbidden")
        if config.retry_queue_nums <= 0:
            return request.response(ResponseCode.SUCCESS)  # the group has no redelivery
        try:
            record = self._store.record_now(header.offset)
        except ColdData:
            return asyncio.get_running_loop().create_task(
                self._when_read(connection, request, header), name="send back"
            )
        return self._store_again(connection, request, header, record)

    async def _when_read(
        self, connection: Connection, request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader
    ) -> Answer:
        """As `send_back`, for a message that has to be read from disk."""
        try:
            record = await self._cold.run(connection, lambda: self._store.record_at(header.offset))
        except ClientGone:
            return None  # it sends the message back again, or another member of the group gets it
        return await answer_of(self._store_again(connection, request, header, record))

    def _store_again(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: ConsumerSendMsgBackRequestHeader,
        record: bytes | None,
    ) -> Result:
        if record is None:
            raise _no_message(header.offset)
        message = read_message(record).message
        self._stored_topics.check(connection, request, SUB, message.topic, header.group)
        if MessageSysFlag.transaction_type(message.sys_flag) in _NOT_SENT:
            raise _no_message(header.offset)
        if message.sys_flag & MessageSysFlag.INNER_BATCH:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the record at offset {header.offset} is a batch: send its message to "
                f"%RETRY%{header.group} instead",
            )
        failure = Failure(
            header.group,
            message.reconsume_times,
            header.delay_level,
            header.max_reconsume_times,
            request.version,
            header.unit_mode,
        )
        redelivery = self._retries.redelivery_after(failure)
        if redelivery is None:
            return request.response(ResponseCode.SUCCESS)
        origin = _prepare(message, redelivery, header.offset)
        message.store_host = self._store_host
        try:
            self._writer.put(message, redelivery.delay_level)
        except (StoreUnavailable, MessageRejected) as error:
            raise refusal(error) from error
        self._retries.count(header.group, origin, is_dead_letter=redelivery.is_dead_letter)
        # With SYNC_FLUSH the answer waits for the flush, since the group's offset moves past the message.
        # (Apache's broker does not wait.)
        return respond_if_durable(
            self._store,
            request.response(ResponseCode.SUCCESS),
            "the message was stored, but is not flushed yet: it may be redelivered twice, or be lost if it "
            "is not sent back again",
        )


def _no_message(offset: int) -> CommandError:
    return CommandError(
        ResponseCode.SYSTEM_ERROR,
        f"no message begins at offset {offset} of this broker's commit log: it has been removed, or the "
        "message is of another broker",
    )


def _prepare(message: InnerMessage, redelivery: Redelivery, offset: int) -> str:
    """Make the message one for redelivery; return its original topic.

    Its properties keep the id of its first record (ORIGIN_MESSAGE_ID) and its original topic (RETRY_TOPIC). A
    dead letter has both in Apache's properties for dead letters, too, because Apache's proxy reads them.
    """
    fields = decode_properties(message.properties)
    origin_topic = fields.setdefault("RETRY_TOPIC", message.topic)
    stored_at = (message.store_host + offset.to_bytes(8, "big")).hex().upper()
    origin_id = fields.setdefault("ORIGIN_MESSAGE_ID", stored_at)
    fields["WAIT"] = "false"
    fields["DELAY"] = str(redelivery.delay_level)
    if redelivery.is_dead_letter:
        fields["DLQ_ORIGIN_TOPIC"] = origin_topic
        fields["DLQ_ORIGIN_MESSAGE_ID"] = fields.get("UNIQ_KEY", origin_id)
    message.set_properties(fields)
    message.topic, message.queue_id = redelivery.topic, redelivery.queue_id
    message.reconsume_times = min(message.reconsume_times + 1, INT32_MAX)
    return origin_topic
