"""Sends whose messages do not go where they were sent to.

They are delayed, wait for the end of a transaction, or have come too often.

Source: Apache RocketMQ 5.3.3, HookUtils, SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.message_properties import decode_properties

from ..delivery.retries import Failure, group_of_retry_topic

if TYPE_CHECKING:
    from rmq_remoting.headers.send import SendTarget

    from ..delivery.inner_message import InnerMessage
    from ..delivery.message_writer import MessageWriter, Placed
    from ..delivery.retries import Redelivery, Retries
    from ..transactions.preparing import Preparing


class LaterSends:
    """The part of sending that looks after them."""

    def __init__(self, writer: MessageWriter, retries: Retries, preparing: Preparing) -> None:
        self._writer = writer
        self._retries = retries
        self._preparing = preparing

    def redelivery(self, target: SendTarget, client_version: int) -> Redelivery | None:
        """Where a message goes instead that a consumer sends to its retry topic itself; else None.

        Consumers do that where sending it back has failed, or where they consume in order and give it up.
        Raises CommandError.
        """
        group = group_of_retry_topic(target.topic)
        if group is None or target.batch:
            return None
        return self._retries.of_send(
            Failure(
                group,
                target.reconsume_times,
                max_reconsume_times=target.max_reconsume_times,
                client_version=client_version,
            )
        )

    def put_delayed(self, message: InnerMessage, level: int) -> Placed:
        """Store a message for later; with no level above 0, for the time that its properties say.

        Raises StoreUnavailable, MessageRejected.
        """
        return self._writer.put(message, level)

    def put_half(self, target: SendTarget, message: InnerMessage, unique_key: bytes) -> Placed:
        """Store a message of a transaction. Raises CommandError, StoreUnavailable, MessageRejected."""
        return self._preparing.put(message, target.producer_group, unique_key)

    def put_dead_letter(self, target: SendTarget, message: InnerMessage) -> Placed:
        """Store a dead letter, whatever delay it was sent with. Raises StoreUnavailable, MessageRejected."""
        fields = decode_properties(message.properties)
        message.set_properties({**fields, "DELAY": "-1"})
        placed = self._writer.put(message)
        group = group_of_retry_topic(target.topic)
        if group is not None:
            self._retries.count(group, fields.get("RETRY_TOPIC", ""), is_dead_letter=True)
        return placed
