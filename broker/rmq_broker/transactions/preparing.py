"""Prepare transactions: store their messages in the queue of half messages.

Source: Apache RocketMQ 5.3.3, SendMessageProcessor, TransactionalMessageBridge.parseHalfMessageInner.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
    find_property,
)
from rmq_remoting.sys_flags import MessageSysFlag

from ..topics.names import TRANSACTION_HALF_TOPIC
from .half_messages import HALF_QUEUE_ID, HalfMessage, immune_ms, property_text

if TYPE_CHECKING:
    from ..clock import Clocks
    from ..delivery.inner_message import InnerMessage
    from ..delivery.message_writer import MessageWriter, Written
    from ..settings.transactions import TransactionSettings
    from .half_messages import HalfMessages

# The broker sets these properties itself. A message that was consumed and is sent again still has them.
_SET_BY_BROKER: Final = (
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
)
# A pattern that begins with a fixed byte, the end of the property before, is found in a fraction of the time.
_DELAYS: Final = (b"TIMER_D", *[b"DELAY\x01%d" % digit for digit in range(1, 10)])
_find_delay: Final = re.compile(rb"\x02(?:TIMER_D|DELAY\x01[1-9])").search
_NAMES_SET_BY_BROKER: Final = tuple(name.encode() for name in _SET_BY_BROKER)
_find_set_by_broker: Final = re.compile(b"\x02(?:%b)" % b"|".join(_NAMES_SET_BY_BROKER)).search


class Preparing:
    """Stores half messages; belongs to the loop's thread."""

    def __init__(
        self,
        settings: TransactionSettings,
        writer: MessageWriter,
        halves: HalfMessages,
        clocks: Clocks,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._halves = halves
        self._clocks = clocks

    def put(self, message: InnerMessage, producer_group: str, unique_key: bytes) -> Written:
        """Store a half message, with its own topic and queue in its properties.

        Raises CommandError, StoreUnavailable, MessageRejected.
        """
        self._check_admission()
        properties = message.properties
        if properties.startswith(_DELAYS) or _find_delay(properties):
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL, "a message that is sent in a transaction cannot be delayed"
            )
        if properties.startswith(_NAMES_SET_BY_BROKER) or _find_set_by_broker(properties):
            fields = decode_properties(properties)
            message.set_properties({name: fields[name] for name in fields if name not in _SET_BY_BROKER})
        group = property_text(message.properties, PROPERTY_PRODUCER_GROUP)
        message.properties += _added(message, "" if group else producer_group, unique_key)
        message.unique_key = unique_key
        topic, queue_id = message.topic, message.queue_id
        message.topic, message.queue_id = TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID
        message.sys_flag = MessageSysFlag.with_transaction_type(
            message.sys_flag, MessageSysFlag.TRANSACTION_NOT
        )
        written = self._writer.put(message)
        self._halves.add(
            HalfMessage(
                written.queue_offset,
                written.queue_offset,
                written.physical_offset,
                written.size_bytes,
                self._clocks.now_ms(),
                self._clocks.steady_ms(),
                immune_ms(message.properties),
                0,
                sys.intern(group or producer_group),
                sys.intern(topic),
                queue_id,
                message,
            )
        )
        return written

    def _check_admission(self) -> None:
        settings = self._settings
        if settings.reject_transaction_message:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                "sending messages in transactions to this broker is forbidden (rejectTransactionMessage)",
            )
        limit = settings.transaction_pending_max
        if len(self._halves) >= limit:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"{limit} transactions have not ended yet (transactionPendingMax): end some, or send to "
                "another broker",
            )


def _added(message: InnerMessage, missing_group: str, unique_key: bytes) -> bytes:
    """Return the properties to add to a half message: its transaction's id, its own topic and queue."""
    added = b"__transactionId__\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (
        unique_key,
        message.topic.encode(),
        message.queue_id,
    )
    if missing_group:
        # Without a group no producer could be checked.
        added += b"PGROUP\x01%b\x02" % missing_group.encode()
    if not find_property(message.properties, b"TRAN_MSG"):
        added += b"TRAN_MSG\x01true\x02"
    return added
