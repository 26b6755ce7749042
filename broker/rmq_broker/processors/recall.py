"""Request 370: recall a timed message before its delivery time.

A recall is a message in the timer slot of the message that it recalls. When the slot is due neither of the
two is delivered (Apache RocketMQ 5.3.3, RecallMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.admin import RecallMessageRequestHeader, RecallMessageResponseHeader
from rmq_remoting.message_properties import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    encode_properties,
)
from rmq_remoting.recall_handle import RecallHandle, RecallHandleError

from ..delivery.inner_message import InnerMessage
from ..store.api import MessageRejected, StoreUnavailable
from ..topics.lookup import existing_topic
from ..topics.permissions import is_writeable
from .born_host import born_host_of
from .durable_answers import respond_if_durable

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_MS: Final = 1000


class RecallProcessor:
    """Recalls messages by the handles in the answers to their sends."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        store: MessageStore,
        writer: MessageWriter,
        store_host: bytes,
        now_ms: ClockMs,
    ) -> None:
        """`store_host`: this broker's address, packed as in records."""
        self._settings = settings
        self._topics = topics
        self._store = store
        self._writer = writer
        self._store_host = store_host
        self._now_ms = now_ms

    def recall(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer once the recall is stored, with SYNC_FLUSH once it is flushed."""
        header = RecallMessageRequestHeader.decode(request.ext_fields)
        self._check_admission()
        existing_topic(self._topics, header.topic)
        handle = self._handle(header)
        try:
            self._writer.put(self._message(connection, header, handle))
        except StoreUnavailable as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the message was not recalled: {error}") from error
        except MessageRejected as error:
            raise CommandError(
                ResponseCode.ILLEGAL_OPERATION, f"the message was not recalled: {error}"
            ) from error
        fields = RecallMessageResponseHeader(msg_id=handle.unique_key).encode()
        answer = request.response(
            ResponseCode.SUCCESS, ext_fields={**fields, "MSG_REGION": self._settings.region_id}
        )
        return respond_if_durable(
            self._store,
            answer,
            "the message may still be delivered: its recall is not flushed yet",
            ResponseCode.SYSTEM_ERROR,
        )

    def _check_admission(self) -> None:
        settings = self._settings
        if not settings.recall_message_enable:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                "this broker does not recall messages: set recallMessageEnable=true there",
            )
        if self._now_ms() < settings.start_accept_send_request_timestamp_ms:
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker does not accept requests of producers yet (startAcceptSendRequestTimeStamp)",
            )
        if (
            not is_writeable(settings.broker_permission)
            and not settings.allow_recall_when_broker_not_writeable
        ):
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker may not be written to now (brokerPermission, allowRecallWhenBrokerNotWriteable)",
            )

    def _handle(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Decode the handle and check it. Raises CommandError."""
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except RecallHandleError as error:
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        settings, left_ms = self._settings, handle.timestamp_ms - self._now_ms()
        problem = ""
        if handle.topic != header.topic:
            problem = f"it is of topic {handle.topic}, not of {header.topic}"
        elif handle.broker_name != settings.broker_name:
            problem = f"it is of broker {handle.broker_name}, this is {settings.broker_name}"
        elif left_ms <= 0:
            problem = "the message is already due"
        elif left_ms >= settings.timer_max_delay_seconds * _MS:
            problem = f"no message can be due in {left_ms} ms (timerMaxDelaySec)"
        if problem:
            raise CommandError(
                ResponseCode.ILLEGAL_OPERATION, f"the recall handle cannot be used here: {problem}"
            )
        return handle

    def _message(
        self, connection: Connection, header: RecallMessageRequestHeader, handle: RecallHandle
    ) -> InnerMessage:
        now_ms = self._now_ms()
        properties = {
            PROPERTY_TAGS: _TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}",
            PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.timestamp_ms),
            PROPERTY_BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            properties[PROPERTY_PRODUCER_GROUP] = header.producer_group
        return InnerMessage(
            handle.topic,
            0,
            _BODY,
            encode_properties(properties),
            0,
            0,
            0,
            now_ms,
            born_host_of(connection),
            self._store_host,
        )
