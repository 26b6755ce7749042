"""SendMessage, EndTransaction and RecallMessage.

Source: Apache RocketMQ 5.3.3, SendMessageActivity, ProducerProcessor, EndTransactionActivity and
RecallMessageActivity.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rmq_client.errors import broker_error, readable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import HeaderError
from rmq_remoting.headers.admin import RecallMessageRequestHeader, RecallMessageResponseHeader
from rmq_remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader, SendTarget
from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader
from rmq_remoting.message import Message
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_errors import MessageEncodeError, MessageIdError
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.message_properties import PROPERTY_BORN_TIMESTAMP, encode_properties
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.recall_handle import RecallHandle, RecallHandleError
from rmq_remoting.sys_flags import MessageSysFlag

from .brokers import Brokers
from .calls import Call
from .metadata import Metadata, TopicType, check_type, type_of
from .outgoing import OutgoingMessages, sys_flag_of
from .protocol import definition_pb2 as pb
from .protocol import service_pb2 as rpc
from .protocol.definition_pb2 import Code
from .settings import ProxySettings
from .statuses import Refusal, combined, ok, status
from .transaction_id import TransactionId
from .validation import check_topic

_AUTO_CREATE_TOPIC: Final = "TBW102"
_NEW_TOPIC_QUEUES: Final = 4
_CACHED_TARGETS: Final = 4096
_ALONE: Final = frozenset({TopicType.DELAY, TopicType.TRANSACTION})
# Apache's proxy waits this long for a recall (RecallMessageActivity).
_RECALL_SECONDS: Final = 2.0
_FAILURES: Final = {
    int(ResponseCode.FLUSH_DISK_TIMEOUT): (Code.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): (Code.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    int(ResponseCode.SLAVE_NOT_AVAILABLE): (Code.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}
_RESOLUTIONS: Final = {
    pb.COMMIT: MessageSysFlag.TRANSACTION_COMMIT,
    pb.ROLLBACK: MessageSysFlag.TRANSACTION_ROLLBACK,
}


@dataclass(slots=True)
class _Outgoing:
    """Messages of one request, of one topic."""

    topic: str
    messages: Sequence[Message]
    sys_flag: int
    message_group: str


class Sending:
    """Requests of producers."""

    def __init__(self, brokers: Brokers, metadata: Metadata, settings: ProxySettings) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._settings = settings
        self._outgoing = OutgoingMessages(settings)

    async def send(self, call: Call, request: rpc.SendMessageRequest) -> rpc.SendMessageResponse:
        """Store one message, or a batch. Raises Refusal, ClientError."""
        outgoing = self._converted(request, call.peer)
        if self._settings.enable_topic_message_type_check:
            expected = await self._metadata.topic_type(outgoing.topic)
            for message in outgoing.messages:
                check_type(expected, type_of(message.properties))
        route = await self._brokers.route(outgoing.topic)
        queue = route.queue_for(outgoing.message_group)
        if queue is None:
            raise Refusal(Code.FORBIDDEN, "no writable queue")
        own = self._brokers.own
        address = route.master(queue.broker_name) if own is None else own.address
        if address is None:
            raise Refusal(Code.FORBIDDEN, "no writable queue")
        response = await self._store(outgoing, queue, address, call)
        entries = _entries(outgoing, queue, response)
        return rpc.SendMessageResponse(
            status=combined((entry.status.code for entry in entries), "send status is empty"),
            entries=entries,
        )

    async def end_transaction(
        self, call: Call, request: rpc.EndTransactionRequest
    ) -> rpc.EndTransactionResponse:
        """Tell the broker a transaction's outcome. Raises Refusal, UnreachableError."""
        topic = check_topic(request.topic.name)
        transaction = TransactionId.parse(request.transaction_id)
        address = await self._brokers.address(transaction.broker_name, Code.BAD_REQUEST)
        header = EndTransactionRequestHeader(
            commit_log_offset=transaction.commit_log_offset,
            commit_or_rollback=_RESOLUTIONS.get(request.resolution, MessageSysFlag.TRANSACTION_NOT),
            msg_id=request.message_id,
            producer_group=topic,
            tran_state_table_offset=transaction.queue_offset,
            topic=topic,
            transaction_id=transaction.message_id,
            broker_name=transaction.broker_name,
            from_transaction_check=request.source == pb.SOURCE_SERVER_CHECK,
        )
        about = f"end of the transaction of message {request.message_id}"
        await self._brokers.tell(address, RequestCode.END_TRANSACTION, header.encode(), about=about)
        return rpc.EndTransactionResponse(status=ok())

    async def recall(self, call: Call, request: rpc.RecallMessageRequest) -> rpc.RecallMessageResponse:
        """Recall a delayed message before its delivery. Raises Refusal, ClientError."""
        topic = check_topic(request.topic.name)
        if self._settings.enable_topic_message_type_check:
            check_type(await self._metadata.topic_type(topic), TopicType.DELAY)
        try:
            handle = RecallHandle.decode(request.recall_handle)
        except RecallHandleError as error:
            raise Refusal(Code.INTERNAL_SERVER_ERROR, str(error)) from error
        address = await self._brokers.address(handle.broker_name, Code.BAD_REQUEST)
        header = RecallMessageRequestHeader(
            topic=topic,
            producer_group=topic,
            recall_handle=request.recall_handle,
            broker_name=handle.broker_name,
        )
        about = f"recall of a message to {topic}"
        response = await self._brokers.call(
            address,
            RequestCode.RECALL_MESSAGE,
            header.encode(),
            about=about,
            timeout_seconds=_RECALL_SECONDS,
        )
        with readable(address, about):
            message_id = RecallMessageResponseHeader.decode(response.ext_fields).msg_id
        return rpc.RecallMessageResponse(status=ok(), message_id=message_id)

    # --- parts of a send ---

    def _converted(self, request: rpc.SendMessageRequest, peer: str) -> _Outgoing:
        if not request.messages:
            raise Refusal(Code.MESSAGE_CORRUPTED, "no message to send")
        first = request.messages[0]
        topic = check_topic(first.topic.name)
        messages: list[Message] = []
        for message in request.messages:
            if message is not first and message.topic != first.topic:
                raise Refusal(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            messages.append(self._outgoing.convert(message, peer))
        if len(messages) == 1:
            return _Outgoing(topic, messages, sys_flag_of(first), first.system_properties.message_group)
        for message in messages:
            if type_of(message.properties) in _ALONE:
                raise Refusal(
                    Code.BAD_REQUEST,
                    "messages with a delay or in a transaction cannot be in a batch: send them one by one",
                )
        if any(map(sys_flag_of, request.messages)):
            raise Refusal(Code.BAD_REQUEST, "compressed messages cannot be in a batch: send them one by one")
        return _Outgoing(topic, messages, 0, "")

    async def _store(
        self, outgoing: _Outgoing, queue: MessageQueue, address: str, call: Call
    ) -> RemotingCommand:
        about = f"send to {queue}"
        is_batch = len(outgoing.messages) > 1
        first = outgoing.messages[0]
        target = _target(outgoing.topic, queue.broker_name, queue.queue_id, outgoing.sys_flag, is_batch)
        born = first.properties.get(PROPERTY_BORN_TIMESTAMP)
        born_ms = int(time.time() * 1000) if born is None else int(born)
        try:
            # A batch's own properties would be added to each of its messages.
            properties = b"" if is_batch else encode_properties(first.properties)
            body = encode_batch(outgoing.messages) if is_batch else first.body
        except MessageEncodeError as error:
            raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from error
        header = SendMessageRequestHeader(target, born_ms, properties)
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        timeout = None if call.remaining_ms is None else call.remaining_ms / 1000
        response = await self._brokers.ask(
            address, code, header.encode_v2(), body, about=about, timeout_seconds=timeout
        )
        if response.code != ResponseCode.SUCCESS and response.code not in _FAILURES:
            raise broker_error(response.code, response.remark, address, about)
        return response


@lru_cache(_CACHED_TARGETS)
def _target(topic: str, broker_name: str, queue_id: int, sys_flag: int, is_batch: bool) -> SendTarget:
    return SendTarget(
        producer_group=topic,
        topic=topic,
        default_topic=_AUTO_CREATE_TOPIC,
        default_topic_queue_nums=_NEW_TOPIC_QUEUES,
        queue_id=queue_id,
        sys_flag=sys_flag,
        batch=is_batch,
        broker_name=broker_name,
    )


def _entries(
    outgoing: _Outgoing, queue: MessageQueue, response: RemotingCommand
) -> list[rpc.SendResultEntry]:
    """Return one entry for each message."""
    failure = _FAILURES.get(response.code)
    if failure is not None:
        code, name = failure
        refused = status(code, f"send message failed, sendStatus={name}")
        return [rpc.SendResultEntry(status=refused) for _ in outgoing.messages]
    try:
        stored = SendMessageResponseHeader.decode(response.ext_fields)
    except HeaderError:
        # Only now: the text would cost time for each send.
        with readable(queue.broker_name, f"send to {queue}"):
            raise
    is_half = MessageSysFlag.transaction_type(outgoing.sys_flag) == MessageSysFlag.TRANSACTION_PREPARED
    entries: list[rpc.SendResultEntry] = []
    for number, message in enumerate(outgoing.messages):
        message_id = message.unique_key or ""
        entry = rpc.SendResultEntry(status=ok(), message_id=message_id, offset=stored.queue_offset + number)
        if stored.recall_handle:
            entry.recall_handle = stored.recall_handle
        if is_half:
            entry.transaction_id = _transaction_id(message_id, queue, stored)
        elif stored.transaction_id:
            entry.transaction_id = stored.transaction_id
        entries.append(entry)
    return entries


def _transaction_id(message_id: str, queue: MessageQueue, stored: SendMessageResponseHeader) -> str:
    try:
        position = parse_offset_message_id(stored.msg_id).physical_offset
    except MessageIdError as error:
        raise Refusal(
            Code.INTERNAL_SERVER_ERROR, f"the broker's answer names no half message: {error}"
        ) from error
    return str(TransactionId(message_id, position, stored.queue_offset, queue.broker_name))
