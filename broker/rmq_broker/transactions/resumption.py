"""Resume the checks of a transaction that was given up (request 323).

Source: Apache RocketMQ 5.3.3, AdminBrokerProcessor.resumeCheckHalfMessage, which accepts any message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_properties import (
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
)

from ..delivery.inner_message import StoredMessage, read_message
from ..topics.names import TRANSACTION_CHECKED_OUT_TOPIC, TRANSACTION_HALF_TOPIC
from .half_messages import HALF_QUEUE_ID, HalfMessage, Outcome

if TYPE_CHECKING:
    from ..access.stored_topics import TopicCheck
    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from .half_messages import HalfMessages


class Resumption:
    """Stores a message that was given up as a half message again; belongs to the loop's thread."""

    def __init__(self, writer: MessageWriter, halves: HalfMessages, now_ms: ClockMs) -> None:
        self._writer = writer
        self._halves = halves
        self._now_ms = now_ms

    def resume(self, record: bytes | None, message_id: str, check_topic: TopicCheck | None = None) -> None:
        """Resume the checks of the transaction in `record`, which is the record that the message id names.

        `check_topic` raises CommandError unless the client may resume transactions of a topic. Raises
        CommandError, StoreUnavailable, MessageRejected.
        """
        stored = None if record is None else read_message(record)
        given_up = None
        if stored is not None and stored.message.topic == TRANSACTION_CHECKED_OUT_TOPIC:
            given_up = HalfMessage.of(stored)
        if stored is None or given_up is None:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"message {message_id} is not of a transaction that was given up: take an id from "
                f"{TRANSACTION_CHECKED_OUT_TOPIC}",
            )
        if check_topic is not None:
            check_topic(given_up.topic)
        # A message moved by Apache's broker does not have the offset of its first record.
        if PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET.encode() in stored.message.properties:
            self._check_state(given_up.first_offset)
        message = stored.message
        fields = decode_properties(message.properties)
        fields[PROPERTY_TRANSACTION_CHECK_TIMES] = "0"
        message.set_properties(fields)
        message.topic, message.queue_id = TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID
        written = self._writer.put(message)
        half = HalfMessage.of(
            StoredMessage(
                message, written.size_bytes, written.physical_offset, written.queue_offset, self._now_ms()
            )
        )
        assert half is not None
        self._halves.add(half)

    def _check_state(self, first_offset: int) -> None:
        """Raises CommandError for a transaction that is in progress again, or that was committed later."""
        if self._halves.get(first_offset) is not None:
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, "the transaction is already in progress again")
        ended = self._halves.outcome_of(first_offset)
        if ended is not None and ended is not Outcome.GIVEN_UP:
            raise CommandError(ResponseCode.ILLEGAL_OPERATION, f"the transaction was {ended.value} already")
